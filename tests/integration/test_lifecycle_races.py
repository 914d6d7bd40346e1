"""Writers, prunes, sweeps, recoveries and zombies at the same time, on a disk and on a real S3 server."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    FencedWriterError,
    NoRecoveryPointError,
)
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.safety import Safety
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.writing.coordinator import Coordinator
from tests.contract.racers import in_processes
from tests.crash.makers import HOUR, Draft, PartitionedMaker, SidecarMaker
from tests.crash.meeting import MeetingBlobs
from tests.crash.scene import is_whole, live_in
from tests.integration.racing import AgedBlobs, Place, WallClock, race
from tests.unit.writing.pipeline import NUMBERS, SumPipeline, published, visible

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import CheckpointId
    from tests.crash.makers import Maker

KEEP_ONE = RetentionPolicy(keep_last=1)
#: As careless as one can be: everything that was pruned may go at once, and orphans after the shortest time there is.
CARELESS = Safety(undo_window=0 * HOUR, orphan_age=0 * HOUR, uncommitted_age=HOUR)


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(str(tmp_path), rounds=20)
    server = request.getfixturevalue("seaweedfs")
    return Place(server.fresh(), server.options(), rounds=5)


@pytest.fixture(params=[SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
def maker(request: pytest.FixtureRequest) -> Maker:
    made: Maker = request.param(WallClock())
    return made


def write(maker: Maker, root: BlobStore, epoch: int, base: CheckpointId | None = None) -> CheckpointId:
    draft = Draft(maker.next_id(root), epoch, base=base if maker.has_bases else None)
    maker.write(root, draft)
    return draft.id


def four(maker: Maker, root: BlobStore) -> list[CheckpointId]:
    """The second and the fourth build on the one before, where the layout has that."""
    first = write(maker, root, 1)
    second = write(maker, root, 2, first)
    third = write(maker, root, 3)
    return [first, second, third, write(maker, root, 4, third)]


def prune(layout: Layout) -> None:
    now = WallClock()()
    Executor(layout, by="test").prune(plan_prune(layout, KEEP_ONE, now=now, depth=Depth.CONTENT))


def sweep(layout: Layout) -> None:
    plan = plan_sweep(layout, now=WallClock()(), safety=CARELESS)
    Executor(layout, by="test", safety=CARELESS).sweep(plan)


def remove_orphans(layout: Layout) -> None:
    plan = plan_orphans(layout, now=WallClock()(), safety=CARELESS)
    Executor(layout, by="test", safety=CARELESS).remove_orphans(plan, confirmed=True)


def undelete(layout: Layout, checkpoint_id: CheckpointId) -> None:
    Executor(layout, by="test").undelete(checkpoint_id)


def waiting(layout: Layout) -> set[CheckpointId]:
    return {entry.checkpoint_id for entry in survey(layout).trash if entry.purged is None}


def assert_all_there(layout: Layout, ids: list[CheckpointId]) -> None:
    """Each is live or in the trash; what is in the trash comes back; and then all are whole."""
    for each in waiting(layout):
        undelete(layout, each)
    assert live_in(layout) == ids
    assert all(is_whole(layout, each) for each in ids)
    pointer = layout.read_pointer()
    assert pointer is None or pointer in ids


# -- a writer and the removal of orphans -------------------------------------------------------------------------


@pytest.mark.stress
def test_orphans_are_removed_under_a_writer_and_nothing_it_needs_is_among_them(place, maker, record_property):
    for _ in range(place.rounds):
        root = AgedBlobs(place.fresh().open())
        ids = four(maker, root)
        left = maker.write_artifacts(root, Draft(maker.next_id(root), 5))
        root.age()

        def write_more(root=root, ids=ids) -> None:
            for epoch in range(6, 9):
                ids.append(write(maker, root, epoch, ids[-1] if epoch == 7 else None))

        def clean(root=root) -> None:
            for _ in range(3):
                remove_orphans(maker.layout(root))

        assert race(write_more, clean) == [None, None]
        assert not {info.key for info in root.list()} & set(left)
        assert_all_there(maker.layout(root), ids)
    record_property("race rounds", place.rounds)


#: The first listing is that of the objects, the second that of the trash; whatever comes before comes before the
#: manifests.
SLOW_COMMITS = {
    "after the objects were listed": ("plan", 2),
    "before the objects are listed again": ("apply", 1),
    "before the trash is looked at again": ("apply", 2),
}


@pytest.mark.parametrize("moment", SLOW_COMMITS)
def test_a_commit_that_took_days_keeps_its_artifacts_if_it_lands_before_the_manifests_are_read(
    place, maker, moment, record_property
):
    """Its artifacts are older than any guard; that objects are listed before manifests are read protects them."""
    root = AgedBlobs(place.fresh().open())
    ids = four(maker, root)
    slow = Draft(maker.next_id(root), 5)
    maker.write_artifacts(root, slow)
    root.age()
    step, listing = SLOW_COMMITS[moment]
    met = _MeetingAtListing(root, listing, lambda: maker.write(root, slow))
    plan = plan_orphans(maker.layout(met if step == "plan" else root), now=WallClock()(), safety=CARELESS)
    assert (plan.deletions == ()) is (step == "plan")
    seen = met if step == "apply" else root
    report = Executor(maker.layout(seen), by="test", safety=CARELESS).remove_orphans(plan, confirmed=True)
    assert all("kept" in outcome.message for outcome in report.outcomes)
    assert_all_there(maker.layout(root), [*ids, slow.id])
    record_property("race rounds", 1)


class _MeetingAtListing(MeetingBlobs):
    """Lets somebody in just before the so-many-th listing."""

    def __init__(self, inner: BlobStore, listing: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._listing, self._let_in = listing, act

    def _meet(self, verb: str) -> None:
        super()._meet(verb)
        if verb == "list" and self.calls.count("list") == self._listing:
            self._let_in()


# -- two prunes, undelete and sweep ------------------------------------------------------------------------------


@pytest.mark.stress
def test_two_prunes_at_once_keep_the_newest_and_lose_nothing(place, maker, record_property):
    for _ in range(place.rounds):
        root = place.fresh().open()
        ids = four(maker, root)
        race(*[partial(prune, maker.layout(root)) for _ in range(2)])
        layout = maker.layout(root)
        assert ids[-1] in live_in(layout)
        assert waiting(layout) == set(ids) - set(live_in(layout)) != set()
        assert_all_there(layout, ids)
    record_property("race rounds", place.rounds)


def prune_each(root: BlobStore, rounds: int, wait: list[Callable[[], object]]) -> list[str]:
    """What one of two processes does: prune one store after the other, together with the other process."""
    maker = PartitionedMaker(WallClock())
    ends = []
    for number in range(rounds):
        wait[0]()
        try:
            prune(maker.layout(root.at(f"round-{number}")))
        except CheckpointError as error:
            ends.append(type(error).__name__)
        else:
            ends.append("")
    return ends


@pytest.mark.stress
def test_two_prunes_in_two_processes_lose_nothing(place, record_property):
    maker = PartitionedMaker(WallClock())
    shared = place.fresh()
    stores = [shared.open().at(f"round-{number}") for number in range(place.rounds)]
    made = [four(maker, root) for root in stores]
    ends = in_processes(2, prune_each, shared.open, place.rounds)
    for root, ids, *told in zip(stores, made, *ends, strict=True):
        assert "" in told, f"both failed: {told}"
        assert ids[-1] in live_in(maker.layout(root))
        assert_all_there(maker.layout(root), ids)
    record_property("race rounds", place.rounds)


@pytest.mark.stress
@pytest.mark.parametrize("first", ["undelete", "sweep", "both"])
def test_undelete_and_sweep_at_once_give_the_checkpoint_back_whole_or_not_at_all(place, maker, first, record_property):
    for number in range(place.rounds):
        root = place.fresh().open()
        ids = four(maker, root)
        layout = maker.layout(root)
        prune(layout)
        wanted = min(waiting(layout))
        back = partial(undelete, maker.layout(root), wanted)
        away = partial(sweep, maker.layout(root))
        if first == "both":
            ends = race(back, away)
        else:
            # The other one begins at some call of the first; a later call each round.
            met = away if first == "undelete" else back
            ends: list[CheckpointError | None] = [None, None]

            def meet(met=met, ends=ends) -> None:
                try:
                    met()
                except CheckpointError as error:
                    ends[1] = error

            seen = maker.layout(MeetingBlobs(root, 2 * number + 1, meet))
            try:
                undelete(seen, wanted) if first == "undelete" else sweep(seen)
            except CheckpointError as error:
                ends[0] = error
        for end in ends:
            assert end is None or isinstance(end, (CheckpointConflictError, CheckpointNotFoundError))
        layout = maker.layout(root)
        assert ids[-1] in live_in(layout)
        assert all(is_whole(layout, each) for each in live_in(layout))
        for each in waiting(layout):
            with contextlib.suppress(CheckpointConflictError):  # A sweep has begun with it.
                undelete(layout, each)
                assert is_whole(layout, each)
    record_property("race rounds", place.rounds)


# -- recovery ----------------------------------------------------------------------------------------------------


@pytest.mark.stress
def test_a_writer_that_starts_from_a_checkpoint_under_a_prune_has_it_or_is_told(place, record_property):
    maker = PartitionedMaker(WallClock())
    for _ in range(place.rounds):
        root = place.fresh().open()
        ids = four(maker, root)
        wanted = ids[1]
        start = partial(Coordinator.start, maker.layout(root), {}, recover_from=str(wanted))
        end, pruned = race(start, partial(prune, maker.layout(root)))
        assert pruned is None
        layout = maker.layout(root)
        if end is None:
            assert read_timelines(root)[-1].fork_checkpoint == wanted
            assert is_whole(layout, wanted)
        else:
            assert isinstance(end, (CheckpointNotFoundError, NoRecoveryPointError))
            assert str(wanted) in str(end)
        assert_all_there(layout, ids)
    record_property("race rounds", place.rounds)


@pytest.mark.stress
def test_a_zombie_that_commits_while_another_takes_over_is_no_part_of_the_new_history(place, record_property):
    for _ in range(place.rounds):
        store, output = place.fresh().open(), place.fresh().open()
        zombie = SumPipeline(store, output)
        zombie.run(epochs=1)

        def take_over(store=store, output=output) -> None:
            SumPipeline(store, output).run(epochs=2)

        end, taken = race(zombie.run, take_over)
        assert taken is None
        # It is fenced, or what it was just writing is cleared away under its hands.
        assert end is None or isinstance(end, (FencedWriterError, BlobNotFoundError))
        last = SumPipeline(store, output)
        last.run()
        assert published(output) == visible(output) == list(NUMBERS)
        assert last.total == sum(NUMBERS)
        chosen = choose(last.layout, Wish(depth=Depth.RESTORE), now=WallClock()())
        assert chosen.chosen == last.coordinator.last.id
    record_property("race rounds", place.rounds)


def run_pipelines(root: BlobStore, rounds: int, wait: list[Callable[[], object]]) -> list[str]:
    """What one of two processes does: run one pipeline after the other, and take it from whoever runs it, too."""
    ends = []
    for number in range(rounds):
        wait[0]()
        try:
            SumPipeline(root.at(f"store-{number}"), root.at(f"output-{number}")).run()
        except CheckpointError as error:
            ends.append(json.dumps([type(error).__name__, str(error)]))
        else:
            ends.append("")
    return ends


@pytest.mark.stress
def test_two_processes_that_run_the_same_pipeline_publish_each_number_once(place, record_property):
    shared = place.fresh()
    in_processes(2, run_pipelines, shared.open, place.rounds)
    root = shared.open()
    for number in range(place.rounds):
        store, output = root.at(f"store-{number}"), root.at(f"output-{number}")
        last = SumPipeline(store, output)
        last.run()
        assert published(output) == visible(output) == list(NUMBERS)
        assert last.total == sum(NUMBERS)
    record_property("race rounds", place.rounds)
