"""The sidecar layout, asked as any layout is."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts.sidecar import (
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SidecarLayout,
)
from airflow_provider_checkpoint.model import (
    Artifact,
    CheckpointId,
    Depth,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    SinkState,
    SinkStatus,
)
from tests.unit.layouts.sidecar.making import (
    COMMITTED,
    PENDING,
    failed,
    manifest,
    put,
    put_legacy,
    vector,
)

ONE = CheckpointId(1)
U64 = 2**64 - 1


def prove(layout, number, depth):
    checkpoint = layout.load(CheckpointId(number))
    return [(issue.severity.value, issue.code) for check in layout.checks(checkpoint, depth) for issue in check.run()]


# -- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("000042", 42), ("1000000", 1_000_000), ("0", 0), (str(U64), U64)]
)
def test_an_id_is_a_number_in_any_padding(layout, text, number):
    assert layout.parse_id(text) == CheckpointId(number)


@pytest.mark.parametrize("text", ["", "x", "-1", "+1", "1.0", " 1", str(U64 + 1), "9" * 5000, "٣"])
def test_anything_else_is_no_id(layout, text):
    with pytest.raises(ConfigurationError):
        layout.parse_id(text)


@pytest.mark.parametrize("value", ["0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b", -1, U64 + 1])
def test_an_id_of_another_layout_is_not_found(layout, value):
    with pytest.raises(CheckpointNotFoundError):
        layout.load(CheckpointId(value))
    assert [issue.code for issue in layout.examine(CheckpointId(value)).issues] == ["manifest_missing"]


def test_candidates_are_in_numeric_order_though_names_are_not(layout, blobs):
    for number in (1_000_000, 999_999, 2, 1_000_001):
        put(blobs, manifest(number), number)
    assert [candidate.value for candidate in layout.candidates()] == [2, 999_999, 1_000_000, 1_000_001]


def test_candidates_include_what_cannot_be_read_and_leave_out_what_has_no_manifest(layout, blobs):
    put(blobs, b"{", 1)
    put_legacy(blobs, manifest(2), 2)
    blobs.create("checkpoints/state-000003.bin", b"state")
    blobs.create("checkpoints/checkpoint_000004/state.bin", b"state")
    blobs.create("manifests/manifest-abc.json", b"{}")
    assert [candidate.value for candidate in layout.candidates()] == [1, 2]


def test_a_malformed_name_is_ignored_with_a_line_in_the_log(layout, blobs, caplog):
    blobs.create("manifests/manifest-abc.json", b"{}")
    blobs.create("manifests/notes.txt", b"not ours")
    assert layout.candidates() == []
    assert [record.getMessage() for record in caplog.records] == [
        "memory:///manifests/manifest-abc.json: ignored, its name holds no checkpoint id"
    ]


@pytest.mark.parametrize("name", ["5", "0000000005"])
def test_a_name_with_other_padding_is_listed_and_loaded_with_its_state(layout, blobs, name):
    made = manifest(5, operator_states={"op": OperatorCheckpoint.at(0, 5)})
    blobs.create(f"manifests/manifest-{name}.json", made.to_json())
    blobs.create(f"checkpoints/state-{name}.bin", b"state")
    assert layout.load(CheckpointId(5)).artifacts == (Artifact(f"checkpoints/state-{name}.bin", size=5),)
    assert [candidate.value for candidate in layout.candidates()] == [5]
    assert layout.load_operator_state(made, "op") == b"state"
    assert layout.load_state_data(5) == b"state"
    assert layout.manifest_keys(CheckpointId(5)) == [f"manifests/manifest-{name}.json"]
    assert prove(layout, 5, Depth.RESTORE) == []


def test_a_name_that_appears_after_the_first_listing_is_found_too(layout, blobs):
    assert layout.candidates() == []
    blobs.create("manifests/manifest-5.json", manifest(5).to_json())
    assert layout.load(CheckpointId(5)).epoch == 5


# -- loading -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_the_reference_is_translated(layout, blobs):
    put(blobs, vector("L2_"), 42)
    checkpoint = layout.load(CheckpointId(42))
    assert checkpoint.id == CheckpointId(42)
    assert checkpoint.epoch == 10
    assert checkpoint.created == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert checkpoint.timeline == 1
    assert checkpoint.parent is None
    assert checkpoint.artifacts == ()
    assert checkpoint.inline_bytes == checkpoint.size == 5
    assert checkpoint.sources == {
        "kafka-src": KafkaPosition(partitions=(KafkaPartition(topic="partition", partition=0, offset=1234),))
    }
    assert checkpoint.sinks == {"pg-sink": SinkStatus(SinkState.PENDING, epoch=10)}
    assert checkpoint.watermark == 999_000
    assert checkpoint.pipeline_hash == 16045690984503054900
    assert checkpoint.vnode_count == 256
    assert checkpoint.source_names == ("kafka-src",)
    assert checkpoint.sink_names == ("pg-sink",)
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint


def test_a_sidecar_alone_has_its_digest_and_the_length_that_is_claimed(layout, blobs):
    put(blobs, vector("L3_manifest"), 1)
    (artifact,) = layout.load(ONE).artifacts
    checksum = "3d04f22913c85311f0e4b19960bb4db05ee3fc003b6dec042eef109bb69c8748"
    assert artifact == Artifact("checkpoints/state-000001.bin", size=2048, sha256=checksum)


def test_a_sidecar_beside_inline_state_has_no_digest_of_its_own(layout, blobs):
    put(blobs, vector("L4_manifest"), 1)
    checkpoint = layout.load(ONE)
    assert checkpoint.artifacts == (Artifact("checkpoints/state-000001.bin", size=4096),)
    assert checkpoint.inline_bytes == 4
    assert checkpoint.size == 4100


def test_a_sidecar_nobody_claims_has_a_digest_and_no_known_length(layout, blobs):
    put(blobs, manifest(1, state_checksum="ab" * 32), 1)
    assert layout.load(ONE).artifacts == (Artifact("checkpoints/state-000001.bin", sha256="ab" * 32),)


def test_a_checksum_that_is_none_is_not_taken_for_a_digest(layout, blobs):
    put(blobs, manifest(1, state_checksum="nonsense"), 1)
    assert layout.load(ONE).artifacts == (Artifact("checkpoints/state-000001.bin"),)


@pytest.mark.parametrize(
    ("timestamp_ms", "created"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1, datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (253_402_300_800_000, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (U64, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ],
)
def test_no_time_is_too_absurd_to_be_loaded(layout, blobs, timestamp_ms, created):
    put(blobs, manifest(1, timestamp_ms=timestamp_ms), 1)
    assert layout.load(ONE).created == created


def test_a_timeline_and_the_lack_of_vnodes_are_translated(layout, blobs):
    put(blobs, manifest(1, timeline=3, vnode_count=0), 1)
    checkpoint = layout.load(ONE)
    assert checkpoint.timeline == 3
    assert checkpoint.vnode_count is None


def test_sinks_are_joined_from_statuses_and_epochs(layout, blobs):
    made = manifest(
        1,
        sink_epochs={"exactly": 1, "failed": 1, "loose": 1},
        sink_commit_statuses={"exactly": COMMITTED, "failed": failed("no room"), "new": PENDING},
    )
    put(blobs, made, 1)
    assert layout.load(ONE).sinks == {
        "exactly": SinkStatus(SinkState.COMMITTED, epoch=1),
        "failed": SinkStatus(SinkState.FAILED, epoch=1, message="no room"),
        "loose": SinkStatus(SinkState.COMMITTED, epoch=1),
        "new": SinkStatus(SinkState.PENDING),
    }


def test_a_source_nobody_knows_keeps_what_it_wrote(layout, blobs):
    source = ConnectorCheckpoint(offsets={"cursor": "x" * 5000, "partition-0": "9" * 5000}, epoch=1)
    kafka = ConnectorCheckpoint(offsets={"t-0": "9" * 5000}, epoch=1, metadata={"connector_type": "kafka"})
    put(blobs, manifest(1, source_offsets={"s": source, "k": kafka}), 1)
    sources = layout.load(ONE).sources
    assert sources["s"] == GenericPosition(offsets=source.offsets)
    assert sources["k"] == GenericPosition(connector_type="kafka", offsets=kafka.offsets)


def test_what_is_not_there_is_not_found(layout):
    with pytest.raises(CheckpointNotFoundError):
        layout.load(ONE)


UNREADABLE = {
    "no JSON": b"{",
    "another's manifest": manifest(2).to_json(),
    "a newer version": manifest(1, version=2).to_json(),
    "nothing": b"",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_understood_is_corrupt(layout, blobs, body):
    put(blobs, body, 1)
    with pytest.raises(CorruptManifestError):
        layout.load(ONE)
    examined = layout.examine(ONE)
    assert examined.checkpoint is None
    assert [issue.severity for issue in examined.issues] == ["error"]


def test_an_examination_tells_the_reasons_apart(layout, blobs):
    put(blobs, b"{", 1)
    put(blobs, manifest(9).to_json(), 2)
    put(blobs, manifest(3, version=2), 3)
    put(blobs, manifest(4, epoch=0), 4)
    put(blobs, manifest(5, vnode_count=128), 5)
    codes = {number: [issue.code for issue in layout.examine(CheckpointId(number)).issues] for number in range(1, 7)}
    assert codes == {
        1: ["manifest_corrupt"],
        2: ["manifest_corrupt"],
        3: ["version_unknown"],
        4: ["epoch_zero"],
        5: ["vnode_count_mismatch"],
        6: ["manifest_missing"],
    }
    assert layout.examine(CheckpointId(5)).checkpoint is not None
    assert layout.with_vnode_count(128).examine(CheckpointId(5)).issues == []


def test_a_store_that_does_not_answer_is_no_sign_of_damage(blobs):
    put(blobs, manifest(1), 1)
    faulty = FaultyBlobs(blobs)
    faulty.inject(Fault.FAIL, verb="read", times=2)
    layout = SidecarLayout(faulty)
    with pytest.raises(StoreUnavailableError):
        layout.load(ONE)
    with pytest.raises(StoreUnavailableError):
        layout.examine(ONE)


# -- both layouts at once ----------------------------------------------------------------------------------------


def test_the_legacy_layout_is_read(layout, blobs):
    put_legacy(blobs, vector("L3_manifest"), 1, vector("L3_state"))
    blobs.create("checkpoints/latest.txt", b"checkpoint_000001")
    assert [candidate.value for candidate in layout.candidates()] == [1]
    assert layout.load(ONE).artifacts[0].key == "checkpoints/checkpoint_000001/state.bin"
    assert prove(layout, 1, Depth.RESTORE) == []
    made = layout.load_by_id(1)
    assert layout.load_operator_state(made, "big-op") == vector("L3_state")
    assert layout.load_state_data(1) == vector("L3_state")
    assert layout.load_latest() == made
    assert layout.read_pointer() == ONE
    assert layout.validate_checkpoint(1).valid


def test_listings_unite_both_layouts_and_the_present_one_wins(layout, blobs):
    put_legacy(blobs, manifest(1, epoch=10), 1, b"old")
    put_legacy(blobs, manifest(2, epoch=20), 2)
    put(blobs, manifest(2, epoch=2), 2, b"new")
    put(blobs, manifest(3, epoch=3), 3)
    assert layout.list() == [(1, 10), (2, 2), (3, 3)]
    assert layout.load_state_data(2) == b"new"
    assert layout.load_state_data(1) == b"old"


def test_of_several_manifests_of_one_id_the_one_that_counts_is_removed_last(layout, blobs):
    usual = "manifests/manifest-000002.json"
    odd = "manifests/manifest-2.json"
    legacy = "checkpoints/checkpoint_000002/manifest.json"
    for epoch, key in enumerate((usual, odd, legacy), start=1):
        blobs.create(key, manifest(2, epoch=epoch).to_json())
    keys = layout.manifest_keys(CheckpointId(2))
    assert keys == [legacy, odd, usual]
    for key in keys:
        assert layout.load(CheckpointId(2)).epoch == 1
        blobs.delete([key])
    assert layout.candidates() == []


def test_a_checkpoint_that_is_not_there_has_no_manifests(layout):
    assert layout.manifest_keys(ONE) == []


# -- the pointer -------------------------------------------------------------------------------------------------


def test_the_pointer_of_the_reference_is_read(layout, blobs):
    blobs.create("manifests/latest.json", vector("L5"))
    assert layout.read_pointer() == CheckpointId(2)


def test_the_legacy_pointer_of_the_reference_is_read(layout, blobs):
    blobs.create("checkpoints/latest.txt", vector("L6"))
    assert layout.read_pointer() == CheckpointId(2)


def test_the_pointer_is_written_as_the_reference_writes_it(layout, blobs):
    layout.move_pointer(CheckpointId(2))
    assert blobs.read("manifests/latest.json") == vector("L5")


def test_moving_the_pointer_obeys_also_backwards(layout):
    layout.move_pointer(CheckpointId(9))
    layout.move_pointer(CheckpointId(7))
    assert layout.read_pointer() == CheckpointId(7)


BAD_POINTERS = [
    b"",
    b"{",
    b"[]",
    b'{"checkpoint_id":"2"}',
    b'{"checkpoint_id":true}',
    b'{"checkpoint_id":1.0}',
    b'{"checkpoint_id":-1}',
    b'{"checkpoint_id":18446744073709551616}',
    b'{"checkpoint_id":1,"checkpoint_id":2}',
    b"{}",
    b"\xff",
    b" " * 5000 + b'{"checkpoint_id":1}',
]


@pytest.mark.parametrize("body", BAD_POINTERS)
def test_an_unreadable_pointer_is_no_pointer(layout, blobs, body):
    blobs.create("manifests/latest.json", body)
    # A leftover of the legacy layout is not asked: the store has moved on since.
    blobs.create("checkpoints/latest.txt", vector("L6"))
    assert layout.read_pointer() is None


@pytest.mark.parametrize("body", [b"", b"garbage", b"checkpoint_", b"checkpoint_x", b"checkpoint_-1", b"\xff\xfe"])
def test_an_unreadable_legacy_pointer_is_no_pointer(layout, blobs, body):
    blobs.create("checkpoints/latest.txt", body)
    assert layout.read_pointer() is None


def test_a_legacy_pointer_may_end_in_a_newline(layout, blobs):
    blobs.create("checkpoints/latest.txt", b"checkpoint_000007\n")
    assert layout.read_pointer() == CheckpointId(7)


# -- proving -----------------------------------------------------------------------------------------------------

STATEFUL = ["L3", "L4"]


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("depth", Depth)
def test_a_whole_checkpoint_of_the_reference_is_proven_at_every_depth(layout, blobs, name, depth):
    put(blobs, vector(f"{name}_manifest"), 1, vector(f"{name}_state"))
    assert prove(layout, 1, depth) == []


def test_building_checks_reads_nothing_and_states_their_cost(blobs):
    put(blobs, vector("L4_manifest"), 1, vector("L4_state"))
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty)
    checkpoint = layout.load(ONE)
    faulty.calls.clear()
    cost = {depth: sum(check.cost for check in layout.checks(checkpoint, depth)) for depth in Depth}
    assert cost == {Depth.STRUCTURE: 0, Depth.PRESENCE: 0, Depth.CONTENT: 4100, Depth.RESTORE: 8200}
    assert not faulty.calls


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("depth", [Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE])
def test_a_missing_sidecar_is_told_once_from_presence_on(layout, blobs, name, depth):
    put(blobs, vector(f"{name}_manifest"), 1)
    assert prove(layout, 1, depth) == [("error", "artifact_missing")]


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("depth", [Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE])
def test_a_sidecar_shorter_than_the_ranges_is_told_from_presence_on(layout, blobs, name, depth):
    put(blobs, vector(f"{name}_manifest"), 1, vector(f"{name}_state")[:-1])
    assert prove(layout, 1, depth) == [("error", "size_mismatch")]


def test_a_longer_sidecar_is_worth_knowing_and_its_checksum_decides(layout, blobs):
    put(blobs, vector("L3_manifest"), 1, vector("L3_state") + b"\0")
    assert prove(layout, 1, Depth.PRESENCE) == [("warning", "range_gap")]
    assert prove(layout, 1, Depth.CONTENT) == [("warning", "range_gap"), ("error", "checksum_mismatch")]


@pytest.mark.parametrize("name", STATEFUL)
def test_a_changed_byte_is_told_from_content_on(layout, blobs, name):
    state = vector(f"{name}_state")
    put(blobs, vector(f"{name}_manifest"), 1, state[:100] + b"\0" + state[101:])
    assert prove(layout, 1, Depth.PRESENCE) == []
    assert prove(layout, 1, Depth.CONTENT) == [("error", "checksum_mismatch")]
    assert prove(layout, 1, Depth.RESTORE) == [("error", "checksum_mismatch")]


def test_changed_inline_state_is_told_from_content_on(layout, blobs):
    put(blobs, vector("L2_").replace(b"aGVsbG8=", b"aGVsbG9="), 42)
    assert prove(layout, 42, Depth.PRESENCE) == []
    assert prove(layout, 42, Depth.CONTENT) == [("error", "checksum_mismatch")]


def test_without_a_checksum_a_restore_still_tries_every_operator(layout, blobs):
    operators = {
        "good": OperatorCheckpoint.inline(b"x"),
        "bad": OperatorCheckpoint(state_b64="?"),
        "external": OperatorCheckpoint.at(0, 5),
        "empty": OperatorCheckpoint.at(5, 0),
        "none": OperatorCheckpoint(),
    }
    put(blobs, manifest(1, operator_states=operators), 1, b"state")
    assert prove(layout, 1, Depth.CONTENT) == []
    assert prove(layout, 1, Depth.RESTORE) == [("error", "restore_failed")]


def test_a_sidecar_that_vanishes_during_a_restore_is_told(blobs):
    made = manifest(1, operator_states={"op": OperatorCheckpoint.at(0, 5)})
    put(blobs, made, 1, b"state")

    class Vanishing(FaultyBlobs):
        def stream(self, key, *, start=0, length=None):
            self._inner.delete([key])
            return super().stream(key, start=start, length=length)

    assert prove(SidecarLayout(Vanishing(blobs)), 1, Depth.RESTORE) == [("error", "restore_failed")]


def test_a_manifest_that_vanishes_or_breaks_before_its_proof_is_told(layout, blobs):
    put(blobs, vector("L3_manifest"), 1, vector("L3_state"))
    (check,) = layout.checks(layout.load(ONE), Depth.CONTENT)
    put(blobs, b"{", 1)
    assert [issue.code for issue in check.run()] == ["manifest_corrupt"]
    blobs.delete(["manifests/manifest-000001.json"])
    assert [issue.code for issue in check.run()] == ["manifest_missing"]


def test_a_store_that_does_not_answer_raises_and_condemns_nothing(blobs):
    put(blobs, vector("L3_manifest"), 1, vector("L3_state"))
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty)
    (check,) = layout.checks(layout.load(ONE), Depth.CONTENT)
    for verb in ("stat", "read", "stream"):
        faulty.inject(Fault.FAIL, verb=verb)
        with pytest.raises(StoreUnavailableError):
            check.run()
    assert check.run() == []


@pytest.mark.parametrize("count", [0, -1, 2**16])
def test_a_count_of_vnodes_that_no_manifest_can_have_is_refused(blobs, count):
    with pytest.raises(ConfigurationError):
        SidecarLayout(blobs, vnode_count=count)


def test_the_layout_is_called_sidecar(layout):
    assert layout.name == "sidecar"
    assert layout.vnode_count == 256
