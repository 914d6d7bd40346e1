"""Taking a snapshot: a short part that stops the pipeline, then the writing, which does not.

::

    owner = SnapshotOwner("operator 'totals'")
    runner = SnapshotRunner("totals", strategy, owner, SnapshotMode.ASYNCHRONOUS)
    task = runner.snapshot(checkpoint_id, now_ms, streams, SnapshotOptions())   # prepares, on this thread
    executor.submit(task.run)                                                   # writes, on another
    task.result().operators                                                     # what the manifest needs

Promises, kept in every path (an error anywhere, cancelling before, while and after the run, the end of the owner, each
of them twice and at once):

- resources that ``prepare`` returned are released exactly once, and never while the snapshot still uses them;
- every stream the snapshot opened has been closed or aborted by then;
- the owner has forgotten the snapshot, and only then is its outcome known.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from airflow_provider_checkpoint.exceptions import ConfigurationError, SnapshotCancelledError
from airflow_provider_checkpoint.writing.bases import SnapshotKind
from airflow_provider_checkpoint.writing.cancellation import Cancellation, cancelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from airflow_provider_checkpoint.model import CheckpointId
    from airflow_provider_checkpoint.writing.streams import ArtifactStreams

log = logging.getLogger(__name__)


# -- what is asked for -------------------------------------------------------------------------------------------


class SnapshotMode(StrEnum):
    """Who runs the writing part."""

    SYNCHRONOUS = "synchronous"
    """The runner, before it returns."""
    ASYNCHRONOUS = "asynchronous"
    """The caller, when and where it likes."""


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How one snapshot is taken.

    Flink's options also say how barriers of several inputs are aligned. That is not ours: a Spark epoch ends when all
    its tasks have ended, so every snapshot is of one aligned moment.
    """

    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    then_stop: bool = False
    """The pipeline waits for this savepoint and ends with it (Flink: a synchronous savepoint)."""

    def __post_init__(self) -> None:
        if self.then_stop and self.kind is not SnapshotKind.SAVEPOINT:
            raise ConfigurationError(
                f"a {self.kind} cannot be the last thing a pipeline does",
                hint="Stop with a savepoint: it stays until a person removes it.",
            )

    @property
    def uses_earlier(self) -> bool:
        """Whether it may refer to artifacts of earlier checkpoints."""
        return self.kind is SnapshotKind.CHECKPOINT

    @property
    def used_by_later(self) -> bool:
        """Whether later checkpoints may refer to its artifacts."""
        return self.kind is not SnapshotKind.SAVEPOINT


# -- who does it -------------------------------------------------------------------------------------------------


class SnapshotResources(Protocol):
    """What the synchronous part holds on to for the asynchronous one: a frozen view, a file, a lock."""

    def release(self) -> None:
        """Give everything back. The runner calls it exactly once, on whichever thread comes last."""


Resources = TypeVar("Resources", bound=SnapshotResources)
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class SnapshotStrategy(Protocol[Resources, Result_co]):
    """A way of taking snapshots. Used for several checkpoints at once, so it must be thread-safe."""

    def prepare(self, checkpoint_id: CheckpointId) -> Resources:
        """The synchronous part: the pipeline stands still meanwhile, so freeze the state and return."""

    def snapshot(
        self,
        resources: Resources,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,
        streams: ArtifactStreams,
        options: SnapshotOptions,
    ) -> Callable[[Cancellation], Result_co]:
        """Return the asynchronous part, without running it.

        It writes what was prepared through ``streams``, each of them under ``Cancellation.guard``, and must not use the
        resources once it has returned or raised.
        """


# -- the task ----------------------------------------------------------------------------------------------------


class _Stage(Enum):
    NEW = auto()
    TAKEN = auto()
    """Someone runs it, or has cancelled it before it ran. That one cleans up, and nobody else."""
    OVER = auto()


class SnapshotTask(Generic[Result]):
    """The asynchronous part of one snapshot: run it, cancel it, wait for what became of it.

    A task that is neither run nor cancelled holds its resources until its owner is closed.
    """

    def __init__(
        self,
        description: str,
        write: Callable[[Cancellation], Result],
        resources: SnapshotResources,
        owner: SnapshotOwner,
    ) -> None:
        self.description = description
        self._write = write
        self._resources = resources
        self._owner = owner
        self._cancellation = Cancellation()
        self._future: Future[Result] = Future()
        self._lock = threading.Lock()
        self._stage = _Stage.NEW
        self._cancelled = False

    def run(self) -> None:
        """Write the snapshot. A task that has been run or cancelled is left alone.

        What goes wrong is the task's outcome and is not raised here; only what is no ``Exception`` is both, because an
        interrupt must reach the thread it was sent to.
        """
        with self._lock:
            if self._stage is not _Stage.NEW:
                return
            self._stage = _Stage.TAKEN
        try:
            result = self._write(self._cancellation)
            log.info("%s: snapshot written", self.description)
        except BaseException as error:
            self._finish(error)
            if not isinstance(error, Exception):
                raise
        else:
            self._finish((result,))

    def cancel(self, *, interrupt: bool = True) -> bool:
        """Give the snapshot up. False if it was over before; True makes its outcome a SnapshotCancelledError.

        Before the run, the resources are released at once. During the run, the run releases them as it ends: with
        ``interrupt`` its streams are aborted, so that it ends soon; without, it writes to the end for nothing.
        """
        with self._lock:
            if self._stage is _Stage.OVER:
                return self._cancelled
            self._cancelled = True
            unstarted = self._stage is _Stage.NEW
            self._stage = _Stage.TAKEN
        if unstarted:
            self._finish(cancelled())
        elif interrupt:
            self._cancellation.request()
        return True

    def _finish(self, outcome: tuple[Result] | BaseException) -> None:
        """Clean up and settle. Called once: by whoever moved the task from NEW to TAKEN."""
        with ExitStack() as steps:
            # Taken from the last to the first, each of them whatever became of the others.
            steps.callback(self._settle, outcome)
            steps.callback(self._owner.forget, self)
            steps.callback(_release, self._resources, self.description)
            steps.callback(self._cancellation.end)

    def _settle(self, outcome: tuple[Result] | BaseException) -> None:
        with self._lock:
            self._stage = _Stage.OVER
        if self._cancelled and not isinstance(outcome, SnapshotCancelledError):
            # Whoever cancelled was told that nothing comes of it, also if the last byte was written in that moment.
            # An error is taken for a consequence of the cancelling; should it be another, it can be seen as the cause.
            error = cancelled()
            error.__cause__ = outcome if isinstance(outcome, BaseException) else None
            outcome = error
        if isinstance(outcome, BaseException):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome[0])

    # -- what became of it ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the outcome is known, and all is cleaned up."""
        return self._future.done()

    @property
    def cancelled(self) -> bool:
        """Whether the outcome is, or is going to be, a SnapshotCancelledError."""
        return self._cancelled

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the outcome: the result, or what went wrong is raised; TimeoutError if it takes too long."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome: what went wrong, or None."""
        return self._future.exception(timeout)


class SnapshotOwner:
    """Whoever's snapshots these are: an operator, a job. Its end cancels those that are under way."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._tasks: set[SnapshotTask[Any]] = set()
        self._closed = False

    @property
    def under_way(self) -> int:
        """How many snapshots are not yet over."""
        return len(self._tasks)

    @property
    def closed(self) -> bool:
        return self._closed

    def register(self, task: SnapshotTask[Any]) -> None:
        """Take charge of a task; raises SnapshotCancelledError if the owner has ended, and leaves the task alone."""
        with self._lock:
            self._require_open()
            self._tasks.add(task)

    def forget(self, task: SnapshotTask[Any]) -> None:
        """A task is over. One that was never registered is fine."""
        with self._lock:
            self._tasks.discard(task)

    def require_open(self) -> None:
        """Raise SnapshotCancelledError if the owner has ended."""
        with self._lock:
            self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            raise SnapshotCancelledError("snapshot was cancelled: its owner has ended", subject=self.name or None)

    def close(self) -> None:
        """Cancel every snapshot under way and take no more. Does not wait for those that are running."""
        with self._lock:
            self._closed = True
            tasks = list(self._tasks)
        # Without the lock: a task that ends asks us to forget it.
        for task in tasks:
            task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SnapshotRunner(Generic[Resources, Result]):
    """Takes snapshots with one strategy for one owner."""

    def __init__(
        self,
        description: str,
        strategy: SnapshotStrategy[Resources, Result],
        owner: SnapshotOwner,
        mode: SnapshotMode = SnapshotMode.ASYNCHRONOUS,
    ) -> None:
        self._description = description
        self._strategy = strategy
        self._owner = owner
        self._mode = mode

    def snapshot(
        self,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,
        streams: ArtifactStreams,
        options: SnapshotOptions,
    ) -> SnapshotTask[Result]:
        """Prepare on this thread and return the rest as a task: run already in synchronous mode, else to be run.

        Errors of the synchronous part are raised, and nothing is held after them. Errors of the rest are in the task,
        in both modes.
        """
        self._owner.require_open()
        description = f"{self._description}, checkpoint {checkpoint_id}"
        resources = self._strategy.prepare(checkpoint_id)
        try:
            write = self._strategy.snapshot(resources, checkpoint_id, timestamp_ms, streams, options)
        except BaseException:
            _release(resources, description)
            raise
        task = SnapshotTask(description, write, resources, self._owner)
        try:
            self._owner.register(task)
        except BaseException:
            # From here on the task releases, because another thread might be cancelling it.
            task.cancel()
            raise
        if self._mode is SnapshotMode.SYNCHRONOUS:
            task.run()
        return task


def _release(resources: SnapshotResources, description: str) -> None:
    try:
        resources.release()
    except Exception:
        # What was written is written, and what failed has its own error: neither changes by this.
        log.exception("%s: resources of the snapshot could not be released", description)
