"""Plans go through JSON unchanged: into an XCom, onto a page, back into ``apply``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import (
    Distance,
    OrphanDecision,
    OrphanPlan,
    Outcome,
    PathItem,
    PruneItem,
    PrunePlan,
    RecoveryPlan,
    Report,
    SinkAction,
    SkipCode,
    Skipped,
    SweepPlan,
)
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.model import CheckpointId, Depth, SinkState
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, sinks, tiny

NOW = START + timedelta(days=3)

# -- any plan ----------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
IDS = st.one_of(st.integers(0, 2**64 - 1), TEXT, st.just("7")).map(CheckpointId)
COUNTS = st.integers(0, 2**63)
TIMES = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("Asia/Tokyo")]),
)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


SPANS = st.timedeltas(timedelta(0), timedelta(days=4000))
POLICIES = st.builds(
    RetentionPolicy,
    keep_last=st.integers(0, 99),
    keep_within=st.none() | SPANS,
    keep_daily=st.none() | st.integers(0, 99),
    every_n_epochs=st.none() | st.integers(1, 99),
    min_age=st.none() | SPANS,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin"]),
)
HEAD = {"uri": TEXT, "layout": TEXT, "made": TIMES}
PATHS = st.builds(
    PathItem, path=TEXT, action=st.sampled_from(OrphanDecision), reasons=TEXTS, bytes=COUNTS, version=st.none() | TEXT
)
PLANS = st.one_of(
    st.builds(
        PrunePlan,
        **HEAD,
        policy=POLICIES,
        newest_restorable=st.none() | IDS,
        depth=st.sampled_from(Depth),
        items=some(
            st.builds(
                PruneItem,
                checkpoint_id=IDS,
                action=st.sampled_from(["keep", "trash"]),
                reasons=TEXTS,
                bytes=COUNTS,
                keys=TEXTS,
                artifacts=TEXTS,
                manifest_sha256=st.none() | TEXT,
            )
        ),
    ),
    st.builds(SweepPlan, **HEAD, undo_window_end=TIMES, expired=some(IDS), items=some(PATHS)),
    st.builds(
        OrphanPlan,
        **HEAD,
        cutoff=TIMES,
        items=some(PATHS),
        counts=st.dictionaries(st.sampled_from(OrphanDecision), COUNTS),
        artifacts_seen=COUNTS,
        truncated=st.booleans(),
        question=TEXT,
    ),
    st.builds(
        RecoveryPlan,
        **HEAD,
        strategy=TEXT,
        depth=st.sampled_from(Depth),
        chosen=st.none() | IDS,
        epoch=st.none() | COUNTS,
        timeline=st.none() | COUNTS,
        created=st.none() | TIMES,
        head=st.none() | IDS,
        skipped=some(st.builds(Skipped, checkpoint_id=IDS, reason=TEXT, code=st.sampled_from(SkipCode))),
        examined=COUNTS,
        distance=st.none()
        | st.builds(
            Distance,
            seconds=st.floats(0, 1e12),
            epochs=COUNTS,
            checkpoints=COUNTS,
            events=st.none() | COUNTS,
            sources=st.dictionaries(TEXT, st.dictionaries(TEXT, COUNTS, max_size=2), max_size=2),
        ),
        sinks=some(
            st.builds(
                SinkAction,
                sink=TEXT,
                action=st.sampled_from(["commit_again", "roll_back"]),
                epochs=some(COUNTS),
            )
        ),
        warnings=TEXTS,
    ),
    st.builds(
        Report,
        verb=TEXT,
        run=TEXT,
        outcomes=some(st.builds(Outcome, subject=TEXT, done=st.booleans(), message=TEXT)),
        bytes=COUNTS,
    ),
)


@settings(max_examples=100, deadline=None)
@given(PLANS)
def test_a_plan_goes_through_json_unchanged(plan: BaseModel):
    kind = type(plan)
    assert kind.model_validate_json(plan.model_dump_json()) == plan
    # An XCom holds the parsed form, and anything may have written it out again.
    assert kind.model_validate(json.loads(json.dumps(plan.model_dump(mode="json")))) == plan
    assert kind.model_validate(plan.model_dump()) == plan


@settings(max_examples=20, deadline=None)
@given(PLANS)
def test_a_plan_cannot_be_changed(plan: BaseModel):
    field = next(iter(type(plan).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(plan, field, "another")


# -- real plans --------------------------------------------------------------------------------------------------


@pytest.fixture
def layout() -> TinyLayout:
    found = tiny(MemoryBlobs(clock=lambda: START), 1, 2, 3)
    found.save(4, sinks=sinks(SinkState.PENDING, "out"), event_count=7)
    found.write_artifact(2, "lost")
    return found


def test_what_is_planned_for_a_store_survives_json_and_says_the_same(layout: TinyLayout):
    prune = plan_prune(layout, RetentionPolicy(keep_last=1, keep_within="90m", min_age="1h"), now=NOW)
    assert [item.checkpoint_id.value for item in prune.removed] == [4, 2, 1]
    plans: list[BaseModel] = [prune, plan_orphans(layout, now=NOW), choose(layout, Wish(), now=NOW)]
    report = Executor(layout, by="test", clock=lambda: NOW).prune(prune)
    sweep = plan_sweep(layout, now=NOW + timedelta(days=2))
    assert sweep.expired
    for plan in [*plans, report, sweep]:
        again = type(plan).model_validate_json(plan.model_dump_json())
        assert again == plan
        assert getattr(again, "bytes", 0) == getattr(plan, "bytes", 0)


def test_a_plan_from_json_can_be_applied(layout: TinyLayout):
    prune = plan_prune(layout, RetentionPolicy(keep_last=1), now=NOW)
    again = PrunePlan.model_validate_json(prune.model_dump_json())
    report = Executor(layout, by="test", clock=lambda: NOW).prune(again)
    assert not report.failures
    assert layout.candidates()
    assert choose(layout, Wish(), now=NOW).chosen == CheckpointId(3)


def test_a_plan_with_a_field_that_nobody_knows_is_refused():
    """It may be a plan of another version, whose meaning would be half lost."""
    plan = SweepPlan(uri="memory://", layout="tiny", made=NOW, undo_window_end=NOW, expired=(), items=())
    with pytest.raises(ValidationError, match="surprise"):
        SweepPlan.model_validate({**plan.model_dump(), "surprise": 1})


def test_a_time_without_a_zone_is_refused():
    plan = SweepPlan(uri="memory://", layout="tiny", made=NOW, undo_window_end=NOW, expired=(), items=())
    with pytest.raises(ValidationError, match="made"):
        SweepPlan.model_validate({**plan.model_dump(), "made": "2026-11-15T12:00:00"})


# -- what a plan adds up to --------------------------------------------------------------------------------------


def test_only_what_goes_is_added_up():
    items = [
        PathItem(path="a", action=OrphanDecision.DELETE, reasons=("r",), bytes=5),
        PathItem(path="b", action=OrphanDecision.KEEP_ACTIVE, reasons=("r",), bytes=7),
        PathItem(path="c", action=OrphanDecision.DELETE, reasons=("r",), bytes=11),
    ]
    orphans = OrphanPlan(uri="", layout="", made=NOW, cutoff=NOW, items=tuple(items), counts={}, artifacts_seen=3)
    assert [item.path for item in orphans.deletions] == ["a", "c"]
    assert orphans.bytes == 16
    going = PruneItem(checkpoint_id=CheckpointId(1), action="trash", reasons=("r",), bytes=3)
    staying = PruneItem(checkpoint_id=CheckpointId(2), action="keep", reasons=("r",), bytes=100)
    prune = PrunePlan(
        uri="",
        layout="",
        made=NOW,
        policy=RetentionPolicy(keep_last=1),
        newest_restorable=CheckpointId(2),
        depth=Depth.PRESENCE,
        items=(going, staying),
    )
    assert prune.removed == (going,)
    assert prune.bytes == 3
    report = Report(verb="prune", run="r", outcomes=(Outcome(subject="1", done=True), Outcome(subject="2", done=False)))
    assert [outcome.subject for outcome in report.failures] == ["2"]
