"""Sinks of the runtime: parquet in epoch folders, a table in a database, and a function of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.spark.upsert_statements import TableShape
from airflow_provider_checkpoint.spark.upserts import UpsertTable
from airflow_provider_checkpoint.writing.epoch_folders import EpochFolders, OutputFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.timelines import Lineage
    from airflow_provider_checkpoint.spark.upserts import Connection
    from airflow_provider_checkpoint.writing.sinks import EpochRef


class ParquetSink(EpochFolders):
    """A table of parquet files, ``timeline=2/epoch=7/*.parquet``: exactly once, and reads as one Spark table.

    :param uri: the folder of the table; belongs to this sink of one pipeline alone.
    :param options: how to reach it, without secrets.
    """

    def __init__(self, name: str, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self.address = StoreAddress(uri, dict(options or {}))
        super().__init__(name, self.address.open())


class ForeachSink(ParquetSink):
    """Hands the rows of each epoch to a function, after the epoch is committed.

    The rows wait as parquet files in a staging folder. The function must be idempotent by epoch: after a crash it is
    called again for the same one. What it published before a rollback it must undo itself, in ``undo``.

    :param publish: called with the epoch, the staging store and the files to read from it.
    :param undo: called with the history that remains; whatever was published for other epochs must vanish.
    """

    def __init__(
        self,
        name: str,
        staging_uri: str,
        publish: Callable[[EpochRef, BlobStore, Sequence[OutputFile]], None],
        *,
        undo: Callable[[Lineage], None],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, staging_uri, options)
        self._publish = publish
        self._undo = undo

    def commit(self, ref: EpochRef) -> None:
        super().commit(ref)
        self._publish(ref, self.blobs, self.files_of(ref))

    def retain(self, history: Lineage) -> None:
        super().retain(history)
        self._undo(history)


class SqlUpsertSink(ParquetSink):
    """Rows put into a table of a database by key, exactly once: what is there is replaced, what is not is added.

    For small outputs: the driver reads the rows of an epoch, which wait in a staging folder, and writes them in one
    transaction. Going back to an older checkpoint gives every row the value it had then. How, and why that is exact, is
    told in ``spark.upserts``.

    The rows of one epoch must name each key once and no key null, and the database must take them; an epoch for which
    that does not hold is refused before it is committed.

    :param staging_uri: a folder for rows on their way, this sink's alone; without rows whenever no epoch is under way.
    :param connect: makes a DB-API connection to SQLite or PostgreSQL; must not commit by itself.
    :param placeholder: ``?`` for sqlite3, ``%s`` for psycopg.
    :param table: belongs to this sink alone; it must exist, with the key as its primary key or under a unique index.
    :param undo_epochs: how many epochs can be undone; None for all. More than retention keeps is of no use.
    """

    def __init__(
        self,
        name: str,
        staging_uri: str,
        *,
        connect: Callable[[], Connection],
        table: str,
        key: Sequence[str],
        values: Sequence[str],
        placeholder: str = "?",
        undo_epochs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, staging_uri, options)
        self._shape = TableShape(table, tuple(key), tuple(values))
        self._table = UpsertTable(self._shape, connect, placeholder=placeholder, undo_epochs=undo_epochs)

    def prepare(self, ref: EpochRef, files: Iterable[OutputFile]) -> None:
        listed = list(files)
        rows = self._rows(listed)
        self._check(rows)
        # Once the commit is decided it is too late: no later start could get past an epoch that cannot be put in.
        self._table.rehearse(ref, rows.to_pylist())
        super().prepare(ref, listed)

    def commit(self, ref: EpochRef) -> None:
        if not self._table.holds(ref):
            super().commit(ref)
            self._table.put(ref, self._rows(self.files_of(ref)).to_pylist())
        # Safe to remove: the rows are in the table, and a second call does not look for them here.
        self.roll_back(ref)

    def holds(self, ref: EpochRef) -> bool:
        return self._table.holds(ref) or super().holds(ref)

    def require(self, history: Lineage) -> None:
        self._table.require(history)
        super().require(history)

    def retain(self, history: Lineage) -> None:
        self._table.retain(history)
        super().retain(history)

    def _rows(self, files: Sequence[OutputFile]) -> pa.Table:
        tables = [pq.read_table(pa.BufferReader(self.blobs.read(file.path))) for file in files]
        missing = [name for table in tables for name in self._shape.columns if name not in table.column_names]
        if missing:
            raise ConfigurationError(
                f"the rows for sink {self.name!r} have no column {missing[0]!r}",
                hint=f"They have {', '.join(tables[0].column_names)}.",
            )
        return pa.concat_tables([table.select(self._shape.columns) for table in tables]) if tables else pa.table({})

    def _check(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        keys = rows.select(self._shape.key)
        if any(column.null_count for column in keys.columns):
            raise ConfigurationError(f"the rows for sink {self.name!r} hold a null key", hint="Filter or fill them.")
        if keys.group_by(list(self._shape.key)).aggregate([]).num_rows != rows.num_rows:
            raise ConfigurationError(
                f"the rows for sink {self.name!r} name a key twice in one epoch",
                hint="Which one counts cannot be told. Aggregate them by key first.",
            )
