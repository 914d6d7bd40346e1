"""What holds for every policy and every set of checkpoints."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.lifecycle.retention import RULES, Item, RetentionPolicy, decide
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.lifecycle.retention_items import NOW

COUNTS = tuple(rule for rule in RULES if rule not in ("keep_within", "every_n_epochs"))

#: Mostly in order, often close together, now and then a clock that was wrong.
AGES = st.one_of(
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3)),
    st.timedeltas(min_value=timedelta(days=-2), max_value=timedelta(days=900)),
)


@st.composite
def checkpoints(draw: st.DrawFn, *, text_ids: bool = False) -> list[Item]:
    size = draw(st.integers(0, 14))
    ids = [CheckpointId(f"{number:04d}" if text_ids else number) for number in range(1, size + 1)]
    ages = sorted(draw(st.lists(AGES, min_size=size, max_size=size)), reverse=True)
    if draw(st.booleans()):
        draw(st.randoms(use_true_random=False)).shuffle(ages)
    return [
        Item(
            checkpoint_id,
            NOW - age,
            epoch=draw(st.integers(0, 40)),
            restorable=draw(st.integers(0, 3)) > 0,
            on_branch=draw(st.integers(0, 3)) > 0,
            pins=draw(st.sampled_from([(), (), (), ("pin",)])),
            protected=draw(st.sampled_from([(), (), (), ("a savepoint",)])),
            bases=frozenset(draw(st.lists(st.sampled_from(ids), max_size=2))),
        )
        for checkpoint_id, age in zip(ids, ages, strict=True)
    ]


def spans() -> st.SearchStrategy[timedelta]:
    return st.integers(0, 30 * 24).map(lambda hours: timedelta(hours=hours))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


POLICIES = st.fixed_dictionaries(
    {
        **dict.fromkeys(COUNTS, maybe(st.integers(0, 6))),
        "keep_within": maybe(spans()),
        "every_n_epochs": maybe(st.integers(1, 12)),
        "min_age": maybe(spans()),
        "time_zone": st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"]),
    }
).map(lambda values: RetentionPolicy(**(values | {"keep_last": values["keep_last"] or 0})))

several = settings(max_examples=100, deadline=None)


def keep(items: list[Item], policy: RetentionPolicy) -> set[CheckpointId]:
    return {verdict.id for verdict in decide(items, policy, NOW) if verdict.keep}


def fit(items: list[Item]) -> list[Item]:
    return [item for item in items if item.restorable and item.on_branch and item.created <= NOW]


@several
@given(checkpoints(), POLICIES)
def test_every_item_gets_one_verdict_with_at_least_one_reason(items: list[Item], policy: RetentionPolicy):
    verdicts = decide(items, policy, NOW)
    assert sorted(verdict.id for verdict in verdicts) == [item.id for item in items]
    assert all(verdict.reasons and all(verdict.reasons) for verdict in verdicts)


@several
@given(checkpoints(), POLICIES)
def test_the_newest_restorable_always_stays(items: list[Item], policy: RetentionPolicy):
    if fit(items):
        assert max(item.id for item in fit(items)) in keep(items, policy)
    else:
        assert keep(items, policy) == {item.id for item in items}


@several
@given(checkpoints(), POLICIES)
def test_the_pinned_the_protected_and_the_future_always_stay(items: list[Item], policy: RetentionPolicy):
    safe = {item.id for item in items if item.pins or item.protected or item.created > NOW}
    assert safe <= keep(items, policy)


@several
@given(checkpoints(), POLICIES)
def test_nothing_younger_than_the_minimum_age_goes(items: list[Item], policy: RetentionPolicy):
    if policy.min_age is not None:
        young = {item.id for item in items if NOW - item.created < policy.min_age}
        assert young <= keep(items, policy)


@several
@given(checkpoints(), POLICIES)
def test_what_stays_has_all_its_bases(items: list[Item], policy: RetentionPolicy):
    stay = keep(items, policy)
    assert all(base in stay for item in items if item.id in stay for base in item.bases)


@several
@given(checkpoints(), POLICIES)
def test_keep_last_keeps_as_many_as_can_be_restored_beside_the_pinned_ones(items: list[Item], policy: RetentionPolicy):
    counted = sorted(item.id for item in fit(items) if not item.pins)
    assert policy.keep_last is not None
    assert set(counted[max(0, len(counted) - policy.keep_last) :]) <= keep(items, policy)


@several
@given(checkpoints(), POLICIES, st.sampled_from(COUNTS), st.integers(1, 8))
def test_a_greater_count_never_keeps_less(items: list[Item], policy: RetentionPolicy, rule: str, more: int):
    greater = policy.model_copy(update={rule: (getattr(policy, rule) or 0) + more})
    assert keep(items, policy) <= keep(items, greater)


@several
@given(checkpoints(), POLICIES, spans())
def test_a_longer_minimum_age_never_keeps_less(items: list[Item], policy: RetentionPolicy, more: timedelta):
    longer = policy.model_copy(update={"min_age": (policy.min_age or timedelta(0)) + more})
    assert keep(items, policy) <= keep(items, longer)


@several
@given(checkpoints(), POLICIES, spans())
def test_a_longer_window_keeps_all_that_lies_in_the_shorter_one(
    items: list[Item], policy: RetentionPolicy, more: timedelta
):
    """Only the newest before the window may change: it is another one for another window."""
    if policy.keep_within is not None:
        inside = {item.id for item in items if NOW - item.created <= policy.keep_within}
        longer = policy.model_copy(update={"keep_within": policy.keep_within + more})
        assert inside <= keep(items, policy) & keep(items, longer)


@several
@given(checkpoints(), POLICIES, st.data())
def test_a_pin_more_never_removes_more(items: list[Item], policy: RetentionPolicy, data: st.DataObject):
    if items:
        lucky = data.draw(st.sampled_from(items))
        pinned = [replace(item, pins=(*item.pins, "new")) if item is lucky else item for item in items]
        assert keep(items, policy) | {lucky.id} <= keep(pinned, policy)


@several
@given(checkpoints(), POLICIES, st.data())
def test_a_checkpoint_that_turns_out_broken_never_makes_another_one_go(
    items: list[Item], policy: RetentionPolicy, data: st.DataObject
):
    """Every rule that loses one it had counted takes the next; it never gives up one that it had."""
    if items:
        broken = data.draw(st.sampled_from(items))
        found = [replace(item, restorable=False) if item is broken else item for item in items]
        lost = keep(items, policy) - keep(found, policy)
        assert lost <= dependencies(items, broken.id)


def dependencies(items: list[Item], start: CheckpointId) -> set[CheckpointId]:
    bases = {item.id: item.bases for item in items}
    found = {start}
    while more := {base for checkpoint_id in found for base in bases[checkpoint_id]} - found:
        found |= more
    return found


@several
@given(checkpoints(text_ids=True), POLICIES, st.integers())
def test_the_order_of_the_facts_does_not_matter(items: list[Item], policy: RetentionPolicy, seed: int):
    shuffled = [replace(item, bases=frozenset(sorted(item.bases, reverse=True))) for item in items]
    random.Random(seed).shuffle(shuffled)
    assert decide(items, policy, NOW) == decide(shuffled, policy, NOW)


@several
@given(checkpoints(), POLICIES)
def test_pruning_twice_is_pruning_once(items: list[Item], policy: RetentionPolicy):
    stay = keep(items, policy)
    assert keep([item for item in items if item.id in stay], policy) == stay
