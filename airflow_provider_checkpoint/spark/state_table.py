"""Keyed state as sorted Arrow files: looked up and changed at a cost that follows the keys touched, not the keys held.

A snapshot is one Arrow IPC file, uncompressed, so that it can be mapped into memory; its rows are sorted by a 64-bit
hash of their key. A delta has the same form plus a column that marks removed keys, and holds every key that changed
since the snapshot. A key is found by binary search for its hash, then compared itself, so two keys with one hash do no
harm.

Keys are equal where Spark groups them together: 0.0 and -0.0, and all NaNs. Spark's hash makes no difference between
them either, but Arrow's comparisons go by the bits, and so did the files of earlier versions, where each was a key of
its own. Inside the files bits still count: a row from then is removed, in its own spelling, by what takes its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_checkpoint.exceptions import CorruptArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HASH = "__hash"
REMOVED = "__removed"
_KEY = "checkpoint.key"


@dataclass(frozen=True, slots=True)
class StateSchema:
    """What the state of an operator looks like: the columns of its key, then those of its value."""

    key: tuple[str, ...]
    columns: pa.Schema
    """Key and value columns."""

    @property
    def has_floats(self) -> bool:
        """Whether keys that Spark takes for the same may have different bits."""
        return any(_is_float(self.columns.field(name).type) for name in self.key)

    @property
    def snapshot(self) -> pa.Schema:
        return pa.schema([pa.field(HASH, pa.int64(), nullable=False), *self.columns])

    @property
    def delta(self) -> pa.Schema:
        return self.snapshot.append(pa.field(REMOVED, pa.bool_(), nullable=False))


class VnodeState:
    """The state of one vnode: a snapshot and the changes since."""

    def __init__(self, schema: StateSchema, snapshot: pa.Table, delta: pa.Table) -> None:
        self._schema = schema
        self._snapshot = snapshot
        self._delta = delta

    @classmethod
    def empty(cls, schema: StateSchema) -> VnodeState:
        return cls(schema, schema.snapshot.empty_table(), schema.delta.empty_table())

    @classmethod
    def of(cls, schema: StateSchema, snapshot: pa.Buffer | None, delta: pa.Buffer | None) -> VnodeState:
        """State from the bytes of its artifacts; raises CorruptArtifactError if they are not such state."""
        return cls(schema, _decode(snapshot, schema.snapshot, schema.key), _decode(delta, schema.delta, schema.key))

    def find(self, keys: pa.Table) -> pa.Table:
        """The rows of some keys, without hash. Keys that are not there have no row.

        :param keys: the key columns and their hash, each key once.
        """
        wanted = np.unique(_hashes(keys))
        changed = _rows_with(self._delta, wanted)
        old = self._without(_rows_with(self._snapshot, wanted), changed)
        current = pa.concat_tables([old, _present(changed)])
        found = self._matching(current, keys).drop_columns([HASH])
        grouped = as_grouped(found, self._schema.key)
        if self._schema.has_floats and _count_keys(grouped, self._schema.key) != grouped.num_rows:
            raise CorruptArtifactError(
                "state holds more than one row for a key",
                hint="It is from when 0.0 and -0.0, or different NaNs, were different keys. Start from a checkpoint"
                " before the second came, or fresh.",
            )
        return grouped

    def change(self, upserts: pa.Table, removals: pa.Table | None = None) -> VnodeState:
        """The state after some keys got new rows and others were removed. The old one stays as it is.

        :param upserts: hash, key and value columns, each key once.
        :param removals: hash and key columns.
        """
        changes = [_with_mark(_conform(upserts, self._schema.snapshot), removed=False)]
        if removals is not None and removals.num_rows:
            changes.append(_with_mark(_padded(removals, self._schema.snapshot), removed=True))
        other = self._spelt_otherwise(pa.concat_tables(changes))
        if other.num_rows:
            changes.append(_with_mark(_padded(other, self._schema.snapshot), removed=True))
        new = pa.concat_tables(changes)
        kept = self._without(self._delta, new)
        return VnodeState(self._schema, self._snapshot, _sorted(pa.concat_tables([kept, new])))

    def merged(self) -> VnodeState:
        """The same state as one snapshot without changes."""
        return VnodeState(self._schema, _sorted(self._current()), self._schema.delta.empty_table())

    def rows(self) -> pa.Table:
        """All of it, without hash: for tests, drills and reports."""
        return self._current().drop_columns([HASH])

    def _current(self) -> pa.Table:
        kept = self._without(self._snapshot, self._delta)
        return pa.concat_tables([kept, _present(self._delta)])

    @property
    def snapshot_bytes(self) -> pa.Buffer:
        return _encode(self._snapshot, self._schema.key)

    @property
    def delta_bytes(self) -> pa.Buffer:
        return _encode(self._delta, self._schema.key)

    def _without(self, table: pa.Table, others: pa.Table) -> pa.Table:
        """The rows of a table whose keys are not among others'. Order is kept."""
        if not others.num_rows or not table.num_rows:
            return table
        suspects = _isin(_hashes(table), np.unique(_hashes(others)))
        if not suspects.any():
            return table
        positions = np.flatnonzero(suspects)
        doubtful = table.take(pa.array(positions))
        same = self._are_in(doubtful, others)
        gone = np.zeros(table.num_rows, dtype=bool)
        gone[positions[same]] = True
        return table.filter(pa.array(~gone))

    def _matching(self, table: pa.Table, keys: pa.Table) -> pa.Table:
        return table.filter(pa.array(self._are_in(table, keys, grouped=True))) if table.num_rows else table

    def _spelt_otherwise(self, new: pa.Table) -> pa.Table:
        """Hash and key of rows held whose keys are among new ones by Spark's grouping, and not by their bits."""
        names = [HASH, *self._schema.key]
        if not self._schema.has_floats:
            return new.select(names).slice(0, 0)
        wanted = np.unique(_hashes(new))
        held = pa.concat_tables([_rows_with(table, wanted).select(names) for table in (self._snapshot, self._delta)])
        other = self._are_in(held, new, grouped=True) & ~self._are_in(held, new)
        return held.filter(pa.array(other)).group_by(names).aggregate([])

    def _are_in(self, table: pa.Table, others: pa.Table, *, grouped: bool = False) -> NDArray[np.bool_]:
        """For each row of a small table, whether its key is among others': by its bits, or as Spark groups."""
        names = list(self._schema.key)
        mine, theirs = table.select(names), others.select(names)
        if grouped:
            mine, theirs = as_grouped(mine, names), as_grouped(theirs, names)
        marked = mine.append_column("__row", pa.array(np.arange(table.num_rows)))
        met = marked.join(theirs.group_by(names).aggregate([]), keys=names, join_type="left semi")
        found = np.zeros(table.num_rows, dtype=bool)
        found[met.column("__row").to_numpy()] = True
        return found


def check_keys(rows: pa.Table, key: Sequence[str]) -> None:
    """Keys must not be null: a null is equal to nothing, not even to itself."""
    for name in key:
        if rows.column(name).null_count:
            raise ValueError(f"key column {name!r} holds nulls; filter or fill them first")


def as_grouped(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows whose keys have the same bits if Spark's grouping takes them for the same: one zero, one NaN."""
    for name in key:
        place = rows.column_names.index(name)
        column, kind = rows.column(place), rows.field(place).type
        if _is_float(kind):
            column = pc.if_else(pc.equal(column, pa.scalar(0.0, kind)), pa.scalar(0.0, kind), column)
            column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
            rows = rows.set_column(place, rows.field(place), column)
    return rows


def _is_float(kind: pa.DataType) -> bool:
    return kind in (pa.float32(), pa.float64())


def _count_keys(rows: pa.Table, key: Sequence[str]) -> int:
    count: int = rows.select(list(key)).group_by(list(key)).aggregate([]).num_rows
    return count


def _encode(table: pa.Table, key: Sequence[str]) -> pa.Buffer:
    table = table.replace_schema_metadata({_KEY: json.dumps(key)})
    sink = pa.BufferOutputStream()
    # One batch, so that a column of the mapped file is one array and needs no copy to be searched.
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue()


def _decode(data: pa.Buffer | None, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
    if data is None:
        return schema.empty_table()
    try:
        table = pa.ipc.open_file(data).read_all()
    except (pa.ArrowInvalid, pa.ArrowIOError, OSError, ValueError) as error:
        raise CorruptArtifactError(f"not an Arrow file: {error}") from None
    if table.schema.remove_metadata() != schema.remove_metadata():
        raise CorruptArtifactError(
            f"state has the columns {', '.join(map(str, table.schema))}",
            hint=f"The job expects {', '.join(map(str, schema))}. Its state schema has changed since.",
        )
    # The same columns under another key have other hashes: no row would be found.
    known = (table.schema.metadata or {}).get(_KEY.encode())
    if known is not None and known.decode() != json.dumps(key):
        raise CorruptArtifactError(
            f"state is kept by the key {known.decode()}",
            hint=f"The job expects {json.dumps(key)}. The key of its operator has changed since.",
        )
    return table


def _hashes(table: pa.Table) -> NDArray[np.int64]:
    column = table.column(HASH)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    hashes: NDArray[np.int64] = array.to_numpy(zero_copy_only=False)
    return hashes


def _rows_with(table: pa.Table, wanted: NDArray[np.int64]) -> pa.Table:
    """The rows whose hash is among the wanted ones: two binary searches per hash, the rest is not touched."""
    hashes = _hashes(table)
    left = np.searchsorted(hashes, wanted, side="left")
    right = np.searchsorted(hashes, wanted, side="right")
    counts = right - left
    total = int(counts.sum())
    if not total:
        return table.slice(0, 0)
    starts = np.repeat(left - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return table.take(pa.array(np.arange(total) + starts))


def _isin(values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Membership in a sorted array."""
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: NDArray[np.bool_] = wanted[places] == values
    return found


def _sorted(table: pa.Table) -> pa.Table:
    hashes = _hashes(table)
    if len(hashes) > 1 and not (hashes[:-1] <= hashes[1:]).all():
        table = table.take(pa.array(np.argsort(hashes, kind="stable")))
    return table.combine_chunks()


def _present(delta: pa.Table) -> pa.Table:
    return delta.filter(pc.invert(delta.column(REMOVED))).drop_columns([REMOVED])


def _with_mark(table: pa.Table, *, removed: bool) -> pa.Table:
    mark = pa.field(REMOVED, pa.bool_(), nullable=False)
    return table.append_column(mark, pa.array(np.full(table.num_rows, removed)))


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def _padded(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of removed keys: nulls, which nobody reads, in every other column."""
    columns = [
        keys.column(field.name).cast(field.type)
        if field.name in keys.column_names
        else pa.nulls(keys.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
