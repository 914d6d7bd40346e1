"""Reading no more of a store than an answer takes, and giving the same answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import Deletion, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.exceptions import CorruptManifestError, StoreUnavailableError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import KeySet
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import History, lineage, read_timelines, timeline_key
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, TrashReader, entry_key, put_into_trash
from airflow_provider_checkpoint.model import CheckpointId, Timeline
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, manifest_key, tiny

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore


class CountingBlobs(WrapperBlobs):
    """Counts what is read, by key."""

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner)
        self.reads: Counter[str] = Counter()

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.reads[key] += 1
        return super().read(key, start=start, length=length)


def write(blobs: BlobStore, timelines: Iterable[Timeline]) -> None:
    for timeline in timelines:
        blobs.create(timeline_key(timeline.number), timeline.model_dump_json().encode())


def timeline(number: int, parent: int | None, fork: int | None) -> Timeline:
    return Timeline(number=number, parent=parent, fork_epoch=fork, created=START, writer=str(number))


def restarts(count: int) -> list[Timeline]:
    """A writer that was started so many times, each time after one more epoch."""
    return [timeline(number, number - 1 or None, number - 1 or None) for number in range(1, count + 1)]


# -- timelines ---------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Timeline]:
    numbers = sorted(draw(st.sets(st.integers(1, 12), max_size=8)))
    parents = {number: draw(st.none() | st.integers(1, number - 1)) if number > 1 else None for number in numbers}
    return [timeline(number, parents[number], draw(st.none() | st.integers(0, 9))) for number in numbers]


@given(histories(), st.lists(st.tuples(st.integers(1, 13), st.integers(0, 10)), max_size=12))
@settings(max_examples=300)
def test_a_history_read_as_needed_answers_as_the_whole_of_it(timelines: list[Timeline], asked: list[tuple[int, int]]):
    blobs = MemoryBlobs()
    write(blobs, timelines)
    whole = lineage(read_timelines(blobs))
    as_needed = History(blobs)
    for number, epoch in asked:
        if whole.missing(number) is None:
            assert as_needed.contains(number, epoch) == whole.contains(number, epoch)
        else:
            with pytest.raises(CorruptManifestError, match=f"the record of timeline {whole.missing(number)} is gone"):
                as_needed.contains(number, epoch)


def test_a_timeline_that_was_opened_since_is_no_lost_one():
    blobs = MemoryBlobs()
    write(blobs, restarts(2))
    history = History(blobs)
    write(blobs, [timeline(3, 1, 1)])
    assert history.contains(3, 2)
    assert not history.contains(2, 2)


def test_choosing_the_newest_reads_one_timeline_however_many_there_are():
    layout = tiny(CountingBlobs(MemoryBlobs()), 1, 2, 3)
    write(layout.blobs, [timeline(1, None, None), *(timeline(number, 1, 3) for number in range(2, 201))])
    layout.blobs.reads.clear()
    assert choose(layout, Wish(), now=START + timedelta(days=1)).chosen == CheckpointId(3)
    assert sum(count for key, count in layout.blobs.reads.items() if key.startswith("timelines/")) == 1


def test_a_point_far_back_in_a_long_history_is_found():
    blobs = MemoryBlobs()
    write(blobs, restarts(300))
    history = History(blobs)
    assert history.contains(2, 2)
    assert not history.contains(2, 3)


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_that_an_answer_depends_on_must_be_readable(number: int):
    blobs = MemoryBlobs()
    write(blobs, restarts(2))
    blobs.replace(timeline_key(number), b"{")
    with pytest.raises(CorruptManifestError):
        History(blobs).contains(3, 1)


def test_the_present_is_the_highest_record_that_is_still_there():
    class Vanishing(WrapperBlobs):
        """Loses the highest record between the listing and the reading."""

        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            self.delete([timeline_key(3)])
            return super().read(key, start=start, length=length)

    blobs = MemoryBlobs()
    write(blobs, [*restarts(2), timeline(3, None, None)])
    history = History(Vanishing(blobs))
    assert history.contains(2, 7)


# -- trash -------------------------------------------------------------------------------------------------------


def entry(number: int, **facts: object) -> TrashEntry:
    usual = {"trashed": START, "by": "test", "run": "r", "reasons": (), "keys": (manifest_key(number),)}
    return TrashEntry.model_validate({**usual, "checkpoint_id": number, "artifacts": ("a",), **facts})


def pruned(*numbers: int) -> TinyLayout:
    layout = tiny(CountingBlobs(MemoryBlobs()), *numbers, max(numbers) + 1)
    for number in numbers:
        put_into_trash(layout.blobs, entry(number))
    layout.blobs.reads.clear()
    return layout


def test_a_survey_reads_an_entry_of_the_trash_once():
    layout = pruned(1, 2, 3)
    assert {each.checkpoint_id for each in survey(layout).trash} == {CheckpointId(number) for number in (1, 2, 3)}
    assert [layout.blobs.reads[entry_key(CheckpointId(number))] for number in (1, 2, 3)] == [1, 1, 1]


def test_what_was_written_into_the_trash_since_is_told_and_nothing_else():
    layout = pruned(1, 2)
    reader = TrashReader(layout)
    assert len(list(reader.read())) == 2
    assert list(reader.read()) == []
    again = entry(2, run="another", artifacts=("a", "b"))
    layout.blobs.replace(entry_key(CheckpointId(2)), again.model_dump_json().encode())
    layout.blobs.create(entry_key(CheckpointId(9)), entry(9).model_dump_json().encode())
    assert sorted(reader.read(), key=lambda each: each.checkpoint_id) == [again, entry(9)]


def test_an_entry_that_is_written_between_its_listing_and_its_reading_is_read_again():
    class Rewriting(WrapperBlobs):
        """Writes the entry anew just before it is read for the first time."""

        fresh = entry(1, run="fresh").model_dump_json().encode()
        left = 1

        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if self.left:
                self.left = 0
                self.replace(key, self.fresh)
            return super().read(key, start=start, length=length)

    blobs = pruned(1).blobs
    reader = TrashReader(TinyLayout(Rewriting(blobs)))
    assert [each.run for each in reader.read()] == ["fresh"]
    assert [each.run for each in reader.read()] == ["fresh"]
    assert list(reader.read()) == []


def test_without_versions_every_entry_is_read_every_time():
    class Unversioned(CountingBlobs):
        def list(self, folder: str = "", *, temporary: bool | None = False):
            yield from (replace(info, version=None) for info in super().list(folder, temporary=temporary))

    reader = TrashReader(TinyLayout(Unversioned(pruned(1).blobs)))
    assert len(list(reader.read())) == len(list(reader.read())) == 1


# -- sets of names -----------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=6)), st.lists(st.text(max_size=6)))
def test_a_set_of_names_holds_exactly_what_was_put_in(names: list[str], others: list[str]):
    held = KeySet(names)
    assert len(held) == len(set(names))
    assert all(name in held for name in names)
    # Sixty-four bits do not collide by chance.
    assert [name in held for name in others] == [name in set(names) for name in others]


# -- deleting ----------------------------------------------------------------------------------------------------


def test_very_many_objects_are_answered_for_one_by_one_and_in_order():
    class Refusing(MemoryBlobs):
        """Does not remove what ends in 7."""

        def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
            asked = list(keys)
            assert len(asked) <= 1_000
            super().delete([key for key in asked if not key.endswith("7")])
            error = StoreUnavailableError("no")
            return [Deletion(key, error if key.endswith("7") else None) for key in asked]

    blobs = Refusing()
    keys = [f"checkpoints/000001/{number}" for number in range(4_500)]
    for key in keys:
        blobs.create(key, b"1")
    outcomes = Executor(TinyLayout(blobs), by="test")._delete(keys)
    assert [outcome.subject for outcome in outcomes] == keys
    assert [outcome.done for outcome in outcomes] == [not key.endswith("7") for key in keys]
    assert {info.key for info in blobs.list()} == {key for key in keys if key.endswith("7")}
