"""Going back: a new timeline after a proven checkpoint, opened once, whatever dies in between."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    ConfirmationNeededError,
    CorruptError,
    FencedWriterError,
    OutcomeUnknownError,
)
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK, sign_of_life
from airflow_provider_checkpoint.lifecycle.records import read_audit
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.restoring import plan_restore
from airflow_provider_checkpoint.lifecycle.timelines import TimelineHolder, open_timeline, read_timelines, timeline_key
from airflow_provider_checkpoint.model import CheckpointId
from tests.crash.makers import HOUR, Clock
from tests.unit.lifecycle.tiny_layout import TinyLayout, artifact_key, tiny

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import RestorePlan

MARK = f"{RESTORE_MARK}run-1"
MINUTE = timedelta(minutes=1)


class Store:
    """Checkpoints 1 to 5 and a writer that still runs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(clock=self.clock)
        self.layout = tiny(self.blobs, *range(1, 6))
        self.clock.advance(300 * 24 * HOUR)

    def plan(self, number: int | None = 3) -> RestorePlan:
        wish = (
            Wish(fresh_start_ok=True, skip=frozenset(map(CheckpointId, range(1, 6))))
            if number is None
            else Wish(strategy=Strategy.ID, checkpoint_id=CheckpointId(number))
        )
        return plan_restore(self.layout, choose(self.layout, wish, now=self.clock()))

    def executor(self, blobs: BlobStore | None = None) -> Executor:
        return Executor(TinyLayout(blobs or self.blobs), by="test", clock=self.clock)

    def start_writer(self, number: int = 5) -> TimelineHolder:
        start = self.layout.load(CheckpointId(number))
        return open_timeline(self.blobs, start=start, has_checkpoints=True, writer="driver", now=self.clock())

    def chosen(self) -> CheckpointId | None:
        return choose(self.layout, Wish(), now=self.clock()).chosen


def test_running_writers_are_refused_and_the_next_one_goes_on_after_the_checkpoint():
    store = Store()
    writer = store.start_writer()
    plan = store.plan()
    assert plan.abandons == (CheckpointId(4), CheckpointId(5))
    timeline = store.executor().restore(plan, reason="bad deployment", mark=MARK)
    assert (timeline.fork_checkpoint, timeline.owner, timeline.reason) == (CheckpointId(3), "test", "bad deployment")
    with pytest.raises(FencedWriterError):
        writer.check()
    assert store.chosen() == CheckpointId(3)
    assert [record.verb for record in read_audit(store.blobs)] == ["restore", "restore"]


def test_a_fresh_start_leaves_everything_behind():
    store = Store()
    plan = store.plan(None)
    assert len(plan.abandons) == 5
    assert store.executor().restore(plan, reason="", mark=MARK).fork_checkpoint is None


def test_what_was_written_on_a_timeline_whose_record_is_lost_does_not_come_back():
    store = Store()
    store.start_writer(3)
    store.layout.save(6, timeline=2, epoch=4)
    store.layout.blobs.delete([timeline_key(2)])
    timeline = store.executor().restore(store.plan(2), reason="r", mark="restore-m")
    assert timeline.number == 3
    assert store.chosen() == CheckpointId(2)


def test_a_plan_is_refused_once_another_run_has_taken_over():
    store = Store()
    plan = store.plan()
    store.start_writer()
    with pytest.raises(ConfirmationNeededError, match="timeline 2 has been opened"):
        store.executor().restore(plan, reason="", mark=MARK)


def test_a_checkpoint_that_broke_since_the_plan_was_made_is_no_place_to_go_back_to():
    store = Store()
    plan = store.plan()
    store.blobs.replace(artifact_key(3, "state"), b"?" * 7)
    with pytest.raises(CorruptError, match="cannot be proven"):
        store.executor().restore(plan, reason="", mark=MARK)
    assert read_timelines(store.blobs) == []


def test_a_plan_that_lay_about_for_long_is_refused():
    store = Store()
    plan = store.plan()
    store.clock.advance(1000 * HOUR)
    with pytest.raises(ConfirmationNeededError, match="old"):
        store.executor().restore(plan, reason="", mark=MARK)


def steps() -> int:
    store = Store()
    faulty = FaultyBlobs(store.blobs)
    store.executor(faulty).restore(store.plan(), reason="", mark=MARK)
    return len(faulty.mutations)


@pytest.mark.parametrize("crash_after", range(steps()))
def test_whatever_dies_in_between_the_same_restore_finishes_and_opens_one_timeline(crash_after):
    store = Store()
    plan = store.plan()
    faulty = FaultyBlobs(store.blobs)
    faulty.crash_after = crash_after
    with pytest.raises(SimulatedCrash):
        store.executor(faulty).restore(plan, reason="", mark=MARK)
    timeline = store.executor().restore(plan, reason="", mark=MARK)
    assert [each.number for each in read_timelines(store.blobs)] == [timeline.number]
    assert store.chosen() == CheckpointId(3)


def test_a_lost_answer_opens_no_second_timeline():
    store = Store()
    plan = store.plan()
    faulty = FaultyBlobs(store.blobs)
    faulty.inject(Fault.LOST_ANSWER, verb="create", match="timelines/")
    with pytest.raises(OutcomeUnknownError):
        store.executor(faulty).restore(plan, reason="", mark=MARK)
    store.executor().restore(plan, reason="", mark=MARK)
    assert len(read_timelines(store.blobs)) == 1


# -- signs of life -----------------------------------------------------------------------------------------------


def test_a_writer_that_started_a_moment_ago_seems_alive_and_one_of_long_ago_does_not():
    store = Store()
    assert sign_of_life(store.layout, now=store.clock(), within=10 * MINUTE) is None
    store.start_writer()
    store.clock.advance(MINUTE)
    assert sign_of_life(store.layout, now=store.clock(), within=10 * MINUTE) == "a writer opened timeline 2 1m ago"
    store.clock.advance(HOUR)
    assert sign_of_life(store.layout, now=store.clock(), within=10 * MINUTE) is None


def test_a_restore_is_no_sign_of_a_writer():
    store = Store()
    store.executor().restore(store.plan(), reason="", mark=MARK)
    assert sign_of_life(store.layout, now=store.clock(), within=10 * MINUTE) is None


def test_a_young_checkpoint_speaks_for_its_writer_unless_that_is_fenced():
    store = Store()
    newest = store.layout.load(CheckpointId(5))
    now = newest.created + MINUTE
    assert sign_of_life(store.layout, now=now, within=10 * MINUTE) == "checkpoint 5 was committed 1m ago"
    store.executor().restore(store.plan(), reason="", mark=MARK)
    assert sign_of_life(store.layout, now=now, within=10 * MINUTE) is None


def test_a_store_without_checkpoints_shows_no_life():
    assert sign_of_life(TinyLayout(MemoryBlobs()), now=Clock()(), within=HOUR) is None
