"""What the section ``[checkpoint]`` of Airflow's configuration says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.sdk import conf

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.spans import parse_span
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
            cache_seconds=conf.getfloat(SECTION, "page_cache_seconds", fallback=usual.cache_seconds),
            store_timeout=conf.getfloat(SECTION, "store_timeout_seconds", fallback=usual.store_timeout),
            recovery_dag=conf.get(SECTION, "recovery_dag_id", fallback=usual.recovery_dag),
        )


def _windows(usual: Windows) -> Windows:
    windows = Windows(_span("freshness_warn", usual.warn), _span("freshness_fail", usual.fail))
    if windows.fail < windows.warn:
        raise ConfigurationError("it comes before freshness_warn", subject=f"[{SECTION}] freshness_fail")
    return windows


def _span(name: str, usual: timedelta) -> timedelta:
    text = conf.get(SECTION, name, fallback="")
    try:
        return parse_span(text) if text else usual
    except ValueError as error:
        raise ConfigurationError(str(error), subject=f"[{SECTION}] {name}") from None


def _policy() -> RetentionPolicy:
    text = conf.get(SECTION, "retention_policy", fallback="")
    try:
        return RetentionPolicy.model_validate(json.loads(text)) if text else USUAL_POLICY
    except ValueError as error:
        raise ConfigurationError(f"not a retention policy: {error}", subject=f"[{SECTION}] retention_policy") from None
