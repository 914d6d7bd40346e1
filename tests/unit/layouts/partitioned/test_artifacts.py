"""Writing artifacts: once per name, by any number of writers, some at a time."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    ConfigurationError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout
from tests.unit.layouts.partitioned.samples import M1_ID, entry, nth_id, patient, sha256


def items(count: int) -> list[PartitionData]:
    return [PartitionData("op", n, b"state of %d" % n, is_delta=n % 3 == 0) for n in range(count)]


def keys(layout: PartitionedLayout) -> set[str]:
    return {info.key for info in layout.blobs.list()}


# -- one ---------------------------------------------------------------------------------------------------------


def test_the_entry_says_where_and_what_was_written(layout):
    saved = layout.save_artifact(M1_ID, PartitionData("op", 3, b"state", is_delta=True))
    assert saved == entry(M1_ID, "op", 3, b"state", is_delta=True)
    assert layout.load_artifact(saved.path, saved.sha256) == b"state"


def test_snapshot_and_delta_of_one_partition_lie_side_by_side(layout):
    assert layout.save_snapshot(M1_ID, "op", 0, b"s") == sha256(b"s")
    assert layout.save_delta(M1_ID, "op", 0, b"d") == sha256(b"d")
    assert keys(layout) == {f"{M1_ID}/operators/op/partition-0.{ending}" for ending in ("snap", "delta")}


@pytest.mark.parametrize(
    "form", [bytes, bytearray, memoryview, lambda data: [data], lambda data: iter([data[:2], data[2:]])]
)
def test_state_may_come_whole_or_in_pieces(layout, form):
    assert layout.save_snapshot(M1_ID, "op", 0, form(b"state")) == sha256(b"state")
    assert layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap") == b"state"


def test_empty_state_is_state(layout):
    assert layout.save_snapshot(M1_ID, "op", 0, b"") == sha256(b"")
    assert layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap", sha256(b"")) == b""


def test_a_stream_that_breaks_leaves_nothing(layout):
    def broken():
        yield b"half"
        raise RuntimeError("the executor ran out of memory")

    with pytest.raises(RuntimeError):
        layout.save_snapshot(M1_ID, "op", 0, broken())
    assert keys(layout) == set()


def test_a_task_that_runs_twice_may_write_the_same_twice(layout):
    first = layout.save_artifact(M1_ID, PartitionData("op", 0, b"state"))
    assert layout.save_artifact(M1_ID, PartitionData("op", 0, iter([b"state"]))) == first


def test_another_state_under_the_same_name_is_a_conflict_and_changes_nothing(layout):
    layout.save_snapshot(M1_ID, "op", 0, b"first")
    with pytest.raises(CheckpointConflictError, match=r"partition-0\.snap") as caught:
        layout.save_snapshot(M1_ID, "op", 0, b"second")
    assert caught.value.hint is not None
    assert layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap") == b"first"


def test_of_racing_writers_with_different_state_one_wins_and_keeps_it(layout):
    barrier = threading.Barrier(8)
    outcomes: list[bytes | None] = [None] * 8

    def write(number: int) -> None:
        barrier.wait()
        try:
            layout.save_snapshot(M1_ID, "op", 0, b"%d" % number)
            outcomes[number] = b"%d" % number
        except CheckpointConflictError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [outcome for outcome in outcomes if outcome is not None]
    assert layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap") == winner


def test_a_lost_answer_is_settled_by_writing_again():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.LOST_ANSWER, verb="create")
    layout = PartitionedLayout(blobs)
    with pytest.raises(OutcomeUnknownError):
        layout.save_snapshot(M1_ID, "op", 0, b"state")
    assert layout.save_snapshot(M1_ID, "op", 0, b"state") == sha256(b"state")


def test_an_artifact_that_is_not_there(layout):
    with pytest.raises(BlobNotFoundError):
        layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap")


# -- many --------------------------------------------------------------------------------------------------------


class Watched(WrapperBlobs):
    """Lets creates through only in company, so that as many run at once as the caller allows; counts them."""

    def __init__(self, company: int) -> None:
        super().__init__(MemoryBlobs())
        self.barrier = threading.Barrier(company)
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0

    def create(self, key, body):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.barrier.wait(timeout=30)
        try:
            return super().create(key, body)
        finally:
            with self.lock:
                self.running -= 1


def test_sixty_four_partitions_four_at_a_time_give_sixty_four_results():
    blobs = Watched(company=4)
    saved = PartitionedLayout(blobs).save_partitions(M1_ID, items(64), max_concurrent=4)
    assert saved == [
        ("op", entry(M1_ID, "op", item.partition, item.data, is_delta=item.is_delta)) for item in items(64)
    ]
    assert blobs.most == 4


@patient
@given(count=st.integers(0, 20), width=st.integers(1, 8))
def test_every_item_has_its_result_in_its_place(count, width):
    layout = PartitionedLayout(MemoryBlobs())
    saved = layout.save_partitions(M1_ID, iter(items(count)), max_concurrent=width)
    assert [(each.partition_id, each.sha256) for _, each in saved] == [
        (n, sha256(b"state of %d" % n)) for n in range(count)
    ]
    assert len(keys(layout)) == count


def test_items_are_taken_only_when_there_is_room():
    taken = 0
    ahead: list[int] = []

    class Counting(WrapperBlobs):
        def create(self, key, body):
            ahead.append(taken)
            return super().create(key, body)

    def made_on_the_fly():
        nonlocal taken
        for item in items(50):
            taken += 1
            yield item

    PartitionedLayout(Counting(MemoryBlobs())).save_partitions(M1_ID, made_on_the_fly(), max_concurrent=2)
    assert all(seen - done <= 3 for done, seen in enumerate(sorted(ahead)))


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_that_saves_nothing_is_refused(layout, width):
    with pytest.raises(ConfigurationError, match="at least 1"):
        layout.save_partitions(M1_ID, items(1), max_concurrent=width)


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("failing", [0, 5, 19])
def test_the_first_failure_stops_the_rest_and_says_what_was_written(width, failing):
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.FAIL, verb="create", match=f"partition-{failing}.")
    layout = PartitionedLayout(blobs)
    with pytest.raises(StoreUnavailableError) as caught:
        layout.save_partitions(M1_ID, items(20), max_concurrent=width)
    (note,) = caught.value.__notes__
    written = keys(layout)
    assert note.startswith(f"{len(written)} partitions had been written")
    assert all(key in note for key in written)
    assert len(written) <= failing + width
    # Nothing is under way any more: what comes back is complete, and doing it all again finishes it.
    assert len(layout.save_partitions(M1_ID, items(20), max_concurrent=width)) == 20


def test_several_failures_at_once_are_one_error():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.FAIL, verb="create", times=100)
    with pytest.raises(StoreUnavailableError) as caught:
        PartitionedLayout(blobs).save_partitions(M1_ID, items(20), max_concurrent=4)
    assert caught.value.__notes__ == ["0 partitions had been written: none"]


def test_a_source_of_items_that_fails_stops_cleanly(layout):
    def broken():
        yield from items(5)
        raise RuntimeError("no more state")

    with pytest.raises(RuntimeError) as caught:
        layout.save_partitions(M1_ID, broken(), max_concurrent=2)
    assert caught.value.__notes__[0].startswith("5 partitions had been written")
    assert len(keys(layout)) == 5


def test_many_written_partitions_do_not_drown_the_error():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.FAIL, verb="create", match="partition-99.")
    with pytest.raises(StoreUnavailableError) as caught:
        PartitionedLayout(blobs).save_partitions(M1_ID, items(100), max_concurrent=1)
    assert caught.value.__notes__[0].endswith("and 79 more")


def test_the_death_of_the_process_is_not_swallowed():
    blobs = FaultyBlobs(MemoryBlobs(), crash_after=3)
    with pytest.raises(SimulatedCrash):
        PartitionedLayout(blobs).save_partitions(M1_ID, items(20), max_concurrent=2)


def test_two_executors_that_share_the_work_do_not_disturb_each_other(layout):
    """Spark runs a slow task twice: both write every partition."""
    results: list[list] = [[], []]
    barrier = threading.Barrier(2)

    def work(number: int) -> None:
        barrier.wait()
        results[number] = layout.save_partitions(nth_id(1), items(30), max_concurrent=4)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1]
    assert Counter(len(each) for each in results) == {30: 2}
