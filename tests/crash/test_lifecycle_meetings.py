"""Two steps at once: wherever the one meets the other, nothing is lost and nothing is half there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.lifecycle.records import read_pins
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.writing.coordinator import Coordinator
from tests.crash import test_lifecycle_crashes as steps
from tests.crash.makers import MAKERS, Clock, PartitionedMaker, SidecarMaker
from tests.crash.meeting import MeetingBlobs, moments
from tests.crash.scene import assert_safe, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.crash.makers import Maker
    from tests.crash.scene import Scene


def start_from_other(scene: Scene, root: BlobStore) -> None:
    """Start a writer from a checkpoint that a prune would take, as somebody does who wants to go back to it."""
    Coordinator.start(
        scene.layout_on(root), {}, recover_from=str(scene.ids["other"]), depth=Depth.RESTORE, clock=scene.clock
    )


# -- what was there before ---------------------------------------------------------------------------------------


def pruned_with_the_plan_at_hand(maker: Maker) -> Scene:
    scene = steps.with_plan(maker)
    steps.prune_as_planned(scene, scene.root)
    return scene


def pruned_long_ago(maker: Maker) -> Scene:
    scene = steps.pruned(maker)
    scene.clock.advance(2 * steps.DAY)
    return scene


def pruned_long_ago_and_about_to_save(maker: Maker) -> Scene:
    scene = pruned_long_ago(maker)
    scene.draft("new", epoch=10)
    return scene


# -- what must be true at the end --------------------------------------------------------------------------------


def a_pin_holds(scene: Scene) -> None:
    if "mine" in [pin.name for pin in read_pins(scene.layout.blobs)]:
        assert scene.layout.load(scene.ids["other"])


def the_start_of_the_timeline_stays(scene: Scene) -> None:
    newest = read_timelines(scene.layout.blobs)[-1]
    assert newest.fork_checkpoint == scene.ids["other"]
    assert scene.layout.load(newest.fork_checkpoint)


def what_was_saved_stays(scene: Scene) -> None:
    assert scene.layout.load(scene.ids["new"])


@dataclass(frozen=True)
class Meeting:
    one: Callable[[Scene, BlobStore], None]
    other: Callable[[Scene, BlobStore], None]
    before: Callable[[Maker], Scene] = steps.whole_store
    promised: Callable[[Scene], None] = lambda _: None
    """Must hold if neither of the two failed."""
    expired: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    makers: tuple[type[Maker], ...] = (PartitionedMaker,)


GONE = (*steps.GONE, "other")
MEETINGS = {
    "prune, prune": Meeting(steps.prune, steps.prune, makers=(PartitionedMaker, SidecarMaker)),
    "prune, prune as planned": Meeting(steps.prune_as_planned, steps.prune_as_planned, steps.with_plan),
    "prune, undelete": Meeting(steps.prune_as_planned, steps.undelete, steps.with_plan, makers=MAKERS),
    "undelete, prune": Meeting(steps.undelete, steps.prune_as_planned, pruned_with_the_plan_at_hand, makers=MAKERS),
    "prune again, undelete": Meeting(steps.prune_as_planned, steps.undelete, pruned_with_the_plan_at_hand),
    "undelete, undelete": Meeting(steps.undelete, steps.undelete, steps.pruned),
    "prune, pin": Meeting(steps.prune_as_planned, steps.pin, steps.with_plan, a_pin_holds),
    "pin, prune": Meeting(steps.pin, steps.prune_as_planned, steps.with_plan, a_pin_holds),
    "prune, start": Meeting(steps.prune_as_planned, start_from_other, steps.with_plan, the_start_of_the_timeline_stays),
    "start, prune": Meeting(start_from_other, steps.prune_as_planned, steps.with_plan, the_start_of_the_timeline_stays),
    "sweep, undelete": Meeting(steps.sweep, steps.undelete, pruned_long_ago, expired=GONE, makers=MAKERS),
    "undelete, sweep": Meeting(steps.undelete, steps.sweep, pruned_long_ago, expired=GONE, makers=MAKERS),
    "sweep, sweep": Meeting(steps.sweep, steps.sweep, steps.long_pruned, steps.was_swept, expired=steps.GONE),
    "sweep, prune": Meeting(steps.sweep, steps.prune, pruned_long_ago, expired=GONE),
    "prune, sweep": Meeting(steps.prune, steps.sweep, pruned_long_ago, expired=GONE),
    "sweep, save": Meeting(
        steps.sweep, steps.save, pruned_long_ago_and_about_to_save, what_was_saved_stays, expired=GONE, new=("new",)
    ),
    "orphans, save": Meeting(
        steps.remove_orphans, steps.save, steps.about_to_save, what_was_saved_stays, new=("new",), makers=MAKERS
    ),
    "save, orphans": Meeting(
        steps.save, steps.remove_orphans, steps.about_to_save, what_was_saved_stays, new=("new",), makers=MAKERS
    ),
    "orphans, orphans": Meeting(steps.remove_orphans, steps.remove_orphans, promised=steps.orphans_are_gone),
    "orphans, prune": Meeting(steps.remove_orphans, steps.prune),
    "orphans, undelete": Meeting(steps.remove_orphans, steps.undelete, pruned_long_ago),
    "orphans, sweep": Meeting(steps.remove_orphans, steps.sweep, pruned_long_ago, expired=GONE),
}
CASES = [
    pytest.param(meeting, maker, id=f"{name}-{maker.name}")
    for name, meeting in MEETINGS.items()
    for maker in meeting.makers
]


@pytest.mark.parametrize(("meeting", "maker"), CASES)
def test_wherever_two_steps_meet_nothing_is_lost_and_nothing_is_half_there(meeting, maker, record_property):
    scene = meeting.before(maker(Clock()))
    before = facts_of(scene)
    watched = MeetingBlobs(scene.copy().root)
    meeting.one(scene.copy(), watched)
    places = moments(watched.calls)
    for place in places:
        meet(meeting, scene.copy(), place, before)
    record_property("meetings of two steps", len(places))


def meet(meeting: Meeting, scene: Scene, place: int, before) -> None:
    failed: list[CheckpointError] = []

    def other() -> None:
        try:
            meeting.other(scene, scene.root)
        except CheckpointError as error:
            failed.append(error)

    try:
        meeting.one(scene, MeetingBlobs(scene.root, place, other))
    except CheckpointError as error:
        failed.append(error)
    ids = {name: scene.ids[name] for name in scene.ids}
    assert_safe(
        scene,
        before,
        new=frozenset(ids[name] for name in meeting.new if name in ids),
        expired=frozenset(ids[name] for name in meeting.expired if name in ids) & before.trashed,
    )
    if not failed:
        meeting.promised(scene)
