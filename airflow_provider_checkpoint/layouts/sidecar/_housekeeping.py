"""Judging, pruning and cleaning up, as the reference's store offers them: a face over the lifecycle.

What is valid, what may go and what to go back to is decided there, for all layouts alike. The lifecycle imports the
layouts, so here it is imported inside the methods.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.sidecar._reader import SidecarReader
from airflow_provider_checkpoint.layouts.sidecar._reports import RecoveryReport, ValidationResult
from airflow_provider_checkpoint.model import CheckpointId, Depth

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import Report

log = logging.getLogger(__name__)

#: Who prunes and cleans up here, for the audit trail.
_BY = "sidecar store"


class SidecarHousekeeping(SidecarReader):
    """What the reference's store does besides saving and loading."""

    def __init__(self, blobs: BlobStore, *, vnode_count: int | None, clock: Callable[[], datetime]) -> None:
        super().__init__(blobs, vnode_count=vnode_count)
        self._clock = clock

    def prune(self, keep_count: int) -> int:
        """Keep the newest ``keep_count`` checkpoints that can be gone back to, move the rest to the trash; how many.

        One that can be gone back to always stays, and so does all that the lifecycle protects: what is pinned, or may
        still be committing, or is the start of the current timeline. Until a sweep removes it for good, each can be put
        back, and its state stays where it is.
        """
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
        from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy

        if keep_count < 0:
            raise ConfigurationError(
                "a negative number of checkpoints cannot be kept", subject=str(keep_count), hint="Keep at least one."
            )
        plan = plan_prune(self, RetentionPolicy(keep_last=keep_count), now=self._clock())
        return _count_done(Executor(self, by=_BY, clock=self._clock).prune(plan))

    def cleanup_orphans(self, min_age: timedelta = timedelta(0)) -> int:
        """Remove sidecars that no manifest, live or in the trash, needs; answer how many went.

        They must be older than ``min_age`` and than the lifecycle's own limits: an hour, and a day for one above the
        newest checkpoint, whose save may be under way. Raises NoEvidenceError if no manifest can be read or the
        store's clock is not ours, ConfirmationNeededError if so much would go that it looks like a mistake.
        """
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
        from airflow_provider_checkpoint.lifecycle.safety import Safety

        safety = Safety(orphan_age=min_age)
        plan = plan_orphans(self, now=self._clock(), safety=safety)
        return _count_done(Executor(self, by=_BY, safety=safety, clock=self._clock).remove_orphans(plan))

    def validate_checkpoint(self, checkpoint_id: int) -> ValidationResult:
        """Prove a checkpoint: its manifest, and all of its state by the checksum."""
        from airflow_provider_checkpoint.lifecycle.validation import validate

        result = validate(self, CheckpointId(checkpoint_id), Depth.CONTENT)
        if not result.proven:
            raise StoreUnavailableError(
                f"checkpoint {checkpoint_id} could not be examined: {result.reason}",
                subject=self.blobs.uri,
                hint="The store did not answer. Try again; nothing is known to be wrong with the checkpoint.",
            )
        return ValidationResult(checkpoint_id=checkpoint_id, valid=result.valid, issues=result.issues)

    def recover_latest_validated(self) -> RecoveryReport:
        """The newest checkpoint of the current timeline that is valid and whose commit was decided.

        The pointer is not asked. If the decision was made and a sink has not committed yet, it must do so before the
        pipeline goes on. No choice in a store that is not ``empty`` means that every checkpoint is unfit; that is for a
        person to see.
        """
        from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose

        started = self._clock()
        # That nothing fits is an answer here, with the reasons, and not an error.
        plan = choose(self, Wish(depth=Depth.CONTENT, fresh_start_ok=True), now=started)
        return RecoveryReport(
            chosen_id=None if plan.chosen is None else int(plan.chosen.value),
            skipped=[(int(skipped.checkpoint_id.value), skipped.reason) for skipped in plan.skipped],
            examined=plan.examined,
            elapsed=self._clock() - started,
        )


def _count_done(report: Report) -> int:
    """How many items of a plan were carried out; the others go to the log with the reason."""
    for outcome in report.failures:
        log.warning("%s: %s stays: %s", report.verb, outcome.subject, outcome.message)
    return len(report.outcomes) - len(report.failures)
