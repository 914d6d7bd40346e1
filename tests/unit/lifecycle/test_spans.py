"""Spans of time and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from airflow_provider_checkpoint.lifecycle.spans import (
    MAX_SPAN,
    Span,
    format_size,
    format_span,
    parse_size,
    parse_span,
)

SECONDS = st.integers(0, int(MAX_SPAN.total_seconds()))


class Window(BaseModel):
    span: Span


# -- spans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0s", timedelta(0)),
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("1d 12h", timedelta(days=1, hours=12)),
        (" 1w 2d ", timedelta(days=9)),
        ("007d", timedelta(days=7)),
        ("365000d", MAX_SPAN),
    ],
)
def test_a_span_is_read_as_people_write_it(text: str, span: timedelta):
    assert parse_span(text) == span


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "7",
        "d",
        "7 days",
        "7D",
        "1M",
        "1y",
        "-1h",
        "+1h",
        "1.5h",
        "1h30",
        "1 2h",
        "1h,2m",
        "7d\n8",
        "PT1H",
        "1:00:00",
        "٣d",
        "²d",
        "nan",
        "\ud800d",
        "9" * 5000,
    ],
)
def test_what_is_not_a_span_is_refused_with_examples(text: str):
    with pytest.raises(ValueError, match=r"not a span of time: .*; write it like 90s, 15m, 24h"):
        parse_span(text)


@pytest.mark.parametrize("text", ["365001d", "1000000000d", "99999999999999999999w", "9" * 5000 + "d", "365000d1s"])
def test_a_span_of_more_than_a_thousand_years_is_refused_because_no_date_lies_so_far_back(text: str):
    with pytest.raises(ValueError, match="too long"):
        parse_span(text)


@pytest.mark.parametrize("text", ["x" * 100_000, "9" * 100_000, "1d" * 100_000, " " * 100_000])
def test_a_huge_text_makes_no_huge_message(text: str):
    with pytest.raises(ValueError, match="span") as caught:
        parse_span(text)
    assert len(str(caught.value)) < 300


@given(SECONDS)
def test_a_span_that_is_written_and_read_is_the_same(seconds: int):
    span = timedelta(seconds=seconds)
    assert parse_span(format_span(span)) == span


@given(st.lists(st.tuples(st.integers(0, 9999), st.sampled_from("smhdw")), min_size=1, max_size=5))
def test_a_span_is_the_sum_of_its_parts(parts: list[tuple[int, str]]):
    text = " ".join(f"{number}{unit}" for number, unit in parts)
    assert parse_span(text) == sum((parse_span(f"{number}{unit}") for number, unit in parts), timedelta(0))


@given(st.text())
def test_no_text_makes_anything_but_a_span_or_a_value_error(text: str):
    try:
        span = parse_span(text)
    except ValueError:
        return
    assert timedelta(0) <= span <= MAX_SPAN


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=59), "59s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(hours=36), "1d12h"),
        (timedelta(weeks=2), "14d"),
        (timedelta(days=1, seconds=1), "1d1s"),
        (timedelta(seconds=-90), "-1m30s"),
        (timedelta(milliseconds=1500), "1s"),
    ],
)
def test_a_span_is_written_in_the_shortest_way(span: timedelta, text: str):
    assert format_span(span) == text


# -- spans in a model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["36h", timedelta(hours=36), 129_600, 129_600.0])
def test_a_field_takes_text_or_a_timedelta_or_seconds_and_shows_itself_as_people_write_it(value: object):
    window = Window.model_validate({"span": value})
    assert window.span == timedelta(hours=36)
    assert f"{window.span}" == "1d12h"
    assert window.model_dump_json() == '{"span":"1d12h"}'


@pytest.mark.parametrize(
    "value", [timedelta(seconds=-1), -1, -0.5, "-1s", timedelta(days=365_001), 10**15, timedelta.max]
)
def test_a_field_takes_neither_a_negative_span_nor_one_beyond_all_dates(value: object):
    with pytest.raises(ValidationError):
        Window.model_validate({"span": value})


@pytest.mark.parametrize("value", ["soon", None, [], {}, float("nan"), float("inf")])
def test_a_field_refuses_what_is_not_a_span(value: object):
    with pytest.raises(ValidationError):
        Window.model_validate({"span": value})


@given(st.timedeltas(min_value=timedelta(0), max_value=MAX_SPAN))
def test_a_field_goes_through_json_unchanged_and_a_fraction_of_a_second_never_shortens_it(span: timedelta):
    window = Window(span=span)
    assert Window.model_validate_json(window.model_dump_json()) == window
    assert timedelta(0) <= window.span - span < timedelta(seconds=1)


# -- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000000", 1_000_000),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("2GiB", 2 * 2**30),
        ("2gi", 2 * 2**30),
        ("1.5kB", 1500),
        ("0.5KiB", 512),
        ("3T", 3 * 10**12),
        ("1PiB", 2**50),
        (" 7 B ", 7),
        ("9007199254740993", 9_007_199_254_740_993),
        ("9007199254740993kB", 9_007_199_254_740_993_000),
        ("0.1GB", 100_000_000),
        ("1.9", 1),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "B", "MB", "-1", "1e9", "1,000", "5i", "5iB", "5 EB", "1.", ".5", "1 2", "nan", "inf", "٣", "1MBB", "\ud800"],
)
def test_what_is_not_a_size_is_refused_with_examples(text: str):
    with pytest.raises(ValueError, match=r"not a size: .*; write it like 500MB, 2GiB or 1000000"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "9" * 100_000 + "GB", "0." + "9" * 100_000])
def test_a_size_with_absurdly_many_digits_is_refused(text: str):
    with pytest.raises(ValueError, match="size") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 300


@given(st.integers(0, 2**80))
def test_a_bare_number_is_read_exactly(size: int):
    assert parse_size(str(size)) == size


@given(st.text())
def test_no_text_makes_anything_but_a_size_or_a_value_error(text: str):
    try:
        size = parse_size(text)
    except ValueError:
        return
    assert size >= 0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (2_000_000_000, "2.0 GB"),
        (3 * 10**12, "3.0 TB"),
        (5 * 10**17, "500.0 PB"),
        (10**21, "1000000.0 PB"),
    ],
)
def test_a_size_is_shown_with_one_decimal(size: int, text: str):
    assert format_size(size) == text


@given(st.integers(0, 10**18))
def test_a_shown_size_reads_back_to_about_the_same(size: int):
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.06)
