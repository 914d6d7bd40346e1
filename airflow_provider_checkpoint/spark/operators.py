"""Operators with keyed state: what the user writes, and the task that runs it for one vnode on an executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout, PartitionEntry
from airflow_provider_checkpoint.spark.cache import ArtifactCache
from airflow_provider_checkpoint.spark.state_table import HASH, REMOVED, StateSchema, VnodeState, as_grouped, check_keys
from airflow_provider_checkpoint.writing.bases import Write
from airflow_provider_checkpoint.writing.epoch_folders import OutputFile

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import CheckpointId

#: Columns the runtime adds to the rows of an operator.
VNODE = "__vnode"


@dataclass(frozen=True, slots=True)
class Update:
    """What the rows of an epoch do to the keys they touch."""

    state: pa.Table
    """New rows for keys: key and value columns, each key once."""
    removed: pa.Table | None = None
    """Keys to forget: key columns."""
    outputs: Mapping[str, pa.Table] = field(default_factory=dict)
    """Rows for sinks, by sink."""


#: From the rows of an epoch and the present state of their keys to new state and output. Must be deterministic: a task
#: that Spark runs twice must come to the same bytes.
UpdateFunction = Callable[[pa.Table, pa.Table], Update]


@dataclass(frozen=True, slots=True)
class KeyedOperator:
    """State per key, spread over vnodes.

    :param name: names its state in every checkpoint; keep it when the code changes.
    :param key: the columns that make up the key: plain values, never null, of the same types in rows and state.
    :param state: the columns of the state, those of the key included. Values may be of any Arrow type.
    :param update: called on executors, once per vnode and epoch, with the rows of that vnode and the state of exactly
        the keys in them.
    """

    name: str
    key: tuple[str, ...]
    state: pa.Schema
    update: UpdateFunction

    def __post_init__(self) -> None:
        names = self.state.names
        if len({*names, VNODE, HASH, REMOVED}) != len(names) + 3:
            raise ConfigurationError(
                "the columns of a state must differ, also from those the runtime adds",
                subject=f"operator {self.name!r}",
                hint=f"It has {', '.join(names)}; taken are {VNODE}, {HASH} and {REMOVED}.",
            )
        if not self.key or len(set(self.key)) != len(self.key) or not set(self.key) <= set(names):
            raise ConfigurationError(
                "a key is made of different columns of the state",
                subject=f"operator {self.name!r}",
                hint=f"The key is {', '.join(self.key) or 'empty'}; the state has {', '.join(names)}.",
            )
        nested = [name for name in self.key if pa.types.is_nested(self.state.field(name).type)]
        if nested:
            raise ConfigurationError(
                f"key column {nested[0]!r} holds more than one value: {self.state.field(nested[0]).type}",
                subject=f"operator {self.name!r}",
                hint="Make a column of each part.",
            )

    @property
    def schema(self) -> StateSchema:
        return StateSchema(self.key, self.state)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How an executor reaches a store. No secrets: credentials come from the executor's environment."""

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> BlobStore:
        return open_blobs(self.uri, dict(self.options))


@dataclass(frozen=True, slots=True)
class VnodePlan:
    """What one vnode starts from, and how its new state is written."""

    snapshot: PartitionEntry | None
    delta: PartitionEntry | None
    write: Write


@dataclass(frozen=True, slots=True)
class VnodeTask:
    """The work of one operator in one epoch, shipped to executors."""

    operator: KeyedOperator
    store: StoreAddress
    checkpoint_id: CheckpointId
    plans: Mapping[int, VnodePlan]
    sinks: Mapping[str, tuple[StoreAddress, str]]
    """Per sink: where it is, and the folder of this epoch in it."""
    cache_folder: str | None = None

    def update(self, rows: pa.Table) -> pa.Table:
        """Update one vnode: its rows, all at once. Answers with what was written, one line each."""
        vnode = rows.column(VNODE)[0].as_py()
        plan = self.plans.get(vnode, VnodePlan(None, None, Write.FULL))
        check_keys(rows, self.operator.key)
        layout = PartitionedLayout(self.store.open())
        cache = ArtifactCache(self.cache_folder)
        state = self._load(layout, cache, plan)

        rows = _as_in_state(rows, self.operator)
        keys = _distinct_keys(rows, self.operator.key)
        update = self.operator.update(rows.drop_columns([VNODE, HASH]), state.find(keys))
        new = state.change(*_changes(update, keys, self.operator.key))

        written = [self._save(layout, cache, vnode, new, plan)]
        for sink, table in sorted(update.outputs.items()):
            if sink not in self.sinks:
                raise ValueError(f"operator {self.operator.name!r} puts rows out to {sink!r}, which is no sink")
            if table.num_rows:
                address, folder = self.sinks[sink]
                written.append(write_part(address, folder, sink, f"{self.operator.name}-{vnode:05d}", table))
        return pa.Table.from_pylist(written, schema=WRITTEN)

    def rewrite(self, rows: pa.Table) -> pa.Table:
        """Write the state of one vnode whole although nothing changed in it: its base is getting old."""
        vnode = rows.column(VNODE)[0].as_py()
        layout = PartitionedLayout(self.store.open())
        cache = ArtifactCache(self.cache_folder)
        state = self._load(layout, cache, self.plans[vnode])
        written = self._save(layout, cache, vnode, state, replace(self.plans[vnode], write=Write.FULL))
        return pa.Table.from_pylist([written], schema=WRITTEN)

    def _load(self, layout: PartitionedLayout, cache: ArtifactCache, plan: VnodePlan) -> VnodeState:
        buffers = [
            None if entry is None else cache.load(layout.blobs, entry.path, entry.sha256 or "", entry.size_bytes)
            for entry in (plan.snapshot, plan.delta)
        ]
        return VnodeState.of(self.operator.schema, *buffers)

    def _save(
        self, layout: PartitionedLayout, cache: ArtifactCache, vnode: int, state: VnodeState, plan: VnodePlan
    ) -> dict[str, Any]:
        is_delta = plan.write is Write.DELTA
        data = state.delta_bytes if is_delta else state.merged().snapshot_bytes
        item = PartitionData(self.operator.name, vnode, [memoryview(data)], is_delta=is_delta)
        entry = layout.save_artifact(self.checkpoint_id, item)
        cache.keep(entry.sha256 or "", data)
        return _line(
            "artifact", self.operator.name, vnode, entry.path, entry.size_bytes, entry.sha256, is_delta=is_delta
        )


#: What tasks answer with.
WRITTEN = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("vnode", pa.int32()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("is_delta", pa.bool_()),
        ("rows", pa.int64()),
    ]
)
WRITTEN_DDL = "kind string, name string, vnode int, path string, size long, sha256 string, is_delta boolean, rows long"


def write_part(address: StoreAddress, folder: str, sink: str, part: str, table: pa.Table) -> dict[str, Any]:
    """Write one parquet file of an epoch's output. A second attempt gets a name of its own; only one will be listed."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    data = buffer.getvalue()
    path = f"{folder}/{part}-{uuid4().hex[:12]}.parquet"
    address.open().create(path, [memoryview(data)])
    return _line("output", sink, None, path, data.size, None, rows=table.num_rows)


def output_file(line: Mapping[str, Any]) -> OutputFile:
    return OutputFile(path=line["path"], size=line["size"], rows=line["rows"])


def _line(
    kind: str,
    name: str,
    vnode: int | None,
    path: str,
    size: int,
    sha256: str | None,
    *,
    is_delta: bool = False,
    rows: int = 0,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "vnode": vnode,
        "path": path,
        "size": size,
        "sha256": sha256,
        "is_delta": is_delta,
        "rows": rows,
    }


def _distinct_keys(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    return rows.select([*key, HASH]).group_by([*key, HASH]).aggregate([])


def _as_in_state(rows: pa.Table, operator: KeyedOperator) -> pa.Table:
    """Rows whose key columns are exactly as in the state: Spark puts its session's time zone into times."""
    for name in operator.key:
        place = rows.column_names.index(name)
        field = operator.state.field(name)
        rows = rows.set_column(place, field, rows.column(name).cast(field.type))
    return as_grouped(rows, operator.key)


def _changes(update: Update, keys: pa.Table, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table | None]:
    """What an update puts and what it removes, with the hashes of their keys, which the rows brought along."""
    state = as_grouped(update.state, key)
    removed = None if update.removed is None else as_grouped(update.removed.select(key), key)
    named = state.select(key)
    if removed is not None:
        named = pa.concat_tables([named, removed.cast(named.schema)])
    if named.group_by(list(key)).aggregate([]).num_rows != named.num_rows:
        raise ValueError("an update must name each key once, to be put or to be removed")
    return _with_hash(state, keys, key), None if removed is None else _with_hash(removed, keys, key)


def _with_hash(table: pa.Table, keys: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Give rows, each key once, the hash of their key."""
    # Only the key is joined: a join takes no lists or structs along.
    wanted = table.select(key).cast(keys.select(key).schema)
    wanted = wanted.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
    met = wanted.join(keys, keys=list(key), join_type="inner").sort_by("__row")
    if met.num_rows != table.num_rows:
        raise ValueError("an update may only change keys that are among its rows")
    return table.append_column(HASH, met.column(HASH))
