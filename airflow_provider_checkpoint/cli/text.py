"""Words for people. Whatever comes from a store is hostile: it must not reach a terminal as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.model import CheckpointId

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))


def clean(text: str) -> str:
    """The text on one line, with everything that could steer a terminal or deceive the eye written out.

    Escape sequences, line ends, marks that reverse the direction of writing, invisible and half characters.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _written_out(char) for char in text)


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def short_span(seconds: float) -> str:
    """A length of time in its largest unit: ``3h``, ``12d``."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def age(moment: datetime, now: datetime) -> str:
    """How long ago: ``3h``; a time to come is told as such."""
    seconds = (now - moment).total_seconds()
    return short_span(seconds) if seconds >= 0 else f"in {short_span(-seconds)}"


def ago(moment: datetime, now: datetime) -> str:
    told = age(moment, now)
    return told if told.startswith("in ") else f"{told} ago"


def moment_text(moment: datetime) -> str:
    """A time to the second, with its zone."""
    return moment.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def iso(moment: datetime) -> str:
    """A time for programs, as the plans write it."""
    return moment.isoformat().replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some_ids(ids: Sequence[CheckpointId]) -> str:
    """Ids in ascending order, in a few words: ``5: 4 to 8``."""
    if not ids:
        return "none"
    return str(ids[0]) if len(ids) == 1 else f"{len(ids)}: {ids[0]} to {ids[-1]}"


def on_one_line(message: str) -> str:
    """The text of an error with its hint in the same line."""
    return re.sub(r"\nHINT: ", "  HINT: ", message)
