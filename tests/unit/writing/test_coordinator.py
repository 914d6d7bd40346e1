"""Whatever dies wherever: after a restart the output holds each number once, and the state is their sum."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    FencedWriterError,
    NoRecoveryPointError,
    SinkCommitError,
)
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import Depth, SinkState
from airflow_provider_checkpoint.writing.coordinator import Coordinator
from airflow_provider_checkpoint.writing.epoch_folders import EpochFolders
from tests.unit.writing.pipeline import NUMBERS, SumPipeline, published, visible

STEPS = ("prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer")


def assert_exact(store, output):
    pipeline = SumPipeline(store, output)
    pipeline.run()
    assert published(output) == list(NUMBERS)
    assert visible(output) == list(NUMBERS)
    assert pipeline.total == sum(NUMBERS)
    last = pipeline.coordinator.last
    assert last is not None
    assert {status.state for status in last.sinks.values()} == {SinkState.COMMITTED}
    assert pipeline.layout.read_latest() == last.id


def test_without_faults_each_epoch_becomes_a_checkpoint_and_output_is_exact():
    store, output = MemoryBlobs(), MemoryBlobs()
    assert_exact(store, output)
    assert len(SumPipeline(store, output).layout.list_checkpoints()) == len(NUMBERS) / 2


@pytest.mark.parametrize("epoch", [1, 2, 4])
@pytest.mark.parametrize("step", STEPS)
def test_dying_after_any_step_of_a_commit_loses_and_doubles_nothing(step, epoch):
    store, output = MemoryBlobs(), MemoryBlobs()
    seen = 0

    def die(at):
        nonlocal seen
        seen += at == step
        if at == step and seen == epoch:
            raise SimulatedCrash(step)

    with pytest.raises(SimulatedCrash):
        SumPipeline(store, output, hook=die).run()
    assert_exact(store, output)


def crash_points(side: str) -> int:
    store, output = FaultyBlobs(MemoryBlobs()), FaultyBlobs(MemoryBlobs())
    SumPipeline(store, output).run(epochs=2)
    return len((store if side == "store" else output).mutations)


@pytest.mark.parametrize("side", ["store", "output"])
def test_dying_before_any_single_write_loses_and_doubles_nothing(side):
    for k in range(crash_points(side)):
        store, output = MemoryBlobs(), MemoryBlobs()
        broken_store = FaultyBlobs(store, crash_after=k if side == "store" else None)
        broken_output = FaultyBlobs(output, crash_after=k if side == "output" else None)
        with pytest.raises(SimulatedCrash):
            SumPipeline(broken_store, broken_output).run()
        assert_exact(store, output)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.TIMEOUT, Fault.FAIL, Fault.CRASH_AFTER])
@pytest.mark.parametrize("side", ["store", "output"])
@pytest.mark.parametrize("verb", ["create", "replace", "delete", "read", "list", "stat"])
def test_a_fault_in_any_call_followed_by_a_restart_is_harmless(verb, side, fault):
    for position in range(12):
        store, output = MemoryBlobs(), MemoryBlobs()
        broken = FaultyBlobs(store if side == "store" else output)
        for _ in range(position):
            broken.inject(Fault.NONE, verb=verb)
        broken.inject(fault, verb=verb)
        with contextlib.suppress(CheckpointError, SimulatedCrash):
            SumPipeline(broken if side == "store" else store, broken if side == "output" else output).run()
        assert_exact(store, output)


def test_going_back_to_an_older_checkpoint_undoes_what_came_after(tmp_path):
    store, output = LocalBlobs(tmp_path / "store"), LocalBlobs(tmp_path / "output")
    first = SumPipeline(store, output)
    first.run()
    older = first.layout.list_checkpoints()[1]

    second = SumPipeline(store, output, recover_from=str(older))
    assert visible(output) == published(output) == [1, 2, 3, 4]
    assert (second.position, second.total) == (4, 10)
    second.run([1, 2, 3, 4, 50, 60])

    assert visible(output) == published(output) == [1, 2, 3, 4, 50, 60]
    assert second.total == 120
    plan = choose(second.layout, Wish(depth=Depth.RESTORE), now=second.coordinator.last.created)
    assert plan.chosen == second.coordinator.last.id
    assert plan.timeline == 2


def test_a_fresh_start_on_a_used_store_gives_up_state_and_output():
    store, output = MemoryBlobs(), MemoryBlobs()
    SumPipeline(store, output).run()
    again = SumPipeline(store, output, recover_from="fresh")
    assert visible(output) == published(output) == []
    again.run([7, 8])
    assert published(output) == [7, 8]


def test_a_zombie_that_wakes_after_a_restore_is_fenced_before_it_publishes():
    store, output = MemoryBlobs(), MemoryBlobs()
    zombie = SumPipeline(store, output)
    zombie.run(epochs=2)
    assert_exact(store, output)
    with pytest.raises(FencedWriterError):
        zombie.run()
    assert published(output) == visible(output) == list(NUMBERS)
    assert_exact(store, output)


@pytest.mark.parametrize("step", ["prepared", "fenced", "manifest", "decided", "sinks"])
def test_a_zombie_that_wakes_in_the_middle_of_a_commit_is_no_part_of_the_new_history(step):
    store, output = MemoryBlobs(), MemoryBlobs()
    asleep = []

    def take_over_once(at):
        if at == step and not asleep:
            asleep.append(step)
            successor = SumPipeline(store, output)
            successor.run(epochs=1)

    zombie = SumPipeline(store, output, hook=take_over_once)
    with contextlib.suppress(FencedWriterError):
        zombie.run()
    # Whatever the zombie still wrote, the next start sets right.
    assert_exact(store, output)


def test_a_sink_that_fails_to_publish_stops_the_writer_and_is_committed_again_on_restart():
    store, output = MemoryBlobs(), MemoryBlobs()
    broken = FaultyBlobs(output)
    broken.inject(Fault.FAIL, verb="create", match="_committed")
    pipeline = SumPipeline(store, broken)
    with pytest.raises(SinkCommitError, match="not published"):
        pipeline.run()
    newest = pipeline.layout.load(pipeline.layout.list_checkpoints()[-1])
    assert newest.sinks["numbers"].state is SinkState.FAILED
    assert_exact(store, output)


def test_a_store_in_which_nothing_can_be_restored_is_not_a_fresh_start(tmp_path):
    store, output = LocalBlobs(tmp_path / "store"), LocalBlobs(tmp_path / "output")
    pipeline = SumPipeline(store, output)
    pipeline.run()
    for info in list(store.list()):
        if info.key.endswith(".snap"):
            store.replace(info.key, b"?" * info.size)
    with pytest.raises(NoRecoveryPointError, match="no checkpoint fits"):
        SumPipeline(store, output)
    assert published(output) == list(NUMBERS)


def test_an_abandoned_epoch_leaves_no_output_and_its_number_is_not_used_again():
    store, output = MemoryBlobs(), MemoryBlobs()
    pipeline = SumPipeline(store, output)
    pipeline.run(epochs=1)
    pending = pipeline.coordinator.begin()
    output.create(f"{pipeline.sink.folder(pending.ref)}/part-00000.json", b"[99]")
    pipeline.coordinator.abandon(pending)
    assert visible(output) == [1, 2]
    assert pipeline.step([3, 4]).epoch == pending.ref.epoch + 1


def test_a_committed_epoch_cannot_be_abandoned():
    store, output = MemoryBlobs(), MemoryBlobs()
    pipeline = SumPipeline(store, output)
    pending = []
    begin = pipeline.coordinator.begin
    pipeline.coordinator.begin = lambda: pending.append(begin()) or pending[-1]
    pipeline.run(epochs=1)
    with pytest.raises(SinkCommitError, match="cannot be abandoned"):
        pipeline.coordinator.abandon(pending[0])


def test_the_commit_decision_of_a_swept_checkpoint_goes_with_it():
    ahead = timedelta(0)

    def clock() -> datetime:
        return datetime.now(UTC) + ahead

    store, output = MemoryBlobs(clock=clock), MemoryBlobs()
    pipeline = SumPipeline(store, output)
    pipeline.run()
    executor = Executor(pipeline.layout, by="test", clock=clock)
    executor.prune(plan_prune(pipeline.layout, RetentionPolicy(keep_last=1), now=clock()))
    assert len(list(store.list("decisions"))) == len(NUMBERS) / 2

    ahead = timedelta(days=2)
    executor.sweep(plan_sweep(pipeline.layout, now=clock()))
    assert len(list(store.list("decisions"))) == 1
    assert_exact(store, output)


def test_going_on_from_a_branch_whose_output_is_gone_is_refused_and_harms_nothing():
    store, output = MemoryBlobs(), MemoryBlobs()
    first = SumPipeline(store, output)
    first.run(epochs=3)
    old, _, newest = first.layout.list_checkpoints()
    SumPipeline(store, output, recover_from=str(old)).run(epochs=1)
    with pytest.raises(NoRecoveryPointError, match=r"output of checkpoint .* is discarded .*sinks: numbers"):
        SumPipeline(store, output, recover_from=str(newest))
    assert_exact(store, output)


def test_also_when_a_timeline_was_opened_there_by_hand():
    store, output = MemoryBlobs(), MemoryBlobs()
    first = SumPipeline(store, output)
    first.run(epochs=3)
    old, _, newest = first.layout.list_checkpoints()
    SumPipeline(store, output, recover_from=str(old)).run(epochs=1)
    start = first.layout.load(newest)
    open_timeline(store, start=start, has_checkpoints=True, writer="a person", now=datetime.now(UTC))
    with pytest.raises(NoRecoveryPointError, match="is discarded"):
        SumPipeline(store, output)
    SumPipeline(store, output, recover_from=str(old))
    assert_exact(store, output)


@pytest.mark.parametrize("wish", ["latest", "the newest by its id"])
def test_a_writer_that_starts_while_another_goes_back_does_not_build_on_what_that_one_discards(wish):
    store, output = MemoryBlobs(), MemoryBlobs()
    first = SumPipeline(store, output)
    first.run(epochs=3)
    old, _, newest = first.layout.list_checkpoints()
    asked = 0

    def clock() -> datetime:
        nonlocal asked
        asked += 1
        if asked == 2:  # Our point is chosen, our timeline not yet open.
            SumPipeline(store, output, recover_from=str(old)).run(epochs=1)
        return datetime.now(UTC)

    sinks = {"numbers": EpochFolders("numbers", output)}
    if wish == "latest":
        started = Coordinator.start(first.layout, sinks, clock=clock)
        assert started.last is not None
        assert started.last.timeline == 2
    else:
        with pytest.raises(NoRecoveryPointError, match="is discarded"):
            Coordinator.start(first.layout, sinks, recover_from=str(newest), clock=clock)
    assert_exact(store, output)
