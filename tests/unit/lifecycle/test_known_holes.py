"""The holes and weak spots of the reference, one test each: what it does wrong must not happen in this lifecycle.

Holes are those found in the reference's store by reading it; weak spots those of its upkeep and recovery. What a layout
must do about them by itself is tested with the layout; here it is what the lifecycle makes of such a store.
"""

from __future__ import annotations

import tracemalloc
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs._fence import FencedBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    NoRecoveryPointError,
    UnfencedStoreError,
)
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import add_pin, read_ledger
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.safety import Safety
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.lifecycle.validation import validate, validate_many
from airflow_provider_checkpoint.model import CheckpointId, Depth, Pin
from tests.crash.makers import DAY, PENDING, Clock, Draft, PartitionedMaker, SidecarMaker
from tests.crash.meeting import MeetingBlobs
from tests.crash.scene import is_whole, live_in

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan
    from tests.crash.makers import Maker

MIB = 1024 * 1024


class Store:
    """A store with a clock of its own."""

    def __init__(self, maker: type[Maker] = SidecarMaker) -> None:
        self.clock = Clock()
        self.maker = maker(self.clock)
        self.blobs = MemoryBlobs(clock=self.clock)

    @property
    def layout(self) -> Layout:
        return self.maker.layout(self.blobs)

    def executor(self, blobs: BlobStore | None = None) -> Executor:
        layout = self.layout if blobs is None else self.maker.layout(blobs)
        return Executor(layout, by="test", clock=self.clock)

    def write(self, *, pending: bool = False, base: CheckpointId | None = None) -> CheckpointId:
        number = self.maker.next_id(self.blobs)
        epoch = len(self.layout.candidates()) + 1
        self.maker.write(self.blobs, Draft(number, epoch, base=base, sinks={"out": PENDING} if pending else {}))
        self.clock.advance(DAY)
        return number

    def plan(self, keep_last: int = 1) -> PrunePlan:
        policy = RetentionPolicy(keep_last=keep_last)
        return plan_prune(self.layout, policy, now=self.clock(), depth=Depth.CONTENT)

    def prune(self, keep_last: int = 1) -> None:
        self.executor().prune(self.plan(keep_last))

    def sweep(self) -> None:
        self.clock.advance(2 * DAY)
        self.executor().sweep(plan_sweep(self.layout, now=self.clock()))

    def remove_orphans(self, blobs: BlobStore | None = None) -> None:
        layout = self.maker.layout(blobs or self.blobs)
        self.executor(blobs).remove_orphans(plan_orphans(layout, now=self.clock()))

    def chosen(self) -> CheckpointId | None:
        return choose(self.layout, Wish(depth=Depth.RESTORE), now=self.clock()).chosen

    def spoil(self, checkpoint_id: CheckpointId) -> None:
        self.blobs.replace(self.layout.manifest_keys(checkpoint_id)[-1], b"torn")


# -- the holes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker])
def test_hole_1_of_two_writers_with_one_id_the_winner_is_still_the_one_to_go_back_to(maker):
    store = Store(maker)
    store.write()
    winner = store.write()
    store.clock.advance(DAY)
    # Another time in the manifest, so that its bytes differ; the state is the same, or a conflict comes sooner.
    with pytest.raises(CheckpointConflictError):
        store.maker.write(store.blobs, Draft(winner, 9))
    assert store.chosen() == winner
    assert validate(store.layout, winner, Depth.RESTORE).valid


def test_hole_2_a_writer_that_lost_is_told_and_leaves_neither_pointer_nor_history_behind():
    store = Store()
    first, second = store.write(), store.write()
    store.layout.move_pointer(first)
    with pytest.raises(CheckpointConflictError):
        store.maker.write(store.blobs, Draft(second, 7))
    assert store.layout.read_pointer() == first
    assert store.layout.load(second).epoch == 2


def test_hole_3_the_id_of_an_unreadable_manifest_is_never_given_out_again_not_even_when_it_is_swept():
    store = Store()
    store.write()
    torn = store.write()
    store.spoil(torn)
    assert store.maker.next_id(store.blobs) > torn
    store.prune()
    store.sweep()
    store.clock.advance(2 * DAY)
    store.remove_orphans()
    assert live_in(store.layout) == [CheckpointId(1)]
    assert store.maker.next_id(store.blobs) > torn


@pytest.mark.parametrize("keep_last", [0, 1, 3])
def test_hole_4_epochs_that_were_never_decided_do_not_push_out_the_last_restorable_checkpoint(keep_last):
    store = Store()
    good = store.write()
    failed = [store.write(pending=True) for _ in range(4)]
    store.prune(keep_last)
    assert store.chosen() == good
    assert {entry.checkpoint_id for entry in survey(store.layout).trash} <= set(failed)


@pytest.mark.parametrize("pointer", [b'{"checkpoint_id":9}', b"", b"garbage", None])
def test_hole_5_a_pointer_that_dangles_or_is_missing_is_not_a_fresh_start(pointer):
    store = Store()
    store.write()
    newest = store.write()
    store.blobs.delete(["manifests/latest.json"])
    if pointer is not None:
        store.blobs.create("manifests/latest.json", pointer)
    assert store.chosen() == newest
    store.prune()
    assert store.chosen() == newest


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker])
def test_hole_6_cleaning_up_beside_a_save_leaves_its_state_alone(maker):
    store = Store(maker)
    store.write()
    store.maker.write_artifacts(store.blobs, dead := Draft(store.maker.next_id(store.blobs), 2))
    store.clock.advance(2 * DAY)
    under_way = Draft(store.maker.next_id(store.blobs), 3)
    store.maker.write_artifacts(store.blobs, under_way)
    store.remove_orphans()
    store.maker.write(store.blobs, under_way)
    assert is_whole(store.layout, under_way.id)
    left = [store.layout.named(info.key).checkpoint_id for info in store.blobs.list()]
    assert dead.id not in left


def test_hole_7_folders_without_a_manifest_do_not_count_in_pruning():
    store = Store(PartitionedMaker)
    older, newest = store.write(), store.write()
    for epoch in range(3, 6):
        store.maker.write_artifacts(store.blobs, Draft(store.maker.next_id(store.blobs), epoch))
    assert {item.checkpoint_id: item.action for item in store.plan(2).items} == {newest: "keep", older: "keep"}


def test_hole_7_recording_what_sinks_did_does_not_move_the_pointer_back():
    store = Store()
    older = store.write(pending=True)
    newest = store.write()
    store.maker.record_commit(store.blobs, older)
    assert store.layout.read_pointer() == newest


def test_hole_8_a_late_manifest_with_an_older_id_is_pruned_like_any_other():
    store = Store()
    late = Draft(store.maker.next_id(store.blobs), 1)
    store.maker.write_artifacts(store.blobs, late)
    newest = store.write()
    store.maker.write(store.blobs, late)
    assert store.chosen() == store.layout.read_pointer() == newest
    store.prune()
    assert live_in(store.layout) == [newest]


def test_hole_9_dying_anywhere_in_a_removal_never_leaves_a_manifest_without_its_state():
    """Crashes at every single call are in ``tests/crash``; here the direction in which it errs."""
    store = Store()
    old, newest = store.write(), store.write()
    store.prune()
    store.clock.advance(2 * DAY)
    broken = FaultyBlobs(store.blobs)
    broken.inject(Fault.CRASH_AFTER, verb="delete", match="state-000001")
    with pytest.raises(SimulatedCrash):
        store.executor(broken).sweep(plan_sweep(store.layout, now=store.clock()))
    assert store.blobs.stat("checkpoints/state-000001.bin") is None
    assert live_in(store.layout) == [newest]
    with pytest.raises(CheckpointConflictError, match="being removed for good"):
        store.executor().undelete(old)


class Careless(WrapperBlobs):
    """A store that takes conditions and ignores them."""

    def create(self, key, body):
        self._inner.delete([key])
        return super().create(key, body)


def test_hole_10_on_a_store_that_ignores_conditions_no_timeline_is_opened_and_no_pin_set():
    blobs = FencedBlobs(Careless(MemoryBlobs("ignores")))
    with pytest.raises(UnfencedStoreError):
        open_timeline(blobs, start=None, has_checkpoints=False, writer="w", now=Clock()())
    with pytest.raises(UnfencedStoreError):
        add_pin(blobs, Pin(name="a", checkpoint_id=CheckpointId(1), owner="o", reason="r", created=Clock()()))
    assert not list(blobs.list())


def test_hole_11_pruning_leaves_orphans_to_the_search_for_orphans():
    store = Store()
    store.write()
    store.maker.write_artifacts(store.blobs, Draft(store.maker.next_id(store.blobs), 2))
    store.write()
    store.prune()
    store.sweep()
    assert store.blobs.stat("checkpoints/state-000002.bin") is not None
    store.remove_orphans()
    assert store.blobs.stat("checkpoints/state-000002.bin") is None


# -- the weak spots ----------------------------------------------------------------------------------------------


def test_weak_spot_1_a_save_that_finishes_while_orphans_are_searched_keeps_its_state():
    """Its state is as old as an orphan's: only that objects are listed before manifests are read protects it."""
    store = Store()
    store.write()
    slow = Draft(store.maker.next_id(store.blobs), 2)
    store.maker.write_artifacts(store.blobs, slow)
    store.clock.advance(2 * DAY)
    seen = MeetingBlobs(store.blobs, 1, lambda: store.maker.write(store.blobs, slow))
    assert plan_orphans(store.maker.layout(seen), now=store.clock()).deletions == ()
    assert seen.calls[0] == "list"


def test_weak_spot_1_no_option_makes_young_state_an_orphan():
    store = Store()
    store.write()
    store.maker.write_artifacts(store.blobs, Draft(store.maker.next_id(store.blobs), 2))
    store.clock.advance(timedelta(minutes=59))
    careless = Safety(orphan_age=timedelta(0), uncommitted_age=timedelta(0))
    assert plan_orphans(store.layout, now=store.clock(), safety=careless).deletions == ()


def test_weak_spot_2_corrupt_checkpoints_do_not_push_out_the_last_good_one():
    store = Store()
    good = store.write()
    for _ in range(4):
        store.spoil(store.write())
    store.prune(3)
    assert store.chosen() == good


def test_weak_spot_2_pins_bases_and_the_one_to_go_back_to_are_guarded():
    store = Store(PartitionedMaker)
    base = store.write()
    pinned = store.write(base=base)
    gone = store.write()
    newest = store.write()
    add_pin(store.blobs, Pin(name="p", checkpoint_id=pinned, owner="o", reason="r", created=store.clock()))
    store.prune(0)
    assert live_in(store.layout) == [base, pinned, newest]
    store.sweep()
    assert all(is_whole(store.layout, each) for each in (base, pinned, newest))
    assert list(store.blobs.list(str(gone))) == []


def test_weak_spot_3_a_losing_writer_does_not_succeed_and_the_pointer_stays():
    store = Store(PartitionedMaker)
    store.write()
    newest = store.write()
    store.layout.move_pointer(CheckpointId(store.layout.candidates()[0].value))
    pointed = store.layout.read_pointer()
    store.clock.advance(DAY)
    with pytest.raises(CheckpointConflictError):
        store.maker.write(store.blobs, Draft(newest, 9))
    assert store.layout.read_pointer() == pointed


def test_weak_spot_4_a_pointer_that_cannot_be_read_is_neither_trusted_nor_in_the_way():
    store = Store()
    store.write()
    store.write()
    store.blobs.replace("manifests/latest.json", b"\xff not JSON")
    assert store.layout.read_pointer() is None
    store.prune()
    newest = store.write()
    assert store.layout.read_pointer() == store.chosen() == newest


def test_weak_spot_5_if_everything_is_corrupt_that_is_an_error_and_a_fresh_start_must_be_asked_for():
    store = Store()
    for _ in range(3):
        store.spoil(store.write())
    with pytest.raises(NoRecoveryPointError) as caught:
        store.chosen()
    assert [each.checkpoint_id.value for each in caught.value.skipped] == [3, 2, 1]
    fresh = choose(store.layout, Wish(fresh_start_ok=True), now=store.clock())
    assert fresh.chosen is None
    assert any("fresh start" in warning for warning in fresh.warnings)


def test_weak_spot_6_every_item_of_a_prune_is_answered_for_and_only_what_went_is_counted():
    store = Store()
    for _ in range(4):
        store.write()
    broken = FaultyBlobs(store.blobs)
    broken.inject(Fault.FAIL, verb="delete", match="manifests/manifest-000002")
    plan = store.plan()
    report = store.executor(broken).prune(plan)
    assert {outcome.subject: outcome.done for outcome in report.outcomes} == {"1": True, "2": False, "3": True}
    assert report.bytes == sum(item.bytes for item in plan.removed if item.checkpoint_id != CheckpointId(2)) > 0
    assert [outcome.subject for outcome in report.failures] == ["2"]
    assert "did not answer" in report.failures[0].message


def test_weak_spot_7_state_is_proven_in_constant_memory(tmp_path):
    layout = SidecarLayout(LocalBlobs(tmp_path))
    manifest = layout.new_manifest(1, epoch=1)
    layout.save_operator_states(manifest, {"large": bytes(64 * MIB)})
    tracemalloc.start()
    assert validate(layout, CheckpointId(1), Depth.RESTORE).valid
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * MIB


def test_weak_spot_7_examined_are_those_that_were_looked_at_and_the_ledger_says_when():
    store = Store()
    for _ in range(20):
        store.write()
    store.spoil(CheckpointId(20))
    assert choose(store.layout, Wish(), now=store.clock()).examined == 2
    validate_many(store.layout, [CheckpointId(19)], Depth.CONTENT, now=store.clock)
    ledger = read_ledger(store.blobs, store.layout)
    assert {each: (proof.valid, proof.proven) for each, proof in ledger.items()} == {
        CheckpointId(19): (True, store.clock())
    }
