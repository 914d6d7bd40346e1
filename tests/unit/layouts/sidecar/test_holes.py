"""The holes of the reference, one test each: what it does wrong must not happen here."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import Creation, Deletion, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs._fence import FencedBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    ConfigurationError,
    NoEvidenceError,
    StoreUnavailableError,
    UnfencedStoreError,
)
from airflow_provider_checkpoint.layouts.sidecar import OperatorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.records import add_pin, read_audit
from airflow_provider_checkpoint.model import CheckpointId, Pin
from tests.unit.layouts.sidecar.making import (
    HOUR,
    NOON,
    NOON_MS,
    PENDING,
    committed,
    failed,
    live,
    manifest,
    objects,
    pending,
    put,
    put_legacy,
    sweep,
    trashed,
)

POINTER = "manifests/latest.json"
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


@pytest.mark.parametrize("later", [timedelta(0), 2 * HOUR])
def test_hole_4_failed_epochs_do_not_push_out_the_last_restorable_checkpoint(blobs, clock, later):
    layout = SidecarLayout(blobs, max_retained=3, clock=clock)
    layout.save(manifest(1))
    clock.advance(later)
    for number in range(2, 8):
        layout.save(pending(number))
    # While their commit may be under way they stay themselves.
    assert layout.list_ids() == [1, *(() if later else range(2, 8))]
    assert layout.recover_latest_validated().chosen_id == 1


def test_hole_4_corrupt_checkpoints_do_not_push_out_the_last_restorable_one(layout, blobs):
    layout.save(manifest(1))
    for number in range(2, 6):
        put(blobs, b"torn", number)
    put(blobs, stateful(6), 6)
    assert layout.prune(1) == 5
    assert layout.prune(0) == 0
    assert layout.list_ids() == [1]
    assert trashed(layout) == [2, 3, 4, 5, 6]


def test_hole_5_a_missing_or_dangling_pointer_is_not_a_fresh_start(layout, blobs):
    layout.save(manifest(1))
    blobs.replace("manifests/latest.json", b'{"checkpoint_id":9}')
    assert layout.load_latest() == manifest(1)
    blobs.delete(["manifests/latest.json"])
    assert layout.load_latest() == manifest(1)


def test_hole_6_cleaning_up_does_not_remove_the_state_of_a_save_under_way(layout, clock):
    layout.save(manifest(1))
    layout.save_state_data(2, [b"state"])
    clock.advance(24 * HOUR - timedelta(seconds=1))
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


def test_hole_8_a_delayed_writers_save_prunes_as_any_other(blobs, clock):
    layout = SidecarLayout(blobs, max_retained=2, clock=clock)
    for number in (8, 9, 10):
        put(blobs, manifest(number), number)
    layout.save(manifest(5))
    assert layout.list_ids() == [9, 10]


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_hole_9_a_prune_that_dies_at_the_manifest_leaves_the_checkpoint_whole_here_or_in_the_trash(blobs, clock, fault):
    faulty = FaultyBlobs(blobs)
    store = SidecarLayout(blobs, clock=clock)
    for number in (1, 2):
        store.save_with_state(stateful(number), [b"state"])
    faulty.inject(fault, verb="delete", match="manifest-000001")
    with pytest.raises(SimulatedCrash):
        SidecarLayout(faulty, clock=clock).prune(1)
    assert store.list_ids() == ([1, 2] if fault is Fault.CRASH_BEFORE else [2])
    assert trashed(store) == [1]
    assert store.load_state_data(1) == b"state"
    clock.advance(12 * HOUR)
    assert store.cleanup_orphans() == 0
    store.prune(1)
    sweep(store, clock)
    assert live(blobs) == ["checkpoints/state-000002.bin", POINTER, "manifests/manifest-000002.json"]


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


def test_hole_11_state_goes_with_what_was_pruned_when_the_trash_is_swept_and_no_other_does(layout, blobs, clock):
    for number in (1, 2, 3):
        layout.save_with_state(stateful(number), [b"state"])
    blobs.create(ORPHAN, b"orphan")
    assert layout.prune(1) == 2
    states = [f"checkpoints/state-00000{number}.bin" for number in (1, 2, 3)]
    assert live(blobs) == [*states, ORPHAN, POINTER, "manifests/manifest-000003.json"]
    sweep(layout, clock)
    assert live(blobs) == [states[-1], ORPHAN, POINTER, "manifests/manifest-000003.json"]


# -- pruning -----------------------------------------------------------------------------------------------------


def test_pruning_to_nothing_keeps_the_newest_that_can_be_restored(layout):
    for number in (1, 2, 3):
        layout.save(manifest(number))
    layout.save(pending(4))
    assert layout.prune(0) == 2
    assert layout.list_ids() == [3, 4]


def test_what_was_pruned_can_be_put_back_whole(layout, clock):
    for number in (1, 2):
        layout.save_with_state(stateful(number), [b"state"])
    assert layout.prune(1) == 1
    Executor(layout, by="test", clock=clock).undelete(CheckpointId(1))
    assert layout.list_ids() == [1, 2]
    assert layout.validate_checkpoint(1).issues == []


def test_the_id_of_a_pruned_checkpoint_is_not_given_out_again(layout):
    layout.save(manifest(1))
    layout.save(manifest(2, epoch=1, timestamp_ms=NOON_MS - 2 * 3_600_000, sink_commit_statuses={"sink": PENDING}))
    assert layout.prune(1) == 1
    assert layout.list_ids() == [1]
    assert layout.next_id() == 3


def test_pruning_moves_the_pointer_off_what_goes(layout):
    for number in (1, 2, 3, 4):
        layout.save(manifest(number))
    layout.move_pointer(CheckpointId(2))
    assert layout.prune(1) == 3
    assert layout.read_pointer() == CheckpointId(4)


def test_pruning_leaves_a_record_of_who_did_it(layout, blobs):
    for number in (1, 2):
        layout.save(manifest(number))
    layout.prune(1)
    assert [(record.verb, record.by) for record in read_audit(blobs)] == [("prune", "sidecar store")] * 2


def test_pruning_keeps_what_is_pinned(layout, blobs):
    for number in (1, 2, 3, 4):
        layout.save(manifest(number))
    add_pin(blobs, Pin(name="release", checkpoint_id=CheckpointId(2), owner="me", reason="audit", created=NOON))
    assert layout.prune(1) == 2
    assert layout.list_ids() == [2, 4]


def test_pruning_a_store_in_which_nothing_can_be_restored_removes_nothing(layout, blobs, clock):
    put(blobs, b"torn", 1)
    for number in (2, 3, 4):
        layout.save(pending(number))
    clock.advance(2 * HOUR)
    assert layout.prune(1) == 0
    assert layout.list_ids() == [1, 2, 3, 4]


def test_a_checkpoint_whose_sidecar_is_gone_does_not_count(layout, blobs):
    layout.save(manifest(1))
    layout.save_with_state(stateful(2), [b"state"])
    blobs.delete(["checkpoints/state-000002.bin"])
    assert layout.prune(1) == 1
    assert layout.list_ids() == [1]


def test_pruning_covers_both_layouts(layout, blobs, clock):
    put_legacy(blobs, stateful(1), 1, b"state")
    put_legacy(blobs, manifest(2), 2)
    put(blobs, manifest(2), 2)
    layout.save(manifest(3))
    assert layout.prune(1) == 2
    assert layout.list_ids() == [3]
    sweep(layout, clock)
    assert live(blobs) == [POINTER, "manifests/manifest-000003.json"]


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


def test_only_what_really_went_is_counted_and_the_rest_is_told(blobs, clock, caplog):
    for number in (1, 2, 3):
        put(blobs, stateful(number), number, b"state")
    layout = SidecarLayout(Stubborn(blobs, "manifests/manifest-000001"), clock=clock)
    assert layout.prune(1) == 1
    assert layout.list_ids() == [1, 3]
    assert layout.validate_checkpoint(1).valid
    assert "prune: 1 stays: refused" in caplog.text


@pytest.mark.parametrize(("verb", "match"), [("list", "manifests"), ("list", "pins"), ("create", "audit")])
def test_a_prune_that_fails_after_a_save_does_not_make_the_save_fail(blobs, caplog, verb, match):
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty, max_retained=1)
    layout.save(manifest(1))
    faulty.inject(Fault.FAIL, verb=verb, match=match)
    layout.save(manifest(2))
    assert layout.load_latest() == manifest(2)
    assert "pruning failed" in caplog.text
    layout.save(manifest(3))
    assert layout.list_ids() == [3]


def test_pruning_after_a_save_that_has_nothing_to_do_costs_one_listing(blobs):
    def calls(max_retained):
        faulty = FaultyBlobs(MemoryBlobs())
        layout = SidecarLayout(faulty, max_retained=max_retained)
        for number in (1, 2, 3):
            layout.save(manifest(number))
        return faulty.calls

    # Of two folders, the present one and the legacy one, after each of three saves.
    assert calls(3) - calls(0) == {"list": 2 * 3}


# -- orphans -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [timedelta(0), timedelta(minutes=5), timedelta(days=-1)])
def test_no_argument_makes_younger_state_an_orphan(layout, blobs, clock, asked):
    layout.save(manifest(100))
    blobs.create(ORPHAN, b"orphan")
    clock.advance(timedelta(minutes=59))
    assert layout.cleanup_orphans(asked) == 0
    clock.advance(timedelta(minutes=1))
    assert layout.cleanup_orphans(asked) == 1


def test_a_longer_age_is_obeyed(layout, clock):
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    clock.advance(47 * HOUR)
    assert layout.cleanup_orphans(48 * HOUR) == 0
    clock.advance(HOUR)
    assert layout.cleanup_orphans(48 * HOUR) == 1


@pytest.mark.parametrize("torn", [True, False])
def test_without_a_readable_manifest_nothing_is_removed(layout, blobs, clock, torn):
    layout.save_state_data(99, [b"orphan"])
    if torn:
        put(blobs, b"torn", 1)
    clock.advance(48 * HOUR)
    with pytest.raises(NoEvidenceError, match="not one readable manifest"):
        layout.cleanup_orphans()
    assert layout.load_state_data(99) == b"orphan"


def test_if_the_clocks_differ_nothing_is_removed(blobs):
    layout = SidecarLayout(blobs, clock=lambda: NOON + 48 * HOUR)
    layout.save(manifest(1))
    layout.save_state_data(99, [b"orphan"])
    with pytest.raises(NoEvidenceError, match="clock"):
        layout.cleanup_orphans()
    assert layout.load_state_data(99) == b"orphan"


def test_the_state_of_an_unreadable_manifest_stays(layout, blobs, clock):
    layout.save(manifest(1))
    put(blobs, b"torn", 2, b"state")
    put(blobs, manifest(3, version=2), 3, b"state")
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0


def test_the_state_of_a_checkpoint_in_the_trash_stays(layout, clock):
    for number in (1, 2):
        layout.save_with_state(stateful(number), [b"state"])
    layout.prune(1)
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 0
    assert layout.load_state_data(1) == b"state"


def test_legacy_orphans_are_removed_and_nothing_else_in_their_folder(layout, blobs, clock):
    layout.save(manifest(1))
    blobs.create("checkpoints/checkpoint_000099/state.bin", b"orphan")
    blobs.create("checkpoints/checkpoint_000099/notes.txt", b"not ours")
    blobs.create("checkpoints/mine/state.bin", b"not ours")
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 1
    assert {"checkpoints/checkpoint_000099/notes.txt", "checkpoints/mine/state.bin"} <= objects(blobs).keys()


def test_orphans_that_cannot_be_removed_are_not_counted_but_told(blobs, clock, caplog):
    layout = SidecarLayout(Stubborn(blobs, "state-000098"), clock=clock)
    layout.save(manifest(1))
    for number in (98, 99):
        layout.save_state_data(number, [b"orphan"])
    clock.advance(48 * HOUR)
    assert layout.cleanup_orphans() == 1
    assert "orphans: checkpoints/state-000098.bin stays: refused" in caplog.text


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
    assert report.skipped == [(2, "its commit was never decided (sinks not committed: sink)")]


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


@pytest.mark.parametrize("verb", ["read", "stat", "stream"])
def test_a_store_that_does_not_answer_makes_no_checkpoint_invalid(blobs, verb):
    faulty = FaultyBlobs(blobs)
    layout = SidecarLayout(faulty)
    layout.save_with_state(stateful(1), [b"state"])
    faulty.inject(Fault.FAIL, verb=verb)
    with pytest.raises(StoreUnavailableError):
        layout.validate_checkpoint(1)
    assert layout.validate_checkpoint(1).valid
