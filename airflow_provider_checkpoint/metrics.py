"""Numbers for whoever watches from afar, through Airflow's own metrics (StatsD, OpenTelemetry), tagged by pipeline.

| name | kind | told by |
|---|---|---|
| ``checkpoint.freshness_seconds`` | gauge | the freshness sensor, prune |
| ``checkpoint.retained_count``, ``checkpoint.retained_bytes`` | gauge | prune |
| ``checkpoint.invalid_count`` | gauge | validate |
| ``checkpoint.pruned_bytes`` | counter | prune: what a sweep will free |
| ``checkpoint.freed_bytes`` | counter | sweep, orphan cleanup |
| ``checkpoint.recovery_distance_seconds`` | gauge | select: how far the point is behind the newest checkpoint |
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_PREFIX = "checkpoint"


def gauge(name: str, value: float, *, pipeline: str | None, connection: str | None) -> None:
    """Tell how things stand."""
    from airflow.sdk.observability import stats

    _tell(lambda: stats.gauge(f"{_PREFIX}.{name}", value, tags=_tags(pipeline, connection)))


def count(name: str, amount: int, *, pipeline: str | None, connection: str | None) -> None:
    """Add to a total."""
    from airflow.sdk.observability import stats

    _tell(lambda: stats.incr(f"{_PREFIX}.{name}", amount, tags=_tags(pipeline, connection)))


def _tags(pipeline: str | None, connection: str | None) -> dict[str, str]:
    from airflow.sdk.observability import stats

    named = {"pipeline": pipeline, "connection": connection}
    return {name: stats.normalize_name_for_stats(value, log_warning=False) for name, value in named.items() if value}


def _tell(send: Callable[[], None]) -> None:
    """A number that nobody receives is no reason for a task to fail."""
    try:
        send()
    except Exception:  # noqa: BLE001 - whatever the back end raises
        _log.warning("a metric could not be sent", exc_info=True)
