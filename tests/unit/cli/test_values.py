"""From what is typed to values."""

from __future__ import annotations

import contextlib
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.cli import values
from airflow_provider_checkpoint.cli.values import Sample

NOON = datetime(2026, 11, 15, 14, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (values.count, "0", 0),
        (values.count, "12", 12),
        (values.positive, "1", 1),
        (values.number, "-5", -5),
        (values.number, "0xCAFE", 0xCAFE),
        (values.number, "18446744073709551615", 2**64 - 1),
        (values.vnode_count, "256", 256),
        (values.span, "7d", timedelta(days=7)),
        (values.span, "1d12h", timedelta(days=1, hours=12)),
        (values.seconds, "600", 600.0),
        (values.seconds, "10m", 600.0),
        (values.size, "5GB", 5_000_000_000),
        (values.size, "2GiB", 2**31),
        (values.moment, "2026-11-15T14:05Z", NOON),
        (values.moment, "2026-11-15T15:05:00+01:00", NOON),
        (values.expiry, "30d", timedelta(days=30)),
        (values.expiry, "2026-11-15T14:05Z", NOON),
        (values.share, "0.3", 0.3),
        (values.share, "30%", 0.3),
        (values.share, "100%", 1.0),
        (values.sample, "20", Sample(number=20)),
        (values.sample, "5%", Sample(share=0.05)),
        (values.setting, "region=eu", ("region", "eu")),
        (values.setting, "endpoint_url=http://x/?a=b", ("endpoint_url", "http://x/?a=b")),
        (values.setting, "prefix=", ("prefix", "")),
    ],
)
def test_what_is_understood(kind, text, value):
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (values.count, "-1", "whole number"),
        (values.count, "1.5", "whole number"),
        (values.count, "9" * 5000, "whole number"),
        (values.count, "٣", "whole number"),
        (values.positive, "0", "at least 1"),
        (values.number, "1e3", "64 bits"),
        (values.number, str(2**64), "64 bits"),
        (values.number, "9" * 5000, "64 bits"),
        (values.vnode_count, "65536", "at most 65535"),
        (values.span, "7", "like 90s, 15m, 24h"),
        (values.span, "-7d", "like 90s, 15m, 24h"),
        (values.span, "", "like 90s, 15m, 24h"),
        (values.span, "9" * 30 + "d", "too long"),
        (values.seconds, "soon", "like 90s"),
        (values.size, "5 elephants", "like 500MB"),
        (values.size, "9" * 400 + "PB", "not a size"),
        (values.moment, "yesterday", "2026-11-15T14:05Z"),
        (values.moment, "2026-11-15T14:05", "add Z"),
        (values.moment, "2026-13-15T14:05Z", "2026-11-15T14:05Z"),
        (values.share, "1.1", "0.3 or 30%"),
        (values.share, "nan", "0.3 or 30%"),
        (values.share, "-5%", "0.3 or 30%"),
        (values.sample, "0", "at least 1"),
        (values.sample, "0%", "20 or 5%"),
        (values.sample, "some", "20 or 5%"),
        (values.setting, "region", "region=eu-central-1"),
        (values.setting, "=x", "region=eu-central-1"),
    ],
)
def test_what_is_refused_is_answered_with_how_to_write_it(kind, text, told):
    with pytest.raises(ArgumentTypeError, match=told):
        kind(text)


@given(
    st.sampled_from(
        [
            values.count,
            values.number,
            values.span,
            values.seconds,
            values.size,
            values.moment,
            values.expiry,
            values.share,
            values.sample,
            values.setting,
            values.vnode_count,
        ]
    ),
    st.text(max_size=30) | st.from_regex(r"[-0-9.eExX_%dhms:TZ+]{1,20}", fullmatch=True),
)
def test_any_text_is_a_value_or_a_usage_error(kind, text):
    with contextlib.suppress(ArgumentTypeError):
        kind(text)


def test_a_setting_that_is_refused_is_not_repeated_since_it_may_be_a_secret():
    with pytest.raises(ArgumentTypeError) as refused:
        values.setting("hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("sample", "total", "taken"), [("3", 10, 3), ("3", 2, 3), ("5%", 1000, 50), ("5%", 10, 1), ("100%", 7, 7)]
)
def test_a_share_is_rounded_up_and_never_nothing(sample, total, taken):
    assert values.sample(sample).of(total) == taken


def test_an_offset_other_than_utc_names_the_same_instant():
    berlin = timezone(timedelta(hours=1))
    assert values.moment("2026-11-15T15:05+01:00") == datetime(2026, 11, 15, 15, 5, tzinfo=berlin) == NOON
