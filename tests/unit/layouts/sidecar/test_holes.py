"""The holes of the reference, one test each: what it does wrong must not happen here."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import Creation, Deletion, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs._fence import FencedBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    ConfigurationError,
    CorruptManifestError,
    StoreUnavailableError,
    UnfencedStoreError,
)
from airflow_provider_checkpoint.layouts.sidecar import OperatorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.model import CheckpointId, Pin
from tests.unit.layouts.sidecar.making import (
    HOUR,
    NOON,
    committed,
    failed,
    manifest,
    objects,
    pending,
    put,
    put_legacy,
)

ORPHAN = "checkpoints/state-000099.bin"


def stateful(number, state=b"state"):
    return manifest(number, operator_states={"op": OperatorCheckpoint.at(0, len(state))})


# -- the numbered holes ------------------------------------------------------------------------------------------


def test_hole_1_a_losing_writer_does_not_overwrite_the_winners_state(layout):
    layout.save_with_state(stateful(1), [b"winner"])
    with pytest.raises(CheckpointConflictError):
        layout.save_with_state(stateful(1), [b"loser!"])
    assert layout.load_state_data(1) == b"winner"
    assert layout.validate_checkpoint(1).valid


def test_hole_2_a_different_manifest_under_one_id_is_not_reported_as_saved(layout):
    layout.save(manifest(1, epoch=1))
    with pytest.raises(CheckpointConflictError):
        layout.save(manifest(1, epoch=2))
    assert layout.load_by_id(1).epoch == 1


def test_hole_2_a_losing_writer_does_not_move_the_pointer(layout, blobs):
    layout.save(manifest(1))
    put(blobs, manifest(5, epoch=1), 5)
    with pytest.raises(CheckpointConflictError):
        layout.save(manifest(5, epoch=2))
    assert layout.read_pointer() == CheckpointId(1)


def test_hole_3_the_id_of_an_unreadable_manifest_is_not_given_out_again(layout, blobs):
    layout.save(manifest(1))
    put(blobs, b"torn", 2)
    assert layout.next_id() == 3


def test_hole_4_failed_epochs_do_not_push_out_the_last_restorable_checkpoint(blobs):
    layout = SidecarLayout(blobs, max_retained=3)
    layout.save(manifest(1))
    for number in range(2, 8):
        layout.save(pending(number))
    assert layout.list_ids() == [1, 2, 3, 4, 5, 6, 7]
    assert layout.recover_latest_validated().chosen_id == 1


def test_hole_4_corrupt_checkpoints_do_not_push_out_the_last_restorable_one(layout, blobs):
    layout.save(manifest(1))
    for number in range(2, 6):
        put(blobs, b"torn", number)
    put(blobs, stateful(6), 6)
    assert layout.prune(1) == 0
    assert layout.prune(0) == 0
    assert 1 in layout.list_ids()


def test_hole_5_a_missing_or_dangling_pointer_is_not_a_fresh_start(layout, blobs):
    layout.save(manifest(1))
    blobs.replace("manifests/latest.json", b'{"checkpoint_id":9}')
    assert layout.load_latest() == manifest(1)
    blobs.delete(["manifests/latest.json"])
    assert layout.load_latest() == manifest(1)


def test_hole_6_cleaning_up_does_not_remove_the_state_of_a_save_under_way(layout, clock):
    layout.save(manifest(1))
    layout.save_state_data(2, [b"state"])
    clock.advance(HOUR - timedelta(seconds=1))
    assert layout.cleanup_orphans() == 0
    layout.save_with_state(stateful(2), [b"state"])
    assert layout.validate_checkpoint(2).valid


def test_hole_6_a_save_that_finishes_while_orphans_are_searched_keeps_its_state(blobs, clock):
    store = SidecarLayout(blobs, clock=clock)
    store.save(manifest(1))
    store.save_state_data(2, [b"state"])
    clock.advance(48 * HOUR)

    class Slow(WrapperBlobs):
        """Between the first listing and the next, the save is finished by its writer."""

        def list(self, folder="", *, temporary=False):
            yield from list(super().list(folder, temporary=temporary))
            if folder == "checkpoints":
                store.save_with_state(stateful(2), [b"state"])

    assert SidecarLayout(Slow(blobs), clock=clock).cleanup_orphans() == 0
    assert store.validate_checkpoint(2).valid


def test_hole_7_orphans_of_the_legacy_layout_do_not_count_in_pruning(layout, blobs):
    put_legacy(blobs, manifest(1), 1)
    for number in (2, 3, 4):
        blobs.create(f"checkpoints/checkpoint_{number:06d}/state.bin", b"orphan")
    assert layout.prune(1) == 0
    assert layout.list_ids() == [1]


def test_hole_7_updating_an_older_manifest_does_not_move_the_pointer_back(layout):
    made = layout.save(pending(1))
    layout.save(manifest(2))
    layout.update_manifest(committed(made))
    assert layout.read_pointer() == CheckpointId(2)


def test_hole_8_a_delayed_writers_save_prunes_as_any_other(blobs):
    layout = SidecarLayout(blobs, max_retained=2)
    for number in (8, 9, 10):
        put(blobs, manifest(number), number)
    layout.save(manifest(5))
    assert layout.list_ids() == [9, 10]


def test_hole_9_a_prune_that_dies_between_manifest_and_state_leaves_only_an_orphan(blobs, clock):
    faulty = FaultyBlobs(blobs)
    store = SidecarLayout(blobs, clock=clock)
    for number in (1, 2):
        store.save_with_state(stateful(number), [b"state"])
    faulty.inject(Fault.CRASH_BEFORE, verb="delete", match="state-000001")
    with pytest.raises(BaseException, match="state-000001"):
        SidecarLayout(faulty, clock=clock).prune(1)
    assert store.list_ids() == [2]
    assert store.load_state_data(1) == b"state"
    clock.advance(2 * HOUR)
    assert store.cleanup_orphans() == 1
    assert store.validate_checkpoint(2).valid


class Careless(WrapperBlobs):
    """A store that takes conditions and ignores them."""

    def create(self, key, body):
        data = body if isinstance(body, bytes) else b"".join(body)
        self._inner.replace(key, data)
        return Creation(True, len(data), hashlib.sha256(data).hexdigest())


def test_hole_10_a_store_that_ignores_conditions_is_refused_and_not_silently_unfenced():
    blobs = MemoryBlobs("careless")
    layout = SidecarLayout(FencedBlobs(Careless(blobs)))
    with pytest.raises(UnfencedStoreError):
        layout.save(manifest(1))
    with pytest.raises(UnfencedStoreError):
        layout.save_with_state(stateful(2), [b"state"])
    assert objects(blobs) == {}


def test_hole_10_no_conflict_is_ever_answered_by_overwriting(blobs):
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty)
    layout.save_with_state(stateful(1), [b"state"])
    with pytest.raises(CheckpointConflictError):
        layout.save_with_state(stateful(1), [b"other"])
    with pytest.raises(CheckpointConflictError):
        layout.save(manifest(1, epoch=7))
    assert [call for call in faulty.mutations if call[0] == "replace"] == []


def test_hole_11_pruning_removes_the_state_of_what_it_prunes_and_of_nothing_else(layout, blobs):
    for number in (1, 2, 3):
        layout.save_with_state(stateful(number), [b"state"])
    blobs.create(ORPHAN, b"orphan")
    assert layout.prune(1) == 2
    assert sorted(objects(blobs)) == [
        "checkpoints/state-000003.bin",
        ORPHAN,
        "manifests/latest.json",
        "manifests/manifest-000003.json",
    ]


# -- pruning -----------------------------------------------------------------------------------------------------


def test_pruning_to_nothing_keeps_the_newest_that_can_be_restored(layout):
    for number in (1, 2, 3):
        layout.save(manifest(number))
    layout.save(pending(4))
    assert layout.prune(0) == 2
    assert layout.list_ids() == [3, 4]


def test_pruning_keeps_what_the_pointer_names(layout):
    for number in (1, 2, 3, 4):
        layout.save(manifest(number))
    layout.move_pointer(CheckpointId(2))
    assert layout.prune(1) == 2
    assert layout.list_ids() == [2, 4]


def pin(blobs, name, number):
    made = Pin(name=name, checkpoint_id=CheckpointId(number), owner="me", reason="audit", created=NOON, expires=NOON)
    blobs.create(f"pins/{name}.json", made.model_dump_json().encode())


def test_pruning_keeps_what_is_pinned(layout, blobs):
    for number in (1, 2, 3, 4):
        layout.save(manifest(number))
    pin(blobs, "release", 2)
    assert layout.prune(1) == 2
    assert layout.list_ids() == [2, 4]


def test_an_unreadable_pin_stops_pruning_because_it_may_protect_anything(layout, blobs):
    for number in (1, 2):
        layout.save(manifest(number))
    blobs.create("pins/release.json", b"torn")
    with pytest.raises(CorruptManifestError):
        layout.prune(1)
    assert layout.list_ids() == [1, 2]


def test_pruning_a_store_in_which_nothing_can_be_restored_removes_nothing(layout, blobs):
    put(blobs, b"torn", 1)
    for number in (2, 3, 4):
        layout.save(pending(number))
    assert layout.prune(1) == 0
    assert layout.list_ids() == [1, 2, 3, 4]


def test_a_checkpoint_whose_sidecar_is_gone_does_not_count(layout, blobs):
    layout.save(manifest(1))
    layout.save_with_state(stateful(2), [b"state"])
    blobs.delete(["checkpoints/state-000002.bin"])
    assert layout.prune(1) == 0
    assert layout.list_ids() == [1, 2]


def test_unreadable_checkpoints_older_than_what_is_kept_go(layout, blobs):
    put(blobs, b"torn", 1, b"state")
    layout.save(manifest(2))
    assert layout.prune(1) == 1
    assert sorted(objects(blobs)) == ["manifests/latest.json", "manifests/manifest-000002.json"]


def test_while_there_are_fewer_good_ones_than_asked_for_everything_stays(layout, blobs):
    put(blobs, b"torn", 1)
    layout.save(manifest(2))
    layout.save(manifest(3))
    assert layout.prune(3) == 0
    assert layout.list_ids() == [1, 2, 3]


def test_pruning_covers_both_layouts(layout, blobs):
    put_legacy(blobs, manifest(1), 1, b"state")
    put_legacy(blobs, manifest(2), 2)
    put(blobs, manifest(2), 2)
    layout.save(manifest(3))
    assert layout.prune(1) == 2
    assert sorted(objects(blobs)) == ["manifests/latest.json", "manifests/manifest-000003.json"]


def test_a_negative_count_is_refused(layout):
    with pytest.raises(ConfigurationError):
        layout.prune(-1)


class Stubborn(WrapperBlobs):
    """Refuses to delete some objects."""

    def __init__(self, inner, match):
        super().__init__(inner)
        self.match = match

    def delete(self, keys):
        return [
            Deletion(key, StoreUnavailableError("refused", subject=key))
            if self.match in key
            else self._inner.delete([key])[0]
            for key in keys
        ]


def test_only_what_is_really_removed_is_counted_and_its_state_stays_if_not(blobs):
    for number in (1, 2, 3):
        put(blobs, stateful(number), number, b"state")
    layout = SidecarLayout(Stubborn(blobs, "manifest-000001"))
    assert layout.prune(1) == 1
    assert layout.list_ids() == [1, 3]
    assert layout.load_state_data(1) == b"state"
    assert layout.load_state_data(2) is None


def test_state_that_cannot_be_removed_is_left_as_an_orphan_with_a_line_in_the_log(blobs, caplog):
    for number in (1, 2):
        put(blobs, stateful(number), number, b"state")
    assert SidecarLayout(Stubborn(blobs, "state-000001")).prune(1) == 1
    assert "state-000001.bin could not be removed" in caplog.text


def test_a_prune_that_fails_after_a_save_does_not_make_the_save_fail(blobs, caplog):
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty, max_retained=1)
    layout.save(manifest(1))
    faulty.inject(Fault.FAIL, verb="list")
    layout.save(manifest(2))
    assert layout.load_latest() == manifest(2)
    assert "pruning failed" in caplog.text


# -- orphans -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [timedelta(0), timedelta(minutes=5), timedelta(days=-1)])
def test_no_argument_makes_younger_state_an_orphan(layout, clock, asked):
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    clock.advance(timedelta(minutes=59))
    assert layout.cleanup_orphans(asked) == 0
    clock.advance(timedelta(minutes=1))
    assert layout.cleanup_orphans(asked) == 1


def test_a_longer_age_is_obeyed(layout, clock):
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    clock.advance(23 * HOUR)
    assert layout.cleanup_orphans(24 * HOUR) == 0


def test_a_file_dated_in_the_future_is_not_old(blobs, clock):
    layout = SidecarLayout(blobs, clock=lambda: NOON - 48 * HOUR)
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    assert layout.cleanup_orphans() == 0


def test_state_whose_age_nobody_knows_stays(blobs, clock):
    class Ageless(WrapperBlobs):
        def list(self, folder="", *, temporary=False):
            return (replace(info, modified=None) for info in super().list(folder, temporary=temporary))

    layout = SidecarLayout(Ageless(blobs), clock=clock)
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0


@pytest.mark.parametrize("torn", [True, False])
def test_without_a_readable_manifest_nothing_is_removed(layout, blobs, clock, torn, caplog):
    layout.save_state_data(99, [b"orphan"])
    if torn:
        put(blobs, b"torn", 1)
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0
    assert "no manifest can be read" in caplog.text


def test_the_state_of_an_unreadable_manifest_stays(layout, blobs, clock):
    layout.save(manifest(1))
    put(blobs, b"torn", 2, b"state")
    put(blobs, manifest(3, version=2), 3, b"state")
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0


def test_the_state_of_a_checkpoint_in_the_trash_stays(layout, blobs, clock):
    layout.save(manifest(1))
    layout.save_state_data(99, [b"state"])
    blobs.create("trash/99/entry.json", b"{}")
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0


@pytest.mark.parametrize("direction", ["into the trash", "out of the trash"])
def test_a_checkpoint_that_moves_while_orphans_are_searched_keeps_its_state(blobs, clock, direction):
    entry, live = "trash/2/entry.json", "manifests/manifest-000002.json"
    SidecarLayout(blobs).save(manifest(1))
    blobs.create("checkpoints/state-000002.bin", b"state")
    blobs.create(live if direction == "into the trash" else entry, manifest(2).to_json())

    class Moving(WrapperBlobs):
        """The checkpoint moves between the listing of the one place and that of the other."""

        def folders(self, folder=""):
            seen = list(super().folders(folder))
            if direction == "into the trash":
                self._move(live, entry)
            return iter(seen)

        def list(self, folder="", *, temporary=False):
            yield from list(super().list(folder, temporary=temporary))
            if folder == "manifests" and direction == "out of the trash":
                self._move(entry, live)

        def _move(self, source, target):
            if self._inner.stat(source) is not None:
                self._inner.create(target, self._inner.read(source))
                self._inner.delete([source])

    clock.advance(48 * HOUR)
    assert SidecarLayout(Moving(blobs), clock=clock).cleanup_orphans() == 0
    assert blobs.read("checkpoints/state-000002.bin") == b"state"


def test_legacy_orphans_are_removed_and_nothing_else_in_their_folder(layout, blobs, clock):
    layout.save(manifest(1))
    blobs.create("checkpoints/checkpoint_000099/state.bin", b"orphan")
    blobs.create("checkpoints/checkpoint_000099/notes.txt", b"not ours")
    blobs.create("checkpoints/mine/state.bin", b"not ours")
    clock.advance(2 * HOUR)
    assert layout.cleanup_orphans() == 1
    assert {"checkpoints/checkpoint_000099/notes.txt", "checkpoints/mine/state.bin"} <= objects(blobs).keys()


def test_orphans_that_cannot_be_removed_are_not_counted(blobs, clock):
    layout = SidecarLayout(Stubborn(blobs, "state-000098"), clock=clock)
    layout.save(manifest(1))
    for number in (98, 99):
        layout.save_state_data(number, [b"orphan"])
    clock.advance(2 * HOUR)
    assert layout.cleanup_orphans() == 1


# -- other things to do differently ------------------------------------------------------------------------------


def test_validating_removes_nothing(layout, blobs, clock):
    layout.save_state_data(99, [b"orphan"])
    layout.save(manifest(1))
    clock.advance(48 * HOUR)
    before = objects(blobs)
    layout.validate_checkpoint(1)
    layout.recover_latest_validated()
    assert objects(blobs) == before


def test_external_state_without_a_checksum_is_looked_at_all_the_same(layout, blobs):
    put(blobs, stateful(1), 1)
    result = layout.validate_checkpoint(1)
    assert not result.valid
    assert [issue.code for issue in result.issues] == ["state_unprotected", "artifact_missing"]


def test_a_manifest_under_another_id_is_corrupt(layout, blobs):
    put(blobs, manifest(1), 2)
    assert [issue.code for issue in layout.validate_checkpoint(2).issues] == ["manifest_corrupt"]


def test_a_failed_sink_is_a_reason_to_go_further_back(layout):
    layout.save(manifest(1))
    made = layout.save(pending(2))
    layout.update_manifest(made.changed(sink_commit_statuses={"sink": failed("timeout")}))
    report = layout.recover_latest_validated()
    assert report.chosen_id == 1
    assert report.skipped == [(2, "sink 'sink' is failed")]


def test_only_what_was_looked_at_counts_as_examined(layout):
    for number in range(1, 6):
        layout.save(manifest(number))
    assert layout.recover_latest_validated().examined == 1


def test_a_store_that_does_not_answer_does_not_make_recovery_go_further_back(blobs):
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty)
    for number in (1, 2):
        layout.save_with_state(stateful(number), [b"state"])
    for verb in ("read", "stat", "stream", "list"):
        faulty.inject(Fault.FAIL, verb=verb)
        with pytest.raises(StoreUnavailableError):
            layout.recover_latest_validated()
    assert layout.recover_latest_validated().chosen_id == 2
