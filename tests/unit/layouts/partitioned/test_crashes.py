"""The process dies at every possible point; a new one finds no half checkpoint and finishes the work."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout
from airflow_provider_checkpoint.model import Depth, Severity, SinkState, SinkStatus
from tests.unit.layouts.partitioned.samples import commit, nth_id

if TYPE_CHECKING:
    from collections.abc import Callable

COMMITTED = SinkStatus(SinkState.COMMITTED)
PENDING = SinkStatus(SinkState.PENDING)


def prepare(layout: PartitionedLayout) -> None:
    """Two checkpoints; the second builds on the first."""
    base = commit(layout, nth_id(1), *(PartitionData("op", n, b"base") for n in range(2)), epoch=1)
    commit(
        layout,
        nth_id(2),
        PartitionData("op", 0, b"delta", is_delta=True),
        PartitionData("other", 0, b"state"),
        epoch=2,
        sink_commit_statuses={"out": PENDING},
        reused=[("op", each) for each in base.operators["op"].partitions],
    )


def save_another(layout: PartitionedLayout) -> None:
    items = [PartitionData("op", n, b"new %d" % n) for n in range(3)]
    commit(layout, nth_id(3), *items, epoch=3, writer="this attempt")


def record_statuses(layout: PartitionedLayout) -> None:
    layout.update_statuses(nth_id(2), {"out": COMMITTED, "more": COMMITTED}, {"out": 2})


def delete_newest(layout: PartitionedLayout) -> None:
    layout.delete_checkpoint(nth_id(2))


def delete_all(layout: PartitionedLayout) -> None:
    layout.delete_checkpoint(nth_id(2))
    layout.delete_checkpoint(nth_id(1))


@dataclass(frozen=True)
class Step:
    act: Callable[[PartitionedLayout], None]
    checkpoints: list[int]
    """What is there when it is done."""


STEPS = {
    "save": Step(save_another, [1, 2, 3]),
    "statuses": Step(record_statuses, [1, 2]),
    "delete the newest": Step(delete_newest, [1]),
    "delete all": Step(delete_all, []),
}


def check_invariants(layout: PartitionedLayout) -> None:
    """Every checkpoint that is visible is whole: no half one, whatever happened."""
    for checkpoint_id in layout.list_checkpoints():
        examined = layout.examine(checkpoint_id)
        assert examined.checkpoint is not None
        assert [issue for issue in examined.issues if issue.severity is Severity.ERROR] == []
        assert [issue for check in layout.checks(examined.checkpoint, Depth.RESTORE) for issue in check.run()] == []
    layout.read_latest()


def check_done(layout: PartitionedLayout, step: Step) -> None:
    check_invariants(layout)
    ids = [nth_id(number) for number in step.checkpoints]
    assert layout.list_checkpoints() == ids
    assert layout.candidates() == ids, "no litter is left"
    assert layout.read_latest() == (ids[-1] if ids else None)
    if step.act is record_statuses:
        assert layout.load_manifest(nth_id(2)).sink_commit_statuses == {"out": COMMITTED, "more": COMMITTED}


def snapshot(blobs) -> dict[str, bytes]:
    return {info.key: blobs.read(info.key) for info in blobs.list()}


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    """Makes fresh stores with two checkpoints in them."""
    made = 0

    def make():
        nonlocal made
        made += 1
        blobs = MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path / str(made))
        prepare(PartitionedLayout(blobs))
        return blobs

    return make


def mutations_of(step: Step, blobs) -> int:
    counting = FaultyBlobs(blobs)
    step.act(PartitionedLayout(counting))
    return len(counting.mutations)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_crash_before_any_write_leaves_whole_checkpoints_and_work_that_can_be_finished(store, step):
    total = mutations_of(step, store())
    assert total >= 1
    for survived in range(total):
        blobs = store()
        with pytest.raises(SimulatedCrash):
            step.act(PartitionedLayout(FaultyBlobs(blobs, crash_after=survived)))
        reopened = PartitionedLayout(blobs)
        check_invariants(reopened)
        step.act(reopened)
        check_done(reopened, step)


@pytest.mark.parametrize("verb", ["create", "replace", "delete"])
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.TIMEOUT, Fault.FAIL, Fault.CRASH_AFTER])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_fault_at_any_write_leaves_whole_checkpoints_and_work_that_can_be_finished(store, step, fault, verb):
    counting = FaultyBlobs(store())
    step.act(PartitionedLayout(counting))
    keys = [key for each, key in counting.mutations if each == verb]
    for key in keys:
        blobs = store()
        faulty = FaultyBlobs(blobs)
        faulty.inject(fault, verb=verb, match=key)
        with pytest.raises((CheckpointError, SimulatedCrash)):
            step.act(PartitionedLayout(faulty))
        reopened = PartitionedLayout(blobs)
        check_invariants(reopened)
        step.act(reopened)
        check_done(reopened, step)


def test_a_crash_while_saving_shows_the_new_checkpoint_whole_or_not_at_all(store):
    for survived in range(mutations_of(STEPS["save"], store()) + 1):
        blobs = store()
        before = snapshot(blobs)
        with contextlib.suppress(SimulatedCrash):
            save_another(PartitionedLayout(FaultyBlobs(blobs, crash_after=survived)))
        layout = PartitionedLayout(blobs)
        visible = layout.list_checkpoints()
        assert visible in ([nth_id(1), nth_id(2)], [nth_id(1), nth_id(2), nth_id(3)])
        assert layout.read_latest() in visible
        assert layout.next_id() > nth_id(3), "the id of an aborted attempt is not given out again"
        after = snapshot(blobs)
        assert {key: after[key] for key in before if key != "_latest"} == {
            key: body for key, body in before.items() if key != "_latest"
        }


def test_a_crash_while_deleting_never_shows_a_checkpoint_without_its_artifacts(store):
    for survived in range(mutations_of(STEPS["delete the newest"], store()) + 1):
        blobs = store()
        with contextlib.suppress(SimulatedCrash):
            delete_newest(PartitionedLayout(FaultyBlobs(blobs, crash_after=survived)))
        layout = PartitionedLayout(blobs)
        assert layout.load_state(layout.load_manifest(nth_id(1)), "op", 1) == (b"base", [])
        if survived == 0:
            assert layout.load_state(layout.load_manifest(nth_id(2)), "op", 0) == (b"base", [b"delta"])
        else:
            assert layout.list_checkpoints() == [nth_id(1)]


def test_another_attempt_after_a_crash_takes_a_new_id_and_leaves_the_old_litter_alone(store):
    blobs = store()
    with pytest.raises(SimulatedCrash):
        save_another(PartitionedLayout(FaultyBlobs(blobs, crash_after=2)))
    layout = PartitionedLayout(blobs)
    new = layout.next_id()
    commit(layout, new, PartitionData("op", 0, b"different state this time"), epoch=3)
    assert layout.list_checkpoints() == [nth_id(1), nth_id(2), new]
    assert nth_id(3) in layout.candidates()
    check_invariants(layout)
