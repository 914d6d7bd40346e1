"""Whatever happens to a snapshot: resources are released once, streams are ended, the owner forgets it."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs.faulty import SimulatedCrash
from airflow_provider_checkpoint.exceptions import PermanentError, SnapshotCancelledError, StoreUnavailableError
from airflow_provider_checkpoint.writing.snapshot import SnapshotMode, SnapshotOwner, SnapshotTask
from tests.unit.writing.scenes import PATIENCE, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.writing.cancellation import Cancellation

BOTH_MODES = pytest.mark.parametrize("mode", SnapshotMode)


class BrokenError(Exception):
    pass


def broken(*_: object) -> str:
    raise BrokenError("broken on purpose")


class RefusingOwner(SnapshotOwner):
    """An owner that fails for a reason of its own."""

    def register(self, task: SnapshotTask) -> None:
        raise BrokenError("no room in the registry")


def run_in_either_mode(scene: Scene) -> SnapshotTask[str]:
    task = scene.start()
    if scene.mode is SnapshotMode.ASYNCHRONOUS:
        assert not task.done
        task.run()
    assert task.done
    return task


# -- without cancelling ------------------------------------------------------------------------------------------


@BOTH_MODES
def test_a_snapshot_that_goes_well_gives_its_result_and_leaves_nothing_behind(mode: SnapshotMode) -> None:
    scene = Scene(mode)
    scene.during = scene.write_one
    task = run_in_either_mode(scene)
    assert scene.objects() == [task.result()]
    assert task.exception() is None
    assert not task.cancelled
    scene.assert_clean()


@BOTH_MODES
def test_an_error_of_the_writing_part_is_the_outcome_and_is_not_thrown(mode: SnapshotMode) -> None:
    scene = Scene(mode, during=broken)
    task = run_in_either_mode(scene)
    with pytest.raises(BrokenError):
        task.result()
    assert isinstance(task.exception(), BrokenError)
    assert not task.cancelled
    scene.assert_clean()


@BOTH_MODES
def test_a_stream_that_is_open_when_an_error_comes_leaves_no_artifact(mode: SnapshotMode) -> None:
    scene = Scene(mode)

    def half(cancellation: Cancellation) -> str:
        with cancellation.guard(scene.streams.open(scene.checkpoint_id, "window", 0)) as stream:
            stream.write(b"half of the sta")
            broken()
        raise AssertionError("unreachable")

    scene.during = half
    assert isinstance(run_in_either_mode(scene).exception(), BrokenError)
    assert len(scene.streams.opened) == 1
    assert scene.objects() == []
    scene.assert_clean()


@BOTH_MODES
@pytest.mark.parametrize("death", [SimulatedCrash, KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_the_outcome_and_reaches_its_thread_as_well(
    mode: SnapshotMode, death: type[BaseException]
) -> None:
    tasks: list[SnapshotTask[str]] = []

    class Remembering(SnapshotOwner):
        def register(self, task: SnapshotTask) -> None:
            super().register(task)
            tasks.append(task)

    def die(cancellation: Cancellation) -> str:
        raise death

    scene = Scene(mode, Remembering(), during=die)
    with pytest.raises(death):
        run_in_either_mode(scene)
    assert isinstance(tasks[0].exception(), death)
    scene.assert_clean()


@BOTH_MODES
def test_an_error_in_prepare_is_thrown_and_there_is_nothing_to_release(mode: SnapshotMode) -> None:
    scene = Scene(mode, in_prepare=broken)
    with pytest.raises(BrokenError):
        scene.start()
    assert scene.held == []
    scene.assert_clean()


@BOTH_MODES
@pytest.mark.parametrize("error", [BrokenError, SimulatedCrash])
def test_an_error_while_the_writing_part_is_made_is_thrown_and_releases(
    mode: SnapshotMode, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    scene = Scene(mode, in_snapshot=fail)
    with pytest.raises(error):
        scene.start()
    assert scene.events == ["cleanup"]
    scene.assert_clean()


@BOTH_MODES
def test_an_owner_that_fails_to_register_is_an_error_that_releases(mode: SnapshotMode) -> None:
    scene = Scene(mode, RefusingOwner())
    with pytest.raises(BrokenError):
        scene.start()
    assert scene.events == ["cleanup"]
    scene.assert_clean()


@BOTH_MODES
def test_resources_that_cannot_be_released_do_not_change_the_outcome(
    mode: SnapshotMode, caplog: pytest.LogCaptureFixture
) -> None:
    well, badly = Scene(mode, release_fails=True), Scene(mode, during=broken, release_fails=True)
    assert run_in_either_mode(well).result() == "result"
    assert isinstance(run_in_either_mode(badly).exception(), BrokenError)
    assert caplog.text.count("could not be released") == 2
    well.assert_clean()
    badly.assert_clean()


def test_resources_that_cannot_be_released_do_not_hide_why_the_writing_part_could_not_be_made() -> None:
    scene = Scene(in_snapshot=broken, release_fails=True)
    with pytest.raises(BrokenError):
        scene.start()
    scene.assert_clean()


def test_a_task_runs_once_however_often_it_is_told_to() -> None:
    scene = Scene()
    task = scene.start()
    task.run()
    task.run()
    assert task.result() == "result"
    assert scene.events.count("call") == 1
    scene.assert_clean()


def test_a_task_that_is_told_to_run_while_it_runs_goes_on() -> None:
    scene = Scene()
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    task.run()
    assert not task.done
    scene.blocking.abort()
    thread.join(PATIENCE)
    assert isinstance(task.exception(), StoreUnavailableError)
    assert scene.events.count("call") == 1
    scene.assert_clean()


def test_an_executor_can_run_a_task() -> None:
    scene = Scene()
    scene.during = scene.write_one
    task = scene.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(task.run)
        assert task.result(PATIENCE) in scene.objects()
    scene.assert_clean()


def test_the_synchronous_part_runs_on_the_caller_and_the_rest_where_it_is_run() -> None:
    threads: dict[str, int] = {}
    scene = Scene(
        in_prepare=lambda: threads.update(prepare=threading.get_ident()),
        in_snapshot=lambda: threads.update(snapshot=threading.get_ident()),
        during=lambda _: str(threads.update(write=threading.get_ident())),
    )
    task = scene.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(task.run).result(PATIENCE)
        elsewhere = pool.submit(threading.get_ident).result(PATIENCE)
    here = threading.get_ident()
    assert threads == {"prepare": here, "snapshot": here, "write": elsewhere}


def test_waiting_for_a_task_that_nobody_runs_ends_with_a_timeout() -> None:
    scene = Scene()
    task = scene.start()
    with pytest.raises(TimeoutError):
        task.result(timeout=0)
    with pytest.raises(TimeoutError):
        task.exception(timeout=0)
    scene.owner.close()


@pytest.mark.parametrize("act", [SnapshotTask.run, SnapshotTask.cancel])
def test_the_outcome_is_known_only_when_all_is_released_and_forgotten(
    act: Callable[[SnapshotTask[str]], object],
) -> None:
    steps: list[tuple[str, bool]] = []

    class Noting(SnapshotOwner):
        def forget(self, task: SnapshotTask) -> None:
            super().forget(task)
            steps.append(("forgotten", task.done))

    scene = Scene(owner=Noting())
    task = scene.start()
    scene.held[0].on_release = lambda: steps.append(("released", task.done))
    act(task)
    assert steps == [("released", False), ("forgotten", False)]
    assert task.done


# -- cancelling --------------------------------------------------------------------------------------------------

CANCELS = {
    "cancel": lambda scene, task: task.cancel(),
    "cancel without interrupt": lambda scene, task: task.cancel(interrupt=False),
    "cancel twice": lambda scene, task: task.cancel() and task.cancel(),
    "cancel both ways": lambda scene, task: task.cancel(interrupt=False) and task.cancel(),
    "close the owner": lambda scene, task: scene.owner.close(),
    "close the owner twice": lambda scene, task: (scene.owner.close(), scene.owner.close()),
    "cancel and close the owner": lambda scene, task: (task.cancel(), scene.owner.close()),
}
ALL_CANCELS = pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)
INTERRUPTING = [name for name in CANCELS if name != "cancel without interrupt"]


def assert_cancelled(task: SnapshotTask[str]) -> None:
    assert task.done
    assert task.cancelled
    with pytest.raises(SnapshotCancelledError, match="snapshot was cancelled"):
        task.result()
    assert isinstance(task.exception(), PermanentError)
    assert isinstance(task.exception(), CancelledError)


@ALL_CANCELS
def test_cancelled_before_it_runs_it_never_runs(cancel: Callable[[Scene, SnapshotTask[str]], object]) -> None:
    scene = Scene()
    task = scene.start()
    cancel(scene, task)
    assert_cancelled(task)
    scene.assert_clean()
    task.run()
    assert "call" not in scene.events
    assert_cancelled(task)
    scene.assert_clean()


@pytest.mark.parametrize("name", INTERRUPTING)
def test_cancelled_while_it_hangs_in_a_stream_it_ends(name: str) -> None:
    scene = Scene()
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    assert scene.owner.under_way == 1
    CANCELS[name](scene, task)
    thread.join(PATIENCE)
    assert_cancelled(task)
    assert isinstance(task.exception().__cause__, StoreUnavailableError)
    assert scene.objects() == []
    scene.assert_clean()


def test_cancelled_without_interrupt_while_it_runs_it_writes_to_the_end_for_nothing() -> None:
    scene = Scene()
    scene.during = scene.get_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    assert task.cancel(interrupt=False)
    assert not task.done
    assert not scene.blocking.freed.is_set()
    scene.blocking.abort()
    thread.join(PATIENCE)
    assert_cancelled(task)
    scene.assert_clean()


@ALL_CANCELS
def test_cancelled_after_it_is_over_nothing_changes(cancel: Callable[[Scene, SnapshotTask[str]], object]) -> None:
    scene = Scene()
    task = scene.start()
    task.run()
    cancel(scene, task)
    assert task.result() == "result"
    assert not task.cancelled
    scene.assert_clean()


def test_cancel_says_whether_anything_will_come_of_the_snapshot() -> None:
    scene = Scene()
    done, failed, given_up = scene.start(), scene.start(), scene.start()
    done.run()
    scene.during = broken
    failed.run()
    assert [task.cancel() for task in (done, failed, given_up, given_up)] == [False, False, True, True]
    scene.assert_clean()


def test_a_snapshot_that_is_cancelled_with_its_last_byte_is_cancelled() -> None:
    scene = Scene()

    def cancel_and_go_on(cancellation: Cancellation) -> str:
        assert task.cancel()
        assert cancellation.requested
        return "result"

    scene.during = cancel_and_go_on
    task = scene.start()
    task.run()
    assert_cancelled(task)
    assert task.exception().__cause__ is None
    scene.assert_clean()


def test_a_snapshot_that_asks_is_told_to_stop() -> None:
    scene = Scene()

    def busy(cancellation: Cancellation) -> str:
        cancellation.check()
        task.cancel()
        cancellation.check()
        raise AssertionError("unreachable")

    scene.during = busy
    task = scene.start()
    task.run()
    assert_cancelled(task)
    scene.assert_clean()


def test_a_stream_opened_after_the_cancellation_is_aborted_at_once() -> None:
    scene = Scene()

    def late(cancellation: Cancellation) -> str:
        task.cancel()
        return scene.write_one(cancellation)

    scene.during = late
    task = scene.start()
    task.run()
    assert_cancelled(task)
    assert len(scene.streams.opened) == 1
    assert scene.objects() == []
    scene.assert_clean()


def test_a_stream_left_open_on_another_thread_is_aborted_with_the_snapshot_and_none_is_opened_afterwards() -> None:
    scene = Scene()
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []

    def stray(cancellation: Cancellation) -> None:
        for attempt in (scene.get_stuck, scene.write_one):
            try:
                attempt(cancellation)
            except (StoreUnavailableError, SnapshotCancelledError) as error:
                errors.append(error)

    def careless(cancellation: Cancellation) -> str:
        threads.append(threading.Thread(target=stray, args=[cancellation]))
        threads[0].start()
        assert scene.blocking.stuck.wait(PATIENCE)
        return "result"

    scene.during = careless
    task = scene.start()
    task.run()
    threads[0].join(PATIENCE)
    assert task.result() == "result"
    assert [type(error) for error in errors] == [StoreUnavailableError, SnapshotCancelledError]
    assert scene.objects() == []
    scene.assert_clean()


def test_a_stream_that_cannot_be_aborted_does_not_keep_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn:
        aborts = 0

        def abort(self) -> None:
            self.aborts += 1
            if self.aborts == 1:
                raise OSError("the socket does not answer")

    scene = Scene()

    def first_stubborn_then_stuck(cancellation: Cancellation) -> str:
        with cancellation.guard(Stubborn()):
            return scene.get_stuck(cancellation)

    scene.during = first_stubborn_then_stuck
    task = scene.start()
    thread = scene.run_until_stuck(task)
    task.cancel()
    thread.join(PATIENCE)
    assert_cancelled(task)
    assert "could not be aborted" in caplog.text
    scene.assert_clean()


# -- the owner ---------------------------------------------------------------------------------------------------


@BOTH_MODES
def test_an_owner_that_has_ended_takes_no_snapshots_and_nothing_is_prepared(mode: SnapshotMode) -> None:
    scene = Scene(mode, SnapshotOwner("operator 'totals'"))
    scene.owner.close()
    assert scene.owner.closed
    with pytest.raises(SnapshotCancelledError, match=r"owner has ended: operator 'totals'"):
        scene.start()
    assert scene.held == []
    scene.assert_clean()


@BOTH_MODES
@pytest.mark.parametrize("moment", ["in_prepare", "in_snapshot"])
def test_an_owner_that_ends_during_the_synchronous_part_gets_no_snapshot(mode: SnapshotMode, moment: str) -> None:
    scene = Scene(mode)
    setattr(scene, moment, scene.owner.close)
    with pytest.raises(SnapshotCancelledError):
        scene.start()
    assert scene.events == ["cleanup"]
    scene.assert_clean()


@BOTH_MODES
def test_an_owner_that_ends_right_after_it_registered_cancels(mode: SnapshotMode) -> None:
    class Fleeting(SnapshotOwner):
        def register(self, task: SnapshotTask) -> None:
            super().register(task)
            self.close()

    scene = Scene(mode, Fleeting())
    task = scene.start()
    task.run()
    assert_cancelled(task)
    assert "call" not in scene.events
    scene.assert_clean()


def test_an_owner_that_ends_while_a_synchronous_snapshot_runs_cancels_it() -> None:
    scene = Scene(SnapshotMode.SYNCHRONOUS)
    scene.during = scene.get_stuck

    def close_when_stuck() -> None:
        assert scene.blocking.stuck.wait(PATIENCE)
        scene.owner.close()

    closing = threading.Thread(target=close_when_stuck)
    closing.start()
    task = scene.start()
    closing.join(PATIENCE)
    assert_cancelled(task)
    scene.assert_clean()


def test_an_owner_is_a_block_whose_end_cancels_all_its_snapshots() -> None:
    scene = Scene()
    with scene.owner:
        tasks = [scene.start() for _ in range(3)]
        tasks[1].run()
        assert scene.owner.under_way == 2
    assert [task.cancelled for task in tasks] == [True, False, True]
    scene.assert_clean()


def test_a_snapshot_may_end_its_own_owner() -> None:
    scene = Scene()

    def end(cancellation: Cancellation) -> str:
        scene.owner.close()
        return "result"

    scene.during = end
    task = scene.start()
    task.run()
    assert_cancelled(task)
    scene.assert_clean()
