"""Checkpoints at intervals: per stream, and taken up again after a restart."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    ConfigurationError,
    CorruptArtifactError,
    OutcomeUnknownError,
)
from airflow_provider_checkpoint.layouts.stream import CheckpointManager, StreamStore
from airflow_provider_checkpoint.layouts.stream._names import state_key
from tests.unit.layouts.stream.making import NOON, state


@pytest.fixture
def blobs():
    return MemoryBlobs()


def manager(blobs, interval=10, **settings):
    return CheckpointManager(StreamStore(blobs, 10), interval, clock=lambda: NOON, **settings)


def feed(managed, events, stream="orders"):
    """Process events and answer which made a checkpoint."""
    return [sequence for sequence in events if managed.on_event(stream, sequence, sequence * 1000)]


# -- the reference's own tests, under its names --------------------------------------------------------------------


def test_manager_fires_at_100_not_0_to_99(blobs):
    assert feed(manager(blobs, 100), range(101)) == [100]


def test_0_to_50_at_interval_10_makes_5_checkpoints(blobs):
    managed = manager(blobs)
    assert feed(managed, range(51)) == [10, 20, 30, 40, 50]
    assert managed.total_checkpoints == 5


def test_recover_is_none_before_the_first(blobs):
    managed = manager(blobs)
    assert managed.recover("orders") is None
    feed(managed, range(10))
    assert managed.recover("orders") is None
    feed(managed, [10])
    assert managed.recover("orders") == 10


def test_file_store_survives_restart_0_to_25_resumes_at_20(tmp_path):
    feed(manager(LocalBlobs(tmp_path)), range(26))
    restarted = manager(LocalBlobs(tmp_path))
    assert restarted.recover("orders") == 20
    assert restarted.total_checkpoints == 0


# -- where the reference is wrong ----------------------------------------------------------------------------------


def test_each_stream_has_its_own_schedule(blobs):
    managed = manager(blobs)
    assert feed(managed, range(11), "a") == [10]
    assert feed(managed, range(11), "b") == [10]


@pytest.mark.parametrize("recovers", [True, False])
def test_after_a_restart_the_schedule_is_taken_up_where_it_was(blobs, recovers):
    feed(manager(blobs), range(26))
    restarted = manager(blobs)
    if recovers:
        restarted.recover("orders")
    # Events 21 to 25 are replayed.
    assert feed(restarted, range(21, 45)) == [30, 40]


# -- saving ------------------------------------------------------------------------------------------------------


def test_an_interval_counts_from_the_event_that_fired(blobs):
    assert feed(manager(blobs), [3, 12, 20, 21, 22, 35]) == [12, 22, 35]


def test_a_checkpoint_holds_what_was_filled_in(blobs):
    def fill(state):
        state.set_operator_state("count", str(state.id.sequence).encode())
        state.set_source_offset("kafka", state.id.sequence * 2)

    feed(manager(blobs, fill=fill), range(11))
    found = StreamStore(blobs, 10).latest("orders").state
    assert found.operator_states == {"count": b"10"}
    assert found.source_offsets == {"kafka": 20}
    assert (found.watermark_ns, found.event_count) == (10_000, 10)


def test_a_save_that_failed_is_tried_again_at_the_next_event(blobs):
    faulty = FaultyBlobs(blobs)
    managed = manager(faulty)
    faulty.inject(Fault.TIMEOUT, verb="create")
    with pytest.raises(OutcomeUnknownError):
        managed.on_event("orders", 10, 0)
    assert managed.total_checkpoints == 0
    assert feed(managed, [11, 12]) == [11]


def test_after_a_lost_answer_the_same_event_may_be_given_again(blobs):
    faulty = FaultyBlobs(blobs)
    managed = manager(faulty)
    faulty.inject(Fault.LOST_ANSWER, verb="create")
    with pytest.raises(OutcomeUnknownError):
        managed.on_event("orders", 10, 0)
    assert managed.on_event("orders", 10, 0)
    assert [found.sequence for found in StreamStore(blobs, 10).list("orders")] == [10]


def test_a_damaged_checkpoint_is_passed_over_and_its_sequence_not_used_again(blobs, caplog):
    feed(manager(blobs), range(31))
    for sequence in (20, 30):
        blobs.replace(f"orders/{state_key(sequence)}", b"rubbish")
    restarted = manager(blobs)
    assert restarted.recover("orders") == 10
    assert "checkpoint 30 passed over" in caplog.text
    # 20 is due, but its name is taken by a file that cannot be read: the next event makes the checkpoint.
    assert feed(restarted, range(11, 45)) == [21, 31, 41]


def test_if_no_checkpoint_can_be_read_nothing_is_resumed_in_silence(blobs):
    feed(manager(blobs), range(11))
    blobs.replace(f"orders/{state_key(10)}", b"rubbish")
    with pytest.raises(CorruptArtifactError):
        manager(blobs).recover("orders")
    with pytest.raises(CorruptArtifactError):
        manager(blobs).on_event("orders", 11, 0)


def test_two_that_process_one_stream_differently_are_told(blobs):
    one, other = manager(blobs), manager(blobs)
    one.on_event("orders", 1, 0)
    other.on_event("orders", 1, 0)
    one.on_event("orders", 10, 111)
    with pytest.raises(CheckpointConflictError):
        other.on_event("orders", 10, 222)


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_of_nothing_is_refused(blobs, interval):
    with pytest.raises(ConfigurationError, match="interval is"):
        manager(blobs, interval)


def test_what_was_saved_by_others_counts(blobs):
    StreamStore(blobs, 10).save(state(17))
    assert feed(manager(blobs), range(18, 40)) == [27, 37]
