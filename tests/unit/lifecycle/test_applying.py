"""Between a plan and its application things happen: what is carried out is right for the store as it is by then."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptManifestError,
    NoEvidenceError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.lifecycle import trash
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import add_pin, read_audit
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import CheckpointId, Depth, Pin
from tests.crash.makers import DAY, HOUR, Clock
from tests.unit.lifecycle.tiny_layout import TinyLayout, artifact_key, checkpoint, manifest_key, tiny

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan, Report

KEEP_ONE = RetentionPolicy(keep_last=1)


class Store:
    """Checkpoints 1 to 5, made long ago, on a store with a clock of its own."""

    def __init__(self, *numbers: int) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(clock=self.clock)
        self.layout = tiny(self.blobs, *(numbers or range(1, 6)))
        self.clock.advance(300 * DAY)

    def executor(self, blobs: BlobStore | None = None) -> Executor:
        return Executor(self.layout if blobs is None else TinyLayout(blobs), by="test", clock=self.clock)

    def plan(self) -> PrunePlan:
        return plan_prune(self.layout, KEEP_ONE, now=self.clock(), depth=Depth.CONTENT)

    def prune(self) -> Report:
        return self.executor().prune(self.plan())

    def live(self) -> list[int | str]:
        return [known.id.value for known in survey(self.layout).known]

    def trash(self) -> set[int | str]:
        return {entry.checkpoint_id.value for entry in survey(self.layout).trash if entry.purged is None}

    def pin(self, number: int) -> None:
        add_pin(
            self.blobs,
            Pin(name="p", checkpoint_id=CheckpointId(number), owner="o", reason="r", created=self.clock()),
        )

    def damage(self, number: int) -> None:
        self.blobs.replace(artifact_key(number, "state"), b"?" * 7)


# -- prune -------------------------------------------------------------------------------------------------------


def test_what_was_pinned_since_stays_and_the_report_says_why():
    store = Store()
    plan = store.plan()
    store.pin(2)
    report = store.executor().prune(plan)
    assert {outcome.subject: outcome.message for outcome in report.failures} == {"2": "kept: pinned as 'p'"}
    assert store.live() == [2, 5]


def test_what_a_timeline_has_forked_from_since_stays():
    store = Store()
    plan = store.plan()
    start = store.layout.load(CheckpointId(3))
    open_timeline(store.blobs, start=start, has_checkpoints=True, writer="w", now=store.clock())
    store.executor().prune(plan)
    assert store.live() == [3, 5]


def test_if_the_one_to_keep_was_damaged_since_the_next_best_stays():
    store = Store()
    plan = store.plan()
    store.damage(5)
    report = store.executor().prune(plan)
    assert {outcome.subject: outcome.message for outcome in report.failures} == {"4": "kept: the one to go back to"}
    assert store.live() == [4, 5]
    assert store.layout.read_pointer() == CheckpointId(5)


def test_if_nothing_can_be_restored_any_more_nothing_goes():
    store = Store()
    plan = store.plan()
    for number in range(1, 6):
        store.damage(number)
    with pytest.raises(ConfirmationNeededError, match="no longer whole"):
        store.executor().prune(plan)
    assert store.live() == [1, 2, 3, 4, 5]


def test_what_a_new_checkpoint_builds_on_stays_and_so_does_what_a_pinned_one_builds_on():
    store = Store()
    plan = store.plan()
    shared = store.layout.load(CheckpointId(2)).artifacts
    store.layout.save(6, artifacts=shared)
    store.executor().prune(plan)
    assert store.live() == [2, 5, 6]
    store = Store(1, 2)
    store.layout.save(3, artifacts=store.layout.load(CheckpointId(1)).artifacts)
    store.layout.save(4)
    plan = store.plan()
    store.pin(3)
    store.executor().prune(plan)
    assert store.live() == [1, 3, 4]


def test_a_pinned_checkpoint_whose_manifest_cannot_be_read_does_not_stop_the_others_from_going():
    store = Store()
    store.pin(2)
    store.blobs.replace(manifest_key(2), b"torn")
    store.prune()
    assert store.live() == [2, 5]


def test_a_plan_from_the_future_is_refused():
    """It was made by a clock that was wrong, so whatever it calls old may be young."""
    store = Store()
    plans = store.plan(), plan_sweep(store.layout, now=store.clock()), plan_orphans(store.layout, now=store.clock())
    store.clock.advance(-HOUR)
    executor = store.executor()
    for act, plan in zip((executor.prune, executor.sweep, executor.remove_orphans), plans, strict=True):
        with pytest.raises(NoEvidenceError, match="1h from now"):
            act(plan)


def test_if_what_is_needed_cannot_be_put_back_the_report_says_where_it_is():
    store = Store()
    plan = store.plan()

    class PinsLate(FaultyBlobs):
        """Somebody pins checkpoint 2 when it has just gone, and then the store fails."""

        def delete(self, keys):
            gone = super().delete(keys)
            if manifest_key(2) in keys:
                store.pin(2)
                self.inject(Fault.FAIL, verb="create", match=manifest_key(2))
            return gone

    report = store.executor(PinsLate(store.blobs)).prune(plan)
    (failure,) = report.failures
    assert failure.subject == "2"
    assert failure.message.startswith("in the trash, although pinned as 'p'; undelete it")
    assert 2 in store.trash()


# -- undelete and sweep ------------------------------------------------------------------------------------------


def swept(store: Store, wait: timedelta = 2 * DAY) -> Report:
    store.clock.advance(wait)
    return store.executor().sweep(plan_sweep(store.layout, now=store.clock()))


def test_what_was_put_back_is_live_and_no_longer_in_the_trash_and_can_be_pruned_again():
    store = Store()
    store.prune()
    store.executor().undelete(CheckpointId(2))
    assert store.live() == [2, 5]
    assert store.trash() == {1, 3, 4}
    with pytest.raises(CheckpointNotFoundError, match="not in the trash"):
        store.executor().undelete(CheckpointId(2))
    store.clock.advance(HOUR)
    store.prune()
    swept(store, timedelta(hours=23, minutes=30))
    assert store.trash() == {2}, "its undo window counts from the second prune"


def test_a_manifest_that_changed_after_it_was_put_back_comes_back_as_it_was_last():
    store = Store()
    store.prune()
    store.executor().undelete(CheckpointId(2))
    store.layout.recommit(checkpoint(2, artifacts=store.layout.load(CheckpointId(2)).artifacts, watermark=7))
    store.prune()
    store.executor().undelete(CheckpointId(2))
    assert store.layout.load(CheckpointId(2)).watermark == 7


def test_the_undo_window_counts_by_the_stores_clock_if_that_of_the_prune_was_slow():
    store = Store()
    slow = Executor(store.layout, by="test", clock=lambda: store.clock() - 10 * DAY)
    slow.prune(plan_prune(store.layout, KEEP_ONE, now=store.clock() - 10 * DAY))
    assert store.trash() == {1, 2, 3, 4}
    assert plan_sweep(store.layout, now=store.clock()).expired == ()
    swept(store)
    assert store.trash() == set()


def test_a_sweep_whose_clock_is_not_that_of_the_store_removes_nothing():
    store = Store()
    store.prune()
    fast = Executor(store.layout, by="test", clock=lambda: store.clock() + 2 * DAY)
    with pytest.raises(NoEvidenceError, match="clock"):
        fast.sweep(plan_sweep(store.layout, now=store.clock() + 2 * DAY))
    store.executor().undelete(CheckpointId(1))


def test_what_is_pinned_stays_in_the_trash():
    store = Store()
    store.prune()
    store.clock.advance(2 * DAY)
    plan = plan_sweep(store.layout, now=store.clock())
    store.pin(2)
    assert CheckpointId(2) not in plan_sweep(store.layout, now=store.clock()).expired
    store.executor().sweep(plan)
    assert store.trash() == {2}
    store.executor().undelete(CheckpointId(2))
    assert store.layout.blobs.read(artifact_key(2, "state")) == b"state 2"


def test_a_sweep_that_finds_no_evidence_lets_undelete_in_again_unless_another_had_begun_to_remove():
    store = Store()
    store.prune()
    store.clock.advance(2 * DAY)
    dying = FaultyBlobs(store.blobs)
    dying.inject(Fault.CRASH_AFTER, verb="delete", match=artifact_key(1, "state"))
    with pytest.raises(SimulatedCrash):
        store.executor(dying).sweep(plan_sweep(store.layout, now=store.clock()))
    # The marks of the one that died stand for all; one checkpoint is pruned anew, so its mark will be our own.
    store.layout.save(6)
    store.prune()
    store.clock.advance(2 * DAY)
    plan = plan_sweep(store.layout, now=store.clock())
    unreachable = FaultyBlobs(store.blobs)
    unreachable.inject(Fault.NONE, verb="folders", match="trash", times=0)
    unreachable.inject(Fault.FAIL, verb="list", match="timelines")
    with pytest.raises(StoreUnavailableError):
        store.executor(unreachable).sweep(plan)
    store.executor().undelete(CheckpointId(5))
    with pytest.raises(CheckpointConflictError, match="being removed for good"):
        store.executor().undelete(CheckpointId(1))


@pytest.mark.parametrize("number", [1, 3])
def test_a_sweep_that_meets_an_entry_damaged_since_removes_nothing_and_lets_undelete_in_again(number):
    store = Store()
    store.prune()
    store.clock.advance(2 * DAY)
    plan = plan_sweep(store.layout, now=store.clock())
    key = trash.entry_key(CheckpointId(number))
    whole = store.blobs.read(key)
    store.blobs.replace(key, whole[:-1])
    with pytest.raises(CorruptManifestError):
        store.executor().sweep(plan)
    store.blobs.replace(key, whole)
    for each in range(1, 5):
        store.executor().undelete(CheckpointId(each))
        assert store.blobs.read(artifact_key(each, "state")) == f"state {each}".encode()


# -- orphans -----------------------------------------------------------------------------------------------------


def test_an_orphan_that_was_written_again_since_is_left_alone():
    store = Store()
    store.layout.write_artifact(3, "lost")
    store.clock.advance(2 * DAY)
    plan = plan_orphans(store.layout, now=store.clock())
    assert [item.path for item in plan.deletions] == [artifact_key(3, "lost")]
    store.blobs.replace(artifact_key(3, "lost"), b"state")
    report = store.executor().remove_orphans(plan)
    assert [outcome.message for outcome in report.failures] == ["kept: written again since"]


def test_an_orphan_that_an_unreadable_manifest_may_name_by_now_is_left_alone():
    store = Store()
    store.layout.write_artifact(3, "lost")
    store.clock.advance(2 * DAY)
    plan = plan_orphans(store.layout, now=store.clock())
    store.blobs.replace(manifest_key(4), b"torn")
    report = store.executor().remove_orphans(plan)
    assert [outcome.done for outcome in report.outcomes] == [False]
    assert "cannot be read and may name it" in report.outcomes[0].message


def test_a_plan_cannot_make_the_removal_of_orphans_take_what_is_no_orphan():
    store = Store()
    store.layout.write_artifact(3, "lost")
    store.clock.advance(2 * DAY)
    plan = plan_orphans(store.layout, now=store.clock())
    item = plan.deletions[0]
    present = {info.key: info.version for info in store.blobs.list()}
    forged = plan.model_copy(
        update={"items": tuple(item.model_copy(update={"path": key, "version": present[key]}) for key in present)}
    )
    report = store.executor().remove_orphans(forged, confirmed=True)
    assert [outcome.subject for outcome in report.outcomes if outcome.done] == [artifact_key(3, "lost")]


def test_the_highest_id_is_remembered_when_its_last_sign_is_removed():
    store = Store()
    store.layout.write_artifact(9, "state")
    store.clock.advance(2 * DAY)
    store.executor().remove_orphans(plan_orphans(store.layout, now=store.clock()))
    assert [entry.checkpoint_id.value for entry in survey(store.layout).trash if entry.purged is not None] == [9]
    assert store.trash() == set()


# -- pins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pin", "unpin"])
def test_the_record_of_a_pin_is_there_before_it_is_set_or_removed(verb):
    store = Store()
    wanted = Pin(name="p", checkpoint_id=CheckpointId(2), owner="o", reason="r", created=store.clock())
    if verb == "unpin":
        store.pin(2)
    dying = FaultyBlobs(store.blobs)
    dying.inject(Fault.CRASH_AFTER, verb="create" if verb == "pin" else "delete", match="pins/")
    with pytest.raises(SimulatedCrash):
        store.executor(dying).pin(wanted) if verb == "pin" else store.executor(dying).unpin("p")
    assert [(record.verb, record.phase) for record in read_audit(store.blobs)] == [(verb, "started")]
