"""A folder of output belongs to one pipeline: another one is turned away before it writes or discards anything."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError, CorruptManifestError, StoreUnavailableError
from airflow_provider_checkpoint.lifecycle.timelines import timeline_key
from tests.unit.writing.pipeline import NUMBERS, SumPipeline, published, visible

OWNER = "_owner.json"
TURNED_AWAY = "belongs to another pipeline"


def contents(blobs) -> dict[str, bytes]:
    return {info.key: blobs.read(info.key) for info in blobs.list()}


def delete(blobs, key) -> None:
    assert [outcome.error for outcome in blobs.delete([key])] == [None]


def much_used() -> MemoryBlobs:
    """The checkpoints of a pipeline that was started so often that timeline numbers speak for it."""
    store, output = MemoryBlobs(), MemoryBlobs()
    for _ in range(4):
        SumPipeline(store, output).run(epochs=1)
    return store


@pytest.mark.parametrize("epochs", [0, 2, None])
def test_a_pipeline_with_a_longer_history_does_not_take_its_neighbours_folder(epochs):
    output = MemoryBlobs()
    owner = SumPipeline(MemoryBlobs(), output)
    owner.run(epochs=epochs)
    intruder = much_used()
    before = contents(intruder), contents(output)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=TURNED_AWAY) as turned_away:
            SumPipeline(intruder, output, recover_from="fresh")
        assert (contents(intruder), contents(output)) == before
    assert "started from latest" in str(turned_away.value), "by this a person knows whose it is"
    owner.run()
    assert published(output) == visible(output) == list(NUMBERS)


def test_of_two_that_start_at_once_one_gets_the_folder():
    output = MemoryBlobs()
    owners = []

    class Overtaken(WrapperBlobs):
        """The other one starts after our look at the folder, before we have made it ours."""

        def create(self, key, body):
            if not owners:
                owners.append(SumPipeline(MemoryBlobs(), output))
            return super().create(key, body)

    with pytest.raises(ConfigurationError, match=TURNED_AWAY):
        SumPipeline(MemoryBlobs(), Overtaken(output))
    owners[0].run()
    assert published(output) == visible(output) == list(NUMBERS)


def test_two_writers_of_one_pipeline_that_start_at_once_both_know_it_as_theirs():
    store, output = MemoryBlobs(), MemoryBlobs()
    started = []

    class Overtaken(WrapperBlobs):
        def create(self, key, body):
            if not started:
                started.append(SumPipeline(store, output))
            return super().create(key, body)

    slow = SumPipeline(store, Overtaken(output))
    assert (slow.coordinator.timeline, started[0].coordinator.timeline) == (1, 2)
    started[0].run()
    assert published(output) == list(NUMBERS)


def test_a_folder_from_before_there_were_marks_is_adopted_with_the_next_start():
    store, output = MemoryBlobs(), MemoryBlobs()
    SumPipeline(store, output).run(epochs=2)
    delete(output, OWNER)
    SumPipeline(store, output).run()
    assert published(output) == list(NUMBERS)
    with pytest.raises(ConfigurationError, match=TURNED_AWAY):
        SumPipeline(much_used(), output, recover_from="fresh")


def test_a_start_that_dies_before_the_folder_is_marked_is_made_up_for_by_the_next():
    store, output = MemoryBlobs(), MemoryBlobs()
    dying = FaultyBlobs(output)
    dying.inject(Fault.FAIL, verb="create", match=OWNER)
    with pytest.raises(StoreUnavailableError):
        SumPipeline(store, dying)
    assert contents(output) == {}
    SumPipeline(store, output).run()
    assert published(output) == list(NUMBERS)


@pytest.mark.parametrize("recover_from", ["fresh", "its first checkpoint"])
def test_a_pipeline_that_goes_back_or_begins_anew_keeps_its_folder(recover_from):
    store, output = MemoryBlobs(), MemoryBlobs()
    first = SumPipeline(store, output)
    first.run()
    mark = output.read(OWNER)
    wish = recover_from if recover_from == "fresh" else str(first.layout.list_checkpoints()[0])
    SumPipeline(store, output, recover_from=wish).run()
    assert published(output) == visible(output) == list(NUMBERS)
    assert output.read(OWNER) == mark


def test_a_mark_by_any_timeline_of_the_pipeline_is_its_own():
    store, output = MemoryBlobs(), MemoryBlobs()
    for _ in range(2):
        SumPipeline(store, output).run(epochs=1)
    second = json.loads(store.read(timeline_key(2)))["writer"]
    output.replace(OWNER, json.dumps({"writer": second, "more": 1}).encode())
    SumPipeline(store, output).run()
    assert published(output) == list(NUMBERS)


def test_who_has_lost_the_record_by_which_the_folder_is_known_is_told_the_way_out():
    store, output = MemoryBlobs(), MemoryBlobs()
    for _ in range(2):
        SumPipeline(store, output).run(epochs=1)
    delete(store, timeline_key(1))
    with pytest.raises(ConfigurationError, match=rf"{TURNED_AWAY}[\s\S]*delete _owner.json"):
        SumPipeline(store, output)
    delete(output, OWNER)
    SumPipeline(store, output).run()
    assert published(output) == list(NUMBERS)


def test_a_mark_that_cannot_be_read_is_nobodys_leave_to_write():
    store, output = MemoryBlobs(), MemoryBlobs()
    output.create(OWNER, b"{")
    with pytest.raises(CorruptManifestError):
        SumPipeline(store, output)
    assert contents(store) == {}
