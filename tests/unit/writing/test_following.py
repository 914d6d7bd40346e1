"""Output follows the history: a start that the sinks cannot follow is refused while nothing has changed yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
    FencedWriterError,
    SinkCommitError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.lifecycle.timelines import Lineage, timeline_key, timeline_numbers
from airflow_provider_checkpoint.writing.epoch_folders import EpochFolders, OutputFile
from airflow_provider_checkpoint.writing.sinks import EpochRef
from tests.unit.writing.pipeline import NUMBERS, SumPipeline, published, visible


def delete(blobs, *keys) -> None:
    for outcome in blobs.delete(keys):
        assert outcome.error is None


@pytest.mark.parametrize("recover_from", ["latest", "fresh"])
def test_output_whose_checkpoints_were_deleted_is_neither_mixed_with_new_output_nor_removed(recover_from):
    output = MemoryBlobs()
    SumPipeline(MemoryBlobs(), output).run()
    another = MemoryBlobs()
    # Also at the second try: the first one has opened no timeline.
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="timeline 1, which this pipeline never opened"):
            SumPipeline(another, output, recover_from=recover_from)
    assert list(another.list()) == []
    assert published(output) == visible(output) == list(NUMBERS)


def test_without_the_record_of_a_timeline_nothing_is_discarded():
    store, output = MemoryBlobs(), MemoryBlobs()
    for epochs in (1, 1, 1):
        SumPipeline(store, output).run(epochs=epochs)
    delete(store, timeline_key(2))
    with pytest.raises(CorruptManifestError, match="record of timeline 2 is gone"):
        SumPipeline(store, output)
    assert published(output) == [1, 2, 3, 4, 5, 6]


def test_a_writer_that_is_slow_to_start_leaves_the_output_of_its_successor_alone():
    store, output = MemoryBlobs(), MemoryBlobs()
    slow = SumPipeline(store, output)
    SumPipeline(store, output).run(epochs=2)
    # What it had read of the timelines before the other one opened its own.
    slow.sink.retain(Lineage(1, {1: None}))
    assert published(output) == visible(output) == [1, 2, 3, 4]


def test_a_sink_that_finds_its_successors_output_before_it_has_a_timeline_chooses_again():
    store, output = MemoryBlobs(), MemoryBlobs()
    SumPipeline(store, output).run(epochs=1)

    class Overtaken(WrapperBlobs):
        """Another writer starts and publishes between our look at the timelines and our look at the output."""

        def list(self, prefix="", **more):
            if prefix == "_prepared" and max(timeline_numbers(store)) == 1:
                SumPipeline(store, output).run(epochs=1)
            return super().list(prefix, **more)

    pipeline = SumPipeline(store, Overtaken(output))
    assert pipeline.coordinator.timeline == 3
    assert pipeline.position == 4


class Silent(FaultyBlobs):
    """From a moment on, it does not answer."""

    def fall_silent(self) -> None:
        for verb in ("read", "create", "replace", "list", "stat", "delete"):
            for _ in range(20):
                self.inject(Fault.FAIL, verb=verb)


@pytest.mark.parametrize("step", ["decided", "sinks"])
def test_an_epoch_is_not_abandoned_after_its_decision_also_if_the_store_does_not_answer(step):
    store, output = Silent(MemoryBlobs()), MemoryBlobs()
    begun = []
    pipeline = SumPipeline(store, output, hook=lambda at: store.fall_silent() if at == step else None)
    begin = pipeline.coordinator.begin
    pipeline.coordinator.begin = lambda: begun.append(begin()) or begun[-1]
    with pytest.raises(StoreUnavailableError):
        pipeline.run()
    # A caller that tolerates failures would go on with the same input otherwise.
    with pytest.raises(SinkCommitError, match="cannot be abandoned"):
        pipeline.coordinator.abandon(begun[0])


def prepared(output) -> tuple[EpochFolders, EpochRef]:
    sink, ref = EpochFolders("numbers", output), EpochRef(1, 1)
    path = f"{sink.folder(ref)}/part.json"
    output.create(path, b"[1]")
    sink.prepare(ref, [OutputFile(path=path, size=3)])
    return sink, ref


@pytest.mark.parametrize("moment", ["_committed", "timeline="])
def test_an_epoch_that_is_discarded_while_a_zombie_publishes_it_stays_discarded(moment):
    output = MemoryBlobs()

    class Slow(WrapperBlobs):
        """Another writer discards the epoch at some moment of our publishing it."""

        def _meet(self, key) -> None:
            if key.startswith(moment):
                EpochFolders("numbers", output).retain(Lineage(2, {2: None}))

        def create(self, key, body):
            self._meet(key)
            return super().create(key, body)

        def list(self, prefix="", **more):
            self._meet(prefix)
            return super().list(prefix, **more)

    sink, ref = prepared(output)
    with pytest.raises(CheckpointNotFoundError, match="are gone"):
        EpochFolders("numbers", Slow(sink.blobs)).commit(ref)
    assert list(output.list()) == []


def test_a_zombie_that_publishes_while_its_epoch_is_discarded_leaves_nothing():
    output = MemoryBlobs()
    sink, ref = prepared(output)

    class Meeting(WrapperBlobs):
        """The zombie publishes after its record was looked for, and before its files go."""

        def delete(self, keys):
            if any(key.startswith("timeline=") for key in keys):
                sink.commit(ref)
            return super().delete(keys)

    EpochFolders("numbers", Meeting(output)).retain(Lineage(2, {2: None}))
    assert list(output.list()) == []


def test_an_epoch_is_not_published_over_another_of_the_same_name():
    output = MemoryBlobs()
    sink, ref = prepared(output)
    output.create("_committed/timeline-000001-epoch-000001.json", b'{"files": []}')
    with pytest.raises(CheckpointConflictError, match="published with other files"):
        sink.commit(ref)


def test_a_fenced_writer_is_told_so_and_not_that_its_output_is_foreign():
    store, output = MemoryBlobs(), MemoryBlobs()
    zombie = SumPipeline(store, output)
    SumPipeline(store, output).run(epochs=1)
    with pytest.raises(FencedWriterError):
        zombie.run()
    assert published(output) == [1, 2]


def test_rows_of_a_task_that_was_given_up_and_ended_after_the_commit_vanish_with_the_next_start():
    now = datetime(2026, 3, 1, tzinfo=UTC)
    store, output = MemoryBlobs(), MemoryBlobs(clock=lambda: now)
    SumPipeline(store, output).run(epochs=3)
    now += timedelta(minutes=1)
    output.create("timeline=1/epoch=2/part-00000-again.json", b"[3, 4]")
    assert visible(output) == [1, 2, 3, 4, 3, 4, 5, 6]
    watched = FaultyBlobs(output)
    SumPipeline(store, watched)
    assert visible(output) == published(output) == [1, 2, 3, 4, 5, 6]
    # Whose folder it is, and the record of one epoch.
    assert watched.calls["read"] == 2, "records of epochs where nothing came later need not be read"
