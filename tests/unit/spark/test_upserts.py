"""A table in SQLite follows the history: each epoch is in once or not at all, and going back is exact."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import ConfigurationError, FencedWriterError, NoRecoveryPointError
from airflow_provider_checkpoint.lifecycle.timelines import Lineage
from airflow_provider_checkpoint.spark.upsert_statements import Statements, TableShape
from airflow_provider_checkpoint.spark.upserts import UpsertTable
from airflow_provider_checkpoint.writing.sinks import EpochRef
from tests.unit.spark.dying import Death, Dying, Steps

# Names as nasty as a database allows.
TABLE, KEY, VALUE, NOTE = 'to"tals; DROP TABLE x', "the key", "sel%ct", "note?"
SHAPE = TableShape(TABLE, (KEY,), (VALUE, NOTE))


class Database:
    def __init__(self, path) -> None:
        self._path = path
        with closing(self.connect()) as connection:
            connection.execute(
                f'CREATE TABLE {quoted(TABLE)} ("the key" TEXT PRIMARY KEY, "sel%ct" INTEGER, "note?" BLOB,'
                " untouched TEXT DEFAULT 'mine')"
            )
            connection.commit()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=5)

    def table(self, *, die_at: int | None = None, **more) -> UpsertTable:
        self.steps = Steps(die_at)
        return UpsertTable(SHAPE, lambda: Dying(self.connect(), self.steps), **more)

    def rows(self) -> dict[str, tuple[object, object]]:
        with closing(self.connect()) as connection:
            found = connection.execute(f'SELECT "the key", "sel%ct", "note?" FROM {quoted(TABLE)}').fetchall()
        return {key: (value, note) for key, value, note in found}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def rows(**values: object) -> list[dict[str, object]]:
    return [{KEY: key, VALUE: value, NOTE: f"note {value}"} for key, value in values.items()]


def held(**values: object) -> dict[str, tuple[object, object]]:
    return {key: (value, f"note {value}") for key, value in values.items()}


@pytest.fixture
def database(tmp_path) -> Database:
    return Database(tmp_path / "data.db")


def first_timeline(table: UpsertTable) -> None:
    table.retain(Lineage(1, {1: None}))


def test_rows_are_added_and_replaced_and_a_repeated_epoch_changes_nothing(database):
    table = database.table()
    first_timeline(table)
    assert table.put(EpochRef(1, 1), rows(a=1, b=2))
    assert table.put(EpochRef(1, 2), rows(b=3, c=4))
    assert database.rows() == held(a=1, b=3, c=4)
    # Another process, and other rows: what counts is that the epoch is in.
    assert not database.table().put(EpochRef(1, 1), rows(a=99))
    assert database.rows() == held(a=1, b=3, c=4)
    assert table.holds(EpochRef(1, 2))
    assert not table.holds(EpochRef(1, 3))


def test_going_back_gives_every_row_the_value_it_had_and_removes_what_was_not_there(database):
    table = database.table()
    first_timeline(table)
    table.put(EpochRef(1, 1), rows(a=1, b=2))
    table.put(EpochRef(1, 2), rows(b=3, c=4))
    table.put(EpochRef(1, 3), rows(a=5, b=6, c=7, d=8))
    assert table.retain(Lineage(2, {2: None, 1: 1})) == [EpochRef(1, 3), EpochRef(1, 2)]
    assert database.rows() == held(a=1, b=2)
    table.put(EpochRef(2, 2), rows(b=30))
    assert table.retain(Lineage(3, {3: None})) == [EpochRef(2, 2), EpochRef(1, 1)]
    assert database.rows() == {}


def test_what_a_zombie_publishes_late_for_an_abandoned_timeline_does_not_show(database):
    zombie, table = database.table(), database.table()
    first_timeline(zombie)
    zombie.put(EpochRef(1, 1), rows(a=1))
    zombie.put(EpochRef(1, 2), rows(a=2))
    table.retain(Lineage(2, {2: None, 1: 1}))
    with pytest.raises(FencedWriterError, match="epoch 3 of timeline 1 is no part of the history"):
        zombie.put(EpochRef(1, 3), rows(a=3))
    # Nor for the epoch that was taken out, while one that the new history shares is there already.
    with pytest.raises(FencedWriterError):
        zombie.put(EpochRef(1, 2), rows(a=2))
    assert not zombie.put(EpochRef(1, 1), rows(a=1))
    with pytest.raises(FencedWriterError, match="timeline 2 has taken over"):
        first_timeline(zombie)
    assert database.rows() == held(a=1)


def test_going_back_further_than_undo_is_kept_is_refused_and_changes_nothing(database):
    table = database.table(undo_epochs=2)
    first_timeline(table)
    for epoch in range(1, 6):
        table.put(EpochRef(1, epoch), rows(a=epoch))
    with pytest.raises(NoRecoveryPointError, match="no undo is kept for epoch 3 and before"):
        table.retain(Lineage(2, {2: None, 1: 2}))
    assert database.rows() == held(a=5)
    assert len(table.retain(Lineage(2, {2: None, 1: 3}))) == 2
    assert database.rows() == held(a=3)


def scenario(table: UpsertTable) -> None:
    """What a writer and its successor do; each step may be repeated."""
    first_timeline(table)
    table.put(EpochRef(1, 1), rows(a=1, b=2))
    table.put(EpochRef(1, 2), rows(b=3, c=4))


def successor(table: UpsertTable) -> None:
    table.retain(Lineage(2, {2: None, 1: 1}))
    table.put(EpochRef(2, 2), rows(a=7, d=8))


def test_dying_between_any_two_statements_leaves_whole_epochs_and_a_repeat_finishes(tmp_path):
    whole = [{}, held(a=1, b=2), held(a=1, b=3, c=4), held(a=7, b=2, d=8)]
    database = Database(tmp_path / "count.db")
    scenario(database.table())
    first = database.steps.taken
    successor(database.table())
    for stage, steps in ((scenario, first), (successor, database.steps.taken)):
        assert steps > 20
        for die_at in range(1, steps + 1):
            database = Database(tmp_path / f"{stage.__name__}-{die_at}.db")
            if stage is successor:
                scenario(database.table())
            with pytest.raises(Death):
                stage(database.table(die_at=die_at))
            assert database.rows() in whole
            if stage is scenario:
                scenario(database.table())
                assert database.rows() == held(a=1, b=3, c=4)
            successor(database.table())
            assert database.rows() == held(a=7, b=2, d=8)


values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.binary(max_size=3) | st.floats(-9, 9)
batches = st.dictionaries(st.sampled_from("abcde"), st.tuples(values, values), max_size=4)
moves = st.lists(batches | st.integers(0, 5), max_size=12)


@settings(max_examples=60)
@given(moves)
def test_whatever_is_put_and_however_often_one_goes_back_the_table_is_what_history_says(tmp_path_factory, script):
    """A number goes back to the epoch so many before the last; rows are the next epoch."""
    database = Database(tmp_path_factory.mktemp("upserts") / "data.db")
    table = database.table()
    timeline, line = 1, [(0, 0, {})]
    reach: dict[int, int | None] = {1: None}
    first_timeline(table)
    for move in script:
        if isinstance(move, int):
            line = line[: max(1, len(line) - move)]
            fork_timeline, fork_epoch, _ = line[-1]
            reach = {number: last for number, last in reach.items() if fork_timeline and number <= fork_timeline}
            if fork_timeline:
                reach[fork_timeline] = fork_epoch
            timeline += 1
            reach[timeline] = None
            table.retain(Lineage(timeline, dict(reach)))
        else:
            epoch = line[-1][1] + 1
            put = [{KEY: key, VALUE: value, NOTE: note} for key, (value, note) in move.items()]
            assert table.put(EpochRef(timeline, epoch), put)
            line.append((timeline, epoch, line[-1][2] | _as_stored(move)))
        assert database.rows() == line[-1][2]


def _as_stored(batch):
    """As SQLite gives values back: a column of whole numbers turns a text or a float of one into one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (k TEXT, v INTEGER, n BLOB)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(k, v, n) for k, (v, n) in batch.items()])
        return {k: (v, n) for k, v, n in connection.execute("SELECT * FROM t")}


def test_columns_that_are_not_named_are_left_alone(database):
    table = database.table()
    first_timeline(table)
    table.put(EpochRef(1, 1), rows(a=1))
    with closing(database.connect()) as connection:
        connection.execute(f"UPDATE {quoted(TABLE)} SET untouched = 'theirs'")
        connection.commit()
    table.put(EpochRef(1, 2), rows(a=2))
    table.retain(Lineage(2, {2: None, 1: 1}))
    with closing(database.connect()) as connection:
        assert connection.execute(f"SELECT untouched FROM {quoted(TABLE)}").fetchall() == [("theirs",)]


def test_a_connection_that_commits_by_itself_is_refused_before_anything_is_written(database):
    table = UpsertTable(SHAPE, lambda: sqlite3.connect(database._path, isolation_level=None))
    with pytest.raises(ConfigurationError, match="commits by itself"):
        first_timeline(table)


def test_a_table_that_is_not_there_is_named_with_the_columns_it_needs(database):
    table = UpsertTable(TableShape("missing", ("k",), ("v",)), database.connect)
    with pytest.raises(ConfigurationError, match=r"missing\nHINT: It must exist and have the columns k, v"):
        first_timeline(table)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [("", ("k",), ("v",)), ("t", (), ("v",)), ("t", ("k",), ("k",)), ("t", ("k",), ("",)), ("t\0", ("k",), ("v",))],
)
def test_a_shape_that_makes_no_sense_is_refused(table, key, value):
    with pytest.raises(ConfigurationError, match="needs a name, a key, and columns that differ"):
        TableShape(table, key, value)


def test_a_percent_sign_in_a_name_is_doubled_for_drivers_that_format():
    sql = Statements(SHAPE, "%s")
    assert sql.find == 'SELECT "the key", "sel%%ct", "note?" FROM "to""tals; DROP TABLE x" WHERE "the key" = %s'


def test_a_table_of_keys_alone_keeps_what_is_there(tmp_path):
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "keys.db")

    with closing(connect()) as connection:
        connection.execute("CREATE TABLE seen (a INTEGER, b TEXT, PRIMARY KEY (a, b))")
    table = UpsertTable(TableShape("seen", ("a", "b"), ()), connect)
    first_timeline(table)
    table.put(EpochRef(1, 1), [{"a": 1, "b": "x"}])
    table.put(EpochRef(1, 2), [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}])
    table.retain(Lineage(2, {2: None, 1: 1}))
    with closing(connect()) as connection:
        assert connection.execute("SELECT * FROM seen").fetchall() == [(1, "x")]
