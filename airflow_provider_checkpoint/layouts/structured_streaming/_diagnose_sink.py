"""What is wrong with the output of a query's file sink, going by its log and by the checkpoint of the query.

When a query starts, Spark asks this log only for its last number, and passes over batches up to it. Damage shows to
whoever reads the output, and to the query when it next compacts the log: every tenth batch, unless set otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError, NoEvidenceError
from airflow_provider_checkpoint.layouts.structured_streaming._diagnosis import Finding
from airflow_provider_checkpoint.layouts.structured_streaming._sink_cleanup import LOG, inside, sink_entries
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import read_set, sink_files
from airflow_provider_checkpoint.layouts.structured_streaming._spark_says import INCOMPLETE, TOO_NEW
from airflow_provider_checkpoint.layouts.structured_streaming._text import is_too_new
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore

#: So many files of an entry are named.
_NAMED = 3
_LATER = "at the next compaction of the log the query ends with the same"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a query has come, by its checkpoint; -1 before its first batch."""

    planned: int
    committed: int


@dataclass(slots=True)
class _Entry:
    """What was found of one entry of the log and of the files that it names."""

    error: CorruptError | None = None
    gone: bool = False
    """Removed since it was listed."""
    missing: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.error is None and not (self.gone or self.missing or self.changed or self.elsewhere)


def last_published(blobs: BlobStore) -> int:
    """The last batch of which a sink's log has an entry; -1 if there is none."""
    return max(sink_entries(blobs), default=-1)


class Sink:
    """The output of a file sink. The log is listed before the files: whatever an entry names was there before it.

    :param blobs: the folder that Spark was given as ``path``.
    """

    def __init__(self, blobs: BlobStore, depth: Depth) -> None:
        self._blobs = blobs
        self._entries = sink_entries(blobs)
        looked_for = depth.includes(Depth.PRESENCE)
        self._sizes = {info.key: info.size for info in blobs.list()} if looked_for else None
        self._looked: dict[str, _Entry] = {}
        self._taken_back: set[str] = set()

    @property
    def last(self) -> int:
        """The last batch that it has; -1 if it has none."""
        return max(self._entries, default=-1)

    def reaches(self, batch: int) -> bool:
        """Whether the log still tells what was published up to a batch, and all of it is there."""
        found = read_set(self._entries, batch)
        return not found.missing and all(self._look(key).whole for key in found.keys)

    def findings(self, progress: Progress, recoverable: Sequence[int]) -> Iterator[Finding]:
        """What is wrong with the log and its files, and that it ends too early.

        :param recoverable: the batches from which the query itself can go on.
        """
        found = read_set(self._entries, self.last)
        for key in found.keys:
            self._look(key)
        if self.last < progress.committed:
            yield self._behind(progress, recoverable)
        if found.missing:
            yield _log_missing(self._entries, found.missing)
        for key in found.keys:
            entry = self._look(key)
            if entry.error is not None:
                yield self._corrupt(key, entry.error, progress, recoverable)
            yield from _file_findings(key, entry)

    def ahead(self, last: int, progress: Progress) -> Iterator[Finding]:
        """That the sink has batches which the query still has to run.

        :param last: the last batch that the sink had before the checkpoint was looked at.
        """
        if last <= progress.planned:
            return
        fix = ""
        if progress.committed < 0:
            fix = "Give the query a new folder for its output, or empty this one."
        elif self.reaches(progress.committed):
            fix = (
                f"Remove the entries of {LOG} above {progress.committed}, newest first, and the files that only they"
                " name."
            )
        yield Finding(
            code="sink_ahead",
            blocking=True,
            subject=self._entries.get(last, LOG),
            spark_says=f"nothing: batches up to {last} are run, and the sink passes over them; what is in them is lost,"
            " unless they are planned exactly as they were",
            wrong=f"the sink has batches up to {last}, the query has planned {_batches(progress.planned)}: it went back"
            " without its sink, or this is not its output",
            fix=fix,
        )

    def _behind(self, progress: Progress, recoverable: Sequence[int]) -> Finding:
        batch = progress.committed
        again = self._runs_again(batch, progress, recoverable)
        return Finding(
            code="sink_behind",
            blocking=True,
            subject=LOG,
            spark_says=f"nothing at first: the log goes on behind a gap. Then readers fail: FileNotFoundException:"
            f" .../{LOG}/... doesn't exist; and so does the query when it next compacts the log:"
            " [BATCH_METADATA_NOT_FOUND] Unable to find batch",
            wrong=f"the log of the sink has {_batches(self.last)}, the query has committed {_batches(batch)}: entries"
            " were removed, or this is not its output",
            fix=f"Remove commits/{batch}: {_RUN_AGAIN}" if again else "",
        )

    def _corrupt(self, key: str, error: CorruptError, progress: Progress, recoverable: Sequence[int]) -> Finding:
        too_new = is_too_new(error)
        fix = ""
        number = self.last
        if not too_new and key == self._entries[number]:
            if number == progress.planned == progress.committed + 1 and (number == 0 or self.reaches(number - 1)):
                fix = f"Remove {key}: {_RUN_AGAIN}"
            elif number == progress.committed and self._runs_again(number, progress, recoverable):
                fix = f"Remove {key} and commits/{number}: {_RUN_AGAIN}"
        return Finding(
            code="sink_log_corrupt",
            blocking=True,
            subject=key,
            spark_says=f"to readers {TOO_NEW if too_new else INCOMPLETE}; {_LATER}",
            wrong=error.message,
            fix=fix,
        )

    def _runs_again(self, batch: int, progress: Progress, recoverable: Sequence[int]) -> bool:
        """Whether, without its commit, the last batch is run once more as planned, on top of what the sink has."""
        if not batch == progress.planned == progress.committed:
            return False
        return batch == 0 or (batch - 1 in recoverable and self.last >= batch - 1 and self.reaches(batch - 1))

    def _look(self, key: str) -> _Entry:
        if key not in self._looked:
            self._looked[key] = self._read(key)
        entry = self._looked[key]
        entry.missing = [each for each in entry.missing if each not in self._taken_back]
        return entry

    def _read(self, key: str) -> _Entry:
        entry = _Entry()
        try:
            for file in sink_files(self._blobs, key):
                self._compare(file.path, file.size, entry, removed=file.action == "delete")
        except CorruptError as error:
            entry.error = error
        except BlobNotFoundError:
            entry.gone = True
        return entry

    def _compare(self, path: str, size: int, entry: _Entry, *, removed: bool) -> None:
        try:
            key = inside(self._blobs, path)
        except NoEvidenceError:
            entry.elsewhere.append(path)
            return
        if removed:
            self._taken_back.add(key)
        elif self._sizes is not None and key not in self._sizes:
            entry.missing.append(key)
        elif self._sizes is not None and self._sizes[key] != size:
            entry.changed.append(key)


_RUN_AGAIN = (
    "the batch is run once more, exactly as planned, and published anew. What it wrote the first time stays in the"
    " folder; readers that follow the log do not see it."
)


def _log_missing(entries: Mapping[int, str], missing: tuple[int, ...]) -> Finding:
    first = missing[0]
    numbers = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    return Finding(
        code="sink_log_missing",
        blocking=True,
        subject=f"{LOG}/{first}",
        spark_says=f"to readers FileNotFoundException: .../{first} doesn't exist, or that of a later .compact; when the"
        " query next compacts the log, it ends with [BATCH_METADATA_NOT_FOUND] Unable to find batch",
        wrong=f"of the log that says which files were published, up to {max(entries)}, entries {numbers} are not there",
    )


def _file_findings(key: str, entry: _Entry) -> Iterator[Finding]:
    if entry.missing:
        yield Finding(
            code="sink_file_missing",
            blocking=True,
            subject=key,
            spark_says="to readers [FAILED_READ_FILE.FILE_NOT_EXIST]; the query itself goes on",
            wrong=f"{_some(entry.missing)} are not there",
            fix="Bring them back from a copy. If they were removed on purpose, read with"
            " spark.sql.files.ignoreMissingFiles=true.",
        )
    if entry.changed:
        yield Finding(
            code="sink_file_changed",
            blocking=True,
            subject=key,
            spark_says="nothing, and rows are missing or too many; or to readers [FAILED_READ_FILE.NO_HINT]. The query"
            " itself goes on",
            wrong=f"{_some(entry.changed)} are not of the size that they were published with",
            fix="Bring them back from a copy.",
        )
    if entry.elsewhere:
        yield Finding(
            code="sink_moved",
            blocking=True,
            subject=key,
            spark_says="nothing: readers look for these files where they were, and may leave them out",
            wrong=f"{_some(entry.elsewhere)} are not below the folder: it was moved or copied",
        )


def _some(files: list[str]) -> str:
    shown = ", ".join(each[:200] for each in files[:_NAMED]) + (", ..." if len(files) > _NAMED else "")
    return f"{len(files)} of the files that it names ({shown})"


def _batches(last: int) -> str:
    return "none" if last < 0 else f"those up to {last}"
