"""Calendar periods: where they begin, on days when clocks change, and around new year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.retention_items import at, item, kept, reasons

BERLIN = "Europe/Berlin"


def kept_of(times: list[str], zone: str, *, written_in: str | None = None, **policy: Any) -> list[int]:
    """Checkpoints 1, 2, 3, ... made at these times; those that stay."""
    found = [item(number, at=at(text, written_in or zone)) for number, text in enumerate(times, start=1)]
    return kept(found, datetime(2030, 1, 1, tzinfo=UTC), time_zone=zone, **policy)


# -- periods that have one ---------------------------------------------------------------------------------------


def test_only_periods_that_have_a_checkpoint_count():
    times = ["2024-01-05T10:00", "2025-06-01T10:00", "2026-03-01T08:00", "2026-03-01T20:00", "2026-11-15T10:00"]
    assert kept_of(times, "UTC", keep_daily=3) == [2, 4, 5]
    assert kept_of(times, "UTC", keep_yearly=2) == [2, 5]


def test_the_newest_of_each_period_represents_it():
    times = [f"2026-11-{day:02d}T{hour:02d}:30" for day in (13, 14, 15) for hour in (1, 12, 23)]
    assert kept_of(times, "UTC", keep_daily=2) == [6, 9]


@pytest.mark.parametrize("rule", ["keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly"])
def test_if_there_are_fewer_periods_than_asked_for_the_oldest_stays_too(rule: str):
    times = ["2026-11-15T10:05", "2026-11-15T10:10", "2026-11-15T10:15"]
    assert kept_of(times, "UTC", **{rule: 2}) == [1, 3]
    assert kept_of(times, "UTC", **{rule: 1}) == [3]


def test_the_oldest_says_why_it_stays_and_says_it_once():
    now = at("2026-11-16T00:00")
    found = [item(1, at=at("2026-11-15T10:05")), item(2, at=at("2026-11-15T10:10"))]
    assert reasons(found, 1, now, keep_daily=2) == ("daily (oldest there is)",)
    assert reasons(found[1:], 2, now, keep_daily=2) == ("newest restorable", "daily 1 of 2")


# -- zones -------------------------------------------------------------------------------------------------------


def test_a_day_begins_at_midnight_of_the_given_zone():
    # In Berlin, one hour ahead of UTC in winter, the second is already on the next day.
    times = ["2026-11-14T22:30", "2026-11-14T23:30"]
    assert kept_of(times, BERLIN, written_in="UTC", keep_daily=2) == [1, 2]
    assert kept_of(times, "UTC", keep_daily=1) == [2]
    assert kept_of(
        ["2026-11-14T22:30", "2026-11-14T23:30", "2026-11-15T10:00"], BERLIN, written_in="UTC", keep_daily=2
    ) == [1, 3]
    assert kept_of(["2026-11-14T22:30", "2026-11-14T23:30", "2026-11-15T10:00"], "UTC", keep_daily=2) == [2, 3]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        pytest.param("UTC", [1, 3], id="12:15 and 12:45"),
        pytest.param("Pacific/Kiritimati", [1, 3], id="2:15 and 2:45 of the next day"),
        pytest.param("Asia/Kolkata", [2, 3], id="17:45 and 18:15"),
        pytest.param("Asia/Kathmandu", [1, 3], id="18:00 and 18:30"),
    ],
)
def test_an_hour_begins_where_the_clock_of_the_zone_shows_a_full_hour(zone: str, expected: list[int]):
    times = ["2026-11-14T00:00", "2026-11-15T12:15", "2026-11-15T12:45"]
    assert kept_of(times, zone, written_in="UTC", keep_hourly=2) == expected


# -- days on which clocks change ---------------------------------------------------------------------------------


def test_a_day_of_25_hours_is_one_day():
    # Berlin, 25 October 2026: at 3:00 summer time the clock goes back to 2:00.
    times = ["2026-10-24T23:59", "2026-10-25T00:00", "2026-10-25T02:30", "2026-10-25T02:30*", "2026-10-25T23:59"]
    assert kept_of(times, BERLIN, keep_daily=2) == [1, 5]
    moments = [at(text, BERLIN) for text in times]
    assert moments[4].astimezone(UTC) - moments[1].astimezone(UTC) == timedelta(hours=24, minutes=59)


def test_a_day_of_23_hours_is_one_day():
    # Berlin, 29 March 2026: at 2:00 the clock goes forward to 3:00.
    times = ["2026-03-28T23:59", "2026-03-29T00:00", "2026-03-29T01:59", "2026-03-29T03:00", "2026-03-29T23:59"]
    assert kept_of(times, BERLIN, keep_daily=2) == [1, 5]


def test_the_hour_that_comes_twice_counts_as_two():
    times = [
        "2026-10-25T01:30",
        "2026-10-25T02:15",
        "2026-10-25T02:45",
        "2026-10-25T02:15*",
        "2026-10-25T02:45*",
        "2026-10-25T03:30",
    ]
    assert kept_of(times, BERLIN, keep_hourly=4) == [1, 3, 5, 6]
    assert kept_of(times, BERLIN, keep_hourly=3) == [3, 5, 6]


def test_ages_are_real_time_also_if_the_time_is_told_on_a_clock_that_was_set_back():
    # 2:45 summer time is 80 minutes before 3:05 winter time, and 20 minutes on the face of the clock.
    found = [item(1, at=at("2026-10-25T02:30", BERLIN)), item(2, at=at("2026-10-25T02:45", BERLIN))]
    assert kept(
        [*found, item(3, at=at("2026-10-25T02:50*", BERLIN))], at("2026-10-25T03:05", BERLIN), keep_last=1, min_age="1h"
    ) == [3]


def test_the_hour_that_is_left_out_does_not_count():
    times = ["2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T03:30", "2026-03-29T04:30"]
    assert kept_of(times, BERLIN, keep_hourly=3) == [2, 3, 4]


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-15", 24)], ids=["spring", "autumn", "plain"]
)
def test_a_checkpoint_every_half_hour_leaves_one_per_hour_of_the_day(day: str, hours: int):
    start = at(f"{day}T00:00", BERLIN).astimezone(UTC)
    found = [item(number + 1, at=start + number * timedelta(minutes=30)) for number in range(2 * hours)]
    stay = kept(found, start + timedelta(days=2), keep_hourly=hours, time_zone=BERLIN)
    assert stay == list(range(2, 2 * hours + 1, 2))
    assert kept(found, start + timedelta(days=2), keep_daily=1, time_zone=BERLIN) == [2 * hours]


def test_a_zone_that_moves_by_half_an_hour_has_its_repeated_half_hour_too():
    # Lord Howe, 5 April 2026: at 2:00 summer time the clock goes back to 1:30.
    times = ["2026-04-05T01:15", "2026-04-05T01:45", "2026-04-05T01:45*", "2026-04-05T02:15"]
    assert kept_of(times, "Australia/Lord_Howe", keep_hourly=3) == [2, 3, 4]


def test_a_day_that_a_zone_left_out_does_not_count():
    # Samoa went from 29 to 31 December 2011.
    times = ["2011-12-28T12:00", "2011-12-29T12:00", "2011-12-31T12:00"]
    assert kept_of(times, "Pacific/Apia", keep_daily=2) == [2, 3]


# -- weeks and years ---------------------------------------------------------------------------------------------


def test_a_week_begins_on_monday():
    # 9 November 2026 is a Monday.
    times = ["2026-11-08T23:59", "2026-11-09T00:00", "2026-11-15T23:59", "2026-11-16T00:00"]
    assert kept_of(times, "UTC", keep_weekly=3) == [1, 3, 4]


def test_the_week_of_new_year_is_one_week_though_it_lies_in_two_years():
    # Week 53 of 2026: Monday 28 December to Sunday 3 January 2027.
    times = [
        "2026-12-27T12:00",
        "2026-12-28T12:00",
        "2026-12-31T12:00",
        "2027-01-01T12:00",
        "2027-01-03T12:00",
        "2027-01-04T12:00",
    ]
    assert kept_of(times, "UTC", keep_weekly=3) == [1, 5, 6]
    assert kept_of(times, "UTC", keep_yearly=2) == [3, 6]
    assert kept_of(times, "UTC", keep_monthly=2) == [3, 6]


def test_the_first_week_may_begin_in_december():
    # Week 1 of 2026 begins on Monday 29 December 2025; week 1 of 2025 on 30 December 2024 must not be the same.
    times = ["2024-12-31T12:00", "2025-12-28T12:00", "2025-12-30T12:00", "2026-01-02T12:00"]
    assert kept_of(times, "UTC", keep_weekly=3) == [1, 2, 4]


def test_the_same_month_of_two_years_is_two_months():
    assert kept_of(["2025-11-15T12:00", "2026-11-15T12:00"], "UTC", keep_monthly=2) == [1, 2]
    assert kept_of(["2024-10-15T12:00", "2025-11-15T12:00", "2026-11-15T12:00"], "UTC", keep_monthly=2) == [2, 3]


def test_a_leap_day_is_a_day():
    assert kept_of(["2028-02-28T12:00", "2028-02-29T12:00", "2028-03-01T12:00"], "UTC", keep_daily=2) == [2, 3]
