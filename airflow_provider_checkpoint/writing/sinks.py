"""What a sink must be able to do to take part in exactly-once output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_provider_checkpoint.lifecycle.timelines import Lineage


@dataclass(frozen=True, slots=True, order=True)
class EpochRef:
    """One epoch of one timeline. No two attempts share it, so output named by it cannot be mixed up."""

    timeline: int
    epoch: int


class Sink(Protocol):
    """Output that is prepared with an epoch and published with its checkpoint.

    Between prepare and commit the process may die, and another one, perhaps on another machine, carries on. So each
    call is told the epoch, may come twice, and relies on nothing in memory.
    """

    @property
    def name(self) -> str: ...

    def commit(self, ref: EpochRef) -> None:
        """Publish what was prepared for an epoch. Called again after a crash; a second call changes nothing."""

    def roll_back(self, ref: EpochRef) -> None:
        """Discard what was prepared for an epoch that will not be committed. Nothing there is a success."""

    def holds(self, ref: EpochRef) -> bool:
        """Whether the output of an epoch is still here, prepared or published.

        A run that goes back makes the sinks discard what came after. A checkpoint of such an epoch still has its state,
        but to go on from it would leave a hole in the output.
        """

    def require(self, history: Lineage) -> None:
        """Raise if the sink could not follow a history that is about to begin. Changes nothing.

        Called before a writer takes over, because afterwards there is no way back: what has to go must be possible to
        discard, and nothing may be here of the timeline that is yet to be opened, or of one after it.
        """

    def retain(self, history: Lineage) -> None:
        """Discard the output of every epoch that is not part of the history, published or not.

        Called when a writer starts: after going back to an older checkpoint, what came after it must vanish. Output of
        a newer timeline than the history's is another writer's, who has taken over meanwhile: it stays.
        """
