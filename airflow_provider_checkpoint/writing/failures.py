"""How many checkpoints in a row may fail before the job should. Pure but for its memory of the last ones."""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.writing.bases import SnapshotKind
from airflow_provider_checkpoint.writing.snapshot import SnapshotOptions

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import CheckpointId


class FailureReason(StrEnum):
    """Why a checkpoint did not come about. Counted are those that say something about the job or its store."""

    IO = "io"
    """The store could not be read or written."""
    SNAPSHOT = "snapshot"
    """The asynchronous part of a snapshot failed."""
    DECLINED = "declined"
    """A task or a sink refused."""
    EXPIRED = "expired"
    """It took longer than allowed."""
    FINALIZE = "finalize"
    """Everything was there, but it could not be committed."""

    NOT_READY = "not_ready"
    """Not all tasks are running yet."""
    SUBSUMED = "subsumed"
    """A newer one was committed first."""
    CANCELLED = "cancelled"
    """Someone gave it up."""
    SHUTDOWN = "shutdown"
    """The job is ending."""
    JOB_FAILED = "job_failed"
    """The job failed for another reason, and took the checkpoint with it."""

    @property
    def counts(self) -> bool:
        return self in _COUNTED


_COUNTED = frozenset(
    {
        FailureReason.IO,
        FailureReason.SNAPSHOT,
        FailureReason.DECLINED,
        FailureReason.EXPIRED,
        FailureReason.FINALIZE,
    }
)


class FailureVerdict(StrEnum):
    """What a failed checkpoint means for the job."""

    IGNORED = "ignored"
    """Nothing: it says nothing about the job, or is old news."""
    TOLERATED = "tolerated"
    """Counted; the job goes on."""
    FAIL_JOB = "fail_job"
    """One too many: the job should fail, and go back to its last checkpoint."""


class FailureManager:
    """Counts checkpoints that failed one after the other.

    :param tolerable: how many may fail in a row; None for any number.
    """

    def __init__(self, tolerable: int | None = 0) -> None:
        if tolerable is not None and tolerable < 0:
            raise ConfigurationError(
                "the number of tolerable failures is negative", subject=str(tolerable), hint="None means: any number."
            )
        self._tolerable = tolerable
        self._lock = threading.Lock()
        self._count = 0
        self._counted: set[CheckpointId] = set()
        self._last_success: CheckpointId | None = None

    @property
    def count(self) -> int:
        """Failures since the last success, or since the job was last told to fail."""
        return self._count

    def failed(
        self,
        reason: FailureReason,
        checkpoint_id: CheckpointId | None = None,
        options: SnapshotOptions = SnapshotOptions(),  # noqa: B008 - frozen
        *,
        in_task: bool = False,
    ) -> FailureVerdict:
        """A checkpoint failed; say what follows.

        Each id counts once, however many of its tasks report it, and not at all if it is not newer than the last
        success. A failure without an id (Flink: -1) always counts: nothing tells it from another one.

        A savepoint that fails is its owner's to repeat and never counts. But tasks that ``then_stop`` wait for theirs:
        if one of them fails it (``in_task``), it would wait for ever, so the job fails at once.
        """
        if options.kind is SnapshotKind.SAVEPOINT:
            return FailureVerdict.FAIL_JOB if options.then_stop and in_task else FailureVerdict.IGNORED
        with self._lock:
            if self._tolerable is None or not reason.counts or self._is_old_news(checkpoint_id):
                return FailureVerdict.IGNORED
            if checkpoint_id is not None:
                self._counted.add(checkpoint_id)
            self._count += 1
            if self._count <= self._tolerable:
                return FailureVerdict.TOLERATED
            # What comes after the restart is counted from the start.
            self._count = 0
            return FailureVerdict.FAIL_JOB

    def _is_old_news(self, checkpoint_id: CheckpointId | None) -> bool:
        if checkpoint_id is None:
            return False
        return checkpoint_id in self._counted or (
            self._last_success is not None and checkpoint_id <= self._last_success
        )

    def succeeded(self, checkpoint_id: CheckpointId) -> None:
        """A checkpoint was committed: the row of failures is broken, unless a newer one was committed before."""
        with self._lock:
            if self._last_success is None or checkpoint_id > self._last_success:
                self._last_success = checkpoint_id
                self._count = 0
                # Older ones are old news from now on without being remembered.
                self._counted = {each for each in self._counted if each > checkpoint_id}

    def nothing_to_do(self) -> None:
        """There was nothing to make a checkpoint of, and that much was learnt without a failure: the row is broken."""
        with self._lock:
            self._count = 0
