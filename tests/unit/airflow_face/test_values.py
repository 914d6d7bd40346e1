"""Templated arguments arrive as text; each means what a person would think, or is an error that names it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.operators import _values

NOTHING = [None, "", "None"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *[(value, True) for value in (True, "true", "True", "yes", "on", "1", " TRUE ")],
        *[(value, False) for value in (False, "false", "False", "no", "off", "0", *NOTHING)],
    ],
)
def test_a_flag(given, meant):
    assert _values.flag("dry_run", given) is meant


@pytest.mark.parametrize("given", NOTHING)
@pytest.mark.parametrize("unsaid", [True, False])
def test_a_flag_of_which_nothing_is_said_is_what_its_argument_is_without(given, unsaid):
    assert _values.flag("ask", given, unsaid=unsaid) is unsaid


@pytest.mark.parametrize("given", ["maybe", "2", "{{ x }}", [], {}])
def test_what_is_no_flag_is_never_taken_for_one(given):
    with pytest.raises(ConfigurationError, match="dry_run"):
        _values.flag("dry_run", given)


@pytest.mark.parametrize(
    ("read", "given", "meant"),
    [
        (_values.span, "90m", timedelta(minutes=90)),
        (_values.span, timedelta(hours=1), timedelta(hours=1)),
        (_values.size, "5GB", 5_000_000_000),
        (_values.size, "1024", 1024),
        (_values.size, 7, 7),
        (_values.number, "12", 12),
        (_values.number, 12, 12),
        (_values.number, " 12 ", 12),
        (_values.moment, "2026-11-15T14:05Z", datetime(2026, 11, 15, 14, 5, tzinfo=UTC)),
        (_values.moment, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_value_as_text_or_as_itself(read, given, meant):
    assert read("x", given) == meant


@pytest.mark.parametrize("read", [_values.span, _values.size, _values.number, _values.moment])
@pytest.mark.parametrize("given", NOTHING)
def test_an_empty_template_means_nothing(read, given):
    assert read("x", given) is None


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (_values.span, "soon"),
        (_values.span, "-1h"),
        (_values.size, "much"),
        (_values.number, "many"),
        (_values.number, "1.5"),
        (_values.moment, "yesterday"),
        (_values.moment, "2026-11-15T14:05"),
        (_values.moment, datetime(2026, 11, 15)),  # noqa: DTZ001 - that is the case
    ],
)
def test_a_value_that_makes_no_sense_is_an_error_that_names_the_argument(read, given):
    with pytest.raises(ConfigurationError, match="limit"):
        read("limit", given)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([1, "2"], ["1", "2"]),
        ((), []),
        ("1, 2,,3", ["1", "2", "3"]),
        ('["a", 2]', ["a", "2"]),
        # What a template makes of a list that another task answered with.
        (str(["a", 2]), ["a", "2"]),
        (7, ["7"]),
        *[(nothing, []) for nothing in NOTHING],
    ],
)
def test_a_list_of_words(given, meant):
    assert _values.words("skip", given) == meant


@pytest.mark.parametrize("given", ['{"keep_last": 5, "min_age": null}', "{'keep_last': 5, 'min_age': None}"])
def test_a_mapping_as_text(given):
    assert _values.mapping("policy", given) == {"keep_last": 5, "min_age": None}


@pytest.mark.parametrize(
    "given", ["[" * 10_000, "[__import__('os').getpid()]", "[1, 2", "[1\0]"], ids=["deep", "call", "cut", "zero"]
)
def test_text_is_read_and_never_executed(given):
    with pytest.raises(ConfigurationError, match="skip is not JSON"):
        _values.words("skip", given)


def test_a_list_that_is_no_json_and_a_mapping_that_is_none_are_errors():
    with pytest.raises(ConfigurationError, match="skip is not JSON"):
        _values.words("skip", "[1, 2")
    with pytest.raises(ConfigurationError, match="policy is not a mapping"):
        _values.mapping("policy", "[1]")


@pytest.mark.parametrize("depth", list(Depth))
def test_every_depth_is_known_by_its_name(depth):
    assert _values.depth(str(depth)) is depth


@given(st.text())
def test_any_other_depth_is_an_error_that_lists_them(text):
    if text.strip() in list(Depth):
        return
    with pytest.raises(ConfigurationError, match="There are: structure, presence, content, restore"):
        _values.depth(text)


@given(st.one_of(st.text(), st.integers(), st.none(), st.booleans(), st.lists(st.text()), st.floats()))
def test_no_value_leads_to_an_error_of_another_kind(value):
    for read in (_values.flag, _values.span, _values.size, _values.number, _values.moment, _values.words):
        try:
            read("x", value)
        except ConfigurationError as error:
            assert "x" in error.message  # noqa: PT017 - most values are fine
