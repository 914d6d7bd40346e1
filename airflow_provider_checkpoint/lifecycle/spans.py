"""Spans of time and sizes as people write them: ``90s``, ``24h``, ``7d``, ``1d12h``; ``500MB``, ``2GiB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+)([smhdw])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGTP]?i?B?)", re.IGNORECASE)
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


def parse_span(text: str) -> timedelta:
    """``7d`` as a timedelta; raises ValueError with an example."""
    compact = text.replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"not a span of time: {text!r}; write it like 90s, 15m, 24h, 7d, 2w or 1d12h")
    try:
        return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"span too long: {text!r}") from None


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
    """``2GiB`` or ``500MB`` as bytes; raises ValueError with an example."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}; write it like 500MB, 2GiB or 1000000")
    number, unit = float(match[1]), match[2].lower().removesuffix("b")
    scale = _BINARY[unit[0]] if unit.endswith("i") and len(unit) > 1 else _SIZES[unit]
    return int(number * scale)


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


def _to_span(value: Any) -> Any:
    if isinstance(value, str):
        value = parse_span(value)
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise ValueError("a span of time cannot be negative")
        return _Span(seconds=value.total_seconds())
    return value


#: A span in a pydantic model: takes ``7d`` or a timedelta, writes ``7d``.
Span = Annotated[timedelta, BeforeValidator(_to_span), PlainSerializer(format_span, return_type=str)]
