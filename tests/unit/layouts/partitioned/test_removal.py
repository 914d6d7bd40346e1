"""Removing one checkpoint for good."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_checkpoint.blobs import Deletion, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointInUseError,
    CorruptManifestError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, put_into_trash, undelete
from tests.unit.layouts.partitioned.samples import commit, commit_base_and_increment, manifest, nth_id


def keys(layout: PartitionedLayout) -> set[str]:
    return {info.key for info in layout.blobs.list()}


def three(layout: PartitionedLayout) -> None:
    for number in (1, 2, 3):
        commit(layout, nth_id(number), *(PartitionData("a/b", n, b"x") for n in range(3)))


def test_everything_in_the_folder_goes_and_nothing_else(layout):
    three(layout)
    layout.blobs.create(f"{nth_id(2)}/offsets/kafka.json", b"{}")
    layout.blobs.create(f"{nth_id(2)}/whatever", b"")
    layout.blobs.create(f"pins/{nth_id(2)}.json", b"{}")
    before = keys(layout)
    layout.delete_checkpoint(nth_id(2))
    assert keys(layout) == {key for key in before if not key.startswith(f"{nth_id(2)}/")}
    assert layout.list_checkpoints() == layout.candidates() == [nth_id(1), nth_id(3)]
    assert layout.read_latest() == nth_id(3)


def test_the_pointer_falls_back_to_the_newest_that_is_left(layout):
    three(layout)
    layout.save_snapshot(nth_id(4), "op", 0, b"never committed")
    layout.delete_checkpoint(nth_id(3))
    assert layout.read_latest() == nth_id(2)


def test_with_the_last_checkpoint_goes_the_pointer(layout):
    commit(layout, nth_id(1))
    layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == set()


def test_what_is_gone_is_gone(layout):
    layout.delete_checkpoint(nth_id(1))
    commit(layout, nth_id(1))
    layout.delete_checkpoint(nth_id(1))
    layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == set()


def test_a_corrupt_checkpoint_can_be_removed(layout):
    three(layout)
    layout.blobs.replace(f"{nth_id(3)}/manifest.json", b"garbage")
    layout.delete_checkpoint(nth_id(3))
    assert layout.candidates() == [nth_id(1), nth_id(2)]


def test_an_aborted_checkpoint_can_be_removed(layout):
    layout.save_snapshot(nth_id(1), "op", 0, b"x")
    layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == set()


def test_half_written_objects_go_too(tmp_path, layout):
    half = f"{nth_id(1)}/operators/op/.partition-0.snap.{'0' * 32}.tmp"
    path = tmp_path / "store" / half
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    layout.delete_checkpoint(nth_id(1))
    assert list(layout.blobs.list(temporary=True)) == []


# -- what others need --------------------------------------------------------------------------------------------


def test_a_base_that_another_checkpoint_needs_stays(layout):
    commit_base_and_increment(layout)
    before = keys(layout)
    with pytest.raises(CheckpointInUseError, match=str(nth_id(2))) as caught:
        layout.delete_checkpoint(nth_id(1))
    assert caught.value.hint is not None
    assert keys(layout) == before
    assert layout.load_state(layout.load_manifest(nth_id(2)), "op", 0) == (b"base_state", [b"_delta"])


def test_a_base_stays_even_if_its_own_manifest_is_gone(layout):
    commit_base_and_increment(layout)
    layout.blobs.delete([f"{nth_id(1)}/manifest.json"])
    with pytest.raises(CheckpointInUseError):
        layout.delete_checkpoint(nth_id(1))


def test_the_increment_goes_first_then_the_base(layout):
    commit_base_and_increment(layout)
    layout.delete_checkpoint(nth_id(2))
    assert layout.read_latest() == nth_id(1)
    layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == set()


def test_a_parent_nobody_shares_artifacts_with_may_go(layout):
    commit(layout, nth_id(1), PartitionData("op", 0, b"x"))
    commit(layout, nth_id(2), PartitionData("op", 0, b"y"), parent_id=nth_id(1))
    layout.delete_checkpoint(nth_id(1))
    assert layout.list_checkpoints() == [nth_id(2)]


def test_without_evidence_nothing_is_removed(layout):
    three(layout)
    layout.blobs.replace(f"{nth_id(3)}/manifest.json", b"garbage")
    before = keys(layout)
    with pytest.raises(CorruptManifestError, match="not known whether it needs") as caught:
        layout.delete_checkpoint(nth_id(1))
    assert str(nth_id(3)) in str(caught.value)
    assert keys(layout) == before


def test_a_store_that_does_not_answer_removes_nothing(layout):
    three(layout)
    before = keys(layout)
    blobs = FaultyBlobs(layout.blobs)
    blobs.inject(Fault.FAIL, verb="read", match="manifest")
    with pytest.raises(StoreUnavailableError):
        PartitionedLayout(blobs).delete_checkpoint(nth_id(1))
    assert keys(layout) == before


def trash(layout: PartitionedLayout, number: int) -> None:
    """As the lifecycle prunes: the manifest moves, the artifacts stay."""
    entry = TrashEntry(
        checkpoint_id=nth_id(number),
        trashed=datetime(2026, 1, 1, tzinfo=UTC),
        by="test",
        run="test",
        reasons=("old",),
        keys=tuple(layout.manifest_keys(nth_id(number))),
        artifacts=tuple(artifact.key for artifact in layout.load(nth_id(number)).artifacts),
    )
    put_into_trash(layout.blobs, entry)


def test_a_base_that_a_checkpoint_in_the_trash_needs_stays(layout):
    commit_base_and_increment(layout)
    trash(layout, 2)
    with pytest.raises(CheckpointInUseError, match="in the trash"):
        layout.delete_checkpoint(nth_id(1))
    undelete(layout.blobs, nth_id(2))
    assert layout.load_state(layout.load_manifest(nth_id(2)), "op", 0) == (b"base_state", [b"_delta"])


def test_the_artifacts_of_a_checkpoint_in_the_trash_stay(layout):
    three(layout)
    trash(layout, 2)
    with pytest.raises(CheckpointInUseError, match="in the trash"):
        layout.delete_checkpoint(nth_id(2))
    layout.delete_checkpoint(nth_id(1))
    undelete(layout.blobs, nth_id(2))
    assert layout.list_checkpoints() == [nth_id(2), nth_id(3)]


def test_an_unreadable_manifest_in_the_trash_is_no_evidence(layout):
    three(layout)
    trash(layout, 2)
    layout.blobs.replace(f"trash/{nth_id(2)}/kept/{nth_id(2)}/manifest.json", b"garbage")
    before = keys(layout)
    with pytest.raises(CorruptManifestError, match=f"trash/{nth_id(2)}/kept"):
        layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == before


# -- when the store refuses --------------------------------------------------------------------------------------


class Refusing(WrapperBlobs):
    """Refuses to delete some objects, and says so per object, as stores do."""

    def __init__(self, inner, match: str) -> None:
        super().__init__(inner)
        self.match = match

    def delete(self, keys):
        return [
            Deletion(key, AccessDeniedError("not allowed", subject=key))
            if self.match in key
            else super(Refusing, self).delete([key])[0]
            for key in keys
        ]


@pytest.mark.parametrize("match", ["manifest.json", "partition-1", "_latest"])
def test_an_object_the_store_keeps_is_an_error_and_not_a_silence(match):
    layout = PartitionedLayout(MemoryBlobs())
    commit(layout, nth_id(1), *(PartitionData("op", n, b"x") for n in range(3)))
    with pytest.raises(AccessDeniedError, match=match):
        PartitionedLayout(Refusing(layout.blobs, match)).delete_checkpoint(nth_id(1))
    if match == "manifest.json":
        assert len(keys(layout)) == 5, "without the manifest's removal nothing else may go"
    layout.delete_checkpoint(nth_id(1))
    assert keys(layout) == set()


def test_a_pointer_that_moved_on_meanwhile_is_left_alone(layout):
    commit(layout, nth_id(1))

    class Overtaken(WrapperBlobs):
        def list(self, folder="", *, temporary=False):
            PartitionedLayout(self._inner).save_manifest(manifest(nth_id(5)))
            PartitionedLayout(self._inner).update_latest(nth_id(5))
            return super().list(folder, temporary=temporary)

    PartitionedLayout(Overtaken(layout.blobs)).delete_checkpoint(nth_id(1))
    assert layout.read_latest() == nth_id(5)
