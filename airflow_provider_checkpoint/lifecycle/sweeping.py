"""Shutting undelete out before a sweep removes anything, and letting it in again. See ``trash`` for the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.lifecycle import trash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import SweepPlan
    from airflow_provider_checkpoint.model import CheckpointId


@dataclass(frozen=True, slots=True)
class Mark:
    """A checkpoint that nobody can undelete any more."""

    entry: trash.TrashEntry
    ours: bool
    """Set by this run, and not by one that died and may have removed something."""


def mark_purging(blobs: BlobStore, checkpoint_id: CheckpointId, plan: SweepPlan, writer: str) -> Mark | None:
    """Shut undelete out; None if the checkpoint is not one to remove, or no longer.

    :param writer: tells the marks of different runs apart.
    """
    key = trash.purging_key(checkpoint_id)
    ours = blobs.create(key, f"{writer}\n".encode()).created
    entry = None
    try:
        entry = _expired(blobs, checkpoint_id, plan)
    finally:
        # Also if the entry cannot be read: nothing was removed under this mark.
        if entry is None and ours:
            blobs.delete([key])
    return None if entry is None else Mark(entry, ours)


def unmark(blobs: BlobStore, marks: Iterable[Mark]) -> None:
    """Let undelete in again where nothing was removed: under the marks that we set."""
    blobs.delete([trash.purging_key(mark.entry.checkpoint_id) for mark in marks if mark.ours])


def _expired(blobs: BlobStore, checkpoint_id: CheckpointId, plan: SweepPlan) -> trash.TrashEntry | None:
    """The entry of a checkpoint whose undo window has passed and that nobody has put back.

    The manifest is looked at before the entry counts: a prune writes the entry first, so whoever no longer finds the
    manifest finds the entry of the prune that took it.
    """
    entry = trash.read_entry(blobs, checkpoint_id)
    if entry is None or any(blobs.stat(manifest) is not None for manifest in entry.keys):
        return None
    entry = trash.read_entry(blobs, checkpoint_id)
    if entry is None or entry.purged is not None:
        return None
    return entry if trash.trashed_at(blobs, entry) <= plan.undo_window_end else None
