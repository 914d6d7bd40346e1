"""What is wrong with a manifest, without looking at anything else."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import CorruptManifestError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout, decode_manifest, encode_manifest
from airflow_provider_checkpoint.model import Severity, SinkState, SinkStatus
from tests.unit.layouts.partitioned.samples import M1, M1_ID, entry, manifest, nth_id

COMMITTED = SinkStatus(SinkState.COMMITTED)
SNAP = ("op", entry(M1_ID, "op", 0, b"state"))
DELTA = ("op", entry(M1_ID, "op", 0, b"d", is_delta=True))


def examined(made, **options):
    blobs = MemoryBlobs()
    blobs.create(f"{M1_ID}/manifest.json", made if isinstance(made, bytes) else encode_manifest(made))
    return PartitionedLayout(blobs, **options).examine(M1_ID)


def codes(made, **options):
    return [(issue.severity.value, issue.code) for issue in examined(made, **options).issues]


def test_nothing_is_wrong_with_the_vector():
    result = examined(M1)
    assert result.issues == []
    assert result.checkpoint is not None
    assert result.checkpoint.id == M1_ID


CASES = [
    (manifest(M1_ID), []),
    (manifest(M1_ID, [SNAP, DELTA]), []),
    (manifest(M1_ID, epoch=0), [("error", "epoch_zero")]),
    (manifest(M1_ID, timestamp_ms=0), [("warning", "timestamp_zero")]),
    (manifest(M1_ID, timestamp_ms=2**64 - 1), [("warning", "timestamp_absurd")]),
    (manifest(M1_ID, parent_id=nth_id(0)), []),
    (manifest(M1_ID, parent_id=M1_ID), [("warning", "parent_not_older")]),
    # sums
    (
        manifest(
            M1_ID, operators={"op": manifest(M1_ID, [SNAP]).operators["op"].model_copy(update={"total_bytes": 4})}
        ),
        [("error", "total_bytes_mismatch")],
    ),
    (
        manifest(
            M1_ID, operators={"op": manifest(M1_ID, [SNAP]).operators["op"].model_copy(update={"total_bytes": 0})}
        ),
        [],
    ),
    (manifest(M1_ID, [SNAP], total_size_bytes=5), []),
    (manifest(M1_ID, [SNAP], total_size_bytes=6), [("warning", "total_size_mismatch")]),
    # chains
    (manifest(M1_ID, [DELTA]), [("error", "chain_without_base")]),
    (
        manifest(M1_ID, [SNAP, ("op", entry(nth_id(1), "op", 0, b"older"))]),
        [("error", "chain_with_several_bases")],
    ),
    (manifest(M1_ID, [SNAP, DELTA, DELTA]), [("error", "chain_repeats")]),
    # vnodes
    (manifest(M1_ID, [SNAP], vnode_count=1), []),
    (manifest(M1_ID, [SNAP], vnode_count=0), [("warning", "vnode_count_zero")]),
    (manifest(M1_ID, [("op", entry(M1_ID, "op", 4, b"s"))], vnode_count=4), [("error", "partition_out_of_range")]),
    # digests
    (
        manifest(M1_ID, [("op", SNAP[1].model_copy(update={"sha256": None}))]),
        [("warning", "digest_missing")],
    ),
    (
        manifest(M1_ID, [("op", SNAP[1].model_copy(update={"sha256": "AB" * 32}))]),
        [("error", "digest_malformed")],
    ),
    # names and sinks
    (manifest(M1_ID, source_names=("a", "b"), sink_names=("c",)), []),
    (manifest(M1_ID, source_names=("b", "a")), [("warning", "source_names_unsorted")]),
    (manifest(M1_ID, sink_names=("a", "a")), [("warning", "sink_names_duplicate")]),
    (
        manifest(M1_ID, source_watermarks={"s": 1}, source_names=("t",)),
        [("warning", "source_watermarks_unregistered")],
    ),
    (manifest(M1_ID, sink_epochs={"s": 1}), []),
    (manifest(M1_ID, sink_epochs={"s": 1}, sink_names=("t",)), [("warning", "sink_epochs_unregistered")]),
    (
        manifest(M1_ID, sink_commit_statuses={"s": COMMITTED}, sink_names=("t",)),
        [("warning", "sink_commit_statuses_unregistered")],
    ),
    (
        manifest(M1_ID, sink_epochs={"s": 1, "t": 1}, sink_commit_statuses={"t": COMMITTED}),
        [("warning", "sink_status_missing")],
    ),
]


@pytest.mark.parametrize(("made", "expected"), CASES)
def test_each_rule_finds_its_case_and_no_other(made, expected):
    assert codes(made) == expected
    checkpoint = examined(made).checkpoint
    assert checkpoint is not None
    assert checkpoint.id == M1_ID


def test_a_source_that_was_not_registered_is_named():
    made = decode_manifest(M1, subject="m").model_copy(update={"source_names": ("other",)})
    (issue,) = examined(made).issues
    assert (issue.severity, issue.code) == (Severity.WARNING, "source_offsets_unregistered")
    assert "kafka-trades" in issue.message


@pytest.mark.parametrize(("count", "expected"), [(256, []), (128, [("error", "vnode_count_mismatch")])])
def test_the_vnode_count_is_compared_with_the_runtimes(count, expected):
    assert codes(manifest(M1_ID, [SNAP], vnode_count=256), vnode_count=count) == expected


def test_a_manifest_without_a_vnode_count_has_nothing_to_compare():
    assert codes(manifest(M1_ID, [SNAP]), vnode_count=8) == []


def test_a_delta_listed_before_its_snapshot_is_worth_a_warning():
    swapped = json.loads(M1)
    swapped["operators"]["window-agg"]["partitions"].reverse()
    assert codes(json.dumps(swapped).encode()) == [("warning", "chain_unsorted")]


NOT_UNDERSTOOD = [
    (b"", "manifest_corrupt"),
    (b"not json", "manifest_corrupt"),
    (M1.replace(b'"version": 2', b'"version": 3'), "version_unknown"),
    (M1.replace(b'"version": 2', b'"version": 1'), "version_unknown"),
    (M1.replace(b'"version": 2', b'"version": 0'), "version_unknown"),
    (M1.replace(b'"checkpoint_id": "0192a3b4', b'"checkpoint_id": "0192a3b5'), "id_mismatch"),
    (M1.replace(b"partition-0.snap", b"../../partition-0.snap"), "manifest_corrupt"),
    (M1.replace(b"checkpoints/0192", b"s3://other-bucket/0192"), "manifest_corrupt"),
    (M1.replace(b"partition-0.snap", b"partition-1.snap"), "manifest_corrupt"),
]


@pytest.mark.parametrize(("data", "code"), NOT_UNDERSTOOD)
def test_a_manifest_that_cannot_be_believed_is_an_error_and_no_checkpoint(data, code):
    result = examined(data)
    assert result.checkpoint is None
    assert [(issue.severity, issue.code) for issue in result.issues] == [(Severity.ERROR, code)]
    if code == "manifest_corrupt":
        assert str(M1_ID) in result.issues[0].message, "says which object it is about"


@pytest.mark.parametrize(("data", "code"), NOT_UNDERSTOOD)
def test_load_refuses_what_examine_does_not_believe(data, code):
    blobs = MemoryBlobs()
    blobs.create(f"{M1_ID}/manifest.json", data)
    with pytest.raises(CorruptManifestError):
        PartitionedLayout(blobs).load(M1_ID)


def test_a_missing_manifest_is_an_issue():
    (issue,) = PartitionedLayout(MemoryBlobs()).examine(M1_ID).issues
    assert (issue.severity, issue.code) == (Severity.ERROR, "manifest_missing")


def test_a_store_that_cannot_be_asked_is_not_a_broken_checkpoint():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.FAIL, verb="read")
    with pytest.raises(StoreUnavailableError):
        PartitionedLayout(blobs).examine(M1_ID)


def test_an_examination_reads_the_manifest_once_and_nothing_else():
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.create(f"{M1_ID}/manifest.json", M1)
    PartitionedLayout(blobs).examine(M1_ID)
    assert blobs.calls == {"create": 1, "read": 1}


@pytest.mark.parametrize(("made", "expected"), [case for case in CASES if any(kind == "error" for kind, _ in case[1])])
def test_what_examine_would_reject_is_never_committed(layout, made, expected):
    with pytest.raises(CorruptManifestError, match="not committed"):
        layout.save_manifest(made)
    assert list(layout.blobs.list()) == []


@pytest.mark.parametrize("change", [{"version": 3}, {"version": 0}])
def test_a_version_we_could_not_read_back_is_never_committed(layout, change):
    with pytest.raises(CorruptManifestError, match="version"):
        layout.save_manifest(manifest(M1_ID, **change))
    assert list(layout.blobs.list()) == []


def test_warnings_do_not_stop_a_commit(layout):
    layout.save_manifest(manifest(M1_ID, timestamp_ms=0))
    assert layout.list_checkpoints() == [M1_ID]
