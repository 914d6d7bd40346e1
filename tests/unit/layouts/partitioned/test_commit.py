"""The commit point, and what may change after it."""

from __future__ import annotations

import json
import threading

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptManifestError,
    OutcomeUnknownError,
)
from airflow_provider_checkpoint.layouts import _json
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout, _layout, encode_manifest
from airflow_provider_checkpoint.model import SinkState, SinkStatus
from tests.unit.layouts.partitioned.samples import M1, M1_ID, manifest, nth_id

PENDING = SinkStatus(SinkState.PENDING)
COMMITTED = SinkStatus(SinkState.COMMITTED)
FAILED = SinkStatus(SinkState.FAILED, message="disk full")
KEY = f"{M1_ID}/manifest.json"


# -- saving ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_visible_only_with_its_manifest(layout):
    layout.save_snapshot(M1_ID, "op", 0, b"x")
    layout.update_latest(M1_ID)
    with pytest.raises(CheckpointNotFoundError) as caught:
        layout.load(M1_ID)
    assert caught.value.hint is not None
    layout.save_manifest(manifest(M1_ID))
    assert layout.load(M1_ID).id == M1_ID


def test_the_same_manifest_again_is_a_success(layout):
    for _ in range(2):
        layout.save_manifest(manifest(M1_ID, writer="me"))


def test_another_manifest_under_the_same_id_is_a_conflict(layout):
    layout.save_manifest(manifest(M1_ID, writer="me"))
    with pytest.raises(CheckpointConflictError, match="next_id"):
        layout.save_manifest(manifest(M1_ID, writer="you"))
    assert layout.load_manifest(M1_ID).writer == "me"


def test_of_racing_writers_one_commits(layout):
    barrier = threading.Barrier(8)
    won = []

    def write(number: int) -> None:
        barrier.wait()
        try:
            layout.save_manifest(manifest(M1_ID, writer=f"writer-{number}"))
            won.append(f"writer-{number}")
        except CheckpointConflictError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [layout.load_manifest(M1_ID).writer]


def test_a_lost_answer_to_a_commit_is_settled_by_committing_again():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.LOST_ANSWER, verb="create")
    layout = PartitionedLayout(blobs)
    with pytest.raises(OutcomeUnknownError):
        layout.save_manifest(manifest(M1_ID))
    layout.save_manifest(manifest(M1_ID))
    assert layout.list_checkpoints() == [M1_ID]


def test_a_manifest_too_large_to_be_read_back_is_not_committed(layout, monkeypatch):
    made = manifest(M1_ID)
    monkeypatch.setattr(_layout, "MAX_MANIFEST_BYTES", len(encode_manifest(made)) - 1)
    with pytest.raises(CorruptManifestError, match="larger"):
        layout.save_manifest(made)
    assert layout.list_checkpoints() == []
    assert _json.MAX_MANIFEST_BYTES == 256 * 1024 * 1024


# -- statuses ----------------------------------------------------------------------------------------------------


def test_statuses_and_epochs_are_recorded_and_nothing_else_changes(layout):
    before = manifest(M1_ID, sink_commit_statuses={"a": PENDING, "b": PENDING}, sink_epochs={"a": 1}, writer="w")
    layout.save_manifest(before)
    layout.update_statuses(M1_ID, {"a": COMMITTED, "c": FAILED}, {"c": 1})
    assert layout.load_manifest(M1_ID) == before.model_copy(
        update={"sink_commit_statuses": {"a": COMMITTED, "b": PENDING, "c": FAILED}, "sink_epochs": {"a": 1, "c": 1}}
    )


def test_an_update_that_changes_nothing_writes_nothing():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.create(KEY, M1)
    layout = PartitionedLayout(blobs)
    layout.update_statuses(M1_ID, {"out": COMMITTED})
    after_first = blobs.read(KEY)
    layout.update_statuses(M1_ID, {"out": COMMITTED})
    layout.update_statuses(M1_ID, {})
    assert blobs.read(KEY) == after_first
    assert [verb for verb, _ in blobs.mutations] == ["create", "replace"]


def test_keys_of_a_newer_writer_survive_an_update_with_their_values():
    theirs = {
        "rate": 1e-07,
        "big": 2**70,
        "text": "\x00\u2028\u00fc\U0010ffff",
        "nothing": {"a": [], "b": {}, "c": None},
    }
    blobs = MemoryBlobs()
    blobs.create(KEY, json.dumps(json.loads(M1) | theirs).encode())
    PartitionedLayout(blobs).update_statuses(M1_ID, {"out": COMMITTED})
    assert {name: json.loads(blobs.read(KEY))[name] for name in theirs} == theirs


def test_a_key_too_deep_to_be_written_again_is_told_and_nothing_changes():
    blobs = MemoryBlobs()
    before = M1.rstrip()[:-1] + b', "theirs": ' + b"[" * 400 + b"]" * 400 + b"}"
    blobs.create(KEY, before)
    with pytest.raises(CorruptManifestError, match="nested too deeply"):
        PartitionedLayout(blobs).update_statuses(M1_ID, {"out": COMMITTED})
    assert blobs.read(KEY) == before


def test_updates_of_different_sinks_at_once_are_all_kept(layout):
    layout.save_manifest(manifest(M1_ID))
    barrier = threading.Barrier(8)

    def record(number: int) -> None:
        barrier.wait()
        layout.update_statuses(M1_ID, {f"sink-{number}": COMMITTED}, {f"sink-{number}": number})

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert layout.load_manifest(M1_ID).sink_epochs == {f"sink-{number}": number for number in range(8)}


class Interfering(WrapperBlobs):
    """Another writer comes in before each of the next few replaces."""

    def __init__(self, inner, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def replace(self, key, body, *, expected=None):
        if self.times:
            self.times -= 1
            PartitionedLayout(self._inner).update_statuses(M1_ID, {f"other-{self.times}": PENDING})
        return super().replace(key, body, expected=expected)


@pytest.mark.parametrize("times", [1, 5])
def test_an_update_that_loses_the_race_reads_again(layout, times):
    layout.save_manifest(manifest(M1_ID))
    PartitionedLayout(Interfering(layout.blobs, times)).update_statuses(M1_ID, {"mine": COMMITTED})
    assert layout.load_manifest(M1_ID).sink_commit_statuses.keys() == {"mine", *(f"other-{n}" for n in range(times))}


def test_an_update_that_always_loses_gives_up(layout):
    layout.save_manifest(manifest(M1_ID))
    with pytest.raises(BlobChangedError):
        PartitionedLayout(Interfering(layout.blobs, 1000)).update_statuses(M1_ID, {"mine": COMMITTED})


def test_a_lost_answer_to_an_update_is_settled_by_updating_again(layout):
    layout.save_manifest(manifest(M1_ID))
    blobs = FaultyBlobs(layout.blobs)
    blobs.inject(Fault.LOST_ANSWER, verb="replace")
    faulty = PartitionedLayout(blobs)
    with pytest.raises(OutcomeUnknownError):
        faulty.update_statuses(M1_ID, {"out": COMMITTED})
    faulty.update_statuses(M1_ID, {"out": COMMITTED})
    assert layout.load_manifest(M1_ID).sink_commit_statuses == {"out": COMMITTED}


def test_no_status_is_recorded_for_a_checkpoint_that_does_not_exist(layout):
    with pytest.raises(CheckpointNotFoundError):
        layout.update_statuses(M1_ID, {"out": COMMITTED})
    assert layout.candidates() == []


@pytest.mark.parametrize("data", [b"garbage", M1.replace(b'"version": 2', b'"version": 3')])
def test_a_manifest_we_do_not_understand_is_not_rewritten(layout, data):
    layout.blobs.create(KEY, data)
    with pytest.raises(CorruptManifestError):
        layout.update_statuses(M1_ID, {"out": COMMITTED})
    assert layout.blobs.read(KEY) == data


def test_a_manifest_of_another_checkpoint_is_not_rewritten(layout):
    layout.blobs.create(f"{nth_id(1)}/manifest.json", M1)
    with pytest.raises(CorruptManifestError, match=f"says {M1_ID}"):
        layout.update_statuses(nth_id(1), {"out": COMMITTED})


def test_an_epoch_that_is_none_is_refused(layout):
    layout.save_manifest(manifest(M1_ID))
    with pytest.raises(CorruptManifestError, match="sink_epochs"):
        layout.update_statuses(M1_ID, {}, {"out": -1})
    assert layout.load_manifest(M1_ID) == manifest(M1_ID)
