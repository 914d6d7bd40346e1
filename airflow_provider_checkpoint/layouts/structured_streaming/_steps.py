"""From one batch to the next: what must hold between two entries of ``offsets``, and within one.

Spark takes the last position of each source as it stands. One that is well-formed and wrong makes it read rows a second
time, or leave some out, without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming._logs import PARTITIONS
from airflow_provider_checkpoint.layouts.structured_streaming._positions import is_file_position, log_offset
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming._directory import Directory
    from airflow_provider_checkpoint.layouts.structured_streaming._logs import OffsetLine, Offsets

_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

#: What is wrong with offsets whose second line is empty.
UNDESCRIBED = "no settings and no time in its second line, without which Spark does not start"

#: Settings that every Spark since 3.5 writes down and takes over from one batch to the next, whatever a session says.
#: State that was written with others cannot be read, or is read as something else.
_LASTING = (
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.streaming.stateStore.providerClass",
)


def offsets_issues(directory: Directory, batch: int, offsets: Offsets, before: Offsets | None) -> Iterator[Issue]:
    """What is wrong with the offsets of a batch, in themselves and going by those of the batch before, if known."""
    yield from _position_issues(offsets, batch)
    if not offsets.described:
        yield Issue.error("offsets_metadata_missing", f"offsets/{batch}: {UNDESCRIBED}")
    elif directory.stores:
        yield from _settings_issues(offsets, batch)
    if before is not None:
        yield from _step_issues(before, offsets, batch)
        yield from _repeated_issues(directory, before, offsets, batch)


def _position_issues(offsets: Offsets, batch: int) -> Iterator[Issue]:
    """Positions that no source can have written."""
    for line in offsets.sources:
        if is_file_position(line) and log_offset(line) is None:
            message = f"offsets/{batch}: {_shown(line)} is no position of a file source"
            yield Issue.error("source_position_corrupt", message)


def _step_issues(before: Offsets, now: Offsets, batch: int) -> Iterator[Issue]:
    """What is wrong with the offsets of a batch, going by those of the batch before."""
    lost = {line.source for line in before.sources} - {line.source for line in now.sources}
    if lost or (len(before.sources) != len(now.sources) and not _may_gain_sources(now)):
        message = f"offsets/{batch}: positions of {len(now.sources)} sources, the batch before has"
        yield Issue.error("source_count", f"{message} {len(before.sources)}")
    yield from _settings_step(before, now, batch)
    earlier = {line.source: line for line in before.sources}
    for line in now.sources:
        if line.source in earlier:
            yield from _source_step(earlier[line.source], line, batch)


def _repeated_issues(directory: Directory, before: Offsets, now: Offsets, batch: int) -> Iterator[Issue]:
    """Two entries that are the same to the millisecond: one of them is a copy.

    A copy of the last in the place of the one before is harmless. A copy of the one before in the place of the last
    makes Spark read the rows of that batch again; then the log of a file source goes on behind it.
    """
    if now.timestamp_ms == 0 or (before.timestamp_ms, before.sources) != (now.timestamp_ms, now.sources):
        return
    message = f"offsets/{batch}: the same as those of the batch before, to the millisecond"
    if batch == directory.offsets[-1] and any(_read_on(directory, line) for line in now.sources):
        yield Issue.error("offsets_repeated", f"{message}; its source has read on")
    else:
        yield Issue.warning("offsets_repeated", message)


def _read_on(directory: Directory, line: OffsetLine) -> bool:
    end = log_offset(line)
    return end is not None and max(directory.sources.get(line.source, ()), default=end) > end


def _settings_issues(offsets: Offsets, batch: int) -> Iterator[Issue]:
    """Settings without which state cannot be read."""
    if not offsets.conf:
        yield Issue.error("settings_lost", f"offsets/{batch}: no settings, so that those of old versions are taken")
    elif PARTITIONS in offsets.conf and offsets.partitions is None:
        yield Issue.error("settings_changed", f"offsets/{batch}: {PARTITIONS} is no number of partitions")


def _may_gain_sources(offsets: Offsets) -> bool:
    """Whether the query may be started with more sources than it had: since log version 2 they have names."""
    return offsets.version > 1 and offsets.conf.get(_EVOLUTION) == "true"


def _settings_step(before: Offsets, now: Offsets, batch: int) -> Iterator[Issue]:
    for name in _LASTING:
        then, value = before.conf.get(name), now.conf.get(name)
        if now.conf and then is not None and value != then:
            what = "is gone" if value is None else f"is {value[:100]}"
            yield Issue.error("settings_changed", f"offsets/{batch}: {name} {what}, and was {then[:100]}")


def _source_step(before: OffsetLine, now: OffsetLine, batch: int) -> Iterator[Issue]:
    start, end = log_offset(before), log_offset(now)
    about = f"offsets/{batch}: the source {now.source}"
    if before.text is not None and now.text is None:
        # A source that has read something keeps a position; without one, all of it is read once more.
        yield Issue.error("source_position_lost", f"{about} has no position, and had one in the batch before")
    elif start is not None and end is None and not is_file_position(now):
        yield Issue.error("source_position_corrupt", f"{about} stands at {_shown(now)}, and reads files")
    elif start is not None and end is not None and end < start:
        yield Issue.error("source_position_back", f"{about} stands at {end}, and stood at {start} in the batch before")


def _shown(line: OffsetLine) -> str:
    return (line.text or "")[:100]
