"""Items for tests of retention, written briefly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow_provider_checkpoint.lifecycle.retention import Item, RetentionPolicy, decide
from airflow_provider_checkpoint.model import CheckpointId

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def item(number: int, *, age: timedelta | None = None, at: datetime | None = None, **facts: Any) -> Item:
    """Checkpoint ``number``: made at a time, or so long ago; else a fresh one, the higher the newer."""
    created = at if at is not None else NOW - (age if age is not None else timedelta(minutes=1000 - number))
    bases = frozenset(CheckpointId(base) for base in facts.pop("bases", ()))
    return Item(CheckpointId(number), created, epoch=facts.pop("epoch", number), bases=bases, **facts)


def items(*numbers: int, **facts: Any) -> list[Item]:
    return [item(number, **facts) for number in numbers]


def at(text: str, zone: str = "UTC") -> datetime:
    """A time on the clock of a zone; ``fold`` is asked for with a trailing ``*``: the second of two equal hours."""
    fold = text.endswith("*")
    return datetime.fromisoformat(text.removesuffix("*")).replace(tzinfo=ZoneInfo(zone), fold=fold)


def kept(found: list[Item], now: datetime = NOW, **policy: Any) -> list[int]:
    """The numbers of those that stay, ascending."""
    verdicts = decide(found, RetentionPolicy(**policy), now)
    return sorted(int(verdict.id.value) for verdict in verdicts if verdict.keep)


def reasons(found: list[Item], number: int, now: datetime = NOW, **policy: Any) -> tuple[str, ...]:
    verdicts = {verdict.id: verdict for verdict in decide(found, RetentionPolicy(**policy), now)}
    return verdicts[CheckpointId(number)].reasons
