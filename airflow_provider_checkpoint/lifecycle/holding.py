"""What stays although a prune plan says that it goes, because of something that happened since the plan was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptManifestError,
    NoEvidenceError,
    NoRecoveryPointError,
)
from airflow_provider_checkpoint.lifecycle.facts import bases_of
from airflow_provider_checkpoint.lifecycle.records import read_ledger, read_pins
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan
    from airflow_provider_checkpoint.model import CheckpointId


def newest_restorable(layout: Layout, plan: PrunePlan, now: datetime) -> CheckpointId:
    """The one to go back to, as things are now. Raises if there is none: then nothing goes."""
    if plan.newest_restorable is None or plan.newest_restorable in {item.checkpoint_id for item in plan.removed}:
        raise NoEvidenceError("the plan names no checkpoint that would be left to restore", subject=plan.uri)
    ledger = read_ledger(layout.blobs, layout)
    broken = frozenset(checkpoint_id for checkpoint_id, proof in ledger.items() if not proof.valid)
    try:
        chosen = choose(layout, Wish(depth=plan.depth, skip=broken), now=now).chosen
    except NoRecoveryPointError as error:
        raise ConfirmationNeededError(
            "since the plan was made, the checkpoint to keep for a recovery has gone or is no longer whole",
            subject=plan.uri,
            hint="Make a new plan. While nothing here can be restored, nothing goes.",
        ) from error
    assert chosen is not None, "a fresh start was not asked for"
    return chosen


def held_since(layout: Layout, plan: PrunePlan, now: datetime) -> dict[CheckpointId, str]:
    """Pinned checkpoints, the start of the current timeline, and what these and new checkpoints build on; and why.

    So is what the format itself holds.
    """
    held = {**layout.held()}
    held |= {pin.checkpoint_id: f"pinned as {pin.name!r}" for pin in read_pins(layout.blobs) if pin.holds(now)}
    timelines = read_timelines(layout.blobs)
    if timelines and timelines[-1].fork_checkpoint is not None:
        held[timelines[-1].fork_checkpoint] = "the current timeline starts from it"
    planned = {item.checkpoint_id for item in plan.items}
    new = [checkpoint_id for checkpoint_id in layout.candidates() if checkpoint_id not in planned]
    for checkpoint_id in [*new, *held]:
        held = _bases(layout, checkpoint_id) | held
    return held


def _bases(layout: Layout, checkpoint_id: CheckpointId) -> dict[CheckpointId, str]:
    try:
        checkpoint = layout.load(checkpoint_id)
    except (CheckpointNotFoundError, CorruptManifestError):
        # Whatever an unreadable one builds on: a prune takes no artifacts, and no sweep does while it is there.
        return {}
    return dict.fromkeys(bases_of(layout, checkpoint), f"base of {checkpoint_id}")
