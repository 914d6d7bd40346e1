"""The cases of Flink's own tests that concern snapshots, by their names there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError, SnapshotCancelledError, StoreUnavailableError
from airflow_provider_checkpoint.writing.bases import SnapshotKind
from airflow_provider_checkpoint.writing.snapshot import SnapshotOptions
from tests.unit.lifecycle.retention_items import item, kept
from tests.unit.writing.scenes import PATIENCE, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.writing.cancellation import Cancellation


# -- AsyncSnapshotCallableTest -----------------------------------------------------------------------------------


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A scene whose events include what is logged, and that must be clean in the end."""
    scene = Scene()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            scene.events.append("log")

    logger = logging.getLogger("airflow_provider_checkpoint.writing.snapshot")
    handler = Noting()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield scene
    logger.setLevel(level)
    logger.removeHandler(handler)
    scene.assert_clean()


def test_normal_run(scene: Scene) -> None:
    task = scene.start()
    task.run()
    assert task.result() == "result"
    assert scene.events == ["call", "log", "cleanup"]


def test_exception_run(scene: Scene) -> None:
    def fail(cancellation: Cancellation) -> str:
        raise OSError("test")

    scene.during = fail
    task = scene.start()
    task.run()
    with pytest.raises(OSError, match="test"):
        task.result()
    assert scene.events == ["call", "cleanup"]


def test_cancel_run(scene: Scene) -> None:
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    task.cancel()
    thread.join(PATIENCE)
    with pytest.raises(SnapshotCancelledError):
        task.result()
    assert scene.events == ["call", "cancel", "cleanup"]


def test_close_run(scene: Scene) -> None:
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    scene.owner.close()
    thread.join(PATIENCE)
    with pytest.raises(SnapshotCancelledError):
        task.result()
    assert scene.events == ["call", "cancel", "cleanup"]


def test_cancel_before_run(scene: Scene) -> None:
    task = scene.start()
    scene.events.append("cancel")
    task.cancel()
    task.run()
    with pytest.raises(SnapshotCancelledError):
        task.result()
    assert scene.events == ["cancel", "cleanup"]


def test_cancel_before_run_without_interrupt_which_leaks_in_flink(scene: Scene) -> None:
    task = scene.start()
    scene.events.append("cancel")
    task.cancel(interrupt=False)
    assert scene.events == ["cancel", "cleanup"]


def test_only_an_error_after_a_cancellation_becomes_one(scene: Scene) -> None:
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    scene.blocking.freed.set()
    thread.join(PATIENCE)
    assert isinstance(task.exception(), StoreUnavailableError)
    assert scene.events == ["call", "cleanup"]


# -- CheckpointOptionsTest, SnapshotType -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "uses_earlier", "used_by_later"),
    [
        (SnapshotKind.CHECKPOINT, True, True),  # FORWARD_BACKWARD
        (SnapshotKind.FULL_CHECKPOINT, False, True),  # FORWARD
        (SnapshotKind.SAVEPOINT, False, False),  # NO_SHARING
    ],
)
def test_what_a_kind_shares(kind: SnapshotKind, uses_earlier: bool, used_by_later: bool) -> None:
    options = SnapshotOptions(kind)
    assert (options.uses_earlier, options.used_by_later) == (uses_earlier, used_by_later)


def test_a_plain_checkpoint_is_what_is_taken_unless_something_else_is_asked_for() -> None:
    assert SnapshotOptions() == SnapshotOptions(SnapshotKind.CHECKPOINT, then_stop=False)


@pytest.mark.parametrize("kind", SnapshotKind)
def test_only_a_savepoint_may_stop_the_pipeline(kind: SnapshotKind) -> None:
    if kind is SnapshotKind.SAVEPOINT:
        assert SnapshotOptions(kind, then_stop=True).then_stop
    else:
        with pytest.raises(ConfigurationError, match=r"HINT: Stop with a savepoint"):
            SnapshotOptions(kind, then_stop=True)


# -- CompletedCheckpointStore: subsuming -------------------------------------------------------------------------

# In Flink a savepoint may leave the queue, but its files stay. Here what leaves is removed, so savepoints never leave,
# and "kept" is to be compared with Flink's queue and all savepoints. The last checkpoint that is none is what the next
# increment builds on (FLINK-21351): whoever plans a prune protects it, because the rules alone would let it go.
RETENTION = [
    # history, retained, Flink's queue
    ("c1 c2 s3 s4 s5", 1, "c2 s5"),
    ("c1 s2 c3", 1, "c3"),
    ("c1 s2 c3", 3, "c1 s2 c3"),
    ("c1 c2 c3", 1, "c3"),
    ("c1 c2 c3", 2, "c2 c3"),
]


@pytest.mark.parametrize(("history", "retained", "queue"), RETENTION)
def test_retention_keeps_what_flink_keeps_and_every_savepoint(history: str, retained: int, queue: str) -> None:
    taken = {int(name[1:]): name for name in history.split()}
    savepoints = {number for number, name in taken.items() if name.startswith("s")}
    next_builds_on = max(taken.keys() - savepoints)
    protected = dict.fromkeys(savepoints, ("a savepoint",)) | {next_builds_on: ("the next increment builds on it",)}
    items = [item(number, protected=protected.get(number, ())) for number in taken]
    expected = savepoints | {int(name[1:]) for name in queue.split()}
    assert kept(items, keep_last=retained) == sorted(expected)


def test_after_a_savepoint_that_stopped_the_pipeline_nothing_builds_on_the_last_checkpoint() -> None:
    savepoint = ("a savepoint",)
    items = [item(1), item(2, protected=savepoint), item(3, protected=savepoint)]
    assert kept(items, keep_last=1) == [2, 3]
