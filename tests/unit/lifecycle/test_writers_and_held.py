"""What a format says of its writer and of checkpoints it cannot do without is heeded before anything goes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import NoEvidenceError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, artifact_key, checkpoint

NOW = START + timedelta(days=3)
LATER = NOW + timedelta(days=2)


class Talkative(TinyLayout):
    """Says that its writer is alive, or holds checkpoints, as a test wishes."""

    busy = None
    kept = {}  # noqa: RUF012 - replaced, never changed

    def alive(self, now):
        return self.busy

    def held(self):
        return self.kept


@pytest.fixture
def layout():
    blobs = MemoryBlobs(clock=lambda: START)
    layout = Talkative(blobs)
    for number in range(1, 5):
        layout.commit(checkpoint(number))
    blobs.create(artifact_key(4, "left-behind"), b"x")
    blobs._clock = lambda: NOW
    return layout


def executor(layout, now=NOW):
    return Executor(layout, by="test", clock=lambda: now)


def test_nothing_is_removed_while_a_writer_may_be_at_work(layout):
    prune = plan_prune(layout, RetentionPolicy(keep_last=2), now=NOW)
    orphans = plan_orphans(layout, now=NOW)
    executor(layout).prune(plan_prune(layout, RetentionPolicy(keep_last=3), now=NOW))
    sweep = plan_sweep(layout, now=LATER)
    assert prune.removed
    assert orphans.deletions
    assert sweep.expired
    layout.busy = "it wrote a moment ago"
    before = {info.key for info in layout.blobs.list()}
    for act in (
        lambda: executor(layout).prune(prune),
        lambda: executor(layout).remove_orphans(orphans),
        lambda: executor(layout, LATER).sweep(sweep),
    ):
        with pytest.raises(NoEvidenceError, match="a writer may be at work: it wrote a moment ago"):
            act()
    assert {info.key for info in layout.blobs.list()} == before


def test_a_plan_with_nothing_to_do_does_not_ask(layout):
    layout.busy = "it wrote a moment ago"
    plan = plan_prune(layout, RetentionPolicy(keep_last=9), now=NOW)
    assert executor(layout).prune(plan).outcomes == ()


def test_what_the_format_holds_stays_and_the_plan_says_why(layout):
    layout.kept = {CheckpointId(1): "the format needs it"}
    plan = plan_prune(layout, RetentionPolicy(keep_last=1), now=NOW)
    reasons = {item.checkpoint_id.value: item.reasons for item in plan.items if item.action == "keep"}
    assert reasons[1] == ("the format needs it",)
    assert set(reasons) == {1, 4}


def test_what_the_format_holds_since_the_plan_was_made_stays_too(layout):
    plan = plan_prune(layout, RetentionPolicy(keep_last=1), now=NOW)
    layout.kept = {CheckpointId(1): "the format needs it"}
    report = executor(layout).prune(plan)
    assert [outcome.message for outcome in report.failures] == ["kept: the format needs it"]
    assert layout.candidates() == [CheckpointId(1), CheckpointId(4)]
