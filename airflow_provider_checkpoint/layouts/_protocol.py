"""What every checkpoint format answers, so that the lifecycle is written once.

A layout knows names and bytes: which objects make a checkpoint, how to read them, what proves them. It decides nothing:
what to keep, remove or restore is the lifecycle's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import Artifact, Checkpoint, CheckpointId, Depth, Issue

#: Folders beside the checkpoints, the same in every layout, where the lifecycle keeps its records.
HOUSEKEEPING = frozenset({"audit", "decisions", "ledger", "pins", "timelines", "trash"})

#: What to do about a checkpoint that is not there.
NOT_THERE = (
    "It was never committed, or has been removed; list --trash shows what there is and what undelete brings back."
)


class Role(StrEnum):
    """What an object's name says it is."""

    MANIFEST = "manifest"
    """Makes a checkpoint exist; removing it removes the checkpoint."""
    ARTIFACT = "artifact"
    """Holds state; may be removed when no manifest names it."""
    POINTER = "pointer"
    """A hint at the newest checkpoint."""
    HOUSEKEEPING = "housekeeping"
    """A record of the lifecycle: pins, timelines, trash, ledger, audit, decisions."""
    UNKNOWN = "unknown"
    """Not ours. Never touched."""


@dataclass(frozen=True, slots=True)
class Named:
    """An object's role, and the checkpoint whose name it bears (a shared artifact bears its maker's)."""

    role: Role
    checkpoint_id: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One unit of proof. Checks of a checkpoint are independent: they may run in any order and side by side."""

    subject: str
    """What is looked at, for progress and reports: an object's key."""
    cost: int
    """Bytes it is expected to read."""
    run: Callable[[], list[Issue]]
    """Answers with what is wrong. Raises TransientError or AttentionError if the store could not be asked."""
    claims: tuple[Artifact, ...] = ()
    """What the manifest says of the objects that are read. Two checks with equal subject and claims are the same proof,
    so what several checkpoints share is read once; a check without claims stands for itself."""


@dataclass(frozen=True, slots=True)
class Examination:
    """A manifest, if it could be understood, and what is wrong with it."""

    checkpoint: Checkpoint | None
    issues: list[Issue]


class Layout(ABC):
    """A checkpoint format on a store."""

    name: ClassVar[str]

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs

    # -- finding -------------------------------------------------------------------------------------------------

    @abstractmethod
    def parse_id(self, text: str) -> CheckpointId:
        """The id a person typed; raises ConfigurationError if no checkpoint here can have it."""

    @abstractmethod
    def candidates(self) -> list[CheckpointId]:
        """Ids of everything that may be a checkpoint, oldest first, at the price of one listing.

        Includes unreadable ones, and may include some that were never committed: ``load`` tells.
        """

    def newest_first(self) -> Iterator[CheckpointId]:
        """The same ids from the newest on, for whoever expects to need only the first few.

        Where the pointer is right, formats whose names sort as their ids do find those without listing the others.
        """
        yield from reversed(self.candidates())

    @abstractmethod
    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        """Read a checkpoint's manifest.

        Raises CheckpointNotFoundError if it was never committed or is gone, CorruptManifestError if it cannot be
        understood.
        """

    @abstractmethod
    def read_pointer(self) -> CheckpointId | None:
        """The checkpoint the pointer names, or None if there is no readable pointer. Only ever a hint."""

    @abstractmethod
    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        """Let the pointer name a checkpoint, whatever it named before (after a prune or a fork)."""

    # -- proving -------------------------------------------------------------------------------------------------

    @abstractmethod
    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        """Read the manifest once and say what is wrong with it: rules, names, ids. Reads nothing else.

        A missing or unreadable manifest is an issue, not an exception.
        """

    @abstractmethod
    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        """The proofs beyond structure that a depth asks for. Building them reads nothing."""

    # -- removing ------------------------------------------------------------------------------------------------

    def alive(self, now: datetime) -> str | None:  # noqa: ARG002 - formats with timelines have nothing to go by
        """Why a writer may be at work that nothing else holds off, in words; None if nothing speaks for one.

        Asked before anything is removed. Formats whose writers hold a timeline need not be asked: theirs are fenced.
        """
        return None

    def held(self) -> Mapping[CheckpointId, str]:
        """Checkpoints that must stay for the sake of the format itself, whatever the rules say, and why."""
        return {}

    @abstractmethod
    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        """The objects whose removal makes the checkpoint cease to exist, in the order to remove them."""

    @abstractmethod
    def named(self, key: str) -> Named:
        """What an object's name says it is."""
