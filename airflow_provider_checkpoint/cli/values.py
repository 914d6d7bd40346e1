"""From what is typed to values; each answers with an example of how to write it.

Libraries are imported where a value needs them, so that ``--help`` stays quick.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from dataclasses import dataclass
from datetime import datetime, timedelta


def count(text: str) -> int:
    """A whole number, zero or more."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ArgumentTypeError(f"not a whole number, zero or more: {text!r}")
    return int(text)


def positive(text: str) -> int:
    value = count(text)
    if value == 0:
        raise ArgumentTypeError("must be at least 1")
    return value


def number(text: str) -> int:
    """A whole number of 64 bits, possibly negative; also hexadecimal, ``0xCAFE``."""
    try:
        value = int(text, 0)
    except ValueError:
        value = None
    if value is None or not -(2**63) <= value < 2**64:
        raise ArgumentTypeError(f"not a whole number of 64 bits: {text!r}")
    return value


def vnode_count(text: str) -> int:
    value = positive(text)
    if value >= 2**16:
        raise ArgumentTypeError(f"at most {2**16 - 1} vnodes: {text!r}")
    return value


def span(text: str) -> timedelta:
    """``7d``, ``24h``, ``1d12h``."""
    from airflow_provider_checkpoint.lifecycle.spans import parse_span

    try:
        return parse_span(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """``600``, or a span such as ``10m``."""
    return float(count(text)) if text.isdigit() else span(text).total_seconds()


def size(text: str) -> int:
    """``5GB``, ``500MiB``."""
    from airflow_provider_checkpoint.lifecycle.spans import parse_size

    try:
        return parse_size(text)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(str(error)) from None


def moment(text: str) -> datetime:
    """A time with its zone; one without would mean another instant on every machine."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"not a time: {text!r}; write it like 2026-11-15T14:05Z") from None
    if value.tzinfo is None:
        raise ArgumentTypeError(f"a time without a zone: {text!r}; add Z for UTC, or an offset such as +01:00")
    return value


def expiry(text: str) -> timedelta | datetime:
    """When something ends: after a span, or at a time."""
    return moment(text) if "-" in text else span(text)


def share(text: str) -> float:
    """``0.3`` or ``30%``."""
    value = _number_or_percent(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"not a share: {text!r}; write it like 0.3 or 30%")
    return value


def _number_or_percent(text: str) -> float:
    digits, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        return float(digits) / percent
    except ValueError:
        return math.nan


@dataclass(frozen=True, slots=True)
class Sample:
    """How many to take: a number, or a share of all."""

    number: int | None = None
    share: float = 0.0

    def of(self, total: int) -> int:
        """At least one: a sample always has the newest."""
        return self.number if self.number is not None else max(1, math.ceil(total * self.share))


def sample(text: str) -> Sample:
    """``20`` or ``5%``."""
    if text.endswith("%"):
        part = share(text)
        if part > 0:
            return Sample(share=part)
    elif text.isdigit():
        return Sample(number=positive(text))
    raise ArgumentTypeError(f"not a sample: {text!r}; write it like 20 or 5%")


def setting(text: str) -> tuple[str, str]:
    """``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # The text itself is not repeated: it may be a secret that lost its name.
        raise ArgumentTypeError("not a setting; write it like region=eu-central-1")
    return name.strip(), value
