"""Reading what the pages show: once, from an open store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.lifecycle.facts import Survey, survey
from airflow_provider_checkpoint.lifecycle.pruning import Foreseen, foresee_prune
from airflow_provider_checkpoint.lifecycle.records import AuditRecord, read_audit
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import CheckpointId

#: What is previewed where nobody says otherwise: what the DAG ``checkpoint_maintenance`` keeps.
USUAL_POLICY = RetentionPolicy.model_validate(
    {"keep_last": 10, "keep_hourly": 24, "keep_daily": 14, "keep_weekly": 8, "min_age": "1h"}
)
#: Up to when it is told what will go.
HORIZONS = (timedelta(days=1), timedelta(days=7), timedelta(days=30))
_RUNS = 15


@dataclass(frozen=True, slots=True)
class AuditedRun:
    """One run that changed the store."""

    started: AuditRecord
    finished: AuditRecord | None
    """None: interrupted, or still running."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a page of one pipeline is made from."""

    uri: str
    layout: str
    now: datetime
    store: Survey
    policy: RetentionPolicy
    foreseen: Mapping[CheckpointId, Foreseen]
    audit: tuple[AuditedRun, ...]


def gather(layout: Layout, *, now: datetime, policy: RetentionPolicy = USUAL_POLICY) -> Facts:
    """Read a store. Costs a survey, and a few small reads for the audit trail; no artifact is read."""
    store = survey(layout)
    return Facts(
        uri=layout.blobs.uri,
        layout=layout.name,
        now=now,
        store=store,
        policy=policy,
        foreseen=foresee_prune(layout, policy, now=now, store=store, horizons=HORIZONS),
        audit=tuple(_runs(layout)),
    )


def _runs(layout: Layout) -> list[AuditedRun]:
    together = groupby(read_audit(layout.blobs), key=lambda record: record.run)
    phases = ({record.phase: record for record in records} for _, records in islice(together, _RUNS))
    return [
        AuditedRun(started=each.get("started") or each["finished"], finished=each.get("finished")) for each in phases
    ]
