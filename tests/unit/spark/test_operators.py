"""The task of one vnode: whatever an operator keeps, it finds again; an update that makes no sense is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.partitioned import PartitionEntry
from airflow_provider_checkpoint.model import CheckpointId
from airflow_provider_checkpoint.spark.operators import VNODE, KeyedOperator, StoreAddress, Update, VnodePlan, VnodeTask
from airflow_provider_checkpoint.spark.state_table import HASH, VnodeState
from airflow_provider_checkpoint.writing.bases import Write

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ids():
    number = 0
    while True:
        number += 1
        yield CheckpointId(f"01900000-0000-7000-8000-{number:012d}")


class Worker:
    """Runs an operator epoch after epoch, and remembers what each wrote, as a driver does."""

    def __init__(self, folder, operator: KeyedOperator) -> None:
        self.operator = operator
        self._folder = folder
        self._ids = ids()
        self._snapshot: PartitionEntry | None = None
        self._delta: PartitionEntry | None = None

    def epoch(self, rows: pa.Table) -> None:
        size = rows.num_rows
        rows = rows.append_column(VNODE, pa.array([0] * size, pa.int32()))
        rows = rows.append_column(HASH, pa.array([5] * size, pa.int64()))
        write = Write.FULL if self._snapshot is None else Write.DELTA
        task = VnodeTask(
            operator=self.operator,
            store=StoreAddress(str(self._folder / "store")),
            checkpoint_id=next(self._ids),
            plans={0: VnodePlan(self._snapshot, self._delta, write)},
            sinks={},
            cache_folder=str(self._folder / "cache"),
        )
        (line,) = task.update(rows).to_pylist()
        entry = PartitionEntry(
            partition_id=0,
            is_delta=line["is_delta"],
            path=line["path"],
            size_bytes=line["size"],
            sha256=line["sha256"],
        )
        if entry.is_delta:
            self._delta = entry
        else:
            self._snapshot = entry

    def rows(self) -> list[dict[str, object]]:
        """All of the state."""
        paths = [None if each is None else self._folder / "store" / each.path for each in (self._snapshot, self._delta)]
        buffers = [None if path is None else pa.py_buffer(path.read_bytes()) for path in paths]
        return VnodeState.of(self.operator.schema, *buffers).rows().to_pylist()


KINDS = [
    ("string", pa.string(), ["a", ""]),
    ("binary", pa.binary(), [b"a", b""]),
    ("bool", pa.bool_(), [True, False]),
    ("int", pa.int32(), [1, -1]),
    ("float", pa.float64(), [0.0, float("nan")]),
    ("decimal", pa.decimal128(10, 2), [Decimal("1.20"), Decimal("-1.20")]),
    ("date", pa.date32(), [date(2026, 3, 1), date(1900, 1, 1)]),
    ("time", pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(year=1900)]),
]


@pytest.mark.parametrize(("kind", "values"), [pytest.param(k, v, id=name) for name, k, v in KINDS])
def test_a_key_of_any_plain_type_is_found_again(tmp_path, kind, values):
    seen = []

    def note(rows: pa.Table, state: pa.Table) -> Update:
        seen.append(state.num_rows)
        return Update(rows.select(["k", "n"]))

    worker = Worker(tmp_path, KeyedOperator("op", ("k",), pa.schema([("k", kind), ("n", pa.int64())]), note))
    for number in range(3):
        worker.epoch(pa.table({"k": pa.array(values, kind), "n": [number] * len(values)}))
    assert seen == [0, 2, 2]


def floats(kind: pa.DataType, *texts: str) -> pa.Array:
    """Numbers by what they are called; ``odd`` is a NaN of other bits than the usual one."""
    width = {pa.float32(): ("<u4", "<f4", 0xFFC00001), pa.float64(): ("<u8", "<f8", 0xFFF8000000000001)}[kind]
    odd = np.array([width[2]], width[0]).view(width[1])
    return pa.array(np.concatenate([odd if text == "odd" else np.array([text], width[1]) for text in texts]))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_both_zeros_are_one_key_and_all_nans_are_one_as_spark_groups_them(tmp_path, kind):
    seen = []

    def count(rows: pa.Table, state: pa.Table) -> Update:
        seen.append(sorted(map(str, state.column("k").to_pylist())))
        both = pa.concat_tables([rows.select(["k", "n"]), state])
        return Update(both.group_by("k").aggregate([("n", "sum")]).rename_columns({"n_sum": "n"}))

    worker = Worker(tmp_path, KeyedOperator("op", ("k",), pa.schema([("k", kind), ("n", pa.int64())]), count))
    for texts in (["-0.0", "odd"], ["0.0", "nan", "1.5"], ["-0.0", "0.0", "nan", "odd", "1.5", "-1.5"]):
        worker.epoch(pa.table({"k": floats(kind, *texts), "n": [1] * len(texts)}))
    assert seen == [[], ["0.0", "nan"], ["0.0", "1.5", "nan"]]
    assert {str(row["k"]): row["n"] for row in worker.rows()} == {"0.0": 4, "nan": 4, "1.5": 2, "-1.5": 1}


def test_an_update_may_name_a_zero_or_a_nan_in_whichever_way(tmp_path):
    names = iter([["0.0", "nan"], ["-0.0", "odd"]])

    def toggle(rows: pa.Table, state: pa.Table) -> Update:
        named = pa.table({"k": floats(pa.float64(), *next(names))})
        return Update(named.slice(0, 0), removed=named) if state.num_rows else Update(named)

    worker = Worker(tmp_path, KeyedOperator("op", ("k",), pa.schema([("k", pa.float64())]), toggle))
    for left in (2, 0):
        worker.epoch(pa.table({"k": floats(pa.float64(), "-0.0", "nan")}))
        assert len(worker.rows()) == left


def test_the_time_zone_of_the_session_makes_no_other_key(tmp_path):
    seen = []

    def note(rows: pa.Table, state: pa.Table) -> Update:
        seen.append((rows.schema.field("at").type, state.num_rows))
        return Update(rows)

    utc = pa.timestamp("us", "UTC")
    worker = Worker(tmp_path, KeyedOperator("op", ("at",), pa.schema([("at", utc)]), note))
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        worker.epoch(pa.table({"at": pa.array([MOMENT], pa.timestamp("us", zone))}))
    assert seen == [(utc, 0), (utc, 1), (utc, 1)]


VALUES = [
    (pa.list_(pa.int64()), [1, 2]),
    (pa.struct([("x", pa.int64())]), {"x": 1}),
    (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda each: str(each)[:6])
def test_state_may_hold_lists_structs_and_maps(tmp_path, kind, value):
    seen = []

    def put(rows: pa.Table, state: pa.Table) -> Update:
        seen.append(state.column("v").to_pylist())
        return Update(rows.select(["k"]).append_column("v", pa.array([value] * rows.num_rows, kind)))

    worker = Worker(tmp_path, KeyedOperator("op", ("k",), pa.schema([("k", pa.string()), ("v", kind)]), put))
    for _ in range(3):
        worker.epoch(pa.table({"k": ["a"]}))
    assert seen == [[], [value], [value]]


def test_a_key_can_be_forgotten_also_if_its_value_is_never_null(tmp_path):
    seen = []

    def toggle(rows: pa.Table, state: pa.Table) -> Update:
        seen.append(state.num_rows)
        return Update(rows.slice(0, 0), removed=rows.select(["k"])) if state.num_rows else Update(rows)

    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    worker = Worker(tmp_path, KeyedOperator("op", ("k",), schema, toggle))
    for _ in range(4):
        worker.epoch(pa.table({"k": ["a"], "n": [1]}))
    assert seen == [0, 1, 0, 1]


ROWS = pa.table({"k": ["a", "b"], "n": [1, 2]})
NONSENSE = [
    (Update(pa.concat_tables([ROWS, ROWS])), "name each key once"),
    (Update(ROWS, removed=ROWS.select(["k"]).slice(0, 1)), "name each key once"),
    (Update(pa.table({"k": ["z"], "n": [1]})), "among its rows"),
    (Update(ROWS.slice(0, 0), removed=pa.table({"k": ["z"]})), "among its rows"),
]


@pytest.mark.parametrize(("update", "words"), NONSENSE)
def test_an_update_that_makes_no_sense_is_refused(tmp_path, update, words):
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    worker = Worker(tmp_path, KeyedOperator("op", ("k",), schema, lambda *_: update))
    with pytest.raises(ValueError, match=words):
        worker.epoch(ROWS)


@pytest.mark.parametrize(
    ("key", "columns", "words"),
    [
        ((), ["k"], "the key is empty"),
        (("k", "k"), ["k"], "different columns"),
        (("x",), ["k"], "different columns"),
        (("k",), ["k", "n", "n"], "must differ"),
        (("k",), ["k", HASH], "must differ"),
    ],
)
def test_an_operator_whose_key_or_columns_make_no_sense_is_refused(key, columns, words):
    schema = pa.schema([(name, pa.string()) for name in columns])
    with pytest.raises(ConfigurationError) as caught:
        KeyedOperator("op", key, schema, lambda *_: Update(ROWS))
    assert words in str(caught.value).lower()


def test_a_key_is_a_plain_value():
    schema = pa.schema([("k", pa.struct([("x", pa.int64())]))])
    with pytest.raises(ConfigurationError, match="more than one value"):
        KeyedOperator("op", ("k",), schema, lambda *_: Update(ROWS))
