"""What Spark would stumble over in the logs of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming._diagnosis import Finding
from airflow_provider_checkpoint.layouts.structured_streaming._names import COMMITS, METADATA, OFFSETS, stray_entry
from airflow_provider_checkpoint.layouts.structured_streaming._needs import SPARSE
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import (
    entry_number,
    prove_source_entry,
    read_set,
)
from airflow_provider_checkpoint.layouts.structured_streaming._spark_says import INCOMPLETE, TOO_NEW
from airflow_provider_checkpoint.layouts.structured_streaming._steps import UNDESCRIBED, offsets_issues
from airflow_provider_checkpoint.layouts.structured_streaming._text import is_too_new
from airflow_provider_checkpoint.model import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._logs import Offsets
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

_SOURCE_ENTRY = f"{INCOMPLETE}; nothing, if it names the wrong files: they are left out, or read once more"


def log_findings(view: View, blobs: BlobStore, query_id: str | None) -> Iterator[Finding]:
    """What is wrong with ``metadata``, ``offsets``, ``commits`` and ``sources``, as far as Spark reads them at a start.

    :param query_id: the id of the query as a seal tells it.
    """
    directory = view.directory
    yield from _metadata(view, query_id)
    yield from _strays(view)
    if not directory.offsets:
        yield from _no_offsets(view)
        return
    last = directory.offsets[-1]
    offsets = _offsets(view, last)
    if isinstance(offsets, CorruptError):
        yield _damaged_offsets(view, last, offsets)
    elif offsets is not None:
        yield from _previous(view, last, offsets)
        yield from _contents(view, last, offsets)
        yield from _sources(view, blobs, offsets)
    yield from _commits(view, last)


def readable_offsets(view: View) -> tuple[int, Offsets] | None:
    """The batch that a start would begin with: the last one planned, or if that cannot be read, committed."""
    for batch in [*view.directory.offsets[-1:], *reversed(view.directory.commits)]:
        offsets = _offsets(view, batch)
        if offsets is not None and not isinstance(offsets, CorruptError):
            return batch, offsets
    return None


def _offsets(view: View, batch: int) -> Offsets | CorruptError | None:
    try:
        return view.offsets(batch)
    except CorruptError as error:
        return error
    except BlobNotFoundError:
        return None


# -- metadata ----------------------------------------------------------------------------------------------------


def _metadata(view: View, query_id: str | None) -> Iterator[Finding]:
    fix = "" if query_id is None else f'Write {{"id":"{query_id}"}} into it: the id that the query had when sealed.'
    try:
        view.query_id()
    except CorruptError as error:
        yield Finding(
            code="metadata_corrupt",
            blocking=True,
            subject=METADATA,
            spark_says="MismatchedInputException or JsonEOFException, thrown by start() itself",
            wrong=f"the id of the query cannot be read: {error.message}",
            fix=fix,
        )
    except BlobNotFoundError:
        if view.directory.offsets or view.directory.commits:
            yield Finding(
                code="metadata_missing",
                blocking=True,
                subject=METADATA,
                spark_says="SparkRuntimeException [STREAMING_CHECKPOINT_MISSING_METADATA_FILE]; before 4.2 nothing: a"
                " new id is made, and sinks that go by the id, such as Delta, take batches twice",
                wrong="the id of the query is gone",
                fix=fix,
            )


def _strays(view: View) -> Iterator[Finding]:
    """Files that Spark takes for the newest entry of a log, by the number in their names."""
    directory = view.directory
    newest = {OFFSETS: max(directory.offsets, default=-1), COMMITS: max(directory.commits, default=-1)}
    newest |= {f"sources/{source}": max(entries) for source, entries in directory.sources.items()}
    for key in directory.files:
        found = stray_entry(key)
        if found is not None and found[1] > newest.get(found[0], -1):
            yield Finding(
                code="stray_entry",
                blocking=True,
                subject=key,
                spark_says=f"FileNotFoundException: .../{found[0]}/{found[1]}",
                wrong=f"not a file of Spark, but taken for entry {found[1]} of the log",
                fix=f"Remove {key}: Spark never writes such a name.",
            )


# -- offsets -----------------------------------------------------------------------------------------------------


def _no_offsets(view: View) -> Iterator[Finding]:
    directory = view.directory
    if directory.commits:
        yield Finding(
            code="offsets_gone",
            blocking=True,
            subject=OFFSETS,
            spark_says="AssertionError: assertion failed (no text)",
            wrong="commits are there, but no offsets: where the sources stood is lost",
        )
    elif directory.stores:
        yield Finding(
            code="logs_gone",
            blocking=True,
            subject=OFFSETS,
            spark_says="[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] ... should be empty on batch 0; before 4.1 nothing:"
            " old state is mixed into a new run",
            wrong="state is there, but neither offsets nor commits: the query would begin again on top of old state",
        )
    elif directory.sources:
        yield Finding(
            code="logs_gone",
            blocking=True,
            subject=OFFSETS,
            spark_says="nothing: the query starts at batch 0 and leaves out the files that the source's log names; a"
            " sink that knows these batches drops them as well",
            wrong="the log of a source is there, but neither offsets nor commits",
        )


def _damaged_offsets(view: View, last: int, error: CorruptError) -> Finding:
    committed = last in view.directory.commits
    too_new = is_too_new(error)
    fix = "" if committed or too_new else f"Remove offsets/{last}: the batch was not committed, and is planned anew."
    return Finding(
        code="offsets_version" if too_new else "offsets_corrupt",
        blocking=True,
        subject=f"{OFFSETS}/{last}",
        spark_says=f"{TOO_NEW} ... maximum supported log version" if too_new else INCOMPLETE,
        wrong=error.message + ("; its batch is committed" if committed else "; its batch was not committed"),
        fix=fix,
    )


def _previous(view: View, last: int, offsets: Offsets) -> Iterator[Finding]:
    """What is wrong with the offsets before the last; a start reads both."""
    if last == 0:
        return
    committed = last in view.directory.commits
    number = view.directory.previous(last)
    before = None if number is None else _offsets(view, number)
    if before is None or isinstance(before, CorruptError):
        name = f"{OFFSETS}/{last - 1 if number is None else number}"
        yield Finding(
            code="previous_offsets_missing" if before is None else "previous_offsets_corrupt",
            blocking=True,
            subject=name,
            spark_says=f"IllegalStateException: batch {last - 1} doesn't exist" if before is None else INCOMPLETE,
            wrong="the offsets before the last are not there" if before is None else before.message,
            fix=f"Copy offsets/{last} to {name}: batch {last} is committed, so only the last position counts."
            if committed
            else "",
        )
        return
    if number != last - 1:
        yield Finding(
            code="logs_sparse",
            blocking=False,
            subject=f"{OFFSETS}/{last - 1}",
            spark_says=f"nothing; IllegalStateException: batch {last - 1} doesn't exist, if the query does not track"
            " its progress asynchronously",
            wrong=SPARSE,
        )
    if not before.described and not committed:
        yield Finding(
            code="offsets_metadata_missing",
            blocking=True,
            subject=f"{OFFSETS}/{number}",
            spark_says=f"IllegalArgumentException: requirement failed: Previous batch {number} metadata not found",
            wrong=UNDESCRIBED,
        )
    # Without settings there is nothing to compare; what that means is told elsewhere.
    if before.conf and offsets.conf and before.partitions != offsets.partitions:
        yield _repartitioned(last, before.partitions, offsets.partitions, committed=committed)


def _contents(view: View, last: int, offsets: Offsets) -> Iterator[Finding]:
    """What is wrong with what the last offsets say, in themselves and going by the batch before."""
    number = view.directory.previous(last)
    before = None if number is None else _offsets(view, number)
    known = None if isinstance(before, CorruptError) else before
    subject = f"{OFFSETS}/{last}"
    planned_anew = f"Remove {subject}: the batch was not committed, and is planned anew."
    sources = len(offsets.sources)
    said = {
        "source_count": f"AssertionError: There are [{sources}] sources in the checkpoint offsets and now there are"
        " [...] sources requested by the query. Cannot continue.",
        "offsets_metadata_missing": f"IllegalArgumentException: requirement failed: Batch {last} metadata not found"
        if last not in view.directory.commits
        else 'NullPointerException: Cannot invoke "...WatermarkTracker.currentWatermark()"',
        "source_position_corrupt": "MappingException: No usable value for logOffset, or another error of parsing",
        "offsets_repeated": "nothing: if the last is the copy, its batch is read once more",
        "settings_changed": "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE], [CANNOT_LOAD_STATE_STORE...] or"
        " [INVALID_CONF_VALUE.TYPE_MISMATCH]",
        "settings_lost": "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]: the settings of very old versions are taken",
        "source_position_lost": "nothing: the source is read from its beginning once more",
        "source_position_back": "AssertionError: assertion failed",
    }
    for issue in offsets_issues(view.directory, last, offsets, known):
        yield Finding(
            code=issue.code,
            blocking=issue.severity is Severity.ERROR,
            subject=subject,
            spark_says=said[issue.code],
            wrong=issue.message.removeprefix(f"{subject}: "),
            fix=planned_anew if issue.severity is Severity.ERROR and last not in view.directory.commits else "",
        )


def _repartitioned(last: int, before: int | None, now: int | None, *, committed: bool) -> Finding:
    if committed:
        return Finding(
            code="partitions_changed",
            blocking=False,
            subject=f"{OFFSETS}/{last}",
            spark_says="nothing, if the state was repartitioned; else [CANNOT_LOAD_STATE_STORE...]",
            wrong=f"spark.sql.shuffle.partitions is {now}, and was {before} in the batch before",
        )
    return Finding(
        code="unfinished_repartition",
        blocking=True,
        subject=f"{OFFSETS}/{last}",
        spark_says="[STREAMING_UNFINISHED_REPARTITION_DETECTED]",
        wrong=f"a repartition from {before} to {now} was begun and not finished",
        fix=f"Remove offsets/{last}: the batch was not committed.",
    )


# -- commits -----------------------------------------------------------------------------------------------------


def _commits(view: View, last: int) -> Iterator[Finding]:
    commits = view.directory.commits
    if not commits:
        return
    newest = commits[-1]
    key = f"{COMMITS}/{newest}"
    if newest > last:
        yield Finding(
            code="commit_ahead",
            blocking=True,
            subject=key,
            spark_says="SparkException [CONCURRENT_STREAM_LOG_UPDATE] ... Multiple streaming jobs detected for"
            f" {newest}",
            wrong=f"batch {newest} is committed, but the last offsets are those of {last}: offsets were removed. No"
            " second job is at work",
        )
        return
    try:
        view.commit(newest)
    except CorruptError as error:
        too_new = is_too_new(error)
        yield Finding(
            code="commit_version" if too_new else "commit_corrupt",
            blocking=True,
            subject=key,
            spark_says=f"{TOO_NEW} ... maximum supported log version" if too_new else INCOMPLETE,
            wrong=error.message,
            fix=""
            if too_new or newest != last
            else f"Remove {key}: batch {newest} is run once more, exactly as planned. The sink must know batches it has"
            " taken (file sink, Delta, or a foreachBatch that goes by the number).",
        )
    if newest < last - 1 and not view.directory.is_sparse:
        yield Finding(
            code="commit_behind",
            blocking=False,
            subject=key,
            spark_says="a warning only",
            wrong=f"commits end at {newest}, offsets at {last}: only batch {last} is run once more",
        )


# -- sources -----------------------------------------------------------------------------------------------------


def _sources(view: View, blobs: BlobStore, offsets: Offsets) -> Iterator[Finding]:
    """What is wrong with the logs of file sources. A start reads them to their ends, beyond the last batch, too."""
    for line in offsets.sources:
        last = log_offset(line)
        if last is None:
            continue
        entries = view.directory.sources.get(line.source, {})
        end = max(last, *entries, -1)
        found = read_set(entries, end)
        ahead = f"Remove the entries of sources/{line.source} above {last}: no batch has them, and they are made anew."
        if found.missing:
            missing = _source_log_missing(line.source, end, found.missing)
            yield missing.model_copy(update={"fix": ahead if found.missing[0] > last else ""})
        for key in found.keys:
            try:
                prove_source_entry(blobs, key)
            except CorruptError as error:
                yield Finding(
                    code="source_log_corrupt",
                    blocking=True,
                    subject=key,
                    spark_says=_SOURCE_ENTRY,
                    wrong=error.message,
                    fix=ahead if entry_number(key) > last else "",
                )
            except BlobNotFoundError:
                continue  # Removed since it was listed.


def _source_log_missing(source: str, last: int, missing: tuple[int, ...]) -> Finding:
    only_last = missing == (last,)
    said = (
        f"IllegalStateException: batch {last} doesn't exist (it is not offsets/{last} that is meant)"
        if only_last
        else f"FileNotFoundException: .../{missing[0]}.compact doesn't exist, or IllegalStateException: batch ..."
        " doesn't exist"
    )
    numbers = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    return Finding(
        code="source_log_missing",
        blocking=True,
        subject=f"sources/{source}",
        spark_says=said,
        wrong=f"of the log that says which files were taken, entries {numbers} are not there",
    )
