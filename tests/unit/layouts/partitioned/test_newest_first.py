"""The newest ids come first, found by the pointer; whatever it says, the answer is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.exceptions import AccessDeniedError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from tests.unit.layouts.partitioned.samples import nth_id, patient

NOT_OURS = ["_folder", "audit", "decisions", "0", "fffffffff", "zzz", "trash"]


def make(blobs, numbers, pointer) -> PartitionedLayout:
    for number in numbers:
        blobs.create(f"{nth_id(number)}/manifest.json", b"{}")
    for name in NOT_OURS:
        blobs.create(f"{name}/object", b"1")
    if pointer is not None:
        blobs.create("_latest", pointer)
    return PartitionedLayout(blobs)


def some_id(number: int) -> bytes:
    return str(nth_id(number)).encode()


@patient
@given(
    numbers=st.sets(st.integers(0, 40), max_size=12),
    pointer=st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 40).map(some_id)),
)
def test_whatever_the_pointer_says(numbers, pointer):
    layout = make(MemoryBlobs(), numbers, pointer)
    assert list(layout.newest_first()) == layout.candidates()[::-1] == [nth_id(each) for each in sorted(numbers)][::-1]


def test_a_pointer_behind_its_time_is_enough_for_the_newest(blobs):
    layout = make(blobs, range(10), some_id(7))
    newest = layout.newest_first()
    assert [next(newest) for _ in range(3)] == [nth_id(9), nth_id(8), nth_id(7)]
    # What is older is looked for only now, and what came meanwhile is no surprise.
    blobs.create(f"{nth_id(10)}/manifest.json", b"{}")
    assert list(newest) == [nth_id(each) for each in range(6, -1, -1)]


class Watched(WrapperBlobs):
    """Notes from where on folders were asked for, and does not hand out the pointer if told so."""

    def __init__(self, inner, *, locked=False):
        super().__init__(inner)
        self.starts = []
        self._locked = locked

    def folders(self, folder="", *, start=""):
        self.starts.append((folder, start))
        return super().folders(folder, start=start)

    def read(self, key, *, start=0, length=None):
        if self._locked and key == "_latest":
            raise AccessDeniedError("no", subject=key)
        return super().read(key, start=start, length=length)


def test_a_right_pointer_saves_the_listing_of_all(tmp_path):
    blobs = Watched(LocalBlobs(tmp_path))
    layout = make(blobs, range(5), some_id(4))
    assert next(layout.newest_first()) == nth_id(4)
    assert blobs.starts == [("", str(nth_id(4)))]


def test_an_id_to_come_is_found_without_the_listing_of_all(tmp_path):
    blobs = Watched(LocalBlobs(tmp_path))
    layout = make(blobs, range(5), some_id(4))
    blobs.create(f"trash/{nth_id(8)}/entry.json", b"{}")
    assert layout.next_id() > nth_id(8)
    assert blobs.starts == [("", str(nth_id(4))), ("trash", str(nth_id(4)))]


def test_a_pointer_that_may_not_be_read_costs_only_the_short_cut(tmp_path):
    layout = make(Watched(LocalBlobs(tmp_path), locked=True), range(5), some_id(4))
    assert list(layout.newest_first()) == layout.candidates()[::-1]
    with pytest.raises(AccessDeniedError):
        layout.read_pointer()
