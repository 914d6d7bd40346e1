"""A database as sink of a pipeline: whatever dies wherever, and however far it goes back, the table is exact."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError, FencedWriterError, NoRecoveryPointError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.model import FilePosition
from airflow_provider_checkpoint.spark.operators import output_file, write_part
from airflow_provider_checkpoint.spark.sinks import SqlUpsertSink
from airflow_provider_checkpoint.writing.coordinator import Coordinator, EpochContents
from airflow_provider_checkpoint.writing.sinks import EpochRef
from tests.unit.spark.dying import Death, Dying, Steps

STEPS = ("prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer")
# Sums per letter; every batch is an epoch.
BATCHES = [{"a": 1, "b": 2}, {"b": 5}, {"c": 7, "a": 1}, {"a": 2, "d": 1}]


def truth(epochs: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for batch in BATCHES[:epochs]:
        sums |= {letter: sums.get(letter, 0) + number for letter, number in batch.items()}
    return sums


class Sums:
    """A pipeline without Spark whose output goes to SQLite."""

    def __init__(
        self, folder, *, recover_from="latest", die_at=None, hook=lambda _: None, undo_epochs=None, store="store"
    ) -> None:
        self.folder = folder
        self.steps = Steps(die_at)
        self.sink = SqlUpsertSink(
            "sums",
            str(folder / "staging"),
            connect=lambda: Dying(connect(folder), self.steps),
            table="sums",
            key=["letter"],
            values=["total"],
            undo_epochs=undo_epochs,
        )
        layout = PartitionedLayout(LocalBlobs(str(folder / store)), vnode_count=1)
        self.coordinator = Coordinator.start(layout, {"sums": self.sink}, recover_from=recover_from, hook=hook)
        self.layout = layout

    def run(self, epochs: int = len(BATCHES)) -> None:
        while (done := self._position()) < len(BATCHES) and epochs:
            self.epoch(done)
            epochs -= 1

    def epoch(self, done: int) -> None:
        after = truth(done + 1)
        touched = {letter: after[letter] for letter in BATCHES[done]}
        pending = self.coordinator.begin()
        rows = pa.table({"letter": list(touched), "total": list(touched.values())})
        line = write_part(self.sink.address, self.sink.folder(pending.ref), "sums", "part", rows)
        self.sink.prepare(pending.ref, [output_file(line)])
        position = FilePosition(path="batches", byte_offset=done + 1)
        self.coordinator.commit(pending, EpochContents(sources={"batches": position}, vnode_count=1))

    def _position(self) -> int:
        last = self.coordinator.last
        return 0 if last is None else last.sources["batches"].byte_offset


def connect(folder) -> sqlite3.Connection:
    return sqlite3.connect(folder / "data.db", timeout=5)


def table(folder) -> dict[str, int]:
    with closing(connect(folder)) as connection:
        return dict(connection.execute("SELECT letter, total FROM sums").fetchall())


def make(folder):
    folder.mkdir(exist_ok=True)
    with closing(connect(folder)) as connection:
        connection.execute("CREATE TABLE sums (letter TEXT PRIMARY KEY, total INTEGER)")
    return folder


def assert_exact(folder) -> None:
    Sums(folder).run()
    assert table(folder) == truth(len(BATCHES))
    left = [path.name for path in (folder / "staging").rglob("*") if path.is_file()]
    assert left == ["_owner.json"], "rows were left in staging"


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("step", STEPS)
def test_dying_after_any_step_of_a_commit_loses_and_doubles_nothing(tmp_path, step, epoch):
    make(tmp_path)
    seen = 0

    def die(at: str) -> None:
        nonlocal seen
        seen += at == step
        if at == step and seen == epoch:
            raise Death

    with pytest.raises(Death):
        Sums(tmp_path, hook=die).run()
    assert table(tmp_path) in (truth(epoch - 1), truth(epoch))
    assert_exact(tmp_path)


def test_dying_between_any_two_statements_loses_and_doubles_nothing(tmp_path):
    whole = Sums(make(tmp_path / "whole"))
    whole.run(2)
    assert whole.steps.taken > 40
    for die_at in range(1, whole.steps.taken + 1):
        folder = make(tmp_path / str(die_at))
        with pytest.raises(Death):
            Sums(folder, die_at=die_at).run(2)
        assert table(folder) in [truth(epochs) for epochs in range(3)]
        assert_exact(folder)


def test_going_back_to_each_checkpoint_the_table_is_as_it_was_then(tmp_path):
    make(tmp_path)
    Sums(tmp_path).run()
    for epochs in (3, 2, 1):
        checkpoint = Sums(tmp_path).layout.list_checkpoints()[epochs - 1]
        Sums(tmp_path, recover_from=str(checkpoint))
        assert table(tmp_path) == truth(epochs)
    assert_exact(tmp_path)
    Sums(tmp_path, recover_from="fresh")
    assert table(tmp_path) == {}
    assert_exact(tmp_path)


def test_a_checkpoint_whose_rows_were_taken_out_cannot_be_gone_on_from(tmp_path):
    make(tmp_path)
    first = Sums(tmp_path)
    first.run()
    ids = first.layout.list_checkpoints()
    Sums(tmp_path, recover_from=str(ids[0])).run(1)
    with pytest.raises(NoRecoveryPointError, match="is discarded"):
        Sums(tmp_path, recover_from=str(ids[3]))
    assert_exact(tmp_path)


@pytest.mark.parametrize("wish", ["the first checkpoint", "fresh"])
def test_going_back_further_than_can_be_undone_is_refused_and_the_pipeline_still_starts(tmp_path, wish):
    make(tmp_path)
    first = Sums(tmp_path, undo_epochs=1)
    first.run(3)
    oldest = str(first.layout.list_checkpoints()[0])
    with pytest.raises(NoRecoveryPointError, match="no undo is kept for epoch 2"):
        Sums(tmp_path, recover_from="fresh" if wish == "fresh" else oldest)
    assert table(tmp_path) == truth(3)
    assert_exact(tmp_path)


@pytest.mark.parametrize("recover_from", ["latest", "fresh"])
def test_a_table_whose_checkpoints_were_deleted_is_not_mixed_with_new_rows(tmp_path, recover_from):
    make(tmp_path)
    Sums(tmp_path).run()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="timeline 1, which this pipeline never opened"):
            Sums(tmp_path, store="another", recover_from=recover_from)
    assert table(tmp_path) == truth(len(BATCHES))


def test_a_zombie_that_is_overtaken_after_its_decision_publishes_nothing_and_stops(tmp_path):
    make(tmp_path)

    def take_over(at: str) -> None:
        # After the zombie's decision and before its sinks: the last moment at which it can be overtaken.
        if at == "decided":
            Sums(tmp_path, recover_from=str(first)).run(1)

    zombie = Sums(tmp_path)
    zombie.run(2)
    first, _ = zombie.layout.list_checkpoints()
    zombie.coordinator._hook = take_over
    with pytest.raises(FencedWriterError, match="timeline 1 is over"):
        zombie.run(1)
    assert table(tmp_path) == truth(2)
    assert_exact(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"letter": ["a", "a"], "total": [1, 2]}, "name a key twice"),
        ({"letter": ["a", None], "total": [1, 2]}, "null key"),
        ({"letter": ["a"], "sum": [1]}, "have no column 'total'"),
    ],
)
def test_rows_that_cannot_be_upserted_are_refused_before_the_commit(tmp_path, rows, message):
    sums = Sums(make(tmp_path))
    ref = EpochRef(1, 1)
    line = write_part(sums.sink.address, sums.sink.folder(ref), "sums", "part", pa.table(rows))
    with pytest.raises(ConfigurationError, match=message):
        sums.sink.prepare(ref, [output_file(line)])
    assert_exact(tmp_path)


@pytest.mark.parametrize("total", [pa.array([None], pa.int64()), pa.array([-1]), pa.array([Decimal("1.5")])])
def test_rows_that_the_database_refuses_fail_their_epoch_and_not_every_start_after_it(tmp_path, total):
    with closing(connect(tmp_path)) as connection:
        connection.execute("CREATE TABLE sums (letter TEXT PRIMARY KEY, total INTEGER NOT NULL CHECK (total >= 0))")
    sums = Sums(tmp_path)
    sums.run(1)
    pending = sums.coordinator.begin()
    rows = pa.table({"letter": ["a"], "total": total})
    line = write_part(sums.sink.address, sums.sink.folder(pending.ref), "sums", "part", rows)
    with pytest.raises(sqlite3.Error):
        sums.sink.prepare(pending.ref, [output_file(line)])
    sums.coordinator.abandon(pending)
    assert table(tmp_path) == truth(1)
    assert_exact(tmp_path)


def test_an_epoch_without_rows_is_an_epoch_too(tmp_path):
    sums = Sums(make(tmp_path))
    pending = sums.coordinator.begin()
    sums.sink.prepare(pending.ref, [])
    sums.coordinator.commit(pending, EpochContents(vnode_count=1))
    assert sums.sink.holds(pending.ref)
    assert table(tmp_path) == {}
