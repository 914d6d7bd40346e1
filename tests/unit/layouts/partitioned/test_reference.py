"""The cases of the reference's own tests, under its names, with what we promise instead where it is wrong."""

from __future__ import annotations

import doctest
import time

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptArtifactError,
)
from airflow_provider_checkpoint.layouts import partitioned
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    OperatorEntry,
    PartitionData,
    PartitionedLayout,
    PartitionEntry,
    SourceEntry,
    decode_manifest,
    encode_manifest,
    operators_of,
)
from airflow_provider_checkpoint.model import Depth
from tests.unit.layouts.partitioned.samples import M1_ID, M2, commit, entry, manifest, nth_id, sha256


def test_checkpoint_id_time_sortable(layout):
    first, second = layout.next_id(), layout.next_id()
    assert first < second
    assert str(first) < str(second)


def test_checkpoint_id_display(layout):
    text = str(layout.next_id())
    assert len(text) == 36
    assert text.count("-") == 4


def test_checkpoint_paths(layout):
    checkpoint_id = layout.next_id()
    layout.save_snapshot(checkpoint_id, "window-agg", 3, b"s")
    layout.save_delta(checkpoint_id, "window-agg", 3, b"d")
    layout.save_manifest(manifest(checkpoint_id))
    layout.update_latest(checkpoint_id)
    # The reference forgets the slash after the id; its documentation does not.
    assert {info.key for info in layout.blobs.list()} == {
        "_latest",
        f"{checkpoint_id}/manifest.json",
        f"{checkpoint_id}/operators/window-agg/partition-3.snap",
        f"{checkpoint_id}/operators/window-agg/partition-3.delta",
    }


def test_checkpoint_paths_trailing_slash(tmp_path):
    made = commit(PartitionedLayout(LocalBlobs(f"{tmp_path}/prefix/")), M1_ID, PartitionData("op", 0, b"x"))
    assert PartitionedLayout(LocalBlobs(f"{tmp_path}/prefix")).load_manifest(M1_ID) == made


def test_manifest_v2_json_round_trip():
    made = manifest(
        M1_ID,
        epoch=10,
        watermark=5000,
        parent_id=nth_id(1),
        operators={
            "window-agg": OperatorEntry(
                partitions=[
                    PartitionEntry(
                        partition_id=0,
                        is_delta=False,
                        path="operators/window-agg/partition-0.snap",
                        size_bytes=1024,
                        sha256="abcd1234",
                    ),
                    PartitionEntry(
                        partition_id=1, is_delta=True, path="operators/window-agg/partition-1.delta", size_bytes=256
                    ),
                ],
                total_bytes=1280,
            )
        },
        source_offsets={
            "kafka-trades": SourceEntry(
                source_type="kafka", offsets={"partition-0": "1234", "partition-1": "5678"}, epoch=10
            )
        },
    )
    assert decode_manifest(encode_manifest(made), subject="m") == made


def test_manifest_v2_backward_compat_missing_fields():
    data = f'{{"version": 2, "checkpoint_id": "{M1_ID}", "epoch": 1, "timestamp_ms": 1000}}'.encode()
    read = decode_manifest(data, subject="m")
    assert read == CheckpointManifestV2(checkpoint_id=M1_ID, epoch=1, timestamp_ms=1000)
    assert (read.operators, read.source_offsets, read.parent_id, read.watermark) == ({}, {}, None, None)


def test_save_and_load_manifest(layout):
    made = manifest(layout.next_id())
    layout.save_manifest(made)
    assert layout.load_manifest(made.checkpoint_id) == made


def test_load_manifest_absent(layout):
    with pytest.raises(CheckpointNotFoundError):
        layout.load_manifest(M1_ID)


def test_save_snapshot_with_digest(layout):
    digest = layout.save_snapshot(M1_ID, "window-agg", 0, b"hello world")
    assert digest == "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"


def test_load_artifact(layout):
    layout.save_snapshot(M1_ID, "op1", 0, b"partition state")
    assert layout.load_artifact(f"{M1_ID}/operators/op1/partition-0.snap") == b"partition state"
    assert layout.load_artifact(f"checkpoints/{M1_ID}/operators/op1/partition-0.snap") == b"partition state"


def test_latest_pointer(layout):
    assert layout.read_latest() is None
    layout.update_latest(M1_ID)
    assert layout.read_latest() == M1_ID
    assert layout.blobs.read("_latest") == M2


def test_concurrent_partition_uploads(layout):
    items = [
        PartitionData("op1", 0, b"part0"),
        PartitionData("op1", 1, b"part1"),
        PartitionData("op1", 2, b"delta2", is_delta=True),
    ]
    saved = layout.save_partitions(M1_ID, items, max_concurrent=4)
    assert [(entry.partition_id, entry.is_delta, entry.sha256) for _, entry in saved] == [
        (item.partition, item.is_delta, sha256(item.data)) for item in items
    ]


def test_integrity_mismatch(layout):
    layout.save_snapshot(M1_ID, "op", 0, b"data")
    with pytest.raises(CorruptArtifactError, match="SHA-256"):
        layout.load_artifact(f"{M1_ID}/operators/op/partition-0.snap", "wrong_hash")


def test_save_and_build_manifest(layout):
    saved = layout.save_partitions(M1_ID, [PartitionData("op1", n, b"state") for n in range(2)])
    layout.save_manifest(manifest(M1_ID, saved, epoch=5))
    loaded = layout.load_manifest(M1_ID)
    assert loaded.operators == operators_of(saved)
    assert len(loaded.operators["op1"].partitions) == 2


def test_list_checkpoints_sorted(layout):
    for number in (1, 3, 2):
        commit(layout, nth_id(number))
    layout.save_snapshot(nth_id(4), "op", 0, b"never committed")
    assert layout.list_checkpoints() == [nth_id(1), nth_id(2), nth_id(3)]
    assert layout.candidates() == [nth_id(1), nth_id(2), nth_id(3), nth_id(4)]


# -- what recovery relies on; choosing a checkpoint is the lifecycle's -------------------------------------------


def test_recovery_fresh_start(layout):
    assert layout.candidates() == []
    assert layout.read_latest() is None


def test_recovery_full_snapshot(layout):
    commit(layout, M1_ID, PartitionData("op1", 0, b"full_state"), epoch=5, watermark=9999)
    checkpoint = layout.load(M1_ID)
    assert (checkpoint.epoch, checkpoint.watermark) == (5, 9999)
    assert layout.load_state(layout.load_manifest(M1_ID), "op1", 0) == (b"full_state", [])


def test_recovery_incremental(layout):
    """The reference puts base and delta into different partitions, because its restore knows none."""
    commit(layout, M1_ID, PartitionData("op1", 0, b"base_state"), PartitionData("op1", 0, b"_delta", is_delta=True))
    base, deltas = layout.load_state(layout.load_manifest(M1_ID), "op1", 0)
    assert base + b"".join(deltas) == b"base_state_delta"


def test_recovery_several_partitions_do_not_overwrite_each_other(layout):
    made = commit(layout, M1_ID, *(PartitionData("op1", n, b"%d" % n) for n in range(3)))
    assert [layout.load_state(made, "op1", n)[0] for n in range(3)] == [b"0", b"1", b"2"]


def test_recovery_integrity_check(layout):
    layout.save_snapshot(M1_ID, "op1", 0, b"real_data")
    wrong = entry(M1_ID, "op1", 0, b"fake_data")
    layout.save_manifest(manifest(M1_ID, [("op1", wrong)]))
    (check,) = layout.checks(layout.load(M1_ID), Depth.CONTENT)
    assert [issue.code for issue in check.run()] == ["checksum_mismatch"]
    with pytest.raises(CorruptArtifactError):
        layout.load_state(layout.load_manifest(M1_ID), "op1", 0)


def test_recovery_dual_source_discovery(layout):
    """_latest is missing or names what is gone, and the checkpoint is found by listing."""
    commit(layout, nth_id(1))
    layout.blobs.delete(["_latest"])
    assert (layout.read_latest(), layout.list_checkpoints()) == (None, [nth_id(1)])
    layout.move_pointer(nth_id(9))
    assert (layout.read_latest(), layout.list_checkpoints()) == (nth_id(9), [nth_id(1)])


def test_recovery_operator_mismatch(layout):
    made = commit(layout, M1_ID, PartitionData("op1", 0, b"state"))
    with pytest.raises(BlobNotFoundError, match=r"no state of operator 'op2'[^$]*'op1'"):
        layout.load_state(made, "op2", 0)
    with pytest.raises(BlobNotFoundError, match="partition 1"):
        layout.load_state(made, "op1", 1)


# -- where the reference is wrong --------------------------------------------------------------------------------


def test_must_differ_no_result_of_a_throttled_upload_is_lost(layout):
    items = [PartitionData("op", n, b"%d" % n) for n in range(64)]
    saved = layout.save_partitions(M1_ID, items, max_concurrent=4)
    assert [entry.sha256 for _, entry in saved] == [sha256(item.data) for item in items]


def test_must_differ_delete_removes_everything_and_the_pointer(layout):
    commit(layout, M1_ID, PartitionData("op", 0, b"x"))
    layout.delete_checkpoint(M1_ID)
    assert list(layout.blobs.list()) == []


def test_must_differ_a_second_manifest_does_not_overwrite_the_first(layout):
    layout.save_manifest(manifest(M1_ID, epoch=1))
    with pytest.raises(CheckpointConflictError):
        layout.save_manifest(manifest(M1_ID, epoch=2))
    assert layout.load_manifest(M1_ID).epoch == 1


def test_must_differ_a_slow_writer_does_not_turn_the_pointer_back(layout):
    layout.update_latest(nth_id(2))
    layout.update_latest(nth_id(1))
    assert layout.read_latest() == nth_id(2)


def test_must_differ_garbage_in_the_pointer_is_no_error(layout):
    layout.blobs.create("_latest", M2 + b"\n")
    assert layout.read_latest() is None


def test_must_differ_operators_with_a_slash_do_not_share_folders(layout):
    one = layout.save_artifact(M1_ID, PartitionData("a/b", 0, b"1"))
    two = layout.save_artifact(M1_ID, PartitionData("a%2Fb", 0, b"2"))
    assert one.path != two.path
    assert (layout.load_artifact(one.path), layout.load_artifact(two.path)) == (b"1", b"2")


def test_the_example_in_the_documentation_works():
    assert doctest.testmod(partitioned).failed == 0
    assert doctest.testmod(partitioned).attempted >= 5


def test_ids_carry_the_time_at_which_they_were_made(layout):
    before = time.time_ns() // 1_000_000
    made = int(str(layout.next_id()).replace("-", "")[:12], 16)
    assert before <= made <= time.time_ns() // 1_000_000 + 1
