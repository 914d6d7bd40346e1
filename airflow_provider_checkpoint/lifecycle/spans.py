"""Spans of time and sizes as people write them: ``90s``, ``24h``, ``7d``, ``1d12h``; ``500MB``, ``2GiB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

#: No span is longer, so that no date minus a span leaves the calendar.
MAX_SPAN = timedelta(days=365_000)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"([0-9]+)([smhdw])")
_SPAN = re.compile(r"(?:[0-9]+[smhdw] *)+")
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))?\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_SCALES = ("", "k", "m", "g", "t", "p")
#: More digits than any span or size has; int() would refuse thousands of them with words of its own.
_MAX_TEXT = 100


def parse_span(text: str) -> timedelta:
    """``7d`` as a timedelta; raises ValueError with an example."""
    if _SPAN.fullmatch(text.strip()) is None:
        raise ValueError(f"not a span of time: {text[:50]!r}; write it like 90s, 15m, 24h, 7d, 2w or 1d12h")
    parts = _PART.findall(text[:_MAX_TEXT])
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if len(text) > _MAX_TEXT or seconds > MAX_SPAN.total_seconds():
        raise ValueError(f"span too long: {text[:50]!r}; at most {MAX_SPAN.days}d")
    return timedelta(seconds=seconds)


def format_span(span: timedelta) -> str:
    """The shortest exact way to write a span, to the second."""
    seconds = int(span.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, seconds = divmod(seconds, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0s")


def parse_size(text: str) -> int:
    """``2GiB`` or ``500MB`` as bytes, cut to whole ones; raises ValueError with an example."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if match is None or (match[4] and not match[3]):
        raise ValueError(f"not a size: {text[:50]!r}; write it like 500MB, 2GiB or 1000000")
    whole, fraction = match[1], match[2] or ""
    scale: int = (1024 if match[4] else 1000) ** _SCALES.index(match[3].lower())
    parts: int = 10 ** len(fraction)
    # In whole numbers, because a float is wrong beyond 2**53.
    return int(whole + fraction) * scale // parts


def format_size(size: int) -> str:
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


class _Span(timedelta):
    """A timedelta that prints as people write it."""

    def __str__(self) -> str:
        return format_span(self)


def _from_text(value: Any) -> Any:
    return parse_span(value) if isinstance(value, str) else value


def _checked(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= MAX_SPAN:
        raise ValueError(f"a span of time is not negative and at most {MAX_SPAN.days}d")
    # Whole seconds, as it is written; rounded up, because a longer span keeps more.
    return _Span(seconds=-(-value // timedelta(seconds=1)))


#: A span in a pydantic model: takes ``7d``, a timedelta or seconds, writes ``7d``.
Span = Annotated[
    timedelta, BeforeValidator(_from_text), AfterValidator(_checked), PlainSerializer(format_span, return_type=str)
]
