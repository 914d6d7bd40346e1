"""Sinks of the runtime: parquet in epoch folders, and a function of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.writing.epoch_folders import EpochFolders, OutputFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.timelines import Lineage
    from airflow_provider_checkpoint.writing.sinks import EpochRef


class ParquetSink(EpochFolders):
    """A table of parquet files, ``timeline=2/epoch=7/*.parquet``: exactly once, and reads as one Spark table.

    :param uri: the folder of the table.
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
