"""Plans: what would happen to each object, and why. Made first, shown, then applied.

All are frozen and go through JSON unchanged: into an XCom, onto a page, back into ``apply``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.model import CheckpointId, Depth


class _Plan(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    layout: str
    made: AwareDatetime


# -- prune -------------------------------------------------------------------------------------------------------


class PruneItem(BaseModel):
    """One checkpoint and whether it stays."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: CheckpointId
    action: Literal["keep", "trash"]
    reasons: tuple[str, ...]
    bytes: int = 0
    """What goes with it once it is swept: artifacts that nothing else needs, and its inline state."""
    keys: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    manifest_sha256: str | None = None
    """The manifest as it was when the plan was made; if it has changed since, the item is left alone."""


class PrunePlan(_Plan):
    policy: RetentionPolicy
    newest_restorable: CheckpointId | None
    depth: Depth
    items: tuple[PruneItem, ...]

    @property
    def removed(self) -> tuple[PruneItem, ...]:
        return tuple(item for item in self.items if item.action == "trash")

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.removed)


# -- sweep and orphans -------------------------------------------------------------------------------------------


class OrphanDecision(StrEnum):
    DELETE = "delete"
    """No manifest, live or in the trash, names it, and it is old enough."""
    KEEP_ACTIVE = "keep_active"
    """Something names it, or may name it."""
    DEFER = "defer"
    """Too young to tell from the artifact of a checkpoint that is being written."""
    SKIP_UNKNOWN = "skip_unknown"
    """Not a name of ours."""


class PathItem(BaseModel):
    """One object and what happens to it."""

    model_config = ConfigDict(frozen=True)

    path: str
    action: OrphanDecision
    reasons: tuple[str, ...]
    bytes: int = 0
    version: str | None = None


class SweepPlan(_Plan):
    """What leaves the store for good because its undo window has passed."""

    undo_window_end: AwareDatetime
    expired: tuple[CheckpointId, ...]
    items: tuple[PathItem, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)


class OrphanPlan(_Plan):
    cutoff: AwareDatetime
    """Only objects older than this are looked at; fixed when the search began."""
    items: tuple[PathItem, ...]
    """The objects to delete, and a few examples of the others."""
    counts: dict[OrphanDecision, int]
    artifacts_seen: int
    truncated: bool = False
    """There is more to delete than fits into one plan: run again."""
    question: str = ""
    """Why a person should confirm before this is applied; empty if nothing is unusual."""

    @property
    def deletions(self) -> tuple[PathItem, ...]:
        return tuple(item for item in self.items if item.action is OrphanDecision.DELETE)

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.deletions)


# -- recovery ----------------------------------------------------------------------------------------------------


class SkipCode(StrEnum):
    """Why a candidate was passed over, for programs."""

    UNREADABLE = "unreadable"
    UNWANTED = "unwanted"
    """Not the kind of point that was asked for."""
    ABANDONED = "abandoned"
    """On a branch that is not part of the current history."""
    INCOMPATIBLE = "incompatible"
    """The job that will be started cannot use it."""
    UNDECIDED = "undecided"
    """Its commit was never decided, so it never became part of history."""
    INVALID = "invalid"


class Skipped(BaseModel):
    model_config = ConfigDict(frozen=True)

    checkpoint_id: CheckpointId
    reason: str
    code: SkipCode


class SinkAction(BaseModel):
    """What must happen to a sink before the job runs again."""

    model_config = ConfigDict(frozen=True)

    sink: str
    action: Literal["commit_again", "roll_back"]
    epochs: tuple[int, ...]


class Distance(BaseModel):
    """How far back the chosen point is from the newest the store knows of: what will be done again."""

    model_config = ConfigDict(frozen=True)

    seconds: float = 0.0
    epochs: int = 0
    checkpoints: int = 0
    events: int | None = None
    sources: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Records or bytes to read again, per source and partition, where both positions tell."""


class RecoveryPlan(_Plan):
    strategy: str
    depth: Depth
    chosen: CheckpointId | None
    """None only for a fresh start that the caller allowed."""
    epoch: int | None = None
    timeline: int | None = None
    created: AwareDatetime | None = None
    head: CheckpointId | None = None
    """The newest readable checkpoint, chosen or not."""
    skipped: tuple[Skipped, ...] = ()
    examined: int = 0
    distance: Distance | None = None
    """None for a fresh start, which does everything again."""
    sinks: tuple[SinkAction, ...] = ()
    warnings: tuple[str, ...] = ()


class RestorePlan(_Plan):
    """Going back: which history the next writer continues, and what is left behind."""

    checkpoint_id: CheckpointId | None
    """None for a fresh start."""
    epoch: int | None
    depth: Depth
    """How far the checkpoint is proven again before anything changes."""
    current: int
    """The timeline that was current when the plan was made; if another has been opened since, nothing is done."""
    abandons: tuple[CheckpointId, ...]
    """Checkpoints that will no longer be part of history. They stay until a rule removes them."""
    distance: Distance | None = None
    sinks: tuple[SinkAction, ...] = ()
    warnings: tuple[str, ...] = ()


# -- outcomes ----------------------------------------------------------------------------------------------------


class Outcome(BaseModel):
    """What became of one item of a plan."""

    model_config = ConfigDict(frozen=True)

    subject: str
    done: bool
    message: str = ""


class Report(BaseModel):
    """What became of a plan."""

    model_config = ConfigDict(frozen=True)

    verb: str
    run: str
    outcomes: tuple[Outcome, ...]
    bytes: int = 0

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.done)
