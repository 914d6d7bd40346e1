"""The manifest as JSON, and its parts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts.sidecar import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SidecarLayout,
    pack_states,
)
from airflow_provider_checkpoint.model import SinkState, SinkStatus
from tests.unit.layouts.sidecar.making import COMMITTED, NOON_MS, PENDING, failed, manifest, patient, put, vector

FOUR_KEYS = {"version": 1, "checkpoint_id": 1, "epoch": 1, "timestamp_ms": 1000}

CONNECTOR = ConnectorCheckpoint(offsets={"partition-0": "1234"}, epoch=10, metadata={"connector_type": "kafka"})

FULL = CheckpointManifest(
    version=1,
    checkpoint_id=42,
    epoch=10,
    timestamp_ms=1_700_000_000_000,
    source_offsets={"kafka-src": CONNECTOR},
    sink_epochs={"pg-sink": 10},
    sink_commit_statuses={"pg-sink": PENDING},
    table_offsets={"instruments": ConnectorCheckpoint(offsets={"lsn": "0/ABCD"}, epoch=10)},
    operator_states={"window-agg": OperatorCheckpoint.inline(b"hello")},
    watermark=999_000,
    source_watermarks={"kafka-src": 998_000},
    source_names=("kafka-src",),
    sink_names=("pg-sink",),
    pipeline_hash=0xDEADBEEFCAFE1234,
    vnode_count=256,
    state_checksum="2591c264100adc68f26d30af55f6f1b036e9145a796f0e85700b32a54b58c07b",
)

VECTOR_MANIFESTS = {
    "L1_": CheckpointManifest.new(1, 5, timestamp_ms=1_700_000_000_000),
    "L2_": FULL.changed(pipeline_hash=16045690984503054900),
    "L2b_": FULL.changed(
        pipeline_hash=16045690984503054900,
        sink_commit_statuses={"pg-sink": failed("sink 'pg-sink' commit timed out after 60s")},
    ),
    "L3_manifest": CheckpointManifest.new(1, 5, timestamp_ms=1_700_000_000_000).changed(
        operator_states={"big-op": OperatorCheckpoint.at(0, 2048)},
        state_checksum="3d04f22913c85311f0e4b19960bb4db05ee3fc003b6dec042eef109bb69c8748",
    ),
    "L4_manifest": CheckpointManifest.new(1, 3, timestamp_ms=1_700_000_000_000).changed(
        # In the wrong order on purpose: maps are written sorted.
        operator_states={"small-op": OperatorCheckpoint.inline(b"tiny"), "big-op": OperatorCheckpoint.at(0, 4096)},
        state_checksum="bd28c0d73f999a2cbbb0425bbe7384aa113f89a1511f61e502f0789d2489518a",
    ),
}


# -- the vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTOR_MANIFESTS)
def test_a_manifest_is_written_byte_for_byte_as_the_reference_writes_it(name):
    assert VECTOR_MANIFESTS[name].to_json() == vector(name)


@pytest.mark.parametrize("name", VECTOR_MANIFESTS)
def test_a_manifest_of_the_reference_is_read_as_what_it_says(name):
    assert CheckpointManifest.from_json(vector(name)) == VECTOR_MANIFESTS[name]


@pytest.mark.parametrize("name", VECTOR_MANIFESTS)
def test_reading_and_writing_again_changes_no_byte(name):
    assert CheckpointManifest.from_json(vector(name)).to_json() == vector(name)


def test_a_manifest_of_an_old_writer_gets_the_keys_it_lacks():
    read = CheckpointManifest.from_json(vector("L7"))
    assert (read.version, read.checkpoint_id, read.epoch, read.timestamp_ms) == (1, 1, 1, 1000)
    assert read.vnode_count == 0
    assert json.loads(read.to_json()).keys() == json.loads(vector("L1_")).keys()


# -- laminar manifest: the reference's own cases -----------------------------------------------------------------


def test_new():
    made = CheckpointManifest.new(1, 5, timestamp_ms=NOON_MS)
    assert (made.version, made.checkpoint_id, made.epoch, made.timestamp_ms) == (1, 1, 5, NOON_MS)
    assert made.vnode_count == 256
    assert made.operator_states == made.source_offsets == made.sink_epochs == {}
    assert made.state_checksum is None
    assert CheckpointManifest.new(1, 5, 512, timestamp_ms=NOON_MS).vnode_count == 512


def test_json_round_trip():
    assert CheckpointManifest.from_json(FULL.to_json()) == FULL


def test_only_four_mandatory_keys_parse():
    read = CheckpointManifest.from_json(json.dumps(FOUR_KEYS).encode())
    assert read == CheckpointManifest(**FOUR_KEYS)


@pytest.mark.parametrize("state", [b"hello", b"", bytes(range(256))])
def test_inline(state):
    operator = OperatorCheckpoint.inline(state)
    assert not operator.external
    assert operator.try_decode() == state
    assert operator.inline_size == len(state)
    assert operator.external_end == 0


def test_empty_state_is_inline_and_not_the_absence_of_state():
    assert OperatorCheckpoint.inline(b"").state_b64 == ""
    assert OperatorCheckpoint().try_decode() is None


def test_external():
    operator = OperatorCheckpoint.at(1024, 256)
    assert operator.external
    assert (operator.external_offset, operator.external_length, operator.external_end) == (1024, 256, 1280)
    assert operator.try_decode() is None
    assert operator.inline_size == 0


@pytest.mark.parametrize(("size", "inline"), [(0, True), (99, True), (100, True), (101, False)])
def test_threshold_boundary(size, inline):
    operator, chunk = OperatorCheckpoint.from_bytes(b"x" * size, threshold=100, offset=0)
    assert operator.external is not inline
    assert (chunk is None) is inline


def test_from_bytes_external_at_offset_512():
    operator, chunk = OperatorCheckpoint.from_bytes(b"x" * 2048, threshold=1024, offset=512)
    assert operator == OperatorCheckpoint.at(512, 2048)
    assert chunk == b"x" * 2048


def test_topology():
    made = manifest(1, source_names=("a", "b"), sink_names=("s",))
    read = CheckpointManifest.from_json(made.to_json())
    assert read.source_names == ("a", "b")
    assert read.sink_names == ("s",)


def test_pipeline_hash():
    made = manifest(1, pipeline_hash=0xDEADBEEFCAFE1234)
    assert CheckpointManifest.from_json(made.to_json()).pipeline_hash == 0xDEADBEEFCAFE1234


def test_orphaned_source_offset_flagged():
    made = manifest(1, source_offsets={"gone": CONNECTOR.model_copy(update={"epoch": 1})}, source_names=("kept",))
    assert [issue.message for issue in made.validate(256)] == ["source_offsets contains 'gone' not in source_names"]


# -- strictness --------------------------------------------------------------------------------------------------

U64 = 2**64 - 1

REFUSED = {
    "a missing version": {"version": ...},
    "a missing id": {"checkpoint_id": ...},
    "a missing epoch": {"epoch": ...},
    "a missing time": {"timestamp_ms": ...},
    "null for a number": {"epoch": None},
    "a float": {"epoch": 1.0},
    "a number as text": {"epoch": "1"},
    "a truth value": {"epoch": True},
    "a negative id": {"checkpoint_id": -1},
    "an id beyond 64 bits": {"checkpoint_id": U64 + 1},
    "a version beyond 32 bits": {"version": 2**32},
    "vnodes beyond 16 bits": {"vnode_count": 2**16},
    "null for vnodes": {"vnode_count": None},
    "a watermark beyond 64 bits": {"watermark": 2**63},
    "a watermark below 64 bits": {"watermark": -(2**63) - 1},
    "a hash beyond 64 bits": {"pipeline_hash": U64 + 1},
    "null for a map": {"sink_epochs": None},
    "a list for a map": {"operator_states": []},
    "null for names": {"source_names": None},
    "a text for names": {"source_names": "abc"},
    "a map for names": {"source_names": {"a": 1}},
    "a number among names": {"source_names": ["a", 1]},
    "an offset that is a number": {"source_offsets": {"s": {"offsets": {"p": 1}, "epoch": 1}}},
    "a source without offsets": {"source_offsets": {"s": {"epoch": 1}}},
    "a source without epoch": {"source_offsets": {"s": {"offsets": {}}}},
    "null for metadata": {"source_offsets": {"s": {"offsets": {}, "epoch": 1, "metadata": None}}},
    "a number for a flag": {"operator_states": {"o": {"external": 1}}},
    "a negative offset": {"operator_states": {"o": {"external_offset": -1}}},
    "a checksum that is a number": {"state_checksum": 1},
    "a timeline of 0": {"timeline": 0},
    "an unknown status": {"sink_commit_statuses": {"s": "Done"}},
    "a status in lower case": {"sink_commit_statuses": {"s": "pending"}},
    "a failure without a message": {"sink_commit_statuses": {"s": "Failed"}},
    "a failure with null": {"sink_commit_statuses": {"s": {"Failed": None}}},
    "two statuses at once": {"sink_commit_statuses": {"s": {"Pending": None, "Committed": None}}},
    "a status of no kind": {"sink_commit_statuses": {"s": {}}},
    "a pending status with a value": {"sink_commit_statuses": {"s": {"Pending": 1}}},
    "null for a status": {"sink_commit_statuses": {"s": None}},
    "a status in a list": {"sink_commit_statuses": {"s": [["Failed", "why"]]}},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_the_reference_refuses_is_refused(change):
    values = {key: value for key, value in (FOUR_KEYS | change).items() if value is not ...}
    with pytest.raises(CorruptManifestError):
        CheckpointManifest.from_json(json.dumps(values).encode())


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1}',
        b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"sink_epochs":{"a":1,"a":2}}',
        b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1} trailing',
        b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"source_names":["\\ud800"]}',
        b'{"version":1,"checkpoint_id":1,"epoch":NaN,"timestamp_ms":1}',
        b"[]",
        b"null",
        b"",
        b"\xff",
    ],
)
def test_text_that_is_not_one_json_object_with_each_key_once_is_refused(data):
    with pytest.raises(CorruptManifestError):
        CheckpointManifest.from_json(data)


@pytest.mark.parametrize(
    ("status", "tagged"),
    [
        (PENDING, "Pending"),
        (COMMITTED, "Committed"),
        (PENDING, {"Pending": None}),
        (COMMITTED, {"Committed": None}),
        (failed("no room"), {"Failed": "no room"}),
        (failed(""), {"Failed": ""}),
    ],
)
def test_sink_statuses_are_read_in_each_spelling(status, tagged):
    values = FOUR_KEYS | {"sink_commit_statuses": {"s": tagged}}
    read = CheckpointManifest.from_json(json.dumps(values).encode())
    assert read.sink_commit_statuses == {"s": status}


def test_a_sink_status_is_written_without_the_epoch_which_has_its_own_key():
    made = manifest(1, sink_commit_statuses={"s": SinkStatus(SinkState.COMMITTED, epoch=7, message="x")})
    assert made.sink_commit_statuses == {"s": COMMITTED}


def test_half_a_character_is_refused_when_a_manifest_is_made_and_not_when_it_is_written():
    for values in ({"source_names": ("\ud800",)}, {"sink_epochs": {"\ud800": 1}}, {"state_checksum": "\ud800"}):
        with pytest.raises(ValidationError):
            manifest(1, **values)


def test_keys_nobody_knows_are_ignored():
    old = {"wal_position": 7, "is_incremental": False, "inflight_data": {"op": [{"input_id": 0, "data_b64": ""}]}}
    read = CheckpointManifest.from_json(json.dumps(FOUR_KEYS | old).encode())
    assert read == CheckpointManifest(**FOUR_KEYS)


def test_limits_of_every_number_are_legal():
    made = CheckpointManifest(
        version=2**32 - 1,
        checkpoint_id=U64,
        epoch=U64,
        timestamp_ms=U64,
        watermark=-(2**63),
        source_watermarks={"s": 2**63 - 1},
        pipeline_hash=U64,
        vnode_count=2**16 - 1,
    )
    assert CheckpointManifest.from_json(made.to_json()) == made


# -- timeline, our key -------------------------------------------------------------------------------------------


def test_a_timeline_is_written_last_and_only_when_set():
    plain = manifest(1)
    forked = plain.changed(timeline=3)
    assert b"timeline" not in plain.to_json()
    assert forked.to_json() == plain.to_json().removesuffix(b"\n}") + b',\n  "timeline": 3\n}'
    assert CheckpointManifest.from_json(forked.to_json()).timeline == 3


# -- inline state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["aGVsbG8", "aGVs bG8=", "aGVsbG8=\n", "====", "é", "a", "aGVsbG8==", "-_-_"])
def test_inline_state_that_is_not_base64_is_an_error_and_never_empty_state(text):
    operator = OperatorCheckpoint(state_b64=text)
    with pytest.raises(CorruptManifestError):
        operator.try_decode()
    assert operator.inline_size >= 0


@patient
@given(st.dictionaries(st.text(), st.binary(max_size=40)), st.integers(0, 40))
def test_packed_states_lie_end_to_end_and_come_out_again(states, threshold):
    entries, chunks = pack_states(states, threshold=threshold)
    sidecar = b"".join(chunks)
    for name, state in states.items():
        entry = entries[name]
        found = sidecar[entry.external_offset : entry.external_end] if entry.external else entry.try_decode()
        assert found == state
        assert entry.external is (len(state) > threshold)
    assert sum(len(state) for state in states.values() if len(state) > threshold) == len(sidecar)


# -- any manifest ------------------------------------------------------------------------------------------------

u64 = st.integers(0, U64)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=8)
connectors = st.builds(
    ConnectorCheckpoint,
    offsets=st.dictionaries(names, names, max_size=3),
    epoch=u64,
    metadata=st.dictionaries(names, names, max_size=2),
)
operators = st.builds(
    OperatorCheckpoint,
    state_b64=st.none() | names,
    external=st.booleans(),
    external_offset=u64,
    external_length=u64,
)
statuses = st.sampled_from([PENDING, COMMITTED]) | names.map(failed)
manifests = st.builds(
    CheckpointManifest,
    version=st.integers(0, 2**32 - 1),
    checkpoint_id=u64,
    epoch=u64,
    timestamp_ms=u64,
    source_offsets=st.dictionaries(names, connectors, max_size=3),
    sink_epochs=st.dictionaries(names, u64, max_size=3),
    sink_commit_statuses=st.dictionaries(names, statuses, max_size=3),
    table_offsets=st.dictionaries(names, connectors, max_size=3),
    operator_states=st.dictionaries(names, operators, max_size=4),
    table_store_checkpoint_path=st.none() | names,
    watermark=st.none() | i64,
    source_watermarks=st.dictionaries(names, i64, max_size=3),
    source_names=st.lists(names, max_size=3).map(tuple),
    sink_names=st.lists(names, max_size=3).map(tuple),
    pipeline_hash=st.none() | u64,
    vnode_count=st.integers(0, 2**16 - 1),
    state_checksum=st.none() | names,
    timeline=st.none() | st.integers(1, U64),
)


@patient
@given(manifests)
def test_any_manifest_survives_writing_and_reading(made):
    written = made.to_json()
    assert CheckpointManifest.from_json(written) == made
    assert CheckpointManifest.from_json(written).to_json() == written


@patient
@given(manifests)
def test_any_manifest_is_written_as_serde_would_with_its_maps_sorted(made):
    written = made.to_json()
    values = json.loads(written)
    assert written == json.dumps(values, indent=2, ensure_ascii=False).encode()
    for value in values.values():
        if isinstance(value, dict):
            assert list(value) == sorted(value)


@patient
@given(manifests, st.integers(0, 2**16 - 1))
def test_validating_never_raises_whatever_a_manifest_says(made, vnode_count):
    assert all(issue.code and issue.message for issue in made.validate(vnode_count))


def test_a_manifest_with_a_hundred_thousand_operators_is_read_and_proven(blobs):
    states = {f"operator-{number:06d}": OperatorCheckpoint.inline(b"0123456789" * 3) for number in range(100_000)}
    put(blobs, manifest(1, operator_states=states), 1)
    layout = SidecarLayout(blobs)
    loaded = layout.load_by_id(1)
    checked = layout.validate_checkpoint(1)
    assert len(loaded.operator_states) == 100_000
    assert checked.valid
