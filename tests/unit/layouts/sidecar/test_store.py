"""Saving, loading and recording what the sinks did: the reference's cases under its names, then ours."""

from __future__ import annotations

import hashlib
import json

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptArtifactError,
    CorruptError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, OperatorCheckpoint, SidecarLayout
from tests.unit.layouts.sidecar.making import (
    COMMITTED,
    HOUR,
    NOON_MS,
    PENDING,
    Clock,
    committed,
    failed,
    manifest,
    objects,
    pending,
    put,
    put_legacy,
    trashed,
    vector,
)

POINTER = "manifests/latest.json"


@pytest.fixture
def store(any_blobs, clock):
    return SidecarLayout(any_blobs, clock=clock)


def save(store, *numbers):
    for number in numbers:
        store.save(manifest(number))


# -- laminar store: the reference's own cases --------------------------------------------------------------------


def test_save_and_load_latest(store):
    made = manifest(1, epoch=5)
    assert store.save(made) == made
    assert store.load_latest() == made


def test_empty_store_none(store):
    assert store.load_latest() is None
    assert store.list_ids() == []
    assert store.list() == []


def test_most_recent_of_5(store):
    save(store, 1, 2, 3, 4, 5)
    assert store.load_latest().checkpoint_id == 5


def test_load_by_id(store):
    save(store, 1, 2, 3)
    assert store.load_by_id(2) == manifest(2)


def test_load_by_id_missing_none(store):
    assert store.load_by_id(7) is None


def test_list_sorted_after_saving_1_3_2(store):
    for number, epoch in ((1, 10), (3, 30), (2, 20)):
        store.save(manifest(number, epoch=epoch))
    assert store.list() == [(1, 10), (2, 20), (3, 30)]
    assert store.list_ids() == [1, 2, 3]


def test_list_ids_includes_corrupt_and_list_skips_them(store, any_blobs):
    save(store, 1)
    put(any_blobs, b"not json", 2)
    assert store.list_ids() == [1, 2]
    assert store.list() == [(1, 1)]


def test_prune_2_of_5_removes_3(store):
    save(store, 1, 2, 3, 4, 5)
    assert store.prune(2) == 3
    assert store.list_ids() == [4, 5]
    assert trashed(store) == [1, 2, 3]


def test_auto_prune_at_2(any_blobs):
    store = SidecarLayout(any_blobs, max_retained=2)
    save(store, 1, 2, 3, 4)
    assert store.list_ids() == [3, 4]
    assert trashed(store) == [1, 2]


def test_prune_under_limit_0(store):
    save(store, 1, 2)
    assert store.prune(5) == 0
    assert store.list_ids() == [1, 2]


def test_state_round_trip(store):
    assert store.save_state_data(1, [b"abc", b"def"]) == hashlib.sha256(b"abcdef").hexdigest()
    assert store.load_state_data(1) == b"abcdef"


def test_state_none(store):
    save(store, 1)
    assert store.load_state_data(1) is None
    assert store.load_state_data(2) is None


@pytest.mark.parametrize("body", [b"", b"garbage", b"checkpoint_"])
def test_empty_latest_txt_none(store, any_blobs, body):
    any_blobs.create("checkpoints/latest.txt", body)
    assert store.load_latest() is None


def test_pointer_to_missing_id_none(store, any_blobs):
    any_blobs.create(POINTER, b'{"checkpoint_id":99}')
    assert store.load_latest() is None


def test_orphan_state_invisible_to_latest_and_list(store):
    store.save_state_data(1, [b"state"])
    assert store.load_latest() is None
    assert store.list_ids() == []


def test_prefix():
    blobs = MemoryBlobs()
    SidecarLayout(blobs.at("nodes/abc123")).save_with_state(manifest(1), [b"state"])
    assert sorted(objects(blobs)) == [
        "nodes/abc123/checkpoints/state-000001.bin",
        "nodes/abc123/manifests/latest.json",
        "nodes/abc123/manifests/manifest-000001.json",
    ]


def test_exact_paths(store, any_blobs):
    store.save_with_state(manifest(1), [b"state"])
    assert sorted(objects(any_blobs)) == [
        "checkpoints/state-000001.bin",
        "manifests/latest.json",
        "manifests/manifest-000001.json",
    ]


def test_conditional_put_twice_ok(store):
    save(store, 1, 1)
    assert store.list_ids() == [1]


def test_update_manifest_pending_to_committed_persists(store):
    made = store.save(pending(1))
    store.update_manifest(committed(made))
    assert store.load_by_id(1).sink_commit_statuses == {"sink": COMMITTED}


def test_latest_json_format(store, any_blobs):
    save(store, 2)
    assert any_blobs.read(POINTER) == vector("L5")


def test_monotonic_guard(store):
    save(store, 10, 5)
    assert store.load_latest().checkpoint_id == 10
    assert store.list_ids() == [5, 10]


def test_validate_ok(store):
    save(store, 1)
    result = store.validate_checkpoint(1)
    assert (result.checkpoint_id, result.valid, result.issues) == (1, True, [])


def test_validate_epoch_0(store, any_blobs):
    put(any_blobs, manifest(1, epoch=0), 1)
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert [issue.message for issue in result.issues] == ["epoch is 0"]


def test_validate_missing(store):
    result = store.validate_checkpoint(99)
    assert not result.valid
    assert [issue.message for issue in result.issues] == ["manifest not found for checkpoint 99"]


def test_validate_corrupt_json(store, any_blobs):
    put(any_blobs, b"not json", 1)
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert result.issues[0].message.startswith("corrupt manifest: manifests/manifest-000001.json: not valid JSON")


def test_validate_checksum_ok(store):
    store.save_with_state(manifest(1, operator_states={"op": OperatorCheckpoint.at(0, 5)}), [b"state"])
    assert store.validate_checkpoint(1).issues == []


def test_validate_checksum_mismatch(store, any_blobs):
    store.save_with_state(manifest(1), [b"state"])
    any_blobs.replace("checkpoints/state-000001.bin", b"STATE")
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert any(issue.message.startswith("state.bin checksum mismatch") for issue in result.issues)


def test_validate_state_missing(store, any_blobs):
    store.save_with_state(manifest(1), [b"state"])
    any_blobs.delete(["checkpoints/state-000001.bin"])
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert any("state.bin referenced but not found" in issue.message for issue in result.issues)


def test_recover_skips_corrupt_2_picks_1(store, any_blobs, clock):
    save(store, 1)
    put(any_blobs, b"not json", 2)
    report = store.recover_latest_validated()
    assert report.chosen_id == 1
    assert [number for number, _ in report.skipped] == [2]
    assert "corrupt manifest" in report.skipped[0][1]
    assert report.examined == 2
    assert report.elapsed.total_seconds() == 0


def test_recover_fresh_start(store):
    report = store.recover_latest_validated()
    assert (report.chosen_id, report.skipped, report.examined) == (None, [], 0)
    assert report.empty


def test_recover_all_corrupt_none(store, any_blobs):
    put(any_blobs, b"x", 1)
    put(any_blobs, b"y", 2)
    report = store.recover_latest_validated()
    assert report.chosen_id is None
    assert [number for number, _ in report.skipped] == [2, 1]
    assert not report.empty


def test_cleanup_orphans_removes_99_keeps_1(blobs, clock):
    store = SidecarLayout(blobs, clock=clock)
    store.save_with_state(manifest(1), [b"state"])
    store.save_state_data(99, [b"orphan"])
    # Above the newest checkpoint, so that its save may be under way for a day.
    clock.advance(25 * HOUR)
    assert store.cleanup_orphans() == 1
    assert store.load_state_data(1) == b"state"
    assert store.load_state_data(99) is None


def test_cleanup_orphans_noop_0(store):
    assert store.cleanup_orphans() == 0
    store.save_with_state(manifest(1), [b"state"])
    assert store.cleanup_orphans() == 0


def test_checksum_written_is_sha256_of_state(store):
    saved = store.save_with_state(manifest(1), [b"sta", b"te"])
    assert saved.state_checksum == hashlib.sha256(b"state").hexdigest()
    assert store.load_by_id(1) == saved


# -- saving ------------------------------------------------------------------------------------------------------


def test_inline_state_gets_its_checksum(store):
    saved = store.save_with_state(CheckpointManifest.from_json(vector("L2_")).changed(state_checksum=None), None)
    assert saved.to_json() == vector("L2_")
    assert store.load_by_id(42) == saved


def test_the_vectors_with_a_sidecar_are_written_byte_for_byte(store, any_blobs):
    for name in ("L3", "L4"):
        made = CheckpointManifest.from_json(vector(f"{name}_manifest"))
        number = made.checkpoint_id if name == "L3" else 2
        saved = store.save_with_state(
            made.changed(checkpoint_id=number, state_checksum=None), [vector(f"{name}_state")]
        )
        assert saved.changed(checkpoint_id=1).to_json() == vector(f"{name}_manifest")
        assert any_blobs.read(f"manifests/manifest-{number:06d}.json") == saved.to_json()


def test_states_are_split_by_size_and_come_back(any_blobs):
    store = SidecarLayout(any_blobs, inline_threshold=4)
    states = {"b": b"12345", "a": b"1234", "c": b"", "d": b"123456"}
    saved = store.save_operator_states(manifest(1), states)
    assert [name for name, entry in saved.operator_states.items() if entry.external] == ["b", "d"]
    assert {name: store.load_operator_state(saved, name) for name in states} == states
    assert store.validate_checkpoint(1).issues == []


def test_states_that_are_all_small_need_no_sidecar(store, any_blobs):
    store.save_operator_states(manifest(1), {"a": b"1"})
    assert "checkpoints/state-000001.bin" not in objects(any_blobs)
    assert store.validate_checkpoint(1).issues == []


def test_a_stream_of_chunks_is_read_once(store):
    chunks = iter([b"a", b"b", memoryview(b"c"), bytearray(b"d")])
    store.save_with_state(manifest(1), chunks)
    assert store.load_state_data(1) == b"abcd"


def test_chunks_that_fail_half_way_leave_nothing(store, any_blobs):
    def chunks():
        yield b"half"
        raise RuntimeError("the operator died")

    with pytest.raises(RuntimeError):
        store.save_with_state(manifest(1), chunks())
    assert objects(any_blobs) == {}


REFUSED = {
    "an id of 0": {"checkpoint_id": 0},
    "an epoch of 0": {"epoch": 0},
    "a version nobody knows": {"version": 2},
    "other vnodes": {"vnode_count": 128},
    "overlapping ranges": {"operator_states": {"a": OperatorCheckpoint.at(0, 2), "b": OperatorCheckpoint.at(1, 2)}},
    "broken base64": {"operator_states": {"a": OperatorCheckpoint(state_b64="?")}},
    "a range without a sidecar": {"operator_states": {"a": OperatorCheckpoint.at(0, 2)}},
    "a checksum without a sidecar": {"state_checksum": "ab" * 32},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_what_could_not_be_restored_is_not_saved(store, any_blobs, values):
    with pytest.raises(ConfigurationError):
        store.save(manifest(1).changed(**values))
    assert objects(any_blobs) == {}


def test_a_sidecar_written_before_is_accepted_if_it_is_long_enough(store):
    made = manifest(1, operator_states={"a": OperatorCheckpoint.at(0, 5)})
    store.save_state_data(1, [b"stat"])
    with pytest.raises(ConfigurationError, match="only 4 of 5 bytes"):
        store.save(made)
    store.save_state_data(2, [b"state"])
    store.save(made.changed(checkpoint_id=2))
    assert store.load_operator_state(store.load_by_id(2), "a") == b"state"


def test_chunks_are_refused_if_all_state_is_inline(store, any_blobs):
    made = manifest(1, operator_states={"a": OperatorCheckpoint.inline(b"x")})
    with pytest.raises(ConfigurationError, match="no operator claims"):
        store.save_with_state(made, [b"state"])
    assert objects(any_blobs) == {}


def test_a_new_manifest_has_the_time_of_the_clock_and_the_vnodes_of_the_store(blobs):
    store = SidecarLayout(blobs, vnode_count=128, clock=Clock())
    made = store.new_manifest(3, epoch=7)
    assert made == CheckpointManifest.new(3, 7, 128, timestamp_ms=NOON_MS)


def test_without_a_count_of_vnodes_new_manifests_have_the_default_and_others_are_saved_too(blobs):
    store = SidecarLayout(blobs, vnode_count=None)
    assert store.vnode_count == 256
    assert store.new_manifest(1, epoch=1).vnode_count == 256
    store.save(manifest(1, vnode_count=128))
    assert store.validate_checkpoint(1).issues == []


@pytest.mark.parametrize("options", [{"max_retained": -1}, {"inline_threshold": -1}])
def test_negative_options_are_refused(blobs, options):
    with pytest.raises(ConfigurationError):
        SidecarLayout(blobs, **options)


def test_another_count_of_vnodes_keeps_every_other_option(blobs, clock):
    store = SidecarLayout(blobs, max_retained=1, inline_threshold=0, clock=clock).with_vnode_count(128)
    for number in (1, 2):
        store.save_operator_states(store.new_manifest(number, number), {"a": b"1"})
    assert store.vnode_count == 128
    assert store.list_ids() == [2]
    assert store.load_by_id(2).operator_states["a"].external


# -- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, 1),
        ("manifests/manifest-000007.json", 8),
        ("manifests/manifest-7.json", 8),
        ("checkpoints/state-000007.bin", 8),
        ("checkpoints/checkpoint_000007/manifest.json", 8),
        ("checkpoints/checkpoint_000007/state.bin", 8),
        ("trash/7/entry.json", 8),
        ("manifests/manifest-abc.json", 1),
        ("trash/abc/entry.json", 1),
    ],
)
def test_the_next_id_is_above_every_trace_of_an_id(store, any_blobs, key, expected):
    if key is not None:
        any_blobs.create(key, b"whatever")
    assert store.next_id() == expected


def test_the_next_id_is_above_the_pointer(store, any_blobs):
    any_blobs.create(POINTER, b'{"checkpoint_id":41}')
    save(store, 3)
    assert store.next_id() == 42


def test_ids_that_are_used_up_are_an_error(store, any_blobs):
    any_blobs.create("manifests/manifest-18446744073709551615.json", b"{}")
    with pytest.raises(ConfigurationError):
        store.next_id()


def test_a_seven_digit_id_works_like_any_other(store):
    save(store, 999_999, 1_000_000)
    assert store.list_ids() == [999_999, 1_000_000]
    assert store.load_latest().checkpoint_id == 1_000_000
    assert store.next_id() == 1_000_001
    assert store.prune(1) == 1
    assert store.list_ids() == [1_000_000]


# -- conflicts ---------------------------------------------------------------------------------------------------


def test_a_different_manifest_under_an_id_is_a_conflict_and_is_not_touched(store, any_blobs):
    save(store, 1)
    before = objects(any_blobs)
    with pytest.raises(CheckpointConflictError, match="another checkpoint stands under id 1"):
        store.save(manifest(1, epoch=2))
    assert objects(any_blobs) == before


def test_other_state_of_a_save_that_died_is_a_conflict_that_asks_for_a_new_id(store, any_blobs):
    store.save_state_data(1, [b"leftover"])
    with pytest.raises(CheckpointConflictError, match="next_id"):
        store.save_with_state(manifest(1), [b"state"])
    assert objects(any_blobs) == {"checkpoints/state-000001.bin": b"leftover"}
    assert store.next_id() == 2


def test_the_same_state_of_a_save_that_died_is_taken_up(store):
    store.save_state_data(1, [b"state"])
    store.save_with_state(manifest(1), [b"state"])
    assert store.validate_checkpoint(1).valid


def test_saving_the_same_checkpoint_with_state_again_is_a_success(store):
    first = store.save_with_state(manifest(1), [b"state"])
    assert store.save_with_state(manifest(1), [b"state"]) == first


def test_no_sidecar_appears_under_a_checkpoint_that_has_none(store, any_blobs):
    save(store, 1)
    for attempt in (
        lambda: store.save_state_data(1, [b"late"]),
        lambda: store.save_with_state(manifest(1), [b"late"]),
    ):
        with pytest.raises(CheckpointConflictError):
            attempt()
    assert store.load_state_data(1) is None


@pytest.mark.parametrize("place", ["manifests/manifest-1.json", "checkpoints/checkpoint_000001/manifest.json"])
def test_an_id_that_has_a_manifest_under_another_name_is_taken(store, any_blobs, place):
    any_blobs.create(place, manifest(1).to_json())
    with pytest.raises(CheckpointConflictError):
        store.save(manifest(1))
    with pytest.raises(CheckpointConflictError):
        store.save_state_data(1, [b"state"])
    assert sorted(objects(any_blobs)) == [place]


# -- the pointer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [None, b"", b"{", b'{"checkpoint_id":"9"}'])
def test_saving_repairs_a_missing_or_unreadable_pointer_from_the_listing(store, any_blobs, body):
    save(store, 1, 9)
    any_blobs.delete([POINTER])
    if body is not None:
        any_blobs.create(POINTER, body)
    save(store, 5)
    assert json.loads(any_blobs.read(POINTER)) == {"checkpoint_id": 9}


@pytest.mark.parametrize("body", [None, b"{", b'{"checkpoint_id":7}'])
def test_a_missing_unreadable_or_dangling_pointer_falls_back_to_the_listing(store, any_blobs, body):
    save(store, 1, 2)
    any_blobs.delete([POINTER])
    if body is not None:
        any_blobs.create(POINTER, body)
    assert store.load_latest().checkpoint_id == 2


def test_a_pointer_at_an_unreadable_manifest_falls_back_and_says_so(store, any_blobs, caplog):
    save(store, 1, 2)
    put(any_blobs, b"{", 3)
    any_blobs.replace(POINTER, b'{"checkpoint_id":3}')
    assert store.load_latest().checkpoint_id == 2
    assert any("checkpoint 3 is passed over" in record.getMessage() for record in caplog.records)


def test_a_store_with_only_unreadable_manifests_is_not_a_fresh_one(store, any_blobs):
    put(any_blobs, b"{", 1)
    put(any_blobs, b"{", 2)
    with pytest.raises(CorruptManifestError, match="manifest-000002"):
        store.load_latest()


def test_the_legacy_pointer_does_not_hide_newer_checkpoints(store, any_blobs):
    put_legacy(any_blobs, manifest(1), 1)
    put_legacy(any_blobs, manifest(2), 2)
    any_blobs.create("checkpoints/latest.txt", b"checkpoint_000001")
    assert store.load_latest().checkpoint_id == 2


def test_load_by_id_of_something_unreadable_is_an_error(store, any_blobs):
    put(any_blobs, b"{", 1)
    put(any_blobs, manifest(3), 2)
    for number in (1, 2):
        with pytest.raises(CorruptManifestError):
            store.load_by_id(number)


# -- what the sinks did ------------------------------------------------------------------------------------------


def test_an_update_moves_no_pointer(store, any_blobs):
    made = store.save(pending(1))
    save(store, 2)
    any_blobs.replace(POINTER, b'{"checkpoint_id":7}')
    store.update_manifest(committed(made))
    assert any_blobs.read(POINTER) == b'{"checkpoint_id":7}'


def test_an_update_never_creates(store, any_blobs):
    with pytest.raises(CheckpointNotFoundError):
        store.update_manifest(pending(1))
    assert objects(any_blobs) == {}


def test_an_update_may_be_repeated(store):
    made = committed(store.save(pending(1)))
    assert store.update_manifest(made) == made
    assert store.update_manifest(made) == made


def test_an_update_that_changes_nothing_writes_nothing(blobs):
    made = SidecarLayout(blobs).save(pending(1))
    faulty = FaultyBlobs(blobs)
    SidecarLayout(faulty).update_manifest(made)
    assert faulty.mutations == []


def test_an_update_changes_sink_epochs_as_well(store):
    made = store.save(manifest(2, sink_epochs={"sink": 1}))
    store.update_manifest(made.changed(sink_epochs={"sink": 2}))
    assert store.load_by_id(2).sink_epochs == {"sink": 2}


CHANGES = {
    "version": 0,
    "epoch": 9,
    "timestamp_ms": 9,
    "watermark": 9,
    "source_names": ("other",),
    "operator_states": {"a": OperatorCheckpoint.inline(b"x")},
    "state_checksum": "ab" * 32,
    "pipeline_hash": 9,
    "vnode_count": 9,
    "timeline": 9,
    "table_store_checkpoint_path": "x",
}


@pytest.mark.parametrize(("field", "value"), CHANGES.items(), ids=CHANGES)
def test_an_update_of_anything_else_is_refused_and_named(store, any_blobs, field, value):
    made = store.save(pending(1))
    before = objects(any_blobs)
    with pytest.raises(CheckpointConflictError, match=f"not {field}"):
        store.update_manifest(committed(made).changed(**{field: value}))
    assert objects(any_blobs) == before


@pytest.mark.parametrize("status", [{"a": PENDING}, {"a": failed("late")}, {}])
def test_a_sink_that_has_committed_stays_committed(store, status):
    made = manifest(1, sink_commit_statuses={"a": PENDING, "b": PENDING})
    store.save(made)
    store.update_manifest(made.changed(sink_commit_statuses={"a": COMMITTED, "b": PENDING}))
    # Made from the older reading: it would undo what the other writer recorded.
    with pytest.raises(CheckpointConflictError, match="sinks have committed since this was read: a"):
        store.update_manifest(made.changed(sink_commit_statuses=status | {"b": COMMITTED}))
    assert store.load_by_id(1).sink_commit_statuses == {"a": COMMITTED, "b": PENDING}


def test_a_failed_sink_may_be_committed_later(store):
    made = store.save(pending(1))
    made = store.update_manifest(made.changed(sink_commit_statuses={"sink": failed("timeout")}))
    store.update_manifest(committed(made))
    assert store.load_by_id(1).sink_commit_statuses == {"sink": COMMITTED}


def test_an_update_keeps_keys_that_another_writer_added(store, any_blobs):
    values = json.loads(pending(1).to_json()) | {"inflight_data": {"op": [1, 2.5, "ü"]}}
    any_blobs.create("manifests/manifest-000001.json", json.dumps(values).encode())
    store.update_manifest(committed(pending(1)))
    written = json.loads(any_blobs.read("manifests/manifest-000001.json"))
    assert written == values | {"sink_commit_statuses": {"sink": "Committed"}}


def test_an_updated_manifest_is_written_as_a_saved_one_is(store, any_blobs):
    made = committed(store.save(pending(1)))
    store.update_manifest(made)
    assert any_blobs.read("manifests/manifest-000001.json") == made.to_json()


def test_a_legacy_manifest_is_updated_where_it_stands(store, any_blobs):
    put_legacy(any_blobs, pending(1), 1)
    store.update_manifest(committed(pending(1)))
    assert list(objects(any_blobs)) == ["checkpoints/checkpoint_000001/manifest.json"]
    assert store.load_by_id(1).sink_commit_statuses == {"sink": COMMITTED}


class Interfering(FaultyBlobs):
    """Lets another writer act between the reading and the writing of an update."""

    def __init__(self, inner, act):
        super().__init__(inner)
        self.act = act

    def replace(self, key, body, *, expected=None):
        self.act(self._inner)
        return super().replace(key, body, expected=expected)


def test_an_update_in_between_is_noticed():
    blobs = MemoryBlobs()
    made = manifest(1, sink_commit_statuses={"a": PENDING, "b": PENDING})
    SidecarLayout(blobs).save(made)
    other = made.changed(sink_commit_statuses={"a": COMMITTED, "b": PENDING})
    store = SidecarLayout(Interfering(blobs, lambda inner: SidecarLayout(inner).update_manifest(other)))
    with pytest.raises(BlobChangedError):
        store.update_manifest(made.changed(sink_commit_statuses={"a": PENDING, "b": COMMITTED}))
    assert SidecarLayout(blobs).load_by_id(1) == other


def test_an_update_does_not_bring_back_what_is_pruned_meanwhile():
    blobs = MemoryBlobs()
    SidecarLayout(blobs).save(pending(1))
    store = SidecarLayout(Interfering(blobs, lambda inner: inner.delete(["manifests/manifest-000001.json"])))
    with pytest.raises(CheckpointNotFoundError):
        store.update_manifest(committed(pending(1)))
    assert SidecarLayout(blobs).list_ids() == []


# -- operator state ----------------------------------------------------------------------------------------------


def test_the_state_of_one_operator_is_read_without_the_rest(blobs):
    asked = []

    class Watching(FaultyBlobs):
        def stream(self, key, *, start=0, length=None):
            asked.append((start, length))
            return super().stream(key, start=start, length=length)

    watched = Watching(blobs)
    store = SidecarLayout(watched, inline_threshold=0)
    saved = store.save_operator_states(manifest(1), {"a": b"x" * 1000, "b": b"yy", "c": b"z" * 1000})
    assert store.load_operator_state(saved, "b") == b"yy"
    assert asked == [(1000, 2)]
    assert watched.calls["read"] == 0


@pytest.mark.parametrize(
    "entry",
    [
        OperatorCheckpoint.at(0, 6),
        OperatorCheckpoint.at(6, 0),
        OperatorCheckpoint.at(5, 1),
        OperatorCheckpoint.at(2**63, 2**63),
        OperatorCheckpoint.at(2**64 - 1, 2**64 - 1),
    ],
)
def test_a_range_past_the_end_is_corrupt_and_reads_nothing(store, any_blobs, entry):
    made = manifest(1, operator_states={"a": entry})
    put(any_blobs, made, 1, b"state")
    with pytest.raises(CorruptArtifactError, match="has 5 bytes"):
        store.load_operator_state(made, "a")


def test_a_missing_sidecar_is_corrupt_and_never_empty_state(store, any_blobs):
    made = manifest(1, operator_states={"a": OperatorCheckpoint.at(0, 0)})
    put(any_blobs, made, 1)
    with pytest.raises(CorruptArtifactError, match="is not in the store"):
        store.load_operator_state(made, "a")


def test_a_sidecar_cut_while_it_is_read_is_corrupt(blobs):
    made = manifest(1, operator_states={"a": OperatorCheckpoint.at(0, 5)})
    put(blobs, made, 1, b"state")

    class Cutting(FaultyBlobs):
        def stream(self, key, *, start=0, length=None):
            self._inner.replace(key, b"st")
            return super().stream(key, start=start, length=length)

    with pytest.raises(CorruptArtifactError, match="has 2 bytes"):
        SidecarLayout(Cutting(blobs)).load_operator_state(made, "a")


def test_inline_state_that_cannot_be_decoded_is_an_error(store):
    with pytest.raises(CorruptError):
        store.load_operator_state(manifest(1, operator_states={"a": OperatorCheckpoint(state_b64="?")}), "a")


def test_an_operator_nobody_knows_is_an_error_that_names_those_known(store):
    made = manifest(1, operator_states={"a": OperatorCheckpoint()})
    assert store.load_operator_state(made, "a") is None
    with pytest.raises(ConfigurationError, match="Its operators: a"):
        store.load_operator_state(made, "b")
