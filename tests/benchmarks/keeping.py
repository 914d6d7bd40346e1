"""Deciding what stays: a retention plan over very many checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.lifecycle.facts import Known, Survey
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
from airflow_provider_checkpoint.lifecycle.retention import Item, RetentionPolicy, decide
from airflow_provider_checkpoint.lifecycle.timelines import lineage
from airflow_provider_checkpoint.model import Artifact, Checkpoint
from tests.benchmarks._measure import Contender, Line, seconds
from tests.benchmarks._stores import artifact_key, layout_on, nth_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan
    from tests.benchmarks._stage import Stage

NOW = datetime(2026, 11, 16, tzinfo=UTC)
POLICY = RetentionPolicy.model_validate(
    {"keep_last": 10, "keep_within": "6h", "keep_hourly": 48, "keep_daily": 14, "keep_weekly": 8, "keep_monthly": 12}
)
PARTITIONS = 4
#: Ten times the checkpoints may cost ten times as much, and a little for the sorting.
GROWTH = 1.3


def rows(stage: Stage) -> Iterator[Line]:
    """Decide about checkpoints a minute apart, by six rules; then make the whole plan of it."""
    few, many = stage.full((10_000, 100_000), (1_000, 10_000))
    items = {count: _items(count) for count in (few, many)}
    stores = {count: _store(count) for count in (few, many)}

    def plan(count: int) -> PrunePlan:
        blobs, found = stores[count]
        return plan_prune(layout_on(blobs), POLICY, now=NOW, store=found)

    acts = {
        "decide by six rules about": lambda count: decide(items[count], POLICY, NOW),
        "plan retention of": plan,
    }
    for what, act in acts.items():
        contenders = [Contender(f"{count:,}", lambda act=act, count=count: act(count)) for count in (few, many)]  # type: ignore[misc]
        medians = stage.race(contenders, repeats=3, warm_up=False)
        ours, smaller = medians[f"{many:,}"], medians[f"{few:,}"] * many / few
        yield Line(
            f"{what} {many:,} checkpoints",
            seconds(ours),
            f"{many // few} times that of {few:,}",
            seconds(smaller),
            ours / smaller,
            GROWTH,
        )


def _made(number: int, count: int) -> datetime:
    return NOW - timedelta(minutes=count - number)


def _items(count: int) -> list[Item]:
    return [Item(nth_id(number), _made(number, count), epoch=number + 1) for number in range(count)]


def _store(count: int) -> tuple[MemoryBlobs, Survey]:
    blobs = MemoryBlobs(f"keeping-{count}")
    known = []
    for number in range(count):
        each = nth_id(number)
        blobs.create(f"{each}/manifest.json", str(each).encode())
        keys = [artifact_key(each, partition) for partition in range(PARTITIONS)]
        # Only the newest are asked whether they are whole.
        for key in keys if count - number <= 2 * (POLICY.keep_last or 0) else ():
            blobs.create(key, b"state")
        artifacts = tuple(Artifact(key, size=5) for key in keys)
        known.append(Known(each, Checkpoint(each, number + 1, _made(number, count), artifacts=artifacts)))
    return blobs, Survey(tuple(known), (), (), lineage([]), {}, ())
