"""The process dies at every possible point of every step; nothing is lost, and the same step again finishes it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import is_temporary
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import CheckpointError, CheckpointNotFoundError
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import read_pins
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import Depth, Pin
from tests.crash.makers import DAY, MAKERS, PENDING, Clock, Draft, PartitionedMaker, SidecarMaker
from tests.crash.scene import assert_safe, facts_of, full_scene, listing, trash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.crash.makers import Maker
    from tests.crash.scene import Scene

KEEP_ONE = RetentionPolicy(keep_last=1)
FAULTS = (Fault.LOST_ANSWER, Fault.FAIL)


# -- the steps ---------------------------------------------------------------------------------------------------


def save(scene: Scene, root: BlobStore) -> None:
    base = scene.ids["base"] if scene.maker.has_bases else None
    sinks = {"out": PENDING} if scene.maker.has_sinks else {}
    scene.maker.write(root, Draft(scene.ids["new"], 10, base=base, sinks=sinks))


def record_statuses(scene: Scene, root: BlobStore) -> None:
    scene.maker.record_commit(root, scene.ids["undecided"])


def prune(scene: Scene, root: BlobStore) -> None:
    plan = plan_prune(scene.layout_on(root), KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT)
    scene.executor(root).prune(plan)


def prune_as_planned(scene: Scene, root: BlobStore) -> None:
    """The plan was made and shown before anything went wrong, and is applied until it is done."""
    scene.executor(root).prune(scene.plan)


def undelete(scene: Scene, root: BlobStore) -> None:
    with contextlib.suppress(CheckpointNotFoundError):  # What is done already is no longer in the trash.
        scene.executor(root).undelete(scene.ids["other"])


def sweep(scene: Scene, root: BlobStore) -> None:
    scene.executor(root).sweep(plan_sweep(scene.layout_on(root), now=scene.clock()))


def remove_orphans(scene: Scene, root: BlobStore) -> None:
    scene.executor(root).remove_orphans(plan_orphans(scene.layout_on(root), now=scene.clock()))


def open_new_timeline(scene: Scene, root: BlobStore) -> None:
    layout = scene.layout_on(root)
    start = layout.load(scene.ids["newest"])
    open_timeline(layout.blobs, start=start, has_checkpoints=True, writer="w2", now=scene.clock())


def pin(scene: Scene, root: BlobStore) -> None:
    other = scene.ids["other"]
    made = Pin(name="mine", checkpoint_id=other, owner="test", reason="why not", created=scene.clock())
    scene.executor(root).pin(made)


def unpin(scene: Scene, root: BlobStore) -> None:
    with contextlib.suppress(CheckpointNotFoundError):
        scene.executor(root).unpin("keep")


def validate_all(scene: Scene, root: BlobStore) -> None:
    layout = scene.layout_on(root)
    validate_many(layout, layout.candidates(), Depth.CONTENT, now=scene.clock)


# -- what comes before, and what must be there at the end --------------------------------------------------------


def whole_store(maker: Maker) -> Scene:
    return full_scene(maker)


def about_to_save(maker: Maker) -> Scene:
    scene = full_scene(maker)
    scene.draft("new", epoch=10)
    return scene


def with_plan(maker: Maker) -> Scene:
    scene = full_scene(maker)
    scene.plan = plan_prune(scene.layout, KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT)
    return scene


def pruned(maker: Maker) -> Scene:
    scene = full_scene(maker)
    prune(scene, scene.root)
    return scene


def long_pruned(maker: Maker) -> Scene:
    """The undo window is over for all but one, which was undeleted and pruned again just now."""
    scene = pruned(maker)
    scene.clock.advance(2 * DAY)
    undelete(scene, scene.root)
    prune(scene, scene.root)
    scene.leave_behind("alive", 11)
    return scene


def highest_was_pruned(maker: Maker) -> Scene:
    scene = full_scene(maker, leftovers=False)
    prune(scene, scene.root)
    scene.clock.advance(2 * DAY)
    return scene


def highest_is_an_orphan(maker: Maker) -> Scene:
    scene = full_scene(maker, leftovers=False)
    scene.leave_behind("dead", 8)
    scene.clock.advance(2 * DAY)
    return scene


def names(scene: Scene, *wanted: str) -> set[object]:
    return {scene.ids[name] for name in wanted if name in scene.ids}


def trashed(scene: Scene) -> set[object]:
    return {entry.checkpoint_id for entry in trash_of(scene.layout)}


def was_pruned(scene: Scene) -> None:
    alone = () if scene.maker.has_bases else ("first", "base")
    assert trashed(scene) == names(scene, *alone, "other", "damaged", "undecided")


def came_back(scene: Scene) -> None:
    assert scene.ids["other"] not in trashed(scene)
    assert scene.layout.load(scene.ids["other"])


def was_swept(scene: Scene) -> None:
    assert trashed(scene) == names(scene, "other")


def all_was_swept(scene: Scene) -> None:
    assert trashed(scene) == set()


def orphans_are_gone(scene: Scene) -> None:
    layout = scene.layout
    left = [info.key for info in layout.blobs.list(temporary=None)]
    assert not [key for key in left if layout.named(key) == Named(Role.ARTIFACT, scene.ids["dead"])]
    assert not [key for key in left if key.endswith(".tmp") and is_temporary(key)]


def was_saved(scene: Scene) -> None:
    assert scene.layout.load(scene.ids["new"])


def pins_are(*wanted: str) -> Callable[[Scene], None]:
    def check(scene: Scene) -> None:
        assert [each.name for each in read_pins(scene.layout.blobs)] == list(wanted)

    return check


@dataclass(frozen=True)
class Step:
    act: Callable[[Scene, BlobStore], None]
    before: Callable[[Maker], Scene] = whole_store
    done: Callable[[Scene], None] = lambda _: None
    makers: tuple[type[Maker], ...] = MAKERS
    new: tuple[str, ...] = ()
    """What the step brings into being."""
    expired: tuple[str, ...] = ()
    """What the step may remove for good."""
    ignored: tuple[str, ...] = field(default_factory=tuple)
    """Folders in which an interrupted step may leave more records than an undisturbed one."""


WITH_SINKS = (SidecarMaker, PartitionedMaker)
GONE = ("first", "base", "damaged", "undecided")

STEPS = {
    "save": Step(save, about_to_save, was_saved, new=("new",)),
    "record statuses": Step(record_statuses, makers=WITH_SINKS),
    "prune": Step(prune, done=was_pruned),
    "prune as planned": Step(prune_as_planned, with_plan, was_pruned),
    "undelete": Step(undelete, pruned, came_back),
    "sweep": Step(sweep, long_pruned, was_swept, expired=GONE),
    "sweep the highest id": Step(sweep, highest_was_pruned, all_was_swept, expired=("other", *GONE)),
    "remove orphans": Step(remove_orphans, done=orphans_are_gone),
    "remove an orphan with the highest id": Step(
        remove_orphans, highest_is_an_orphan, orphans_are_gone, (SidecarMaker, PartitionedMaker)
    ),
    # A lost answer takes one more number, which is harmless.
    "open a timeline": Step(open_new_timeline, ignored=("timelines/",)),
    "pin": Step(pin, done=pins_are("keep", "mine")),
    "unpin": Step(unpin, done=pins_are()),
    "validate": Step(validate_all),
}
CASES = [pytest.param(step, maker, id=f"{name}-{maker.name}") for name, step in STEPS.items() for maker in step.makers]


# -- crashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "maker"), CASES)
def test_dying_before_any_change_to_the_store_loses_nothing_and_the_step_again_finishes_it(
    step, maker, record_property
):
    stage = Stage(step, maker)
    for k in range(len(stage.mutations)):
        scene = stage.scene.copy()
        with pytest.raises(SimulatedCrash):
            step.act(scene, FaultyBlobs(scene.root, crash_after=k))
        stage.assert_repaired(scene)
    record_property("crash points", len(stage.mutations))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize(("step", "maker"), CASES)
def test_a_fault_in_any_change_to_the_store_loses_nothing_and_the_step_again_finishes_it(
    step, maker, fault, record_property
):
    stage = Stage(step, maker)
    for k in range(len(stage.mutations)):
        scene = stage.scene.copy()
        broken = FaultyBlobs(scene.root)
        stage.inject(broken, k, fault)
        with contextlib.suppress(CheckpointError):
            step.act(scene, broken)
        stage.assert_repaired(scene)
    record_property("crash points", len(stage.mutations))


@pytest.mark.parametrize("name", ["prune", "sweep", "remove orphans"])
def test_dying_again_while_finishing_what_a_crash_left_loses_nothing(name, record_property):
    step = STEPS[name]
    stage = Stage(step, SidecarMaker)
    points = 0
    for k in range(len(stage.mutations)):
        left = stage.scene.copy()
        with pytest.raises(SimulatedCrash):
            step.act(left, FaultyBlobs(left.root, crash_after=k))
        again = FaultyBlobs(left.copy().root)
        step.act(left, again)
        # Not all pairs: each second point comes after some of the first, and the other way round.
        second = range(k % 4, len(again.mutations), 4)
        for j in second:
            scene = left.copy()
            with pytest.raises(SimulatedCrash):
                step.act(scene, FaultyBlobs(scene.root, crash_after=j))
            stage.assert_repaired(scene)
        points += len(second)
    record_property("crash points", points)


class Stage:
    """One step on one store: how it goes undisturbed, and what must hold when it is disturbed."""

    def __init__(self, step: Step, maker: type[Maker]) -> None:
        self.step = step
        self.scene = step.before(maker(Clock()))
        self.facts = facts_of(self.scene)
        undisturbed = self.scene.copy()
        watched = FaultyBlobs(undisturbed.root)
        step.act(undisturbed, watched)
        self.mutations = watched.mutations
        assert self.mutations, "a step that changes nothing proves nothing"
        self._assert_safe(undisturbed)
        step.done(undisturbed)
        self.goal = self._listing(undisturbed)

    def inject(self, blobs: FaultyBlobs, k: int, fault: Fault) -> None:
        """Let the k-th change go wrong: it is known by its verb and by how many of that verb came before."""
        verb, _ = self.mutations[k]
        earlier = sum(other == verb for other, _ in self.mutations[:k])
        blobs.inject(Fault.NONE, verb=verb, times=earlier)
        blobs.inject(fault, verb=verb)

    def assert_repaired(self, scene: Scene) -> None:
        self._assert_safe(scene)
        self.step.act(scene, scene.root)
        self._assert_safe(scene)
        self.step.done(scene)
        assert self._listing(scene) == self.goal

    def _assert_safe(self, scene: Scene) -> None:
        ids = {name: frozenset({scene.ids[name]}) for name in scene.ids}
        new = frozenset().union(*(ids.get(name, frozenset()) for name in self.step.new))
        expired = frozenset().union(*(ids.get(name, frozenset()) for name in self.step.expired))
        assert_safe(scene, self.facts, new=new, expired=expired & self.facts.trashed)

    def _listing(self, scene: Scene) -> dict[str, bytes]:
        return {key: body for key, body in listing(scene).items() if not key.startswith(self.step.ignored)}
