"""``audit``: who changed what, and when."""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.text import iso, moment_text
from airflow_provider_checkpoint.lifecycle.records import AuditRecord, read_audit
from airflow_provider_checkpoint.lifecycle.spans import format_size

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout

_COLUMNS = (
    Column("STARTED", whole=True),
    Column("VERB", whole=True),
    Column("BY"),
    Column("RUN", whole=True),
    Column("OUTCOME"),
)


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    # The two records of a run stand beside each other, so no more are read than are shown.
    together = (
        {str(record.phase): record for record in records}
        for _, records in groupby(read_audit(layout.blobs), key=lambda record: record.run)
    )
    runs = list(islice(together, arguments.limit))
    if console.json:
        console.document({"uri": layout.blobs.uri, "layout": layout.name, "runs": [_document(one) for one in runs]})
    elif not runs:
        console.line("No records: nothing was changed here by this program.")
    else:
        console.table(_COLUMNS, [_row(one) for one in runs])
    return exits.FINE


def _document(phases: dict[str, AuditRecord]) -> dict[str, Any]:
    known = next(iter(phases.values()))
    started, finished = phases.get("started"), phases.get("finished")
    return {
        "run": known.run,
        "verb": known.verb,
        "by": known.by,
        "started": None if started is None else iso(started.at),
        "finished": None if finished is None else iso(finished.at),
        "details": {} if started is None else started.details,
        "outcome": None if finished is None else finished.details,
    }


def _row(phases: dict[str, AuditRecord]) -> Row:
    known = phases.get("started") or next(iter(phases.values()))
    finished = phases.get("finished")
    told = "no end is recorded: interrupted, or still running" if finished is None else outcome(finished.details)
    return Row((moment_text(known.at), known.verb, known.by, known.run, told), "yellow" if finished is None else "")


def outcome(details: dict[str, Any]) -> str:
    """What a run says of itself. Records are read from the store, so nothing in them is taken for granted."""
    numbers = [(name, details.get(name)) for name in ("done", "not_done")]
    parts = [f"{value:,} {name.replace('_', ' ')}" for name, value in numbers if isinstance(value, int) and value]
    if isinstance(details.get("bytes"), int) and details["bytes"]:
        parts.append(format_size(details["bytes"]))
    if "timeline" in details:
        parts.append(f"timeline {details['timeline']}")
    return ", ".join(parts) or "nothing to do"
