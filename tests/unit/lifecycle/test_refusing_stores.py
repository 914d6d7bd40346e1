"""Stores that refuse: objects that cannot be read, and permission that ends in the middle of a step."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.blobs import Deletion, WrapperBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    AttentionError,
    StoreUnavailableError,
    TransientError,
)
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import read_ledger
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import Depth
from tests.crash.makers import Clock, PartitionedMaker, SidecarMaker, StreamMaker
from tests.crash.scene import full_scene, is_whole, listing, live_in, trash_of
from tests.crash.test_lifecycle_crashes import CASES, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.layouts._protocol import Layout

KEEP_ONE = RetentionPolicy(keep_last=1)


def verbs(layout: Layout, now: Any) -> dict[str, Callable[[], object]]:
    return {
        "prune": lambda: plan_prune(layout, KEEP_ONE, now=now),
        "sweep": lambda: plan_sweep(layout, now=now),
        "orphans": lambda: plan_orphans(layout, now=now),
        "recover": lambda: choose(layout, Wish(), now=now),
    }


# -- objects that cannot be read ---------------------------------------------------------------------------------


class Refusing(WrapperBlobs):
    """Refuses to read one object, or to change one, as a store does whose rules somebody got wrong."""

    def __init__(self, inner, *, unreadable: str = "", unchangeable: tuple[str, int] | None = None) -> None:
        super().__init__(inner)
        self._unreadable = unreadable
        self._unchangeable = unchangeable
        self._seen = 0

    def _look(self, key: str) -> None:
        if self._unreadable and key.endswith(self._unreadable):
            raise AccessDeniedError("not allowed", subject=key)

    def _refuses(self, verb: str) -> bool:
        if self._unchangeable is None or self._unchangeable[0] != verb:
            return False
        self._seen += 1
        return self._seen - 1 == self._unchangeable[1]

    def read(self, key, *, start=0, length=None):
        self._look(key)
        return super().read(key, start=start, length=length)

    def stream(self, key, *, start=0, length=None):
        self._look(key)
        return super().stream(key, start=start, length=length)

    def stat(self, key):
        self._look(key)
        return super().stat(key)

    def read_versioned(self, key):
        self._look(key)
        return super().read_versioned(key)

    def create(self, key, body):
        if self._refuses("create"):
            raise AccessDeniedError("not allowed", subject=key)
        return super().create(key, body)

    def replace(self, key, body, *, expected=None):
        if self._refuses("replace"):
            raise AccessDeniedError("not allowed", subject=key)
        return super().replace(key, body, expected=expected)

    def delete(self, keys):
        # Per object, as stores answer.
        return [
            Deletion(key, AccessDeniedError("not allowed", subject=key))
            if self._refuses("delete")
            else super(Refusing, self).delete([key])[0]
            for key in keys
        ]


@dataclass(frozen=True)
class Unreadable:
    """An object of a checkpoint that cannot be read, and who must then give up."""

    name: str
    what: str
    stopped: tuple[str, ...]


UNREADABLE = [
    # What a prune, a sweep or a search for orphans would do hangs on every manifest, so they do nothing.
    Unreadable("newest", "manifest", ("prune", "sweep", "orphans", "recover")),
    Unreadable("first", "manifest", ("prune", "sweep", "orphans")),
    # Nobody but a recovery and a prune that must prove the newest looks at state.
    Unreadable("newest", "artifact", ("prune", "recover")),
    Unreadable("first", "artifact", ()),
]


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
@pytest.mark.parametrize("case", UNREADABLE, ids=lambda case: f"{case.what} of the {case.name}")
def test_what_cannot_be_read_is_not_broken_and_nothing_is_decided_without_it(case, maker):
    scene = full_scene(maker(Clock()))
    checkpoint = scene.ids[case.name]
    own = scene.layout.load(checkpoint).artifacts[-1].key
    key = scene.layout.manifest_keys(checkpoint)[-1] if case.what == "manifest" else own
    layout = scene.layout_on(Refusing(scene.root, unreadable=key))
    before = listing(scene)
    for verb, act in verbs(layout, scene.clock()).items():
        if verb in case.stopped:
            with pytest.raises((AttentionError, TransientError)) as caught:
                act()
            assert "not allowed" in str(caught.value)
        else:
            act()
    assert listing(scene) == before


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
def test_state_that_cannot_be_read_leaves_a_checkpoint_unproven_and_the_others_proven(maker):
    scene = full_scene(maker(Clock()))
    wanted = scene.ids["other"]
    own = scene.layout.load(wanted).artifacts[-1].key
    layout = scene.layout_on(Refusing(scene.root, unreadable=own))
    results = {each.checkpoint_id: each for each in validate_many(layout, live_in(scene.layout), Depth.CONTENT)}
    assert not results[wanted].proven
    assert {each for each, result in results.items() if result.proven and not result.valid} == {scene.ids["damaged"]}
    ledger = read_ledger(scene.layout.blobs, scene.layout)
    assert wanted not in ledger
    assert set(ledger) == set(results) - {wanted}


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
def test_a_checkpoint_that_could_not_be_examined_never_goes_for_that(maker):
    """Else a wrong access rule would send the newest checkpoint to the trash, as one that cannot be restored."""
    scene = full_scene(maker(Clock()))
    own = scene.layout.load(scene.ids["newest"]).artifacts[-1].key
    layout = scene.layout_on(Refusing(scene.root, unreadable=own))
    with pytest.raises(StoreUnavailableError, match="could not be examined"):
        plan_prune(layout, KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT)
    assert set(live_in(scene.layout)) >= {scene.ids["newest"], scene.ids["other"]}


# -- permission that ends in the middle --------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "maker"), CASES)
def test_a_refusal_at_any_change_loses_nothing_and_the_same_step_finishes_once_it_is_allowed(
    step, maker, record_property
):
    stage = Stage(step, maker)
    for k, (verb, _) in enumerate(stage.mutations):
        scene = stage.scene.copy()
        earlier = sum(other == verb for other, _ in stage.mutations[:k])
        with contextlib.suppress(AccessDeniedError):
            step.act(scene, Refusing(scene.root, unchangeable=(verb, earlier)))
        stage.assert_repaired(scene)
    record_property("crash points", len(stage.mutations))


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker, StreamMaker], ids=lambda maker: maker.name)
def test_a_refusal_for_one_item_of_a_prune_is_told_and_the_others_are_done(maker):
    scene = full_scene(maker(Clock()))
    plan = plan_prune(scene.layout, KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT)

    class Keeps(WrapperBlobs):
        """Lets everything be written, and one manifest not be removed."""

        def delete(self, keys):
            return [
                Deletion(key, AccessDeniedError("not allowed", subject=key, hint="Ask for the right to delete."))
                if key.endswith(scene.layout.manifest_keys(scene.ids["other"])[-1])
                else super(Keeps, self).delete([key])[0]
                for key in keys
            ]

    report = scene.executor(Keeps(scene.root)).prune(plan)
    assert [outcome.subject for outcome in report.failures] == [str(scene.ids["other"])]
    assert "Ask for the right to delete" in report.failures[0].message
    assert scene.ids["other"] in live_in(scene.layout)
    assert is_whole(scene.layout, scene.ids["other"])
    gone = {item.checkpoint_id for item in plan.removed} - {scene.ids["other"]}
    assert {entry.checkpoint_id for entry in trash_of(scene.layout)} == gone
