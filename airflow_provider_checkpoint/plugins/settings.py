"""What the section ``[checkpoint]`` of Airflow's configuration says."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.sdk import conf
from pydantic import ValidationError

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.spans import format_span, parse_span
from airflow_provider_checkpoint.reports.gather import USUAL_POLICY
from airflow_provider_checkpoint.reports.views import Windows

if TYPE_CHECKING:
    from datetime import timedelta

SECTION = "checkpoint"
USUAL_WINDOWS = Windows()


@dataclass(frozen=True, slots=True)
class PageSettings:
    windows: Windows = USUAL_WINDOWS
    policy: RetentionPolicy = USUAL_POLICY
    cache_seconds: float = 10.0
    """How long what was read is shown before it is read again."""
    store_timeout: float = 1.0
    """How long a page waits for a store before it says that the store is slow."""
    recovery_dag: str = "checkpoint_recovery"

    @classmethod
    def from_airflow(cls) -> PageSettings:
        usual = cls()
        return cls(
            windows=_windows(usual.windows),
            policy=_policy(),
            cache_seconds=_seconds("page_cache_seconds", usual.cache_seconds, least=0),
            store_timeout=_seconds("store_timeout_seconds", usual.store_timeout, least=0.1),
            recovery_dag=conf.get(SECTION, "recovery_dag_id", fallback=usual.recovery_dag),
        )


def _windows(usual: Windows) -> Windows:
    windows = Windows(_span("freshness_warn", usual.warn), _span("freshness_fail", usual.fail))
    if windows.fail < windows.warn:
        raise _wrong(
            "freshness_fail",
            f"{format_span(windows.fail)} comes before freshness_warn ({format_span(windows.warn)})",
            "Write a longer span.",
        )
    return windows


def _span(name: str, usual: timedelta) -> timedelta:
    text = conf.get(SECTION, name, fallback="")
    try:
        return parse_span(text) if text else usual
    except ValueError as error:
        raise _wrong(name, str(error), "Write a span such as 30m, 6h or 1d12h.") from None


def _seconds(name: str, usual: float, *, least: float) -> float:
    text = conf.get(SECTION, name, fallback="")
    try:
        value = float(text) if text else usual
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise _wrong(name, f"not a number of seconds: {text!r}", f"Write a number of at least {least:g}, such as 10.")
    return value


def _policy() -> RetentionPolicy:
    text = conf.get(SECTION, "retention_policy", fallback="")
    try:
        return RetentionPolicy.model_validate(json.loads(text)) if text else USUAL_POLICY
    except ValueError as error:
        raise _wrong(
            "retention_policy",
            f"not a retention policy: {_in_short(error)}",
            'Write JSON such as {"keep_last": 10, "keep_daily": 14, "min_age": "1h"}.',
        ) from None


def _in_short(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f"not JSON ({error})"
    first = error.errors(include_input=False, include_url=False)[0]
    return ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])


def _wrong(name: str, message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, subject=f"[{SECTION}] {name}", hint=hint)
