"""``sweep``: remove for good what was pruned long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.cli.verbs._plans import apply_if_asked, plan_document, show_some, tell_outcome
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_sweep
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.spans import format_size, format_span

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import SweepPlan

_COLUMNS = (Column("OBJECT"), Column("SIZE", right=True, whole=True), Column("WHY"))


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    safety = SAFE if arguments.undo_window is None else Safety(undo_window=arguments.undo_window)
    plan = plan_sweep(layout, now=console.now, safety=safety)
    applied = apply_if_asked(arguments, lambda: Executor(layout, by=who(arguments), safety=safety).sweep(plan))
    if console.json:
        console.document(plan_document(plan, applied))
        return applied.exit_code
    show(plan, console)
    if not plan.expired and applied.error is None:
        return applied.exit_code
    would = (
        f"{counted(len(plan.expired), 'checkpoint')} with {counted(len(plan.items), 'object')} would leave for good,"
        f" {format_size(plan.bytes)}."
    )
    tell_outcome(
        console,
        applied,
        would=would,
        done=lambda number, freed: f"{counted(number, 'object')} removed for good, {freed}.",
    )
    return applied.exit_code


def show(plan: SweepPlan, console: Console) -> None:
    if not plan.expired:
        window = format_span(plan.made - plan.undo_window_end)
        console.line(f"Nothing to sweep: nothing was pruned more than {window} ago.")
        return
    rows = [Row((item.path, format_size(item.bytes), "; ".join(item.reasons)), "yellow") for item in plan.items]
    show_some(console, _COLUMNS, rows)
    console.line()
