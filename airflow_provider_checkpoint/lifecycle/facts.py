"""Looking at a store: everything the decisions need, read once, side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.lifecycle.records import Proof, read_ledger, read_pins
from airflow_provider_checkpoint.lifecycle.side_by_side import side_by_side
from airflow_provider_checkpoint.lifecycle.timelines import Lineage, lineage, lost_record, read_timelines
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, TrashReader, UnreadableEntry
from airflow_provider_checkpoint.model import Checkpoint, CheckpointId, Pin, Severity, SinkState, Timeline

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.exceptions import CorruptManifestError
    from airflow_provider_checkpoint.layouts._protocol import Examination, Layout


@dataclass(frozen=True, slots=True)
class Known:
    """One checkpoint as found: understood, or not and why."""

    id: CheckpointId
    checkpoint: Checkpoint | None
    problem: str = ""
    """Why it is unfit, if its manifest has errors."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A store at one moment."""

    known: tuple[Known, ...]
    """Committed checkpoints, oldest first; unreadable ones too."""
    pins: tuple[Pin, ...]
    timelines: tuple[Timeline, ...]
    lineage: Lineage
    ledger: dict[CheckpointId, Proof]
    trash: tuple[TrashEntry, ...]
    """What was pruned and not put back."""
    unreadable_trash: tuple[UnreadableEntry, ...] = ()
    """What was pruned and not put back, and whose entry cannot be read."""
    lost_timeline: CorruptManifestError | None = None
    """Which record of a timeline is gone, if it leaves open whether some checkpoint was abandoned."""

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [known.checkpoint for known in self.known if known.checkpoint is not None]

    def on_branch(self, checkpoint: Checkpoint) -> bool:
        return self.lineage.contains(checkpoint.timeline, checkpoint.epoch)


def survey(layout: Layout) -> Survey:
    """Read every manifest and every record. Costs a few listings and one read per checkpoint.

    The trash is looked at before and after the manifests, so that a checkpoint that is pruned or undeleted meanwhile is
    seen in one place or the other.
    """
    reader = TrashReader(layout)
    trash = {entry.checkpoint_id: entry for entry in reader.look()}
    known = look_at_all(layout)
    trash |= {entry.checkpoint_id: entry for entry in reader.look()}
    timelines = read_timelines(layout.blobs)
    live = {each.id for each in known}
    history = lineage(timelines)
    needed = (history.missing(each.checkpoint.timeline) for each in known if each.checkpoint is not None)
    missing = [number for number in needed if number is not None]
    pruned = [entry for checkpoint_id, entry in trash.items() if checkpoint_id not in live]
    return Survey(
        known=known,
        pins=tuple(read_pins(layout.blobs)),
        timelines=tuple(timelines),
        lineage=history,
        ledger=read_ledger(layout.blobs, layout),
        trash=tuple(entry for entry in pruned if isinstance(entry, TrashEntry)),
        unreadable_trash=tuple(entry for entry in pruned if isinstance(entry, UnreadableEntry)),
        lost_timeline=lost_record(layout.blobs, max(missing)) if missing else None,
    )


def look_at_all(layout: Layout) -> tuple[Known, ...]:
    """Every manifest that is there. Costs a listing and one read per checkpoint."""
    found = side_by_side(lambda checkpoint_id: look_at(layout, checkpoint_id), layout.candidates())
    return tuple(known for known in found if known is not None)


def look_at(layout: Layout, checkpoint_id: CheckpointId) -> Known | None:
    """One manifest; None if there is none, which is what an uncommitted or pruned checkpoint looks like.

    A store that cannot be asked raises: what could not be read must not count as broken.
    """
    examined: Examination = layout.examine(checkpoint_id)
    if any(issue.code == "manifest_missing" for issue in examined.issues):
        return None
    problem = "; ".join(issue.message for issue in examined.issues if issue.severity is Severity.ERROR)
    return Known(checkpoint_id, examined.checkpoint, problem)


# -- sinks -------------------------------------------------------------------------------------------------------


_DECISION = re.compile(r"decisions/timeline-[0-9]{6,}/epoch-[0-9]{6,}\.json")


def decision_key(timeline: int, epoch: int) -> str:
    """The marker that says: this epoch shall be committed. Created once all sinks have prepared."""
    return f"decisions/timeline-{timeline:06d}/epoch-{epoch:06d}.json"


def is_decision_key(key: str) -> bool:
    return _DECISION.fullmatch(key) is not None


def decided(blobs: BlobStore, checkpoint: Checkpoint) -> bool:
    """Whether the commit of a checkpoint's epoch had been decided, so that its sinks must be committed, not undone."""
    keys = (
        decision_key(checkpoint.timeline, checkpoint.epoch),
        # Where the reference implementation of the sidecar layout keeps its marker.
        f"checkpoint-decisions/epoch={checkpoint.epoch}/commit",
    )
    return any(blobs.stat(key) is not None for key in keys)


def unsettled_sinks(checkpoint: Checkpoint) -> list[str]:
    """Sinks that are not known to have published this epoch."""
    return sorted(name for name, status in checkpoint.sinks.items() if status.state is not SinkState.COMMITTED)


# -- references --------------------------------------------------------------------------------------------------


def bases_of(layout: Layout, checkpoint: Checkpoint) -> frozenset[CheckpointId]:
    """Checkpoints in whose folders artifacts of this one lie."""
    owners = {layout.named(artifact.key).checkpoint_id for artifact in checkpoint.artifacts}
    return frozenset(owner for owner in owners if owner is not None and owner != checkpoint.id)
