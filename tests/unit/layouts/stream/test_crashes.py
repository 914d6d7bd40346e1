"""Saving and trimming, stopped after every step and with every answer lost."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.layouts.stream import StreamStore
from airflow_provider_checkpoint.model import Depth, Severity
from tests.unit.layouts.stream.making import same, state

OLD = [state(sequence, operators={"o": b"old"}) for sequence in (1, 2, 3)]
NEW = state(4, operators={"o": b"new"}, sources={"s": 4})


@pytest.fixture(params=["memory", "local"])
def filled(request, tmp_path):
    """Makes a store of three checkpoints, which is as many as it keeps: the next save trims."""
    made = 0

    def make():
        nonlocal made
        made += 1
        blobs = MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path / str(made))
        for old in OLD:
            StreamStore(blobs, 3).save(old)
        return blobs

    return make


def steps_of(act, blobs) -> list[tuple[str, str]]:
    faulty = FaultyBlobs(blobs)
    act(StreamStore(faulty, 3))
    return faulty.mutations


def everything(blobs) -> dict[str, bytes]:
    return {info.key: blobs.read(info.key) for info in blobs.list()}


def assert_whole(blobs) -> None:
    """Every checkpoint that can be seen is sound, whoever looks and however deep."""
    store = StreamStore(blobs, 3)
    layout = store.layout("orders")
    for checkpoint_id in layout.candidates():
        checkpoint = layout.load(checkpoint_id)
        for check in layout.checks(checkpoint, Depth.CONTENT):
            assert [issue for issue in check.run() if issue.severity is Severity.ERROR] == []
    found = store.latest("orders")
    assert found.skipped == ()
    assert found.state.id.sequence >= 3


def save_new(store):
    store.save(NEW)


def delete_old(store):
    store.delete_before("orders", 3)


ACTS = [save_new, delete_old]


def test_a_save_that_trims_takes_four_steps_in_this_order(filled):
    steps = [(verb, key.rpartition("-")[2].lstrip("0")) for verb, key in steps_of(save_new, filled())]
    assert steps == [
        ("create", "4.ckpt"),
        ("create", "4.ckpt.sha256"),
        ("delete", "1.ckpt.sha256"),
        ("delete", "1.ckpt"),
    ]


@pytest.mark.parametrize("act", ACTS)
def test_a_crash_after_any_step_leaves_whole_checkpoints_and_a_repeat_finishes(filled, act):
    uninterrupted = filled()
    steps = steps_of(act, uninterrupted)
    for done in range(len(steps)):
        blobs = filled()
        with pytest.raises(SimulatedCrash):
            act(StreamStore(FaultyBlobs(blobs, crash_after=done), 3))
        assert_whole(blobs)
        act(StreamStore(blobs, 3))
        assert everything(blobs) == everything(uninterrupted)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.TIMEOUT, Fault.FAIL])
@pytest.mark.parametrize("act", ACTS)
def test_an_answer_that_fails_to_come_leaves_whole_checkpoints_and_a_repeat_finishes(filled, act, fault):
    uninterrupted = filled()
    for verb, key in steps_of(act, uninterrupted):
        blobs = filled()
        faulty = FaultyBlobs(blobs)
        faulty.inject(fault, verb=verb, match=key)
        try:
            act(StreamStore(faulty, 3))
        except CheckpointError:
            assert verb == "create" or act is delete_old
        assert_whole(blobs)
        act(StreamStore(blobs, 3))
        assert everything(blobs) == everything(uninterrupted)


def test_a_crash_between_state_and_digest_leaves_an_unproven_checkpoint_not_an_invalid_one(filled):
    blobs = filled()
    with pytest.raises(SimulatedCrash):
        StreamStore(FaultyBlobs(blobs, crash_after=1), 3).save(NEW)
    found = StreamStore(blobs, 3).latest("orders")
    assert same(found.state, NEW)
    assert found.skipped == ()


def test_a_crash_while_a_leftover_digest_is_put_right_is_finished_by_a_repeat(filled):
    blobs = filled()
    stale = "orders/checkpoint-00000000000000000004.ckpt.sha256"
    blobs.create(stale, b"0" * 64)
    for done in range(3):
        with pytest.raises(SimulatedCrash):
            StreamStore(FaultyBlobs(blobs, crash_after=done), 3).save(NEW)
        # The leftover speaks against the new state until it is put right: the older one is found.
        assert StreamStore(blobs, 3).latest("orders").state.id.sequence == 3
    saved = StreamStore(blobs, 3).save(NEW)
    assert blobs.read(stale).decode() == saved.sha256
    assert_whole(blobs)
