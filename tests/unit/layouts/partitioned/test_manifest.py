"""The manifest: the reference's bytes, strictly read, with keys of ours that disappear when they say nothing."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    OperatorEntry,
    PartitionEntry,
    SourceEntry,
    decode_manifest,
    encode_manifest,
    operators_of,
)
from airflow_provider_checkpoint.layouts.partitioned._checkpoint import as_checkpoint
from airflow_provider_checkpoint.layouts.partitioned._manifest import with_sinks
from airflow_provider_checkpoint.model import (
    FIRST_TIMELINE,
    KafkaPartition,
    KafkaPosition,
    SinkState,
    SinkStatus,
)
from tests.unit.layouts.partitioned.samples import M1, M1_ID, MANIFESTS, entry, manifest, maps, nth_id, patient

COMMITTED = SinkStatus(SinkState.COMMITTED)
PENDING = SinkStatus(SinkState.PENDING)


def decode(values: dict[str, Any]) -> CheckpointManifestV2:
    return decode_manifest(json.dumps(values).encode(), subject="m")


def m1(**changes: Any) -> dict[str, Any]:
    return json.loads(M1) | changes


# -- bytes -------------------------------------------------------------------------------------------------------


def test_the_vector_is_read_and_written_byte_for_byte():
    read = decode_manifest(M1, subject="M1")
    assert encode_manifest(read) == M1
    assert read.checkpoint_id == M1_ID
    assert read.operators["window-agg"].total_bytes == 17


def test_we_build_the_vector_from_its_parts():
    partitions = [
        PartitionEntry(
            partition_id=0,
            is_delta=is_delta,
            path=f"checkpoints/{M1_ID}/operators/window-agg/partition-0.{ending}",
            size_bytes=size,
            sha256=sha256,
        )
        for is_delta, ending, size, sha256 in [
            (True, "delta", 6, "dd85c02513b7fee0ae7e625927021b4a913f1accfceb5a938d6959599aa2c1b6"),
            (False, "snap", 11, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"),
        ]
    ]
    built = CheckpointManifestV2(
        checkpoint_id=M1_ID,
        epoch=10,
        timestamp_ms=1_700_000_000_000,
        operators=operators_of(("window-agg", partition) for partition in partitions),
        source_offsets={"kafka-trades": SourceEntry(source_type="kafka", offsets={"partition-0": "1234"}, epoch=10)},
        watermark=5000,
    )
    assert encode_manifest(built) == M1


@patient
@given(made=MANIFESTS)
def test_every_manifest_survives_being_written(made):
    data = encode_manifest(made)
    again = decode_manifest(data, subject="m")
    assert again == made
    assert encode_manifest(again) == data == json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()


@patient
@given(made=MANIFESTS)
def test_maps_are_written_sorted(made):
    written = json.loads(encode_manifest(made))
    for key in ("operators", "source_offsets", "sink_epochs", "sink_commit_statuses", "source_watermarks"):
        assert list(written.get(key, {})) == sorted(written.get(key, {}))
    for source in written["source_offsets"].values():
        assert list(source["offsets"]) == sorted(source["offsets"])


def test_text_is_written_as_it_is_and_not_escaped():
    made = manifest(M1_ID, writer="опер\n")
    assert '"writer": "опер\\n"\n}'.encode() in encode_manifest(made)


OURS = {
    "timeline": 2,
    "sink_epochs": {"out": 10},
    "sink_commit_statuses": {"a": "Pending", "b": "Committed", "c": {"Failed": "disk full"}},
    "source_names": ["kafka-trades"],
    "sink_names": ["a", "b", "c", "out"],
    "pipeline_hash": 0xDEADBEEFCAFE1234,
    "vnode_count": 256,
    "source_watermarks": {"kafka-trades": -5},
    "event_count": 0,
    "savepoint": True,
    "writer": "driver-1",
}


def test_our_keys_stand_after_the_references_in_their_order():
    data = encode_manifest(decode(m1(**dict(reversed(OURS.items())))))
    assert data.startswith(M1.removesuffix(b"\n}") + b",\n")
    assert list(json.loads(data)) == [*json.loads(M1), *OURS]
    assert json.loads(data) == m1(**OURS)


@pytest.mark.parametrize("key", OURS)
def test_each_of_our_keys_stands_alone_and_only_when_set(key):
    data = encode_manifest(decode(m1(**{key: OURS[key]})))
    assert list(json.loads(data)) == [*json.loads(M1), key]


@pytest.mark.parametrize(
    "silent",
    [
        {"timeline": None},
        {"sink_epochs": {}},
        {"sink_commit_statuses": {}},
        {"source_names": []},
        {"sink_names": []},
        {"pipeline_hash": None},
        {"vnode_count": None},
        {"source_watermarks": {}},
        {"event_count": None},
        {"savepoint": False},
        {"writer": None},
    ],
)
def test_a_key_that_says_nothing_is_not_written(silent):
    assert encode_manifest(decode(m1(**silent))) == M1


# -- strictness --------------------------------------------------------------------------------------------------


def test_unknown_keys_are_ignored_at_every_level():
    values = m1(wal_position=7)
    values["operators"]["window-agg"]["compression"] = "zstd"
    values["operators"]["window-agg"]["partitions"][0]["encryption"] = {"key": 1}
    values["source_offsets"]["kafka-trades"]["lag"] = 1.5
    assert encode_manifest(decode(values)) == M1


@pytest.mark.parametrize("key", ["version", "checkpoint_id", "epoch", "timestamp_ms"])
def test_the_four_mandatory_keys_must_be_there(key):
    values = m1()
    del values[key]
    with pytest.raises(CorruptManifestError, match=key):
        decode(values)


PARTITION = json.loads(M1)["operators"]["window-agg"]["partitions"][0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": -1},
        {"version": 2**32},
        {"version": "2"},
        {"version": 2.0},
        {"version": True},
        {"version": None},
        {"checkpoint_id": 7},
        {"checkpoint_id": None},
        {"checkpoint_id": str(M1_ID).upper()},
        {"checkpoint_id": "0192a3b4-c5d6-4e8f-9a0b-1c2d3e4f5a6b"},
        {"checkpoint_id": f"../{M1_ID}"},
        {"checkpoint_id": [str(M1_ID)]},
        {"epoch": 2**64},
        {"epoch": 1.5},
        {"timestamp_ms": -1},
        {"operators": None},
        {"operators": []},
        {"operators": {"op": None}},
        {"operators": {"op": {}}},
        {"operators": {"op": {"partitions": {}}}},
        {"operators": {"op": {"partitions": [], "total_bytes": None}}},
        *(
            {"operators": {"op": {"partitions": [PARTITION | change]}}}
            for change in [
                {"partition_id": 2**32},
                {"partition_id": -1},
                {"is_delta": 0},
                {"is_delta": "false"},
                {"path": None},
                {"path": 7},
                {"size_bytes": 2**64},
                {"size_bytes": None},
                {"sha256": 7},
            ]
        ),
        *(
            {"operators": {"op": {"partitions": [{k: v for k, v in PARTITION.items() if k != key}]}}}
            for key in [
                "partition_id",
                "is_delta",
                "path",
                "size_bytes",
            ]
        ),
        {"source_offsets": None},
        {"source_offsets": {"s": {"offsets": {}, "epoch": 1}}},
        {"source_offsets": {"s": {"source_type": "x", "epoch": 1}}},
        {"source_offsets": {"s": {"source_type": "x", "offsets": {}}}},
        {"source_offsets": {"s": {"source_type": "x", "offsets": {"p": 1}, "epoch": 1}}},
        {"parent_id": "latest"},
        {"watermark": 2**63},
        {"watermark": "5000"},
        {"total_size_bytes": None},
        {"timeline": 0},
        {"timeline": 2**64},
        {"sink_epochs": {"out": -1}},
        {"sink_epochs": None},
        {"sink_commit_statuses": {"out": "pending"}},
        {"sink_commit_statuses": {"out": None}},
        {"sink_commit_statuses": {"out": {"Failed": None}}},
        {"sink_commit_statuses": {"out": {"Failed": "a", "Committed": None}}},
        {"sink_commit_statuses": {"out": {}}},
        {"sink_commit_statuses": {"out": ["Pending"]}},
        {"sink_commit_statuses": {"out": [["Failed", "why"]]}},
        {"source_names": "abc"},
        {"source_names": [1]},
        {"source_names": None},
        {"pipeline_hash": 2**64},
        {"vnode_count": 2**16},
        {"event_count": -1},
        {"savepoint": 1},
        {"writer": 1},
    ],
)
def test_a_wrong_type_or_range_is_corrupt(wrong):
    with pytest.raises(CorruptManifestError, match=next(iter(wrong))):
        decode(m1(**wrong))


@pytest.mark.parametrize("tag", ["Pending", "Committed"])
def test_a_status_may_be_tagged_the_other_way_serde_knows(tag):
    assert decode(m1(sink_commit_statuses={"out": {tag: None}})) == decode(m1(sink_commit_statuses={"out": tag}))


@pytest.mark.parametrize(
    "half",
    [
        {"writer": "\ud800"},
        {"sink_epochs": {"\udfff": 1}},
        {"source_names": ["\ud800"]},
        {"operators": {"\ud800": OperatorEntry.of([])}},
    ],
)
def test_text_that_no_file_can_hold_is_refused_before_it_is_written(half):
    with pytest.raises(ValidationError, match="unicode"):
        manifest(M1_ID, **half)


def test_the_message_of_a_failed_sink_is_kept_even_if_it_quotes_a_broken_file_name():
    made = manifest(M1_ID, sink_commit_statuses={"out": SinkStatus(SinkState.FAILED, message="no such file: \udcff")})
    assert decode_manifest(encode_manifest(made), subject="m") == made
    assert made.sink_commit_statuses["out"].message == r"no such file: \udcff"


def test_a_manifest_does_not_change():
    made = manifest(M1_ID)
    with pytest.raises(ValidationError):
        made.epoch = 2  # type: ignore[misc]  # that is what is tested


# -- damage ------------------------------------------------------------------------------------------------------


def test_no_cut_of_a_manifest_is_a_manifest():
    for length in range(len(M1)):
        with pytest.raises(CorruptManifestError):
            decode_manifest(M1[:length], subject="m")


def test_a_flipped_bit_gives_a_corrupt_manifest_or_a_valid_one_and_nothing_else():
    accepted = 0
    for position in range(len(M1) * 8):
        data = bytearray(M1)
        data[position // 8] ^= 1 << position % 8
        try:
            read = decode_manifest(bytes(data), subject="m")
            as_checkpoint(read)
        except CorruptManifestError:
            continue
        accepted += 1
        assert decode_manifest(encode_manifest(read), subject="m") == read
    assert 0 < accepted < len(M1) * 4


@patient
@given(data=st.data())
def test_damage_anywhere_raises_nothing_but_corrupt(data):
    whole = encode_manifest(data.draw(MANIFESTS))
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=4)) + whole[stop:]
    with contextlib.suppress(CorruptManifestError):
        as_checkpoint(decode_manifest(damaged, subject="m"))


# -- meaning -----------------------------------------------------------------------------------------------------


def test_the_checkpoint_says_what_the_manifest_says():
    checkpoint = as_checkpoint(decode(m1(**OURS, parent_id=str(nth_id(1)))))
    assert checkpoint.id == M1_ID
    assert checkpoint.parent == nth_id(1)
    assert (checkpoint.epoch, checkpoint.timeline, checkpoint.watermark, checkpoint.event_count) == (10, 2, 5000, 0)
    assert checkpoint.created.isoformat() == "2023-11-14T22:13:20+00:00"
    assert checkpoint.size == 17
    assert [artifact.key for artifact in checkpoint.artifacts] == [
        f"{M1_ID}/operators/window-agg/partition-0.snap",
        f"{M1_ID}/operators/window-agg/partition-0.delta",
    ]
    assert checkpoint.sources == {
        "kafka-trades": KafkaPosition(partitions=(KafkaPartition(topic="partition", partition=0, offset=1234),))
    }
    assert checkpoint.sinks == {
        "a": PENDING,
        "b": COMMITTED,
        "c": SinkStatus(SinkState.FAILED, None, "disk full"),
        "out": SinkStatus(SinkState.COMMITTED, 10),
    }
    assert (checkpoint.pipeline_hash, checkpoint.vnode_count) == (0xDEADBEEFCAFE1234, 256)
    assert checkpoint.source_names == ("kafka-trades",)
    assert checkpoint.sink_names == ("a", "b", "c", "out")
    assert checkpoint.savepoint


def test_a_manifest_of_the_reference_means_the_first_timeline_and_nothing_of_ours():
    checkpoint = as_checkpoint(decode_manifest(M1, subject="M1"))
    assert checkpoint.timeline == FIRST_TIMELINE
    assert not checkpoint.savepoint
    assert not checkpoint.sinks
    assert (checkpoint.pipeline_hash, checkpoint.vnode_count, checkpoint.event_count) == (None, None, None)


def test_a_date_beyond_all_dates_is_the_last_one():
    assert as_checkpoint(manifest(M1_ID, timestamp_ms=2**64 - 1)).created.year == 9999


def test_a_position_is_stored_and_found_again():
    position = KafkaPosition(group_id="g", partitions=(KafkaPartition(topic="t", partition=3, offset=9),))
    source = SourceEntry.of(position, epoch=4)
    assert (source.source_type, source.offsets, source.epoch) == ("kafka", {"group_id": "g", "t-3": "9"}, 4)
    assert source.position == position


def test_operators_list_partitions_in_order_with_the_snapshot_first_and_deltas_as_given():
    newer, older = (entry(nth_id(number), "op", 1, b"d", is_delta=True) for number in (2, 1))
    snapshots = [entry(nth_id(1), "op", partition, b"state") for partition in (1, 0)]
    listed = operators_of([("op", newer), ("op", older), *(("op", each) for each in snapshots)])
    assert listed == {"op": OperatorEntry(partitions=(snapshots[1], snapshots[0], newer, older), total_bytes=12)}


@pytest.mark.parametrize(
    "entries",
    [
        [("op", entry(M1_ID, "other", 0, b"x"))],
        [("op", entry(M1_ID, "op", 1, b"x").model_copy(update={"partition_id": 0}))],
        [("op", entry(M1_ID, "op", 0, b"x").model_copy(update={"is_delta": True}))],
        [("", entry(M1_ID, "op", 0, b"x"))],
    ],
)
def test_an_entry_whose_path_names_other_state_is_corrupt(entries):
    with pytest.raises(CorruptManifestError, match="that of another"):
        as_checkpoint(manifest(M1_ID, entries))


def test_the_references_folder_of_an_operator_with_a_slash_is_understood():
    slashed = entry(M1_ID, "op", 0, b"x").model_copy(update={"path": "operators/a/b/partition-0.snap"})
    assert as_checkpoint(manifest(M1_ID, [("a/b", slashed)])).artifacts[0].operator == "a/b"


# -- changing sinks ----------------------------------------------------------------------------------------------


@patient
@given(made=MANIFESTS, statuses=maps(st.sampled_from([COMMITTED, PENDING])), epochs=maps(st.integers(0, 9)))
def test_changing_sinks_changes_sinks_and_nothing_else(made, statuses, epochs):
    body = with_sinks(json.loads(encode_manifest(made)), statuses, epochs, subject="m")
    after = made if body is None else decode_manifest(body, subject="m")
    assert after.sink_commit_statuses == made.sink_commit_statuses | statuses
    assert after.sink_epochs == made.sink_epochs | epochs
    assert after.model_copy(update={"sink_commit_statuses": {}, "sink_epochs": {}}) == made.model_copy(
        update={"sink_commit_statuses": {}, "sink_epochs": {}}
    )
    assert body is None or body == encode_manifest(after)


def test_changing_sinks_keeps_what_a_newer_writer_added():
    values = m1(compaction={"level": 2}, writer="w")
    values["operators"]["window-agg"]["partitions"][0]["encryption"] = "aes"
    body = with_sinks(values, {"out": COMMITTED}, {"out": 10}, subject="m")
    assert body is not None
    assert json.loads(body) == values | {"sink_epochs": {"out": 10}, "sink_commit_statuses": {"out": "Committed"}}
    assert list(json.loads(body))[-1] == "compaction"


def test_the_epoch_in_a_status_is_not_written_twice():
    body = with_sinks(m1(), {"out": SinkStatus(SinkState.FAILED, epoch=3, message=None)}, {}, subject="m")
    assert body is not None
    assert json.loads(body) == m1(sink_commit_statuses={"out": {"Failed": ""}})
