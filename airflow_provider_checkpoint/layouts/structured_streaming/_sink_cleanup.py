"""What a sink has published after the batch that a query goes back to, and how it goes.

Where it stays, the new run publishes it a second time; where a log of the sink still knows the batches, the new run's
are passed over and lost. So a rollback of the query without its sinks is none.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import CorruptManifestError, NoEvidenceError
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import read_sink_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore

LOG = "_spark_metadata"
_ENTRY = re.compile(rf"{LOG}/(0|[1-9][0-9]{{0,18}})(?:\.compact)?")

ADVICE = {
    "delta": "Delta remembers batches by txnAppId (default: the id of the query) and passes over those it has seen."
    " RESTORE the table to the version of the batch, and start the query with a new id (new_query_id) or another"
    " txnAppId.",
    "iceberg": "Iceberg remembers the last batch by the id of the query in its snapshots' summaries. Roll the table"
    " back to the snapshot of the batch (rollback_to_snapshot), and start the query with a new id (new_query_id).",
    "kafka": "What was sent to Kafka stays there, and is sent again. Readers must drop what they have seen.",
}


class SinkCleanup(BaseModel):
    """The objects of a sink that go, in this order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    kind: Literal["file_sink", "batch_folders"]
    batch: int
    log: tuple[str, ...] = ()
    """Entries of the sink's log, newest first: readers see the older state as soon as they are gone."""
    data: tuple[str, ...] = ()


def plan_file_sink(blobs: BlobStore, batch: int) -> SinkCleanup:
    """Take back what Spark's file sink (parquet, json, ... with ``_spark_metadata``) published after a batch.

    Raises NoEvidenceError if the log no longer tells which files are older: a compaction after the batch has taken the
    place of the entries before it, and says nothing of batches. Also if it cannot be read to its end.
    """
    log = blobs.at(LOG)
    entries = _numbered(blobs)
    later = sorted((key for key, number in entries.items() if number > batch), key=lambda key: -entries[key])
    if not later:
        return SinkCleanup(uri=blobs.uri, kind="file_sink", batch=batch)
    hint = "Go back to a batch whose entries are still there, or write to a new folder."
    with _evidence_of(blobs, f"up to batch {batch}", hint):
        kept = {file.path for file in read_sink_log(log, batch)} if batch >= 0 else set()
    hint = "Run diagnose with --file-sink: it says which entries have to go first."
    with _evidence_of(blobs, f"after batch {batch}", hint):
        data = [inside(blobs, file.path) for file in read_sink_log(log) if file.path not in kept]
    return SinkCleanup(uri=blobs.uri, kind="file_sink", batch=batch, log=tuple(later), data=tuple(data))


@contextmanager
def _evidence_of(blobs: BlobStore, what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except CorruptManifestError as error:
        raise NoEvidenceError(
            f"the log of the sink no longer tells what was published {what} ({error.message})",
            subject=blobs.uri,
            hint=hint,
        ) from error


def sink_entries(blobs: BlobStore) -> dict[int, str]:
    """The entries of a sink's log by number; of two with the same, the compact one, as Spark takes it."""
    return {number: key for key, number in sorted(_numbered(blobs).items())}


def _numbered(blobs: BlobStore) -> dict[str, int]:
    return {info.key: int(match[1]) for info in blobs.list(LOG) if (match := _ENTRY.fullmatch(info.key)) is not None}


def plan_batch_folders(blobs: BlobStore, batch: int, *, pattern: str = "batch_id={batch}") -> SinkCleanup:
    """Take back folders that ``foreachBatch`` has written after a batch, one for each, named by its number.

    :param pattern: how a folder is called, ``{batch}`` for the number.
    """
    before, mark, after = pattern.partition("{batch}")
    if not mark:
        raise NoEvidenceError("the pattern does not say where the number of the batch is", hint="batch_id={batch}")
    name = re.compile(f"{re.escape(before)}([0-9]{{1,19}}){re.escape(after)}")
    later = [
        folder for folder in blobs.folders() if (match := name.fullmatch(folder)) is not None and int(match[1]) > batch
    ]
    data = tuple(info.key for folder in sorted(later) for info in blobs.list(folder, temporary=None))
    return SinkCleanup(uri=blobs.uri, kind="batch_folders", batch=batch, data=data)


def apply_cleanup(blobs: BlobStore, plan: SinkCleanup) -> None:
    """Remove what the plan names. The log first, one entry after the other; whatever died, run it again.

    Safe to remove: the entries come after the batch that the query goes back to, and the files are named by them alone.
    """
    for key in plan.log:
        _delete(blobs, [key, _checksum(key)])
    _delete(blobs, [key for each in plan.data for key in (each, _checksum(each))])


def _delete(blobs: BlobStore, keys: list[str]) -> None:
    for outcome in blobs.delete(keys):
        if outcome.error is not None:
            raise outcome.error


def _checksum(key: str) -> str:
    """Where Hadoop keeps the checksum of a file on a disk."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def inside(blobs: BlobStore, path: str) -> str:
    """A file of the sink by its key; its log has absolute paths, in whichever scheme Spark was given.

    Raises NoEvidenceError if it is not below the sink.
    """
    root = unquote(urlsplit(blobs.uri).path).rstrip("/") + "/"
    found = unquote(urlsplit(path).path)
    if not found.startswith(root):
        raise NoEvidenceError(
            f"the log of the sink names a file that is not below it: {path[:200]}",
            subject=blobs.uri,
            hint="The folder was moved since. Readers that follow the log miss those files, too.",
        )
    return found.removeprefix(root)
