"""Going back to a checkpoint: what it means for history, said before it is done.

A restore of our own layouts moves no state. It opens a timeline that goes on after the checkpoint: every writer that
still runs is refused from then on, and whoever starts next continues there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptError,
)
from airflow_provider_checkpoint.lifecycle.facts import Survey, survey
from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan, RestorePlan
from airflow_provider_checkpoint.lifecycle.timelines import lineage, read_timelines, timeline_numbers
from airflow_provider_checkpoint.lifecycle.validation import not_examined, validate
from airflow_provider_checkpoint.model import CheckpointId, Timeline

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import Checkpoint


def plan_restore(layout: Layout, recovery: RecoveryPlan) -> RestorePlan:
    """What going back to the chosen point of a recovery plan leaves behind."""
    store = survey(layout)
    return RestorePlan(
        uri=recovery.uri,
        layout=recovery.layout,
        made=recovery.made,
        checkpoint_id=recovery.chosen,
        epoch=recovery.epoch,
        depth=recovery.depth,
        current=max(timeline_numbers(layout.blobs), default=0),
        abandons=left_behind(store, recovery.timeline, recovery.epoch, recovery.made),
        distance=recovery.distance,
        sinks=recovery.sinks,
        warnings=recovery.warnings,
    )


def left_behind(store: Survey, timeline: int | None, epoch: int | None, now: datetime) -> tuple[CheckpointId, ...]:
    """Checkpoints of the present history that are none of the one that would go on after an epoch of a timeline."""
    new = Timeline(
        number=max([store.lineage.current, *(each.timeline for each in store.checkpoints)]) + 1,
        parent=timeline,
        fork_epoch=epoch,
        created=now,
        writer="nobody",
    )
    after = lineage([*store.timelines, new])
    return tuple(
        each.id for each in store.checkpoints if store.on_branch(each) and not after.contains(each.timeline, each.epoch)
    )


def require_restorable(layout: Layout, plan: RestorePlan) -> Checkpoint | None:
    """The checkpoint of a plan, proven once more. Raises if it is not whole, or history has moved on since."""
    current = max(timeline_numbers(layout.blobs), default=0)
    if current != plan.current:
        raise ConfirmationNeededError(
            f"since the plan was made, timeline {current} has been opened",
            subject=plan.uri,
            hint="Another run has started or gone back meanwhile. Look (timeline), then choose a recovery point anew.",
        )
    if plan.checkpoint_id is None:
        return None
    result = validate(layout, plan.checkpoint_id, plan.depth)
    if not result.proven:
        raise not_examined(layout, result)
    if not result.valid and not result.missing:
        # A timeline that begins at a broken checkpoint would leave nothing to restart from.
        raise CorruptError(
            f"checkpoint {plan.checkpoint_id} cannot be proven: {result.reason}",
            subject=layout.blobs.uri,
            hint="recover tells which checkpoint can.",
        )
    return layout.load(plan.checkpoint_id)


def require_still_there(layout: Layout, checkpoint_id: CheckpointId, *, meanwhile: str, hint: str) -> None:
    """Look once more, now that every prune sees where we start: one that had looked before may have taken it."""
    try:
        layout.load(checkpoint_id)
    except CheckpointNotFoundError as error:
        raise CheckpointNotFoundError(
            f"checkpoint {checkpoint_id} was pruned while {meanwhile}", subject=layout.blobs.uri, hint=hint
        ) from error


def require_its_start(layout: Layout, timeline: Timeline) -> Timeline:
    """The timeline, if the checkpoint that it goes back to is still there."""
    start = timeline.fork_checkpoint
    if start is not None:
        hint = f"undelete {start}: timeline {timeline.number} starts from it. Or restore another one."
        require_still_there(layout, start, meanwhile="a restore went back to it", hint=hint)
    return timeline


def restored_by(blobs: BlobStore, mark: str) -> Timeline | None:
    """The timeline that a restore of this mark has opened, if it is still the current one.

    A restore whose answer was lost is called again; it must neither open a second timeline nor be told that history has
    moved on.
    """
    timelines = read_timelines(blobs)
    return timelines[-1] if timelines and timelines[-1].writer == mark else None
