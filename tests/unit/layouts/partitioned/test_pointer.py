"""The pointer is a hint: monotonic when advanced, never in the way when it is broken."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import OutcomeUnknownError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from tests.unit.layouts.partitioned.samples import M1_ID, M2, nth_id

GARBAGE = [
    b"",
    M2 + b"\n",
    b" " + M2,
    M2[:-1],
    M2 + M2,
    M2.upper(),
    b"\xff" * 36,
    b"x" * 36,
    b"0192a3b4-c5d6-4e8f-9a0b-1c2d3e4f5a6b",
    b'{"checkpoint_id":2}',
    b"\0" * 1_000_000,
]


def test_the_vector_is_read(layout):
    layout.blobs.create("_latest", M2)
    assert layout.read_latest() == layout.read_pointer() == M1_ID


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_no_pointer_and_is_logged(layout, garbage, caplog):
    layout.blobs.create("_latest", garbage)
    assert layout.read_latest() is None
    assert "does not hold a checkpoint id" in caplog.text
    assert len(caplog.text) < 1000


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_overwritten(layout, garbage):
    layout.blobs.create("_latest", garbage)
    layout.update_latest(M1_ID)
    assert layout.blobs.read("_latest") == M2


def test_an_absent_pointer_is_none_and_not_logged(layout, caplog):
    assert layout.read_latest() is None
    assert caplog.text == ""


def test_update_moves_forward_only_and_move_moves_anywhere(layout):
    for number, expected in ((2, 2), (1, 2), (2, 2), (3, 3)):
        layout.update_latest(nth_id(number))
        assert layout.read_latest() == nth_id(expected)
    layout.move_pointer(nth_id(1))
    assert layout.read_latest() == nth_id(1)


def test_a_pointer_that_is_right_is_not_written_again():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = PartitionedLayout(blobs)
    for number in (2, 2, 1):
        layout.update_latest(nth_id(number))
    assert [verb for verb, _ in blobs.mutations] == ["create"]


def test_move_makes_a_pointer_where_none_is(layout):
    layout.move_pointer(M1_ID)
    assert layout.blobs.read("_latest") == M2


def test_however_writers_race_the_highest_id_stays(layout):
    barrier = threading.Barrier(8)

    def advance(number: int) -> None:
        barrier.wait()
        layout.update_latest(nth_id(number))

    for _ in range(5):
        threads = [threading.Thread(target=advance, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert layout.read_latest() == nth_id(7)
        layout.blobs.delete(["_latest"])


class Interfering(WrapperBlobs):
    """Another writer advances the pointer after we looked at it."""

    def __init__(self, inner, to) -> None:
        super().__init__(inner)
        self.to = to

    def stat(self, key):
        info = super().stat(key)
        if self.to is not None:
            number, self.to = self.to, None
            PartitionedLayout(self._inner).update_latest(number)
        return info


@pytest.mark.parametrize("before", [None, M2, b"garbage"])
@pytest.mark.parametrize(("theirs", "ours", "winner"), [(9, 5, 9), (5, 9, 9), (7, 7, 7)])
def test_a_writer_that_comes_in_between_is_not_turned_back(layout, before, theirs, ours, winner):
    later = [nth_id(2**30 + number) for number in range(10)]
    if before is not None:
        layout.blobs.create("_latest", before if before != M2 else str(nth_id(1)).encode())
    PartitionedLayout(Interfering(layout.blobs, later[theirs])).update_latest(later[ours])
    assert layout.read_latest() == later[winner]


def test_without_compare_and_swap_the_pointer_is_written_all_the_same():
    class Plain(WrapperBlobs):
        @property
        def capabilities(self):
            return dataclasses.replace(super().capabilities, compare_and_swap=False)

        def replace(self, key, body, *, expected=None):
            assert expected is None
            return super().replace(key, body)

    layout = PartitionedLayout(Plain(MemoryBlobs()))
    layout.update_latest(nth_id(1))
    layout.update_latest(nth_id(2))
    assert layout.read_latest() == nth_id(2)


@pytest.mark.parametrize(("verb", "first"), [("create", False), ("replace", True)])
def test_a_lost_answer_is_settled_by_moving_again(verb, first):
    blobs = FaultyBlobs(MemoryBlobs())
    layout = PartitionedLayout(blobs)
    if first:
        layout.update_latest(nth_id(1))
    blobs.inject(Fault.LOST_ANSWER, verb=verb)
    with pytest.raises(OutcomeUnknownError):
        layout.update_latest(nth_id(2))
    layout.update_latest(nth_id(2))
    assert layout.read_latest() == nth_id(2)


def test_a_store_that_cannot_be_asked_is_not_a_missing_pointer():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.FAIL, verb="read")
    with pytest.raises(StoreUnavailableError):
        PartitionedLayout(blobs).read_latest()


def test_an_absurdly_large_pointer_is_not_read_whole():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.create("_latest", b"x" * 100)
    layout = PartitionedLayout(blobs)
    layout.update_latest(M1_ID)
    assert blobs.calls["read_versioned"] == 0
    assert layout.read_latest() == M1_ID
