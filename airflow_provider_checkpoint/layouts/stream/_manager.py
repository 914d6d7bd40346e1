"""Checkpoints at intervals of events."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.stream._state import CheckpointState, StreamCheckpointId

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.layouts.stream._store import Newest, StreamStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Schedule:
    """When a stream is next due."""

    due: int
    damaged: frozenset[int] = frozenset()
    """Sequences whose name is taken by a file that cannot be read: nothing can be saved under them."""

    def fires(self, sequence: int) -> bool:
        return sequence >= self.due and sequence not in self.damaged


class CheckpointManager:
    """Saves a checkpoint of a stream once every ``interval`` events.

    Each stream has its own schedule, which is taken up from the store: after a restart the next checkpoint is due one
    interval after the newest that can be read. Calls for one stream come from one thread; streams are independent.

    :param store: where checkpoints go.
    :param interval: how many events lie between two of them, at least.
    :param fill: puts operator states and source offsets into a state that is about to be saved; without it a
        checkpoint holds only how far the stream had come.
    """

    def __init__(
        self,
        store: StreamStore,
        interval: int,
        *,
        fill: Callable[[CheckpointState], None] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if interval < 1:
            raise ConfigurationError(
                f"interval is {interval}", hint="A checkpoint is taken every so many events: at least 1."
            )
        self._store = store
        self._interval = interval
        self._fill = fill
        self._clock = clock
        self._schedules: dict[str, _Schedule] = {}
        self._total = 0

    @property
    def total_checkpoints(self) -> int:
        """How many this object has saved."""
        return self._total

    def on_event(self, stream: str, sequence: int, watermark_ns: int) -> bool:
        """Take note that an event was processed; True if that made a checkpoint.

        If saving fails, the error is raised and the checkpoint stays due: the next event tries again.
        """
        schedule = self._schedule(stream)
        if not schedule.fires(sequence):
            return False
        state = CheckpointState(
            StreamCheckpointId(stream, sequence, self._clock()), watermark_ns=watermark_ns, event_count=sequence
        )
        if self._fill is not None:
            self._fill(state)
        self._store.save(state)
        self._total += 1
        schedule.due = sequence + self._interval
        return True

    def recover(self, stream: str) -> int | None:
        """The sequence to resume after; None if the stream has no checkpoint.

        Raises CorruptArtifactError if it has some and none can be read.
        """
        newest = self._store.newest(stream)
        self._schedules[stream] = self._after(newest)
        if newest is None:
            return None
        for skipped in newest.skipped:
            log.warning("stream %r: checkpoint %s passed over: %s", stream, skipped.sequence, skipped.reason)
        return newest.sequence

    def _schedule(self, stream: str) -> _Schedule:
        if stream not in self._schedules:
            self._schedules[stream] = self._after(self._store.newest(stream))
        return self._schedules[stream]

    def _after(self, newest: Newest | None) -> _Schedule:
        if newest is None:
            return _Schedule(self._interval)
        return _Schedule(newest.sequence + self._interval, frozenset(skip.sequence for skip in newest.skipped))
