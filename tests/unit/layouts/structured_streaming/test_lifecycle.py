"""The lifecycle works on Spark's directories as on every other: and leaves what Spark needs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import NoEvidenceError
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout, diagnose, seal
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import CheckpointId, Depth, Pin, Severity
from tests.unit.layouts.structured_streaming.making import KINDS, LAST, LONG_AGO, NOW, Scene, batch, files_of

UUID = "c2a4ec23-e658-4144-915b-798c38fccb92"
LATER = NOW + timedelta(days=2)


def executor(layout, now=NOW):
    return Executor(layout, by="test", clock=lambda: now)


def prune(layout, keep, now=NOW, **options):
    plan = plan_prune(layout, RetentionPolicy(keep_last=keep), now=now, **options)
    return plan, executor(layout, now).prune(plan)


def prune_and_sweep(scene, keep):
    """The whole way: to the trash, and two days later out of it."""
    prune(scene.layout, keep)
    # The store's clock goes on, too.
    scene.records._clock = lambda: LATER
    return executor(scene.layout, LATER).sweep(plan_sweep(scene.layout, now=LATER))


def errors(layout, number):
    return [issue for issue in layout.prove(batch(number)) if issue.severity is Severity.ERROR]


# -- prune, undelete, sweep --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [1, 2])
def test_what_is_kept_is_whole_after_all_else_has_gone(kind, keep):
    scene = Scene.of(kind, hadoop_checksums=True)
    before = len(scene.keys)
    report = prune_and_sweep(scene, keep)
    assert report.failures == ()
    kept = scene.layout.candidates()
    assert kept == [batch(LAST[kind] - number) for number in reversed(range(keep))]
    assert not [issue for checkpoint_id in kept for issue in errors(scene.layout, checkpoint_id.value)]
    assert len(scene.keys) < before
    # What is left is what the kept ones name: nothing more stays than must.
    needed = {artifact.key for each in kept for artifact in scene.layout.load(each).artifacts}
    unneeded = set(scene.keys) - needed - {f"commits/{each}" for each in kept} - {".metadata.crc"}
    assert unneeded <= named_by_nobody(kind)


def named_by_nobody(kind):
    """Files that no batch of the untouched directory names: leftovers, which only an orphan search takes."""
    scene = Scene.of(kind, hadoop_checksums=True)
    named = {a.key for each in scene.layout.candidates() for a in scene.layout.load(each).artifacts}
    return set(scene.keys) - named


def test_a_pruned_batch_is_hidden_from_spark_and_comes_back():
    scene = Scene.of("hdfs_agg")
    plan, report = prune(scene.layout, 3)
    assert [item.checkpoint_id for item in plan.removed] == [batch(number) for number in range(8, -1, -1)]
    assert report.failures == ()
    assert scene.layout.candidates() == [batch(9), batch(10), batch(11)]
    assert "trash/5/kept/commits/5" in {info.key for info in scene.records.list()}
    executor(scene.layout).undelete(batch(5))
    assert scene.read("commits/5") == files_of("hdfs_agg")["commits/5"]
    assert errors(scene.layout, 5) == []


def test_nothing_of_ours_is_ever_written_into_the_directory():
    scene = Scene.of("rocks_v2")
    allowed = set(scene.keys)
    layout = scene.layout
    validate_many(layout, layout.candidates(), Depth.PRESENCE, now=lambda: NOW)
    seal(layout, batch(11), clock=lambda: NOW)
    executor(layout).pin(Pin(name="x", checkpoint_id=batch(3), owner="a", reason="b", created=NOW))
    executor(layout).remove_orphans(plan_orphans(layout, now=NOW), confirmed=True)
    prune_and_sweep(scene, 2)
    assert set(scene.keys) <= allowed


def test_the_last_commit_stays_even_if_it_cannot_be_restored():
    scene = Scene.of("hdfs_agg")
    scene.remove("state/0/0/12.delta")
    plan, _ = prune(scene.layout, 1)
    kept = {item.checkpoint_id.value: item.reasons for item in plan.items if item.action == "keep"}
    assert kept[11] == ("Spark goes on from it",)
    assert set(kept) == {10, 11}


def test_a_plan_that_would_take_the_last_commit_is_not_followed():
    scene = Scene.of("hdfs_agg")
    scene.remove("state/0/0/12.delta")
    honest = plan_prune(scene.layout, RetentionPolicy(keep_last=2), now=NOW)
    doomed = next(item for item in honest.items if item.checkpoint_id == batch(0))
    forged = doomed.model_copy(update={"checkpoint_id": batch(11), "keys": ("commits/11",)})
    report = executor(scene.layout).prune(honest.model_copy(update={"items": (forged,)}))
    assert [outcome.message for outcome in report.outcomes] == ["kept: Spark goes on from it"]
    assert "commits/11" in scene.keys


def test_a_pinned_batch_keeps_all_it_needs():
    scene = Scene.of("rocks_changelog")
    executor(scene.layout).pin(Pin(name="audit", checkpoint_id=batch(4), owner="a", reason="b", created=NOW))
    prune_and_sweep(scene, 1)
    assert scene.layout.candidates() == [batch(4), batch(11)]
    assert errors(scene.layout, 4) == errors(scene.layout, 11) == []


def test_a_seal_goes_with_its_batch():
    scene = Scene.of("hdfs_agg")
    for number in (3, 11):
        seal(scene.layout, batch(number))
    prune_and_sweep(scene, 1)
    assert [info.key for info in scene.records.list("seals")] == ["seals/11.json"]
    assert errors(scene.layout, 11) == []


# -- orphans -----------------------------------------------------------------------------------------------------

LITTER = [
    f"offsets/.12.{UUID}.tmp",
    f"state/0/0/.13.delta.{UUID}.TID7.tmp",
    f"state/0/0/..13.delta.{UUID}.TID7.tmp.crc",
    f"sources/0/.12.{UUID}.tmp",
]


def orphans(scene, now=NOW):
    plan = plan_orphans(scene.layout, now=now)
    return {item.path for item in plan.deletions}


def test_litter_and_what_no_batch_needs_is_found():
    scene = Scene.of("purged", hadoop_checksums=True)
    for key in LITTER:
        scene.put(key, b"half")
    found = orphans(scene)
    assert set(LITTER) <= found
    # Left by Spark's own clean-up, which had come no further.
    assert "state/0/0/6.delta" in found
    executor(scene.layout).remove_orphans(plan_orphans(scene.layout, now=NOW), confirmed=True)
    assert orphans(scene) == set()
    assert diagnose(scene.layout).recoverable == (11, 10, 9)


def test_a_planned_batch_is_no_orphan():
    scene = Scene.of("hdfs_agg", hadoop_checksums=True)
    scene.remove("commits/.?11(.crc)?")
    found = orphans(scene)
    assert not {"offsets/11", "offsets/.11.crc", "sources/0/11", "sources/0/.11.crc"} & found
    # The state that it had begun to write is written anew.
    assert "state/0/0/12.delta" in found


def test_state_of_a_batch_whose_commit_was_lost_is_no_orphan():
    """Spark runs the last planned batch alone, from the state before it, however many commits are gone."""
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/(9|10|11)")
    prune_and_sweep(scene, 1)
    assert {"state/0/0/11.delta", "state/0/1/11.delta", "offsets/10", "offsets/11"} <= set(scene.keys)
    assert diagnose(scene.layout).healthy


def test_what_is_not_of_spark_is_left_alone():
    scene = Scene.of("hdfs_agg")
    mine = ["README", "state/0/0/notes.txt", "backup/offsets/3"]
    for key in mine:
        scene.put(key, b"mine")
    plan = plan_orphans(scene.layout, now=NOW)
    assert not set(mine) & {item.path for item in plan.deletions}
    assert plan.counts[OrphanDecision.SKIP_UNKNOWN] == len(mine) + 1  # And the id of the query.


def test_half_written_records_are_found_beside():
    scene = Scene.of("hdfs_agg")
    key = f".x.{UUID.replace('-', '')}.tmp"
    young = MemoryBlobs(clock=lambda: LONG_AGO)
    young._put(f"audit/{key}", b"half")
    scene.records._objects |= young._objects
    assert f"audit/{key}" in orphans(scene)


# -- a query that runs -------------------------------------------------------------------------------------------


@pytest.fixture
def busy():
    """A directory into which something was written five minutes ago; plans were made before."""
    scene = Scene.of("hdfs_agg")
    scene.put(LITTER[0], b"half")
    prune(scene.layout, 6)
    scene.directory._clock = lambda: NOW - timedelta(minutes=5)
    return scene


def test_nothing_is_removed_while_the_query_may_be_running(busy):
    layout = busy.layout
    plans = {
        "prune": plan_prune(layout, RetentionPolicy(keep_last=1), now=NOW),
        "sweep": plan_sweep(layout, now=LATER),
        "remove_orphans": plan_orphans(layout, now=NOW),
    }
    busy.put("offsets/12", busy.read("offsets/11"))
    before = busy.keys
    for verb, plan in plans.items():
        act = getattr(executor(layout, NOW if verb != "sweep" else plan.made), verb)
        if verb == "sweep":
            busy.directory._clock = lambda: LATER
            busy.put("offsets/12", busy.read("offsets/11"))
        with pytest.raises(NoEvidenceError, match=r"offsets/12 was written \d+ seconds ago"):
            act(plan)
    assert busy.keys == before


def test_once_it_has_been_still_for_long_enough_things_go(busy):
    busy.put("offsets/12", busy.read("offsets/11"))
    now = NOW + timedelta(minutes=10)
    _, report = prune(busy.layout, 1, now=now)
    assert report.failures == ()
    assert busy.layout.candidates() == [batch(11)]


# -- choosing ----------------------------------------------------------------------------------------------------


def test_a_recovery_takes_the_newest_batch_that_is_whole_and_says_why_not_the_others():
    scene = Scene.of("rocks")
    scene.remove("state/0/0/12.zip")
    scene.cut("state/0/1/11.zip")
    plan = choose(scene.layout, Wish(), now=NOW)
    assert plan.chosen == batch(9)
    assert [skipped.checkpoint_id for skipped in plan.skipped] == [batch(11), batch(10)]
    assert plan.distance is not None
    assert plan.distance.epochs == 2


def test_a_recovery_can_go_to_a_time():
    layout = Scene.of("hdfs_agg").layout
    at = layout.load(batch(6)).created
    assert choose(layout, Wish(strategy=Strategy.BEFORE_TIME, at=at), now=NOW).chosen == batch(6)


def test_a_survey_of_a_damaged_directory_understands_what_can_be_understood():
    scene = Scene.of("hdfs_agg")
    scene.put("commits/4", b"")
    scene.remove("state/0/0/7.delta")
    known = {each.id: each for each in survey(scene.layout).known}
    assert known[batch(4)].checkpoint is None
    assert known[batch(6)].checkpoint is not None


# -- crashes -----------------------------------------------------------------------------------------------------


def one_store(kind):
    """Directory and records in one store, so that the process can die at any change of either."""
    inner = MemoryBlobs(clock=lambda: LONG_AGO)
    for key, body in files_of(kind).items():
        inner.replace(f"clicks/{key}", body)
    inner._clock = lambda: NOW
    return inner


def opened(blobs):
    return StructuredStreamingLayout(blobs.at("clicks"), records=blobs.at("clicks.checkpoints"))


def steps(kind, act):
    faulty = FaultyBlobs(one_store(kind))
    act(opened(faulty))
    return len(faulty.mutations)


@pytest.mark.parametrize("kind", ["stateless", "rocks_changelog"])
def test_a_prune_that_dies_anywhere_leaves_every_batch_live_or_in_the_trash(kind):
    def act(layout):
        prune(layout, 9, depth=Depth.STRUCTURE)

    for step in range(steps(kind, act)):
        inner = one_store(kind)
        with pytest.raises(SimulatedCrash):
            act(opened(FaultyBlobs(inner, crash_after=step)))
        layout = opened(inner)
        assert layout.candidates()[-1] == batch(11)
        everything = {each.id for each in survey(layout).known} | {each.checkpoint_id for each in survey(layout).trash}
        assert everything == {CheckpointId(number) for number in range(12)}
        act(layout)
        assert len(layout.candidates()) == 9
