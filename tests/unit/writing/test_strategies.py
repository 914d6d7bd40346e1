"""What is written whole, as a delta, or not at all, and what a checkpoint may build on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import ConfigurationError, OutcomeUnknownError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.writing.bases import BaseRules, SnapshotKind, Write
from airflow_provider_checkpoint.writing.snapshot import SnapshotMode, SnapshotOptions
from airflow_provider_checkpoint.writing.strategies import (
    FullSnapshots,
    IncrementalSnapshots,
    SavepointSnapshots,
    SnapshotResult,
)
from tests.unit.writing.keyed_state import KeyedState, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_checkpoint.model import CheckpointId

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)

CHECKPOINT = SnapshotOptions()
FULL = SnapshotOptions(SnapshotKind.FULL_CHECKPOINT)
SAVEPOINT = SnapshotOptions(SnapshotKind.SAVEPOINT)


def filled(*slots: tuple[str, int], keys: int = 20) -> KeyedState:
    state = KeyedState()
    for slot in slots:
        for number in range(keys):
            state.put(slot, f"key-{number:04}", "some value")
    return state


def incremental(state: KeyedState, blobs: MemoryBlobs | FaultyBlobs | None = None, **rules: float) -> Pipeline:
    return Pipeline(blobs or MemoryBlobs(), state, IncrementalSnapshots(state.capture, rules=BaseRules(**rules)))


def owners(pipeline: Pipeline, checkpoint_id: CheckpointId) -> set[CheckpointId]:
    """The checkpoints in whose folders the artifacts of this one lie."""
    checkpoint = pipeline.layout.load(checkpoint_id)
    return {pipeline.layout.named(artifact.key).checkpoint_id for artifact in checkpoint.artifacts}


def pieces(result: SnapshotResult) -> dict[tuple[str, int], int]:
    """How many artifacts each partition consists of."""
    counts: dict[tuple[str, int], int] = {}
    for operator, entry in result.operators.items():
        for partition in entry.partitions:
            slot = operator, partition.partition_id
            counts[slot] = counts.get(slot, 0) + 1
    return counts


# -- whole -------------------------------------------------------------------------------------------------------

WHOLE = {
    "full": lambda state: (FullSnapshots(state.capture), CHECKPOINT),
    "full, asked for a full one": lambda state: (FullSnapshots(state.capture), FULL),
    "full, asked for a savepoint": lambda state: (FullSnapshots(state.capture), SAVEPOINT),
    "savepoint": lambda state: (SavepointSnapshots(state.capture), SAVEPOINT),
    "incremental, asked for a full one": lambda state: (IncrementalSnapshots(state.capture), FULL),
    "incremental, asked for a savepoint": lambda state: (IncrementalSnapshots(state.capture), SAVEPOINT),
}


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_a_whole_snapshot_restores_and_refers_to_nothing_else(make: Callable[[KeyedState], tuple]) -> None:
    state = filled(A0, A1, B0)
    strategy, options = make(state)
    pipeline = Pipeline(state=state, strategy=strategy)
    for round_number in range(3):
        state.put(A0, "round", str(round_number))
        checkpoint_id, result = pipeline.checkpoint(options)
        assert result.counts == {Write.FULL: 3}
        assert result.written_bytes == result.total_size_bytes > 0
        assert owners(pipeline, checkpoint_id) == {checkpoint_id}
        assert pipeline.restored(checkpoint_id) == state.contents
        assert pipeline.layout.load(checkpoint_id).savepoint is (options is SAVEPOINT)


def test_a_savepoint_strategy_takes_nothing_else() -> None:
    state = filled(A0)
    pipeline = Pipeline(state=state, strategy=SavepointSnapshots(state.capture))
    for options in (CHECKPOINT, FULL):
        with pytest.raises(ConfigurationError, match="savepoints are all"):
            pipeline.checkpoint(options)
    assert [view.releases for view in state.views] == [1, 1]


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_no_state_is_a_snapshot_without_operators(make: Callable[[KeyedState], tuple]) -> None:
    state = KeyedState()
    strategy, options = make(state)
    pipeline = Pipeline(state=state, strategy=strategy)
    checkpoint_id, result = pipeline.checkpoint(options)
    assert (result.operators, result.total_size_bytes) == ({}, 0)
    assert pipeline.restored(checkpoint_id) == {}


# -- increments --------------------------------------------------------------------------------------------------


def test_each_partition_is_written_whole_as_a_delta_or_carried_along() -> None:
    state = filled(A0, A1)
    pipeline = incremental(state)
    first, _ = pipeline.checkpoint()
    state.put(A0, "key-0003", "changed")
    state.remove(A0, "key-0004")
    state.put(B0, "new", "partition")
    second, result = pipeline.checkpoint()
    assert result.counts == {Write.FULL: 1, Write.DELTA: 1, Write.CARRY: 1}
    assert pieces(result) == {A0: 2, A1: 1, B0: 1}
    assert owners(pipeline, second) == {first, second}
    assert pipeline.restored(second) == state.contents
    assert result.written_bytes < result.total_size_bytes / 5


def test_what_is_written_follows_what_changed_and_not_the_size_of_the_state() -> None:
    written = []
    for keys in (100, 10_000):
        state = filled(A0, A1, keys=keys)
        pipeline = incremental(state)
        pipeline.checkpoint()
        state.put(A0, "key-0007", "changed")
        written.append(pipeline.checkpoint()[1].written_bytes)
    assert written[0] == written[1] < 100


def test_a_delta_holds_every_change_since_its_base_so_there_is_never_more_than_one() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    first, _ = pipeline.checkpoint()
    for number in range(5):
        state.put(A0, f"key-{number:04}", "changed")
        checkpoint_id, result = pipeline.checkpoint()
        assert pieces(result) == {A0: 2}
        assert owners(pipeline, checkpoint_id) == {first, checkpoint_id}
        assert pipeline.restored(checkpoint_id) == state.contents


def test_each_partition_has_a_base_of_its_own() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    first, _ = pipeline.checkpoint()
    state.put(A0, "key-0001", "before the other partition came")
    state.put(B0, "key-0001", "new")
    second, _ = pipeline.checkpoint()
    state.put(A0, "key-0002", "after it")
    state.put(B0, "key-0002", "new")
    third, result = pipeline.checkpoint()
    assert result.counts == {Write.DELTA: 2}
    assert owners(pipeline, third) == {first, second, third}
    assert pipeline.restored(third) == state.contents


def test_an_untouched_partition_is_carried_with_its_delta() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    first, _ = pipeline.checkpoint()
    state.put(A0, "key-0001", "changed")
    second, _ = pipeline.checkpoint()
    third, result = pipeline.checkpoint()
    assert (result.counts, result.written_bytes) == ({Write.CARRY: 1}, 0)
    assert owners(pipeline, third) == {first, second}
    assert pipeline.restored(third) == state.contents


@pytest.mark.parametrize("touched", [True, False])
def test_a_new_base_is_written_before_the_old_one_ages_out(touched: bool) -> None:
    state = filled(A0)
    pipeline = incremental(state, max_age=3)
    writes = []
    for number in range(9):
        if touched:
            state.put(A0, "key-0001", str(number))
        checkpoint_id, result = pipeline.checkpoint()
        writes += result.counts
        assert pipeline.restored(checkpoint_id) == state.contents
    between = Write.DELTA if touched else Write.CARRY
    assert writes == [Write.FULL, *[between] * 3, Write.FULL, *[between] * 3, Write.FULL]
    assert len(pipeline.strategy._last.recent) == 3, "what is remembered must not grow with the number of checkpoints"


def test_with_an_age_of_nothing_everything_is_whole() -> None:
    state = filled(A0)
    pipeline = incremental(state, max_age=0)
    assert [dict(pipeline.checkpoint()[1].counts) for _ in range(3)] == [{Write.FULL: 1}] * 3


def test_a_delta_that_grew_too_large_is_replaced_by_a_new_base() -> None:
    state = filled(A0)
    pipeline = incremental(state, max_delta_share=0.5)
    writes = []
    for number in range(20):
        state.put(A0, f"key-{number:04}", "changed it")
        writes += pipeline.checkpoint()[1].counts
    assert writes == [Write.FULL, *[Write.DELTA] * 11, Write.FULL, *[Write.DELTA] * 7]


def test_a_partition_that_went_away_and_came_back_is_written_whole() -> None:
    state = filled(A0, A1)
    pipeline = incremental(state)
    pipeline.checkpoint()
    state.drop(A1)
    second, _ = pipeline.checkpoint()
    state.put(A1, "another", "life")
    third, result = pipeline.checkpoint()
    assert result.counts == {Write.CARRY: 1, Write.FULL: 1}
    assert set(pipeline.restored(second)) == {A0}
    assert pipeline.restored(third) == state.contents


def test_nothing_builds_on_a_savepoint_and_a_savepoint_does_not_disturb_the_increments() -> None:
    state = filled(A0)
    pipeline = incremental(state, max_age=3)
    first, _ = pipeline.checkpoint()
    state.put(A0, "key-0001", "changed")
    savepoint, _ = pipeline.checkpoint(SAVEPOINT)
    checkpoint_id, result = pipeline.checkpoint()
    assert result.counts == {Write.DELTA: 1}
    assert owners(pipeline, checkpoint_id) == {first, checkpoint_id}
    assert owners(pipeline, savepoint) == {savepoint}
    assert pipeline.restored(savepoint) == pipeline.restored(checkpoint_id) == state.contents


def test_a_full_checkpoint_is_a_new_base() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    pipeline.checkpoint()
    second, _ = pipeline.checkpoint(FULL)
    state.put(A0, "key-0001", "changed")
    third, _ = pipeline.checkpoint()
    assert owners(pipeline, third) == {second, third}
    assert pipeline.restored(third) == state.contents


def test_a_new_strategy_starts_whole_so_it_depends_on_nothing_an_earlier_run_owns() -> None:
    state = filled(A0)
    blobs = MemoryBlobs()
    incremental(state, blobs).checkpoint()
    checkpoint_id, result = (restarted := incremental(state, blobs)).checkpoint()
    assert result.counts == {Write.FULL: 1}
    assert owners(restarted, checkpoint_id) == {checkpoint_id}


# -- what became of it -------------------------------------------------------------------------------------------


def test_nothing_is_built_on_a_checkpoint_that_was_not_confirmed() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    _, task = pipeline.begin()
    task.result()
    second, task = pipeline.begin()
    assert task.result().counts == {Write.FULL: 1}
    pipeline.commit(second, task.result())
    assert owners(pipeline, second) == {second}


@pytest.mark.parametrize("fate", ["aborted", "unknown"])
def test_changes_of_a_checkpoint_that_was_not_committed_are_in_the_next_one(fate: str) -> None:
    state = filled(A0)
    pipeline = incremental(state)
    first, _ = pipeline.checkpoint()
    state.put(A0, "key-0001", "changed")
    second, task = pipeline.begin()
    assert task.result().counts == {Write.DELTA: 1}
    if fate == "aborted":
        pipeline.strategy.aborted(second)
    # Nothing changed since the second one, and yet this one is not a copy of the first.
    third, result = pipeline.checkpoint()
    assert result.counts == {Write.DELTA: 1}
    assert owners(pipeline, third) == {first, third}
    assert pipeline.restored(third) == state.contents


def test_a_commit_that_follows_an_abort_of_the_same_checkpoint_is_not_believed() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    checkpoint_id, task = pipeline.begin()
    task.result()
    pipeline.strategy.aborted(checkpoint_id)
    pipeline.strategy.committed(checkpoint_id)
    assert pipeline.strategy.remember_since(*A0) is None
    assert pipeline.checkpoint()[1].counts == {Write.FULL: 1}


def test_a_savepoint_does_not_make_a_checkpoint_under_way_forgotten() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    checkpoint_id, task = pipeline.begin()
    pipeline.checkpoint(SAVEPOINT)
    pipeline.commit(checkpoint_id, task.result())
    assert pipeline.strategy.remember_since(*A0) == checkpoint_id


def test_checkpoints_of_which_nothing_is_heard_are_forgotten_with_the_next_commit() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    for _ in range(3):
        pipeline.begin()[1].result()
    assert len(pipeline.strategy._pending) == 3
    pipeline.checkpoint()
    assert pipeline.strategy._pending == {}


def test_an_aborted_base_is_none() -> None:
    state = filled(A0)
    pipeline = incremental(state, max_age=1)
    first, _ = pipeline.checkpoint()
    second, _ = pipeline.checkpoint()
    aborted, task = pipeline.begin()
    assert task.result().counts == {Write.FULL: 1}
    pipeline.strategy.aborted(aborted)
    fourth, result = pipeline.checkpoint()
    assert result.counts == {Write.FULL: 1}
    assert owners(pipeline, second) == {first}
    assert owners(pipeline, fourth) == {fourth}


def test_a_repeated_or_late_commit_does_not_turn_back() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    first, first_task = pipeline.begin()
    state.put(A0, "key-0001", "changed")
    second, second_task = pipeline.begin()
    pipeline.commit(second, second_task.result())
    pipeline.strategy.committed(second)
    pipeline.commit(first, first_task.result())
    state.put(A0, "key-0002", "changed")
    third, _ = pipeline.checkpoint()
    assert owners(pipeline, third) == {second, third}
    assert pipeline.restored(third) == state.contents


def test_a_checkpoint_that_is_written_after_a_newer_one_was_committed_does_not_turn_back_either() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    pipeline.mode = SnapshotMode.ASYNCHRONOUS
    first, slow = pipeline.begin()
    state.put(A0, "key-0001", "changed")
    second, fast = pipeline.begin()
    for checkpoint_id, task in ((second, fast), (first, slow)):
        task.run()
        pipeline.commit(checkpoint_id, task.result())
    assert pipeline.strategy.remember_since(*A0) == second


def test_of_two_at_once_the_later_does_not_bring_back_a_base_whose_changes_are_forgotten() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    pipeline.checkpoint()
    state.put(A0, "key-0001", "changed")
    second, full = pipeline.begin(FULL)
    state.put(A0, "key-0002", "changed")
    third, delta = pipeline.begin()
    pipeline.commit(second, full.result())
    pipeline.commit(third, delta.result())
    assert pipeline.restored(third) == state.contents
    state.put(A0, "key-0003", "changed")
    fourth, result = pipeline.checkpoint()
    assert result.counts == {Write.FULL: 1}
    assert pipeline.restored(fourth) == state.contents


def test_a_checkpoint_that_is_overtaken_between_its_freezing_and_its_planning_is_written_whole() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    pipeline.checkpoint()
    older, newer = pipeline.layout.next_id(), pipeline.layout.next_id()
    state.capture(newer)
    # As if ``newer`` had been frozen, written and committed by another thread in the meantime.
    pipeline.strategy._pending[newer] = pipeline.strategy._last.chains
    pipeline.strategy.committed(newer)
    assert pipeline.strategy.prepare(older).last is None
    assert pipeline.strategy.prepare(pipeline.layout.next_id()).last is not None


# -- when things fail --------------------------------------------------------------------------------------------


class BrokenStateError(Exception):
    pass


@pytest.mark.parametrize("broken", ["slots", "full", "full, half way", "changes", "touched"])
def test_a_view_that_fails_is_the_outcome_leaves_no_artifact_of_its_partition_and_is_released(broken: str) -> None:
    state = filled(A0)
    pipeline = incremental(state)
    if broken in ("changes", "touched"):
        pipeline.checkpoint()
        state.put(A0, "key-0001", "changed")
    before = len(list(pipeline.blobs.list()))

    def fail(*_: object) -> object:
        raise BrokenStateError

    def half(*_: object) -> Iterator[bytes]:
        yield b"half of the sta"
        raise BrokenStateError

    view_of = state.capture

    def capture(checkpoint_id: CheckpointId) -> object:
        view = view_of(checkpoint_id)
        setattr(view, broken.partition(",")[0], half if "half" in broken else fail)
        return view

    pipeline.strategy._capture = capture
    _, task = pipeline.begin()
    assert isinstance(task.exception(), BrokenStateError)
    assert state.views[-1].releases == 1
    assert pipeline.streams.left_open() == []
    assert len(list(pipeline.blobs.list(temporary=None))) == before
    # Nothing of it is remembered.
    pipeline.strategy._capture = view_of
    assert pipeline.restored(pipeline.checkpoint()[0]) == state.contents


def test_a_view_may_answer_with_a_single_piece() -> None:
    state = filled(A0)
    pipeline = incremental(state)
    view_of = state.capture

    def capture(checkpoint_id: CheckpointId) -> object:
        view = view_of(checkpoint_id)
        whole = b"".join(view.full(*A0))
        view.full = lambda *_: whole
        return view

    pipeline.strategy._capture = capture
    assert pipeline.restored(pipeline.checkpoint()[0]) == state.contents


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.FAIL, StoreUnavailableError),
        (Fault.TIMEOUT, OutcomeUnknownError),
        (Fault.LOST_ANSWER, OutcomeUnknownError),
    ],
)
@pytest.mark.parametrize("match", ["a/partition-0", "a/partition-1", "b/partition-0", "manifest"])
def test_a_checkpoint_whose_store_fails_is_given_up_and_the_next_one_is_exact(
    fault: Fault, error: type[Exception], match: str
) -> None:
    state = filled(A0, A1, B0)
    blobs = FaultyBlobs(MemoryBlobs())
    pipeline = incremental(state, blobs)
    first, _ = pipeline.checkpoint()
    for slot in (A0, A1, B0):
        state.put(slot, "key-0001", "changed")
    blobs.inject(fault, verb="create", match=match)
    failed, task = pipeline.begin()
    with pytest.raises(error):
        pipeline.commit(failed, task.result())
    pipeline.strategy.aborted(failed)
    state.put(A0, "key-0002", "changed")
    third, result = pipeline.checkpoint()
    assert result.counts == {Write.DELTA: 3}
    assert owners(pipeline, third) == {first, third}
    assert pipeline.restored(third) == state.contents
    assert pipeline.streams.left_open() == []
    assert all(view.releases == 1 for view in state.views)


def test_killed_before_or_after_any_step_every_visible_checkpoint_is_whole_and_the_next_run_goes_on() -> None:
    def run(blobs: FaultyBlobs, seen: dict[CheckpointId, dict]) -> None:
        state = filled(A0, A1)
        pipeline = incremental(state, blobs, max_age=2)
        for number in range(5):
            state.put(A0, f"key-{number:04}", "changed")
            checkpoint_id, task = pipeline.begin()
            seen[checkpoint_id] = {slot: dict(values) for slot, values in state.contents.items()}
            pipeline.commit(checkpoint_id, task.result())

    rehearsal = FaultyBlobs(MemoryBlobs())
    run(rehearsal, {})
    steps = len(rehearsal.mutations)
    assert steps > 10
    for step in range(steps):
        store, seen = MemoryBlobs(), {}
        with pytest.raises(SimulatedCrash):
            run(FaultyBlobs(store, crash_after=step), seen)
        run(FaultyBlobs(store), seen)
        layout = PartitionedLayout(store)
        pipeline = Pipeline(store)
        visible = layout.list_checkpoints()
        assert len(visible) >= 5
        for checkpoint_id in visible:
            assert layout.examine(checkpoint_id).issues == []
            checks = layout.checks(layout.load(checkpoint_id), Depth.RESTORE)
            assert [issue for check in checks for issue in check.run()] == []
            assert pipeline.restored(checkpoint_id) == seen[checkpoint_id]


def test_partitions_are_written_by_several_threads_and_all_of_them_arrive() -> None:
    slots = [("wide", number) for number in range(40)]
    state = filled(*slots, keys=3)
    strategy = IncrementalSnapshots(state.capture, max_concurrent=8)
    pipeline = Pipeline(state=state, strategy=strategy, mode=SnapshotMode.SYNCHRONOUS)
    checkpoint_id, result = pipeline.checkpoint()
    assert pipeline.restored(checkpoint_id) == state.contents
    assert [entry.partition_id for entry in result.operators["wide"].partitions] == list(range(40))
