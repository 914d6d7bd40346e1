"""Timelines: every writer opens its own, so that a zombie cannot write into a history that has moved on.

A timeline is a number, taken by creating ``timelines/timeline-000002.json`` where none is. It says from which
checkpoint it forks. Only the holder of the highest number may commit. A check before a commit leaves a window, so
checkpoints also carry their timeline's number, and what a zombie still publishes in that window is not part of the new
history.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    CorruptManifestError,
    FencedWriterError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.lifecycle.side_by_side import side_by_side
from airflow_provider_checkpoint.model import FIRST_TIMELINE, Checkpoint, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore

FOLDER = "timelines"
#: Not mended by guessing: the wrong parent would bring an abandoned branch back.
_HOW_TO_MEND = (
    "It tells where a timeline began, and so which checkpoints belong to the present. Bring it back from a version or a"
    " copy of the store. Or write it anew: the parent_id in the manifest of the first checkpoint on it is its"
    " fork_checkpoint, whose timeline and epoch are parent and fork_epoch."
)
_NAME = re.compile(rf"{FOLDER}/timeline-([0-9]{{6,}})\.json")


# -- pure --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lineage:
    """The history that the highest timeline continues: for each timeline of it, up to which epoch it counts."""

    current: int
    reach: dict[int, int | None]
    """Timeline number to its last epoch that belongs here; None for no limit (the current one)."""
    lost: int | None = None
    """The timeline at which the way back ends because its record is not there; None if the history is whole."""
    timelines: tuple[Timeline, ...] = field(default=(), compare=False, repr=False)
    """Every record it was learnt from, ascending, abandoned branches included: their marks tell whose it is."""

    def contains(self, timeline: int, epoch: int) -> bool:
        if timeline not in self.reach:
            return False
        last = self.reach[timeline]
        return last is None or epoch <= last

    def missing(self, timeline: int) -> int | None:
        """Whose record is needed to tell whether a checkpoint of a timeline belongs here; None if it can be told.

        Such a checkpoint is neither chosen nor given up: what looks abandoned may be the present, and the other way
        round.
        """
        if timeline > self.current:
            # Its writer had opened it before it committed: the present is not what the records say.
            return timeline
        # A timeline forks from an earlier one, so that those after the gap are known not to be on the way.
        before_the_gap = self.lost is not None and timeline < self.lost and timeline not in self.reach
        return self.lost if before_the_gap else None


def lineage(timelines: Iterable[Timeline]) -> Lineage:
    """Follow the forks back from the highest timeline.

    A store without records has one history, the first timeline's, which may have no record in any store: programs that
    know nothing of timelines write on it. A timeline counts up to the epoch at which its child forked, and only as far
    as all later forks on the way let it.
    """
    known = {timeline.number: timeline for timeline in timelines}
    if not known:
        return Lineage(FIRST_TIMELINE, {FIRST_TIMELINE: None})
    current = max(known)
    reach: dict[int, int | None] = {current: None}
    number, last = current, None
    while (timeline := known.get(number)) is not None and timeline.parent is not None:
        if timeline.parent in reach:
            raise CorruptManifestError("timelines fork in a circle", subject=f"{FOLDER}/timeline-{number:06d}.json")
        fork = timeline.fork_epoch if timeline.fork_epoch is not None else 0
        last = fork if last is None else min(last, fork)
        number = timeline.parent
        reach[number] = last
    lost = None if number in known or number == FIRST_TIMELINE else number
    return Lineage(current, reach, lost, tuple(known[each] for each in sorted(known)))


# -- on the store ------------------------------------------------------------------------------------------------


def timeline_key(number: int) -> str:
    return f"{FOLDER}/timeline-{number:06d}.json"


def timeline_numbers(blobs: BlobStore) -> list[int]:
    """Numbers taken so far, ascending: one listing."""
    names = (_NAME.fullmatch(info.key) for info in blobs.list(FOLDER))
    # A copy under another spelling of the number is not a record, and fences nobody.
    return sorted(int(match[1]) for match in names if match is not None and timeline_key(int(match[1])) == match[0])


def lost_record(blobs: BlobStore, number: int) -> CorruptManifestError:
    return CorruptManifestError(
        f"the record of timeline {number} is gone, so that it cannot be told which checkpoints were abandoned",
        subject=f"{blobs.uri}/{timeline_key(number)}",
        hint=_HOW_TO_MEND,
    )


def read_timelines(blobs: BlobStore) -> list[Timeline]:
    """Every timeline, ascending by number. Each start of a writer has left one, so there may be many."""
    found = side_by_side(lambda number: _read_timeline(blobs, number), timeline_numbers(blobs))
    return [timeline for timeline in found if timeline is not None]


def _read_timeline(blobs: BlobStore, number: int) -> Timeline | None:
    key = timeline_key(number)
    try:
        timeline = parse_model(Timeline, read_object(blobs, key, limit=1024 * 1024), subject=key)
    except BlobNotFoundError:
        return None
    except CorruptManifestError as error:
        raise CorruptManifestError(error.message, subject=f"{blobs.uri}/{key}", hint=_HOW_TO_MEND) from error
    if timeline.number != number:
        raise CorruptManifestError(
            f"says it is timeline {timeline.number}", subject=f"{blobs.uri}/{key}", hint=_HOW_TO_MEND
        )
    return timeline


class History:
    """What ``lineage(read_timelines(blobs))`` answers, reading the newest records first, and no more than it takes.

    Each start of a writer leaves a record, and whether the newest checkpoint belongs to the present is told by the last
    one or two of them.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._begin()

    def _begin(self) -> None:
        self._unread = timeline_numbers(self._blobs)
        self._records: list[Timeline] = []
        self._batch = 1
        self._lineage = lineage([])
        # A record may be gone since it was listed; the highest that can be read is the present.
        while self._unread and not self._records:
            self._read_more()

    def contains(self, timeline: int, epoch: int) -> bool:
        """Whether a checkpoint belongs to the present. Raises CorruptManifestError if a lost record would tell."""
        if timeline > self._lineage.current:
            # A writer has opened it since we began, or its record is lost.
            self._begin()
        while self._unread and timeline not in self._lineage.reach:
            self._read_more()
        missing = self._lineage.missing(timeline)
        if missing is not None:
            raise lost_record(self._blobs, missing)
        return self._lineage.contains(timeline, epoch)

    def _read_more(self) -> None:
        """Twice as many as the time before, so that a long way back takes few steps."""
        newest, self._unread = self._unread[-self._batch :], self._unread[: -self._batch]
        self._batch *= 2
        found = side_by_side(lambda number: _read_timeline(self._blobs, number), newest)
        self._records.extend(timeline for timeline in found if timeline is not None)
        self._lineage = lineage(self._records)


class TimelineHolder:
    """A writer's right to commit, for as long as no newer timeline exists."""

    def __init__(self, blobs: BlobStore, timeline: Timeline) -> None:
        self._blobs = blobs
        self.timeline = timeline

    def check(self) -> None:
        """Raise FencedWriterError if somebody has opened a newer timeline. Call before every commit."""
        newest = max(timeline_numbers(self._blobs), default=0)
        if newest > self.timeline.number:
            raise FencedWriterError(
                f"timeline {self.timeline.number} is over: timeline {newest} has been opened",
                subject=self._blobs.uri,
                hint="Another run has taken over. Stop this writer; what it had not committed is discarded.",
            )
        if newest < self.timeline.number:
            raise FencedWriterError(
                f"the record of timeline {self.timeline.number} is gone",
                subject=self._blobs.uri,
                hint="The folder 'timelines' was removed or another store is mounted here. Start the writer anew.",
            )


def open_timeline(
    blobs: BlobStore,
    *,
    start: Checkpoint | None,
    has_checkpoints: bool,
    writer: str,
    now: datetime,
    owner: str = "",
    reason: str = "",
    after: int | None = None,
    taken: int = 0,
) -> TimelineHolder:
    """Open the next timeline, forking after ``start`` (None: a fresh start). Fences every earlier writer.

    Racing openers get different numbers; the highest holds. A call repeated after a lost answer takes one more number,
    which is harmless.

    :param has_checkpoints: whether the store holds checkpoints; those without a number belong to the first timeline.
    :param after: the highest number when ``start`` was chosen (0: none). If another was opened since, what was chosen
        may be given up by now: BlobChangedError, and nothing is opened.
    :param taken: the highest number that a checkpoint is known to bear.
    """
    # Checkpoints outlive lost records: their numbers are taken all the same.
    known = max(taken, FIRST_TIMELINE if has_checkpoints else 0)
    known = known if start is None else max(known, start.timeline)
    while True:
        numbers = timeline_numbers(blobs)
        if after is not None and max(numbers, default=0) != after:
            raise BlobChangedError(f"timeline {max(numbers, default=0)} was opened meanwhile", subject=blobs.uri)
        timeline = Timeline(
            number=max([known, *numbers]) + 1,
            parent=None if start is None else start.timeline,
            fork_checkpoint=None if start is None else start.id,
            fork_epoch=None if start is None else start.epoch,
            created=now,
            writer=writer,
            owner=owner,
            reason=reason,
        )
        if blobs.create(timeline_key(timeline.number), timeline.model_dump_json(indent=2).encode()).created:
            return TimelineHolder(blobs, timeline)
