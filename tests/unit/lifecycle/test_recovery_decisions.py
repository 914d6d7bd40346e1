"""What makes a checkpoint fit for a wish: pure, case by case."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.recovery import (
    Strategy,
    Wish,
    changes,
    incompatible,
    sink_actions,
    too_far,
    unwanted,
)
from airflow_provider_checkpoint.lifecycle.timelines import Lineage
from airflow_provider_checkpoint.model import (
    CheckpointId,
    FilePosition,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    SinkState,
)
from tests.unit.lifecycle.tiny_layout import START, checkpoint, sinks

#: Timeline 2 forked from timeline 1 at epoch 20.
HISTORY = Lineage(2, {2: None, 1: 20})

ORDERS = KafkaPosition(
    partitions=(
        KafkaPartition(topic="orders", partition=0, offset=100),
        KafkaPartition(topic="orders", partition=1, offset=50),
    )
)


# -- the wish itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "values", "missing"),
    [
        (Strategy.ID, {}, "checkpoint_id"),
        (Strategy.BEFORE_TIME, {}, "at"),
        (Strategy.BEFORE_EPOCH, {}, "epoch"),
        (Strategy.BEFORE_WATERMARK, {}, "watermark"),
        (Strategy.BEFORE_OFFSET, {"source": "orders"}, "offset"),
        (Strategy.BEFORE_OFFSET, {"offset": 7}, "source"),
        (Strategy.BEFORE_OFFSET, {}, "source and offset"),
        (Strategy.PIN, {}, "pin"),
    ],
)
def test_a_strategy_that_lacks_what_it_needs_is_refused_with_an_example(
    strategy: Strategy, values: dict[str, Any], missing: str
):
    with pytest.raises(ConfigurationError, match=f"strategy {strategy} needs {missing}") as caught:
        Wish(strategy=strategy, **values)
    assert caught.value.hint is not None
    assert f"--strategy {strategy}" in caught.value.hint


@pytest.mark.parametrize(
    "values",
    [
        {"at": START},
        {"epoch": 5},
        {"watermark": 5},
        {"checkpoint_id": CheckpointId(5)},
        {"pin": "release"},
        {"source": "orders", "offset": 5},
        {"strategy": Strategy.BEFORE_TIME, "at": START, "epoch": 5},
        {"strategy": Strategy.ID, "checkpoint_id": CheckpointId(5), "at": START},
    ],
)
def test_a_limit_that_the_strategy_would_not_look_at_is_refused_rather_than_ignored(values: dict[str, Any]):
    with pytest.raises(ConfigurationError, match="does not look at"):
        Wish(**values)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ConfigurationError, match="zone"):
        Wish(strategy=Strategy.BEFORE_TIME, at=datetime(2026, 11, 15, 14, 5))  # noqa: DTZ001 - that is the point


def test_requiring_a_pipeline_hash_without_giving_one_is_refused():
    with pytest.raises(ConfigurationError, match="pipeline_hash"):
        Wish(hash_policy="require")


# -- what kind of point ------------------------------------------------------------------------------------------


def before(**values: Any) -> Wish:
    (kind,) = values.keys() & {"at", "epoch", "watermark", "offset"}
    strategy = {"at": Strategy.BEFORE_TIME}.get(kind, Strategy(f"before_{kind}" if kind != "at" else "before_time"))
    return Wish(strategy=strategy, **values)


@pytest.mark.parametrize(
    ("wish", "facts", "reason"),
    [
        pytest.param(Wish(), {}, None, id="latest takes any"),
        pytest.param(Wish(), {"timeline": 2, "epoch": 21}, None, id="latest, on the current timeline"),
        pytest.param(Wish(), {"epoch": 20}, None, id="latest, the last before the fork"),
        pytest.param(Wish(), {"epoch": 21}, "on an abandoned branch (timeline 1)", id="latest, after the fork"),
        pytest.param(Wish(), {"timeline": 3}, "on an abandoned branch (timeline 3)", id="latest, unknown timeline"),
        pytest.param(Wish(skip=frozenset([CheckpointId(7)])), {}, "ruled out by the caller", id="ruled out"),
        pytest.param(Wish(skip=frozenset([CheckpointId(8)])), {}, None, id="another one ruled out"),
        pytest.param(before(at=START + timedelta(minutes=7)), {}, None, id="made at that moment"),
        pytest.param(
            before(at=START + timedelta(minutes=6, seconds=59)),
            {},
            "made at 2026-11-15T12:07:00+00:00, after 2026-11-15T12:06:59+00:00",
            id="made later",
        ),
        pytest.param(before(epoch=8), {}, None, id="an earlier epoch"),
        pytest.param(before(epoch=7), {}, "epoch 7 is not before 7", id="that very epoch"),
        pytest.param(before(epoch=0), {"epoch": 0}, "epoch 0 is not before 0", id="nothing is before zero"),
        pytest.param(before(watermark=5), {"watermark": 5}, None, id="that very watermark"),
        pytest.param(before(watermark=5), {"watermark": 6}, "watermark 6 is past 5", id="a later watermark"),
        pytest.param(before(watermark=0), {"watermark": -1}, None, id="a watermark before 1970"),
        pytest.param(before(watermark=5), {"watermark": None}, "has no watermark", id="no watermark"),
        pytest.param(
            before(source="o", partition="orders-0", offset=100), {"sources": {"o": ORDERS}}, None, id="reads it next"
        ),
        pytest.param(
            before(source="o", partition="orders-0", offset=99),
            {"sources": {"o": ORDERS}},
            "source 'o' had already read past 99 (next: 100)",
            id="has read it",
        ),
        pytest.param(
            before(source="x", offset=1),
            {"sources": {"o": ORDERS}},
            "has no position of source 'x'",
            id="no such source",
        ),
        pytest.param(
            before(source="o", partition="orders-9", offset=1),
            {"sources": {"o": ORDERS}},
            "source 'o' has no offset of 'orders-9', only of orders-0, orders-1",
            id="no such partition",
        ),
        pytest.param(
            before(source="o", offset=1),
            {"sources": {"o": ORDERS}},
            "source 'o' has several partitions: name one of orders-0, orders-1",
            id="which partition?",
        ),
        pytest.param(
            before(source="o", offset=8), {"sources": {"o": FilePosition(path="a", byte_offset=8)}}, None, id="only one"
        ),
        pytest.param(
            before(source="o", offset=8),
            {"sources": {"o": GenericPosition(offsets={"cursor": "abc"})}},
            "source 'o' has no numeric offset",
            id="not a number",
        ),
    ],
)
def test_a_checkpoint_is_the_kind_of_point_that_is_wanted_or_says_why_not(
    wish: Wish, facts: dict[str, Any], reason: str | None
):
    assert unwanted(wish, checkpoint(7, **facts), HISTORY) == reason


@pytest.mark.parametrize(
    "wish",
    [
        Wish(strategy=Strategy.ID, checkpoint_id=CheckpointId(7)),
        Wish(strategy=Strategy.PIN, pin="release", checkpoint_id=CheckpointId(7)),
    ],
)
def test_who_names_one_checkpoint_gets_it_also_from_an_abandoned_branch(wish: Wish):
    assert unwanted(wish, checkpoint(7, epoch=99), HISTORY) is None
    assert unwanted(wish, checkpoint(8), HISTORY) == "not the one asked for"


def test_who_names_one_checkpoint_and_rules_it_out_gets_none():
    wish = Wish(strategy=Strategy.ID, checkpoint_id=CheckpointId(7), skip=frozenset([CheckpointId(7)]))
    assert unwanted(wish, checkpoint(7), HISTORY) == "ruled out by the caller"


# -- does the job fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "facts", "reason"),
    [
        pytest.param({}, {"vnode_count": 256, "pipeline_hash": 1}, None, id="nothing asked"),
        pytest.param({"vnode_count": 256}, {"vnode_count": 256}, None, id="same vnodes"),
        pytest.param({"vnode_count": 256}, {"vnode_count": None}, None, id="vnodes not recorded"),
        pytest.param({"vnode_count": 256}, {"vnode_count": 0}, None, id="vnodes of a legacy manifest"),
        pytest.param(
            {"vnode_count": 64}, {"vnode_count": 256}, "has 256 vnodes, the job runs with 64", id="other vnodes"
        ),
        pytest.param({"pipeline_hash": 1, "hash_policy": "require"}, {"pipeline_hash": 1}, None, id="same hash"),
        pytest.param({"pipeline_hash": 0, "hash_policy": "require"}, {"pipeline_hash": 0}, None, id="same hash, zero"),
        pytest.param(
            {"pipeline_hash": 1, "hash_policy": "require"},
            {"pipeline_hash": 2},
            "was made by another version of the pipeline (hash 2)",
            id="other hash",
        ),
        pytest.param(
            {"pipeline_hash": 1, "hash_policy": "require"},
            {"pipeline_hash": None},
            "records no pipeline hash, and one is required",
            id="no hash",
        ),
        pytest.param({"pipeline_hash": 1, "hash_policy": "warn"}, {"pipeline_hash": 2}, None, id="other hash, warn"),
        pytest.param(
            {"pipeline_hash": 1, "hash_policy": "ignore"}, {"pipeline_hash": 2}, None, id="other hash, ignore"
        ),
    ],
)
def test_a_checkpoint_fits_the_job_or_says_why_not(wish: dict[str, Any], facts: dict[str, Any], reason: str | None):
    assert incompatible(Wish(**wish), checkpoint(7, **facts)) == reason


HASH_CHANGED = "the pipeline has changed (hash 2 then, 1 now): state of changed operators may not fit"


@pytest.mark.parametrize(
    ("wish", "facts", "warnings"),
    [
        pytest.param(
            {}, {"pipeline_hash": 2, "source_names": ("a",), "sink_names": ("b",)}, [], id="nothing to compare"
        ),
        pytest.param({"pipeline_hash": 1}, {"pipeline_hash": 1}, [], id="same hash"),
        pytest.param({"pipeline_hash": 1}, {"pipeline_hash": 2}, [HASH_CHANGED], id="warn is the default"),
        pytest.param({"pipeline_hash": 1, "hash_policy": "ignore"}, {"pipeline_hash": 2}, [], id="ignore"),
        pytest.param({"pipeline_hash": 1}, {"pipeline_hash": None}, [], id="no hash recorded"),
        pytest.param(
            {"source_names": frozenset({"b", "c"})},
            {"source_names": ("a", "b")},
            ["new source 'c': it has no saved position", "source 'a' is gone: what was saved for it is not used"],
            id="sources",
        ),
        pytest.param(
            {"sink_names": frozenset({"z", "y", "x"})},
            {"sink_names": ("w", "x")},
            [
                "new sink 'y': it has no saved position",
                "new sink 'z': it has no saved position",
                "sink 'w' is gone: what was saved for it is not used",
            ],
            id="sinks",
        ),
        pytest.param({"source_names": frozenset({"a"})}, {"source_names": ()}, [], id="no names recorded"),
        pytest.param(
            {"source_names": frozenset()},
            {"source_names": ("a",)},
            ["source 'a' is gone: what was saved for it is not used"],
            id="the job has no sources",
        ),
    ],
)
def test_changes_since_the_checkpoint_are_told(wish: dict[str, Any], facts: dict[str, Any], warnings: list[str]):
    assert changes(Wish(**wish), checkpoint(7, **facts)) == warnings


# -- how far back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "allowed"),
    [
        ({}, True),
        ({"max_rollback": timedelta(minutes=5)}, True),
        ({"max_rollback": timedelta(minutes=4, seconds=59)}, False),
        ({"max_rollback": timedelta(0)}, False),
        ({"max_rollback_epochs": 5}, True),
        ({"max_rollback_epochs": 4}, False),
        ({"max_rollback_epochs": 0}, False),
        ({"max_rollback": timedelta(hours=1), "max_rollback_epochs": 4}, False),
        ({"max_rollback": timedelta(minutes=1), "max_rollback_epochs": 9}, False),
    ],
)
def test_going_back_is_limited_by_age_and_epochs_from_the_newest(wish: dict[str, Any], *, allowed: bool):
    reason = too_far(Wish(**wish), checkpoint(4), checkpoint(9))
    assert (reason is None) is allowed
    if reason is not None:
        assert "checkpoint 9" in reason
        assert "allowed are" in reason


def test_the_newest_point_itself_is_never_too_far():
    wish = Wish(max_rollback=timedelta(0), max_rollback_epochs=0)
    assert too_far(wish, checkpoint(9), checkpoint(9)) is None


# -- sinks -------------------------------------------------------------------------------------------------------


def tell(actions: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(action.sink, action.action, action.epochs) for action in actions]


def test_settled_sinks_need_nothing():
    chosen = checkpoint(7, sinks=sinks(SinkState.COMMITTED, "a", "b"))
    assert sink_actions(chosen, [], commit_again=[]) == ()


def test_sinks_whose_commit_was_decided_are_committed_again():
    chosen = checkpoint(7, sinks=sinks(SinkState.PENDING, "a", "b"))
    assert tell(sink_actions(chosen, [], commit_again=["a", "b"])) == [
        ("a", "commit_again", (7,)),
        ("b", "commit_again", (7,)),
    ]


@pytest.mark.parametrize("state", list(SinkState))
def test_what_later_epochs_published_or_may_have_published_is_rolled_back(state: SinkState):
    newer = [checkpoint(10, sinks=sinks(state, "b", "a")), checkpoint(9), checkpoint(8, sinks=sinks(state, "a"))]
    assert tell(sink_actions(checkpoint(7), newer, commit_again=[])) == [
        ("a", "roll_back", (8, 10)),
        ("b", "roll_back", (10,)),
    ]


def test_one_sink_may_be_committed_for_the_chosen_epoch_and_rolled_back_for_a_later_one():
    newer = [checkpoint(8, sinks=sinks(SinkState.PENDING, "a"))]
    assert tell(sink_actions(checkpoint(7), newer, commit_again=["a"])) == [
        ("a", "commit_again", (7,)),
        ("a", "roll_back", (8,)),
    ]


def test_a_fresh_start_rolls_everything_back_and_commits_nothing():
    newer = [checkpoint(8, sinks=sinks(SinkState.COMMITTED, "a"))]
    assert tell(sink_actions(None, newer, commit_again=["a"])) == [("a", "roll_back", (8,))]
