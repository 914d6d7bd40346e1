"""Which checkpoints stay: each rule alone, together, and what no rule can remove."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_checkpoint.lifecycle.retention import RULES, Item, RetentionPolicy, decide
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.lifecycle.retention_items import NOW, item, items, kept, reasons

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# -- the policy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [{}, {"min_age": "24h"}, {"time_zone": "Europe/Berlin"}, {"min_age": "1d", "keep_last": None}]
)
def test_a_policy_without_a_rule_is_refused(values: dict[str, Any]):
    with pytest.raises(
        ValidationError, match="a policy without a rule would remove everything; give one of: keep_last"
    ):
        RetentionPolicy(**values)


@pytest.mark.parametrize("rule", RULES)
def test_any_single_rule_makes_a_policy(rule: str):
    policy = RetentionPolicy.model_validate({rule: "7d" if rule == "keep_within" else 3})
    assert getattr(policy, rule) is not None


@pytest.mark.parametrize(
    "values",
    [
        {"keep_last": -1},
        {"keep_daily": -1},
        {"every_n_epochs": 0},
        {"keep_last": 1, "min_age": "-1h"},
        {"keep_last": 1, "min_age": -3600},
        {"keep_within": "soon"},
        {"keep_within": "400000d"},
        {"keep_latest": 3},
        {"keep_last": 1.5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(values: dict[str, Any]):
    with pytest.raises(ValidationError):
        RetentionPolicy.model_validate(values)


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "Europe", "", "../etc/passwd", "/etc/localtime", "x" * 5000, "a\0b", "zone.tab"]
)
def test_an_unknown_time_zone_is_refused_with_an_example(name: str):
    with pytest.raises(ValidationError, match=r"unknown time zone .* write it like 'Europe/Berlin'"):
        RetentionPolicy(keep_daily=7, time_zone=name)


# -- each rule alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param({"keep_last": 1}, [9], id="the newest"),
        pytest.param({"keep_last": 3}, [7, 8, 9], id="the newest three"),
        pytest.param({"keep_last": 99}, [1, 2, 3, 4, 5, 6, 7, 8, 9], id="more than there are"),
        pytest.param({"keep_last": 0}, [9], id="none still leaves the newest restorable"),
        pytest.param({"keep_daily": 0}, [9], id="no day still leaves the newest restorable"),
        pytest.param({"keep_within": "0s"}, [8, 9], id="this very moment, and the newest before"),
        pytest.param({"keep_within": "36h"}, [7, 8, 9], id="one and a half days, and the newest before"),
        pytest.param({"keep_within": "2d"}, [6, 7, 8, 9], id="the edge of the window is inside"),
        pytest.param({"keep_within": "900d"}, [1, 2, 3, 4, 5, 6, 7, 8, 9], id="a window beyond all"),
        pytest.param({"keep_within": "365000d"}, [1, 2, 3, 4, 5, 6, 7, 8, 9], id="the longest window there is"),
        pytest.param({"keep_hourly": 2}, [8, 9], id="hours"),
        pytest.param({"keep_daily": 3}, [7, 8, 9], id="days"),
        pytest.param({"keep_weekly": 2}, [2, 9], id="weeks"),
        pytest.param({"keep_monthly": 2}, [1, 9], id="months, fewer than asked for: the oldest stays too"),
        pytest.param({"keep_yearly": 1}, [9], id="years"),
        pytest.param({"every_n_epochs": 4}, [1, 4, 8, 9], id="epochs, and the newest restorable"),
        pytest.param({"every_n_epochs": 1}, [1, 2, 3, 4, 5, 6, 7, 8, 9], id="every epoch"),
        pytest.param({"every_n_epochs": 10**12}, [1, 9], id="one of very many epochs"),
    ],
)
def test_each_rule_keeps_what_it_says(policy: dict[str, Any], expected: list[int]):
    # One per day: 9 was made today, a Sunday, 3 on Monday, 2 on the Sunday and 1 on the Saturday before.
    found = [item(number, age=(9 - number) * DAY) for number in range(1, 10)]
    assert kept(found, **policy) == expected


def test_rules_are_joined_by_or_and_each_names_itself():
    found = [item(number, age=(9 - number) * DAY) for number in range(1, 10)]
    policy = {"keep_last": 2, "keep_daily": 1, "keep_within": "1d", "every_n_epochs": 5}
    assert kept(found, **policy) == [1, 5, 7, 8, 9]
    assert reasons(found, 9, **policy) == ("within 1d", "newest restorable", "last 1 of 2", "daily 1 of 1")
    assert reasons(found, 8, **policy) == ("within 1d", "last 2 of 2")
    assert reasons(found, 7, **policy) == ("newest before the window of 1d",)
    assert reasons(found, 5, **policy) == ("first of 5 epochs",)
    assert reasons(found, 4, **policy) == (
        "no rule keeps it (keep_last=2, keep_within=1d, keep_daily=1, every_n_epochs=5)",
    )


def test_an_age_window_keeps_the_newest_item_before_it_because_the_window_begins_with_its_state():
    """HUDI-7223: the state at the start of the window is reached only through the one before."""
    found = [item(1, age=30 * DAY), item(2, age=20 * DAY), item(3, age=10 * DAY), item(4, age=HOUR)]
    assert kept(found, keep_within="7d") == [3, 4]
    assert reasons(found, 3, keep_within="7d") == ("newest before the window of 7d",)


@pytest.mark.parametrize("unfit", [{"restorable": False}, {"on_branch": False}])
def test_the_newest_item_before_an_age_window_is_one_that_can_be_restored(unfit: dict[str, Any]):
    found = [item(1, age=30 * DAY), item(2, age=20 * DAY), item(3, age=10 * DAY, **unfit), item(4, age=HOUR)]
    assert kept(found, keep_within="7d") == [2, 4]


# -- what counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([*items(1, 2, 3), *items(4, 5, restorable=False)], [2, 3], id="what cannot be restored"),
        pytest.param([*items(1, 2, 3), *items(4, 5, on_branch=False)], [2, 3], id="what lies on an abandoned branch"),
        pytest.param([*items(1, 2, 3), *items(4, 5, pins=("x",))], [2, 3, 4, 5], id="what is pinned"),
        pytest.param(
            [*items(1, 2, 3), item(4, at=NOW + HOUR), item(5, at=NOW + DAY)],
            [2, 3, 4, 5],
            id="what is dated in the future",
        ),
    ],
)
def test_keep_last_does_not_count(found: list[Item], expected: list[int]):
    assert kept(found, keep_last=2) == expected


def test_failed_checkpoints_never_push_out_the_last_good_one():
    """Three epochs whose commit failed, and a retention of three, must leave the good one."""
    found = [item(1), *items(2, 3, 4, restorable=False, unfit="its commit was never decided")]
    assert kept(found, keep_last=3) == [1]
    assert reasons(found, 4, keep_last=3) == ("cannot be restored: its commit was never decided",)


@pytest.mark.parametrize("rule", ["keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly"])
@pytest.mark.parametrize("unfit", [{"restorable": False}, {"on_branch": False}])
def test_a_period_is_represented_by_one_that_can_be_restored(rule: str, unfit: dict[str, Any]):
    found = [item(1, age=2 * timedelta(minutes=1)), item(2, age=timedelta(minutes=1), **unfit)]
    assert kept(found, **{rule: 1}) == [1]


@pytest.mark.parametrize("unfit", [{"restorable": False}, {"on_branch": False}])
def test_the_first_of_every_n_epochs_is_one_that_can_be_restored(unfit: dict[str, Any]):
    found = [item(3), item(10, **unfit), item(11), item(12), item(13)]
    assert kept(found, every_n_epochs=10) == [3, 11, 13]


# -- what always stays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        pytest.param({"pins": ("release", "audit")}, "pinned as 'release'", id="pinned"),
        pytest.param({"protected": ("a savepoint",)}, "a savepoint", id="a savepoint"),
        pytest.param({"protected": ("its commit may be under way",)}, "its commit may be under way", id="committing"),
        pytest.param({"pins": ("x",), "restorable": False}, "pinned as 'x'", id="pinned, though not restorable"),
        pytest.param({"pins": ("x",), "on_branch": False}, "pinned as 'x'", id="pinned, on an abandoned branch"),
    ],
)
def test_no_rule_removes_what_is_protected(odd: dict[str, Any], reason: str):
    found = [item(1, age=900 * DAY, **odd), *items(2, 3)]
    assert kept(found, keep_last=1) == [1, 3]
    assert reasons(found, 1, keep_last=1)[0] == reason


def test_every_pin_is_named():
    found = [item(1, pins=("release", "audit")), item(2)]
    assert reasons(found, 1, keep_last=1) == ("pinned as 'release'", "pinned as 'audit'")


def test_what_is_dated_in_the_future_stays_because_its_age_means_nothing():
    found = [item(1), item(2), item(3, at=NOW + timedelta(microseconds=1), restorable=False)]
    assert kept(found, keep_last=1) == [2, 3]
    assert reasons(found, 3, keep_last=1) == ("dated in the future: a clock is wrong",)


def test_a_checkpoint_of_this_very_moment_is_not_in_the_future():
    assert kept([item(1, at=NOW), item(2, at=NOW)], keep_last=1) == [2]


def test_the_newest_restorable_is_the_one_given_out_last_even_if_a_clock_was_set_back():
    """A recovery takes the highest id; pruning by time alone would remove exactly that one."""
    found = [item(5, at=NOW - HOUR), item(6, at=NOW - 3 * HOUR), item(7, at=NOW - 2 * HOUR)]
    assert kept(found, keep_last=1) == [7]
    assert kept(found, keep_last=2) == [6, 7]
    assert "newest restorable" in reasons(found, 7, keep_last=0)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"restorable": False, "unfit": "broken"}, id="all broken"),
        pytest.param({"on_branch": False}, id="all abandoned"),
        pytest.param({"at": NOW + DAY}, id="all in the future"),
    ],
)
def test_if_nothing_can_be_restored_nothing_goes(odd: dict[str, Any]):
    found = items(1, 2, 3, **odd)
    assert kept(found, keep_last=1) == [1, 2, 3]
    assert "nothing here can be restored: kept until a person has looked" in reasons(found, 1, keep_last=1)


def test_no_items_make_no_verdicts():
    assert decide([], RetentionPolicy(keep_last=1), NOW) == []


# -- bases -------------------------------------------------------------------------------------------------------


def test_what_a_kept_delta_is_based_on_stays_and_what_that_is_based_on():
    found = [item(1), item(2), item(3, bases=(1,)), item(4, bases=(3,)), item(5), item(6, bases=(4,))]
    assert kept(found, keep_last=1) == [1, 3, 4, 6]
    assert reasons(found, 4, keep_last=1) == ("base of 6",)
    assert reasons(found, 1, keep_last=1) == ("base of 3",)


def test_a_base_stays_for_a_pinned_delta_too():
    found = [item(1), item(2, bases=(1,), pins=("x",)), item(3)]
    assert kept(found, keep_last=1) == [1, 2, 3]


def test_a_base_that_cannot_be_restored_itself_still_holds_artifacts_others_need():
    found = [item(1, restorable=False), item(2, on_branch=False), item(3, bases=(1, 2))]
    assert kept(found, keep_last=1) == [1, 2, 3]


def test_the_base_of_something_that_goes_does_not_stay_for_it():
    found = [item(1), item(2, bases=(1,)), item(3)]
    assert kept(found, keep_last=1) == [3]


def test_a_base_names_all_that_need_it_in_a_fixed_order():
    found = [item(1), *items(2, 3, 4, bases=(1,))]
    assert reasons(found, 1, keep_last=3) == ("base of 2", "base of 3", "base of 4")


def test_reasons_do_not_depend_on_how_a_set_of_bases_is_ordered():
    """Text ids are hashed differently in every process, and the same store must give the same plan."""
    root, *middle = (CheckpointId(f"{number:02d}") for number in range(12))
    found = [Item(root, NOW - DAY)]
    found += [Item(each, NOW - DAY, bases=frozenset([root])) for each in middle]
    found.append(Item(CheckpointId("99"), NOW, bases=frozenset(middle)))
    verdicts = {verdict.id: verdict for verdict in decide(found, RetentionPolicy(keep_last=1), NOW)}
    assert verdicts[root].reasons == tuple(f"base of {each}" for each in reversed(middle))


@pytest.mark.parametrize("bases", [(7,), (1,), (2,), (2, 7)])
def test_a_base_that_is_not_there_or_is_the_item_itself_or_goes_round_in_a_circle_does_no_harm(bases: tuple[int, ...]):
    found = [item(1, bases=bases), item(2, bases=(1,))]
    assert kept(found, keep_last=1) == [1, 2]


# -- count and age -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        pytest.param([10, 9, 8, 7], [3, 4], id="all are old: the count decides"),
        pytest.param([10, 3, 2, 1], [2, 3, 4], id="more young ones than the count: the age decides"),
        pytest.param([10, 9, 2, 1], [3, 4], id="count and age agree"),
        pytest.param([5, 5, 5, 5], [3, 4], id="exactly as old as the minimum is old enough"),
    ],
)
def test_a_minimum_count_and_a_minimum_age_can_both_be_demanded(ages: list[int], expected: list[int]):
    found = [item(number, age=age * DAY) for number, age in enumerate(ages, start=1)]
    assert kept(found, keep_last=2, min_age="5d") == expected


@pytest.mark.parametrize("odd", [{"restorable": False}, {"on_branch": False}])
def test_the_minimum_age_guards_the_broken_and_the_abandoned_too(odd: dict[str, Any]):
    found = [item(1, age=HOUR, **odd), item(2, age=2 * DAY, **odd), item(3)]
    assert kept(found, keep_last=1, min_age="1d") == [1, 3]
    assert reasons(found, 1, keep_last=1, min_age="1d") == ("younger than min_age 1d",)


# -- answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({}, "no rule keeps it (keep_last=1)"),
        ({"restorable": False}, "cannot be restored"),
        ({"restorable": False, "unfit": "state is gone"}, "cannot be restored: state is gone"),
        ({"on_branch": False}, "on an abandoned branch"),
        ({"restorable": False, "on_branch": False, "unfit": "state is gone"}, "cannot be restored: state is gone"),
    ],
)
def test_what_goes_says_why(odd: dict[str, Any], reason: str):
    assert reasons([item(1, **odd), item(2)], 1, keep_last=1) == (reason,)


def test_verdicts_come_newest_first():
    verdicts = decide(items(2, 3, 1), RetentionPolicy(keep_last=1), NOW)
    assert [verdict.id.value for verdict in verdicts] == [3, 2, 1]


def test_times_of_different_zones_are_compared_as_moments():
    earlier = datetime.fromisoformat("2026-11-15T12:30:00+02:00")
    later = datetime.fromisoformat("2026-11-15T10:45:00+00:00")
    assert kept([item(1, at=later), item(2, at=earlier)], keep_within="80m") == [1, 2]


def test_a_hundred_thousand_items_are_decided_in_one_go():
    found = [item(number, age=(100_000 - number) * HOUR, bases=(number // 50 * 50,)) for number in range(1, 100_001)]
    policy = RetentionPolicy(
        keep_last=1000, keep_within="30d", keep_hourly=5000, keep_daily=700, keep_weekly=100, keep_monthly=60,
        keep_yearly=10, every_n_epochs=100, min_age="1d", time_zone="Europe/Berlin",
    )  # fmt: skip
    verdicts = decide(found, policy, NOW)
    assert len(verdicts) == 100_000
    assert 5000 < sum(verdict.keep for verdict in verdicts) < 100_000
