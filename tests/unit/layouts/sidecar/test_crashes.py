"""Dying, losing answers and racing at every step of every writing path.

Each path is run once to learn its steps, then stopped before each of them, looked at with fresh eyes, and run again.
"""

from __future__ import annotations

import re

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import StoreUnavailableError, TransientError
from airflow_provider_checkpoint.layouts.sidecar import OperatorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.layouts.sidecar._listing import list_states
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.layouts.sidecar.making import (
    COMMITTED,
    Clock,
    WithoutSwap,
    committed,
    manifest,
    objects,
    pending,
    put,
    put_legacy,
    trashed,
)

STATE = b"state of ten"
#: The last step of a save, after which it only prunes: the pointer, after state and manifest.
SAVED = 2


def stateful(number):
    return pending(number).changed(operator_states={"op": OperatorCheckpoint.at(0, len(STATE))})


class Scenario:
    """A store with a past, and one step that is about to be taken."""

    def __init__(self):
        self.clock = Clock()
        self.blobs = MemoryBlobs(clock=self.clock)
        self.prepare(self.layout(self.blobs))

    def layout(self, blobs):
        return SidecarLayout(blobs, clock=self.clock)

    def prepare(self, layout):
        """What was there before."""
        for number in (1, 2):
            self.commit(layout, number)

    def commit(self, layout, number):
        saved = layout.save_with_state(stateful(number), [STATE])
        layout.update_manifest(committed(saved))

    def step(self, layout):
        raise NotImplementedError

    def check_between(self, layout):
        """Holds whatever happened: what is visible is whole, and nothing that was committed is lost."""
        for number in layout.list_ids():
            assert layout.validate_checkpoint(number).valid, number
        assert layout.load_latest() is not None
        assert layout.recover_latest_validated().chosen_id is not None

    def check_done(self, layout):
        raise NotImplementedError


class SaveWithState(Scenario):
    def step(self, layout):
        layout.save_with_state(stateful(3), iter([STATE[:4], STATE[4:]]))

    def check_between(self, layout):
        super().check_between(layout)
        assert layout.recover_latest_validated().chosen_id == 2
        assert layout.load_latest().checkpoint_id in (2, 3)
        assert layout.next_id() in (3, 4)

    def check_done(self, layout):
        assert layout.load_latest().checkpoint_id == 3
        assert layout.load_operator_state(layout.load_latest(), "op") == STATE


class FirstSave(SaveWithState):
    def prepare(self, layout):
        pass

    def check_between(self, layout):
        for number in layout.list_ids():
            assert layout.validate_checkpoint(number).valid
        assert layout.load_latest() is None or layout.load_latest().checkpoint_id == 3


class SaveWithPrune(SaveWithState):
    def layout(self, blobs):
        return SidecarLayout(blobs, clock=self.clock, max_retained=1)

    def prepare(self, layout):
        for number in (1, 2):
            put(self.blobs, committed(stateful(number)), number, STATE)

    def check_done(self, layout):
        super().check_done(layout)
        assert layout.list_ids() == [2, 3]
        assert trashed(layout) == [1]
        assert layout.load_state_data(1) == STATE


class SaveWithUnreadablePointer(SaveWithState):
    def prepare(self, layout):
        super().prepare(layout)
        self.blobs.replace("manifests/latest.json", b"torn")

    def check_done(self, layout):
        super().check_done(layout)
        assert layout.read_pointer() == CheckpointId(3)


class UpdateManifest(Scenario):
    def prepare(self, layout):
        super().prepare(layout)
        layout.save_with_state(stateful(3), [STATE])

    def step(self, layout):
        layout.update_manifest(committed(layout.load_by_id(3)))

    def check_done(self, layout):
        assert layout.load_by_id(3).sink_commit_statuses == {"sink": COMMITTED}
        assert layout.recover_latest_validated().chosen_id == 3
        assert layout.read_pointer() == CheckpointId(3)


class Prune(Scenario):
    def prepare(self, layout):
        put_legacy(self.blobs, committed(stateful(1)), 1, STATE)
        put_legacy(self.blobs, committed(stateful(2)), 2, STATE)
        put(self.blobs, committed(stateful(2)), 2, STATE)
        for number in (3, 4, 5):
            self.commit(layout, number)

    def step(self, layout):
        layout.prune(2)

    def check_between(self, layout):
        super().check_between(layout)
        assert {4, 5} <= set(layout.list_ids())

    def check_done(self, layout):
        assert layout.list_ids() == [4, 5]
        assert trashed(layout) == [1, 2, 3]
        assert [number for number, _ in list_states(self.blobs)] == [1, 2, 2, 3, 4, 5]


SCENARIOS = [
    SaveWithState,
    FirstSave,
    SaveWithPrune,
    SaveWithUnreadablePointer,
    UpdateManifest,
    Prune,
]


def steps_of(kind):
    scenario = kind()
    faulty = FaultyBlobs(scenario.blobs)
    scenario.step(scenario.layout(faulty))
    scenario.check_done(scenario.layout(scenario.blobs))
    return [(verb, without_mark(key)) for verb, key in faulty.mutations]


def without_mark(key):
    """The part of a key that is the same in every run: an audit record has the mark of its run before it."""
    return re.sub(r"^audit/.*-(?=\w+-[ab]-)", "", key)


def points(kinds=SCENARIOS):
    return [(kind, number, *step) for kind in kinds for number, step in enumerate(steps_of(kind))]


def names(value):
    return value.__name__ if isinstance(value, type) else str(value)


@pytest.mark.parametrize("wrap", [lambda blobs: blobs, WithoutSwap], ids=["swap", "no-swap"])
@pytest.mark.parametrize(("kind", "number", "verb", "key"), points(), ids=names)
def test_dying_before_any_step_shows_nothing_half_and_the_next_run_finishes(kind, number, verb, key, wrap):
    scenario = kind()
    faulty = FaultyBlobs(wrap(scenario.blobs), crash_after=number)
    with pytest.raises(SimulatedCrash, match=rf"before {verb} .*{re.escape(key)}"):
        scenario.step(scenario.layout(faulty))
    reopened = scenario.layout(scenario.blobs)
    scenario.check_between(reopened)
    scenario.step(reopened)
    scenario.check_between(reopened)
    scenario.check_done(reopened)


@pytest.mark.parametrize("fault", [Fault.CRASH_AFTER, Fault.LOST_ANSWER, Fault.TIMEOUT, Fault.FAIL])
@pytest.mark.parametrize(("kind", "number", "verb", "key"), points(), ids=names)
def test_any_fault_at_any_step_shows_nothing_half_and_the_next_run_finishes(kind, number, verb, key, fault):
    scenario = kind()
    faulty = FaultyBlobs(scenario.blobs)
    faulty.inject(fault, verb=verb, match=key)
    try:
        scenario.step(scenario.layout(faulty))
    except (SimulatedCrash, TransientError):
        pass
    else:
        # Only pruning may fail without raising: what stays is not counted, and what was saved before is committed.
        assert kind in (Prune, SaveWithPrune)
        assert number > SAVED if kind is SaveWithPrune else "trash/" in key or verb == "delete"
    reopened = scenario.layout(scenario.blobs)
    scenario.check_between(reopened)
    scenario.step(reopened)
    scenario.check_between(reopened)
    scenario.check_done(reopened)


@pytest.mark.parametrize("kind", SCENARIOS, ids=names)
def test_running_a_finished_step_again_changes_nothing(kind):
    scenario = kind()
    layout = scenario.layout(scenario.blobs)
    scenario.step(layout)
    before = objects(scenario.blobs)
    scenario.step(scenario.layout(scenario.blobs))
    assert objects(scenario.blobs) == before


def test_state_comes_before_the_manifest_and_the_manifest_before_the_pointer():
    assert steps_of(SaveWithState) == [
        ("create", "checkpoints/state-000003.bin"),
        ("create", "manifests/manifest-000003.json"),
        ("replace", "manifests/latest.json"),
    ]


def test_pruning_removes_no_state():
    assert [key for verb, key in steps_of(Prune) if verb == "delete" and "state" in key] == []


def test_of_several_manifests_of_one_id_the_one_that_counts_is_pruned_last():
    removed = [key for verb, key in steps_of(Prune) if verb == "delete" and "000002" in key]
    assert removed == ["checkpoints/checkpoint_000002/manifest.json", "manifests/manifest-000002.json"]


def test_a_pointer_that_never_stands_still_is_a_transient_error_after_the_commit():
    blobs = MemoryBlobs()

    class Restless(FaultyBlobs):
        """Somebody else rewrites the pointer after each reading."""

        def read_versioned(self, key):
            found = super().read_versioned(key)
            self._inner.replace(key, b'{"checkpoint_id":1}')
            return found

    SidecarLayout(blobs).save(manifest(1))
    with pytest.raises(StoreUnavailableError, match="the pointer changed"):
        SidecarLayout(Restless(blobs)).save(manifest(2))
    assert SidecarLayout(blobs).list_ids() == [1, 2]
    SidecarLayout(blobs).save(manifest(2))
    assert SidecarLayout(blobs).load_latest() == manifest(2)


def test_a_pointer_created_by_another_writer_meanwhile_is_advanced_and_not_overwritten():
    blobs = MemoryBlobs()

    class Overtaken(FaultyBlobs):
        def create(self, key, body):
            if key == "manifests/latest.json":
                SidecarLayout(self._inner).save(manifest(9))
            return super().create(key, body)

    SidecarLayout(Overtaken(blobs)).save(manifest(5))
    assert SidecarLayout(blobs).read_pointer() == CheckpointId(9)
