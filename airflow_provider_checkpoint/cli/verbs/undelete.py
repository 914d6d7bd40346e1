"""``undelete``: bring a pruned checkpoint back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.lifecycle.executor import Executor

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    checkpoint_id = layout.parse_id(arguments.id)
    report = Executor(layout, by=who(arguments)).undelete(checkpoint_id)
    if console.json:
        outcomes = [outcome.model_dump(mode="json") for outcome in report.outcomes]
        console.document({"checkpoint_id": checkpoint_id.value, "run": report.run, "outcomes": outcomes})
    else:
        console.line(f"Checkpoint {checkpoint_id} is back.")
    return exits.FINDINGS if report.failures else exits.FINE
