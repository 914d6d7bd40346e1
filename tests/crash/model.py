"""What a store should hold and choose, in a few lines of plain Python that share nothing with the code under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.model import CheckpointId


@dataclass
class Record:
    """One checkpoint that was committed."""

    id: CheckpointId
    epoch: int
    timeline: int
    created: datetime
    artifacts: frozenset[str]
    decided: bool
    """Its sinks have published, or were meant to."""
    readable: bool = True
    place: str = "live"
    """``live``, ``trash`` or ``gone``."""
    trashed: datetime | None = None
    full: bool = True
    """Whole by itself, so that others can build on it."""


@dataclass(frozen=True)
class Fork:
    """Where a timeline begins: after an epoch of another, or nowhere."""

    parent: int | None
    epoch: int = 0
    checkpoint: CheckpointId | None = None


@dataclass
class Model:
    records: dict[CheckpointId, Record] = field(default_factory=dict)
    forks: dict[int, Fork] = field(default_factory=dict)
    pins: dict[str, tuple[CheckpointId, datetime | None]] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    """Artifacts that are no longer what was written."""
    seen: set[CheckpointId] = field(default_factory=set)
    """Every id under which something was ever written."""

    def at(self, place: str) -> list[Record]:
        """In the order of their ids."""
        return sorted((record for record in self.records.values() if record.place == place), key=lambda each: each.id)

    def whole(self, record: Record) -> bool:
        return record.readable and not record.artifacts & self.damaged

    def current(self, record: Record) -> bool:
        """Whether a checkpoint is part of the history that the newest timeline continues."""
        timeline = max(self.forks)
        last = None
        while timeline is not None:
            if timeline == record.timeline:
                return last is None or record.epoch <= last
            fork = self.forks[timeline]
            last = fork.epoch if last is None else min(last, fork.epoch)
            timeline = fork.parent
        return False

    def choice(self) -> CheckpointId | None:
        """The newest checkpoint that can be restored, belongs to the current history, and was meant to be one."""
        fit = [each for each in self.at("live") if self.whole(each) and self.current(each) and each.decided]
        return fit[-1].id if fit else None

    def pinned(self, now: datetime) -> set[CheckpointId]:
        return {target for target, expires in self.pins.values() if expires is None or now < expires}

    def needed(self) -> set[str]:
        """Artifacts that must not go: somebody can still come back to them, or might if a manifest were mended."""
        return {
            key
            for record in self.records.values()
            if record.place == "live" or (record.place == "trash" and record.readable)
            for key in record.artifacts
        }
