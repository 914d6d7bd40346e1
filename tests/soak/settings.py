"""What one run of the soak is told, and the numbers that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run. Can be pickled: every process of the run has it."""

    minutes: float = 20.0
    pipelines: int = 50
    fault_rate: float = 0.03
    """The share of requests that something happens to."""
    seed: int = 0
    at_least_once: bool = False
    """Go on past the time until each kind of event has happened, but not for ever."""
    workers: int = 2
    """Processes that share the pipelines; each has a proxy of its own between itself and the store."""
    spoil: str | None = None
    """Do harm that nobody knows of just before the end, to see that it is found."""

    keep_last: int = 4
    client_patience: float = 3.0
    """Seconds after which the client gives up waiting for an answer."""

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def kill_share(self) -> float:
        """Of all epochs: the writer dies in it. A short run must meet everything, too."""
        return 0.06 if self.minutes >= 2 else 0.15

    @property
    def zombie_share(self) -> float:
        """Of all epochs: the writer is replaced after it and goes on all the same."""
        return 0.02 if self.minutes >= 2 else 0.12

    @property
    def recovery_every(self) -> float:
        """Seconds between two recoveries of a pipeline, if nothing takes long."""
        return min(20.0, self.seconds / 6)

    @property
    def damage_every(self) -> float:
        return min(30.0, self.seconds / 5)

    @property
    def pause(self) -> float:
        """Seconds between two epochs of a pipeline, on average: maintenance of many must keep up with their writers."""
        return max(0.3, 0.2 * self.pipelines)

    @property
    def guard(self) -> float:
        """Seconds before anything may count as an orphan, beside what a running writer holds on to."""
        return min(20.0, self.seconds / 12)

    @property
    def undo_window(self) -> float:
        return min(30.0, self.seconds / 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What one worker process works on."""

    number: int
    settings: Settings
    pipelines: tuple[int, ...]
    uri: str
    through_proxy: dict[str, Any]
    """Storage options that lead into the bad weather."""
    direct: dict[str, Any]
    folder: str
    """Where journals are kept."""
    parent: int
