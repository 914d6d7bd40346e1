"""From what a store holds to what a prune would do: the facts that retention is given."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import NoRecoveryPointError, StoreUnavailableError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import decision_key
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
from airflow_provider_checkpoint.lifecycle.records import add_pin, add_proof, proof_of
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue, Pin, SinkState
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, artifact_key, manifest_key, sinks, tiny

if TYPE_CHECKING:
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan

NOW = START + timedelta(days=1)
BROKEN = [Issue.error("checksum_mismatch", "state: wrong")]


def plan(layout: TinyLayout, depth: Depth = Depth.PRESENCE, **policy: Any) -> PrunePlan:
    return plan_prune(layout, RetentionPolicy(**policy), now=NOW, depth=depth)


def kept(layout: TinyLayout, depth: Depth = Depth.PRESENCE, **policy: Any) -> list[int | str]:
    return sorted(item.checkpoint_id.value for item in plan(layout, depth, **policy).items if item.action == "keep")


def reasons(layout: TinyLayout, number: int, **policy: Any) -> tuple[str, ...]:
    return {item.checkpoint_id.value: item.reasons for item in plan(layout, **policy).items}[number]


@pytest.fixture
def layout() -> TinyLayout:
    return tiny(MemoryBlobs(clock=lambda: START), 1, 2, 3, 4, 5)


def spoil(layout: TinyLayout, number: int) -> None:
    layout.blobs.delete([artifact_key(number, "state")])


# -- what counts as restorable -----------------------------------------------------------------------------------


def test_the_newest_ones_are_proven_before_they_count(layout: TinyLayout):
    spoil(layout, 5)
    spoil(layout, 4)
    found = plan(layout, keep_last=2)
    assert [item.checkpoint_id.value for item in found.items if item.action == "keep"] == [3, 2]
    assert found.newest_restorable == CheckpointId(3)
    assert reasons(layout, 5, keep_last=2) == ("cannot be restored: checkpoints/000005/state: not in the store",)


def test_no_more_are_proven_than_the_policy_counts():
    blobs = FaultyBlobs(tiny(MemoryBlobs(), *range(1, 31)).blobs)
    plan(TinyLayout(blobs), Depth.CONTENT, keep_last=3)
    # The others are streamed once each, for the digest of their manifest.
    assert blobs.calls["stream"] == 3 + 27


def test_an_unreadable_manifest_does_not_count_and_goes(layout: TinyLayout):
    layout.blobs.replace(manifest_key(5), b"{")
    assert kept(layout, keep_last=2) == [3, 4]
    assert reasons(layout, 5, keep_last=2)[0].startswith("cannot be restored: checkpoints/000005/manifest.json: not")


def test_a_store_that_does_not_answer_while_proving_makes_no_checkpoint_broken():
    """Else a hiccup would send the newest valid checkpoint to the trash."""
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1, 2, 3)
    blobs.inject(Fault.FAIL, verb="stat", match="000003/state")
    with pytest.raises(StoreUnavailableError, match="3 could not be examined"):
        plan(layout, keep_last=1)
    assert kept(layout, keep_last=1) == [3]


def test_a_checkpoint_found_invalid_before_does_not_count_though_it_looks_whole(layout: TinyLayout):
    add_proof(layout.blobs, proof_of(CheckpointId(5), Depth.CONTENT, BROKEN, NOW))
    assert kept(layout, keep_last=1) == [4]
    # A later look that is not as deep does not clear it.
    add_proof(layout.blobs, proof_of(CheckpointId(5), Depth.PRESENCE, [], NOW + timedelta(hours=1)))
    assert kept(layout, keep_last=1) == [4]
    add_proof(layout.blobs, proof_of(CheckpointId(5), Depth.CONTENT, [], NOW + timedelta(hours=2)))
    assert kept(layout, keep_last=1) == [5]


def test_a_commit_that_was_never_decided_does_not_count(layout: TinyLayout):
    layout.save(6, sinks=sinks(SinkState.PENDING, "out"))
    assert kept(layout, keep_last=1) == [5]
    layout.blobs.create(decision_key(1, 6), b"{}")
    assert kept(layout, keep_last=1) == [6]


def test_a_commit_that_may_be_under_way_stays(layout: TinyLayout):
    layout.save(6, created=NOW - timedelta(minutes=59), sinks=sinks(SinkState.PENDING, "out"))
    assert kept(layout, keep_last=1) == [5, 6]
    assert reasons(layout, 6, keep_last=1) == ("its commit may be under way",)


def test_an_abandoned_branch_goes_and_the_point_where_the_current_one_began_stays(layout: TinyLayout):
    open_timeline(layout.blobs, start=layout.load(CheckpointId(2)), has_checkpoints=True, writer="w", now=NOW)
    for number in (6, 7):
        layout.save(number, timeline=2, epoch=number - 3)
    assert kept(layout, keep_last=1) == [2, 7]
    assert reasons(layout, 2, keep_last=1) == ("the current timeline starts from it",)
    assert reasons(layout, 4, keep_last=1) == ("on an abandoned branch",)


def test_savepoints_pins_and_bases_stay(layout: TinyLayout):
    layout.save(6, savepoint=True)
    layout.save(7)
    layout.save(8, artifacts=layout.load(CheckpointId(1)).artifacts)
    for name, number, expires in (("held", 3, None), ("past", 4, NOW)):
        add_pin(
            layout.blobs,
            Pin(name=name, checkpoint_id=CheckpointId(number), owner="", reason="", created=START, expires=expires),
        )
    assert kept(layout, keep_last=1) == [1, 3, 6, 8]
    assert reasons(layout, 1, keep_last=1) == ("base of 8",)


def test_what_goes_is_measured_without_what_others_share(layout: TinyLayout):
    layout.save(6, data=b"own", artifacts=layout.load(CheckpointId(5)).artifacts, inline_bytes=40)
    layout.save(7, artifacts=layout.load(CheckpointId(5)).artifacts)
    (item,) = [item for item in plan(layout, keep_last=1).removed if item.checkpoint_id == CheckpointId(6)]
    assert item.bytes == 3 + 40


# -- clocks ------------------------------------------------------------------------------------------------------


def test_after_a_clock_was_set_back_the_one_that_a_recovery_would_take_stays():
    layout = tiny(MemoryBlobs(), 1, 2, 3)
    layout.save(4, created=START + timedelta(seconds=30))
    assert choose(layout, Wish(), now=NOW).chosen == CheckpointId(4)
    assert kept(layout, keep_last=1) == [4]
    assert plan(layout, keep_last=1).newest_restorable == CheckpointId(4)


FATES = st.sampled_from(["fine", "fine", "fine", "gone", "unreadable", "undecided", "future"])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(FATES, st.integers(0, 600)), min_size=1, max_size=8),
    st.integers(0, 3),
    st.none() | st.integers(0, 2),
)
def test_pruning_never_changes_what_a_recovery_would_take(
    made: list[tuple[str, int]], keep_last: int, keep_daily: int | None
):
    """Whatever broke, and however the clocks went."""
    layout = TinyLayout(MemoryBlobs())
    for number, (fate, minutes) in enumerate(made, start=1):
        created = NOW + timedelta(hours=2) if fate == "future" else START + timedelta(minutes=minutes)
        state = SinkState.PENDING if fate == "undecided" else SinkState.COMMITTED
        layout.save(number, created=created, sinks=sinks(state, "out"))
        if fate == "gone":
            spoil(layout, number)
        elif fate == "unreadable":
            layout.blobs.replace(manifest_key(number), b"{")
    before = recovery_point(layout)
    Executor(layout, by="test", clock=lambda: NOW).prune(plan(layout, keep_last=keep_last, keep_daily=keep_daily))
    assert recovery_point(layout) == before


def recovery_point(layout: TinyLayout) -> CheckpointId | None:
    try:
        return choose(layout, Wish(), now=NOW).chosen
    except NoRecoveryPointError:
        return None


def test_the_checkpoint_that_the_next_increment_builds_on_stays_although_savepoints_are_newer():
    """FLINK-21351: [c1, c2, s3, s4] with one retained keeps c2, on which a running writer builds."""
    layout = tiny(MemoryBlobs(), 1, 2)
    for number in (3, 4):
        layout.save(number, savepoint=True)
    assert kept(layout, keep_last=1) == [2, 3, 4]
    assert reasons(layout, 2, keep_last=1) == ("the next increment builds on it",)
