"""Judging, pruning and sweeping within one store, by the store's own means.

Timelines, undo and policies are the lifecycle's. What is here is safe without them, and heeds its pins and its trash.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError, ConfigurationError, CorruptManifestError
from airflow_provider_checkpoint.layouts.sidecar import _names as names
from airflow_provider_checkpoint.layouts.sidecar._listing import list_manifests, list_states, list_trash, read_pinned
from airflow_provider_checkpoint.layouts.sidecar._reports import RecoveryReport, ValidationResult
from airflow_provider_checkpoint.model import CheckpointId, Depth, Severity, SinkState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.layouts.sidecar._reader import SidecarReader
    from airflow_provider_checkpoint.model import Checkpoint, Issue

log = logging.getLogger(__name__)

#: No caller can make the orphan search look at younger state: a writer uploads it before the manifest that names it.
ORPHAN_AGE_FLOOR = timedelta(hours=1)


# -- judging -----------------------------------------------------------------------------------------------------


def validate(layout: Layout, number: int) -> ValidationResult:
    _, issues = _findings(layout, number, Depth.CONTENT)
    valid = all(issue.severity is not Severity.ERROR for issue in issues)
    return ValidationResult(checkpoint_id=number, valid=valid, issues=issues)


def recover(layout: SidecarReader, clock: Callable[[], datetime]) -> RecoveryReport:
    started = clock()
    chosen = None
    skipped: list[tuple[int, str]] = []
    for number in reversed(layout.manifests()):
        reason = unfit(layout, number, Depth.CONTENT)
        if reason is None:
            chosen = number
            break
        skipped.append((number, reason))
    examined = len(skipped) + (chosen is not None)
    return RecoveryReport(chosen_id=chosen, skipped=skipped, examined=examined, elapsed=clock() - started)


def unfit(layout: Layout, number: int, depth: Depth) -> str | None:
    """Why a checkpoint is not one to go back to; None if it is.

    Besides being valid its sinks must all have committed: its source positions are past data that a sink which is
    pending or has failed may never have published.
    """
    checkpoint, issues = _findings(layout, number, depth)
    reasons = [issue.message for issue in issues if issue.severity is Severity.ERROR]
    if checkpoint is not None:
        reasons += [
            f"sink '{name}' is {status.state.value}"
            for name, status in checkpoint.sinks.items()
            if status.state is not SinkState.COMMITTED
        ]
    return "; ".join(reasons) or None


def _findings(layout: Layout, number: int, depth: Depth) -> tuple[Checkpoint | None, list[Issue]]:
    examined = layout.examine(CheckpointId(number))
    issues = list(examined.issues)
    if examined.checkpoint is not None:
        for check in layout.checks(examined.checkpoint, depth):
            issues += check.run()
    return examined.checkpoint, issues


# -- removing ----------------------------------------------------------------------------------------------------


def prune(layout: SidecarReader, keep_count: int) -> int:
    """Remove what is older than the newest ``keep_count`` checkpoints that can be gone back to; answer how many went.

    Counting only those, a row of failed or broken checkpoints never pushes out the last good one. At least one stays,
    also for 0; while there are fewer good ones than asked for, everything stays.
    """
    if keep_count < 0:
        raise ConfigurationError(
            "a negative number of checkpoints cannot be kept", subject=str(keep_count), hint="Keep at least one."
        )
    manifests = layout.manifests()
    wanted = max(keep_count, 1)
    good = (number for number in reversed(manifests) if unfit(layout, number, Depth.PRESENCE) is None)
    kept = list(islice(good, wanted))
    if len(kept) < wanted:
        return 0
    spared = read_pinned(layout.blobs) | {layout.read_pointer()}
    doomed = {
        number: keys for number, keys in manifests.items() if number < kept[-1] and CheckpointId(number) not in spared
    }
    return _remove(layout.blobs, doomed)


def _remove(blobs: BlobStore, doomed: Mapping[int, list[str]]) -> int:
    # Manifests first, oldest first: whatever is interrupted, no manifest is left without its state, and the state
    # that is left without a manifest is an orphan. Of several manifests of one id the one that counts goes last.
    owners = {key: number for number, keys in doomed.items() for key in reversed(keys)}
    left = {owners[key] for key in _delete(blobs, owners)}
    gone = [number for number in doomed if number not in left]
    # Safe to remove: ids are never given out again, so nobody can be about to commit a manifest that names these.
    _delete(
        blobs,
        dict.fromkeys(
            key
            for number in gone
            for key in (names.state_key(number), *(names.state_beside(manifest) for manifest in doomed[number]))
        ),
    )
    return len(gone)


def cleanup_orphans(layout: Layout, min_age: timedelta, now: datetime) -> int:
    """Remove sidecars that no manifest stands for and that are old enough; answer how many went."""
    blobs = layout.blobs
    # The race this order is for: a save that finishes while we look. Its state is listed before, its manifest after.
    states = list_states(blobs)
    if not states:
        return 0
    # The trash is looked at before and after, so that what moves in or out while we look is seen in one of the places.
    trashed = list_trash(blobs)
    manifests = list_manifests(blobs)
    trashed |= list_trash(blobs)
    if not any(_is_readable(layout, number) for number in reversed(manifests)):
        log.warning("%s: no manifest can be read, so nothing proves that state is superfluous; all stays", blobs.uri)
        return 0
    cutoff = now - max(min_age, ORPHAN_AGE_FLOOR)
    orphans = [
        info.key
        for number, info in states
        if number not in manifests
        and number not in trashed
        # Without a known age it may be of a save that is under way.
        and info.modified is not None
        and info.modified <= cutoff
    ]
    # Safe to remove: no manifest, live or in the trash, bears the id, and no save takes as long as the state is old.
    return len(orphans) - len(_delete(blobs, orphans))


def _is_readable(layout: Layout, number: int) -> bool:
    try:
        layout.load(CheckpointId(number))
    except (CheckpointNotFoundError, CorruptManifestError):
        return False
    return True


def _delete(blobs: BlobStore, keys: Iterable[str]) -> list[str]:
    """Delete objects; answer which are still there, with the reason in the log."""
    failed = [outcome for outcome in blobs.delete(keys) if not outcome.deleted]
    for outcome in failed:
        log.warning("%s/%s could not be removed and stays: %s", blobs.uri, outcome.key, outcome.error)
    return [outcome.key for outcome in failed]
