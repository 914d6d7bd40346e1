"""``orphans``: find and remove objects that no checkpoint needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.cli.verbs._plans import apply_if_asked, plan_document, show_some, tell_outcome
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision
from airflow_provider_checkpoint.lifecycle.safety import ORPHAN_AGE_FLOOR, SAFE, Safety
from airflow_provider_checkpoint.lifecycle.spans import format_size, format_span

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan

_COLUMNS = (
    Column("OBJECT"),
    Column("ACTION", whole=True),
    Column("SIZE", right=True, whole=True),
    Column("WHY"),
)

_STAYS = {
    OrphanDecision.KEEP_ACTIVE: "needed",
    OrphanDecision.DEFER: "too young to tell",
    OrphanDecision.SKIP_UNKNOWN: "not ours",
}


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    safety = safety_from(arguments)
    if safety.orphan_age < ORPHAN_AGE_FLOOR:
        console.warn(
            f"--min-age {format_span(safety.orphan_age)} is too short: a checkpoint that is being written would look"
            f" like orphans. {format_span(ORPHAN_AGE_FLOOR)} is used."
        )
    plan = plan_orphans(layout, now=console.now, safety=safety)
    applied = apply_if_asked(
        arguments,
        lambda: Executor(layout, by=who(arguments), safety=safety).remove_orphans(plan, confirmed=arguments.confirm),
    )
    if console.json:
        console.document(plan_document(plan, applied))
    else:
        show(plan, console)
        would = f"{counted(len(plan.deletions), 'object')} would be removed, {format_size(plan.bytes)}."
        tell_outcome(
            console,
            applied,
            would=would,
            done=lambda number, freed: f"{counted(number, 'object')} removed, {freed}.",
            idle=None if plan.deletions else "Nothing to remove: there is no orphan.",
        )
    return applied.exit_code


def safety_from(arguments: Namespace) -> Safety:
    """The usual care, with what was typed."""
    given = {
        "orphan_age": arguments.min_age,
        "max_orphan_share": arguments.max_share,
        "max_orphan_bytes": arguments.max_bytes,
    }
    return replace(SAFE, **{name: value for name, value in given.items() if value is not None})


def show(plan: OrphanPlan, console: Console) -> None:
    staying = [item for item in plan.items if item.action is not OrphanDecision.DELETE]
    show_some(
        console,
        _COLUMNS,
        [
            Row(
                (item.path, item.action.value, format_size(item.bytes), "; ".join(item.reasons)),
                "yellow" if item.action is OrphanDecision.DELETE else "dim",
            )
            for item in (*plan.deletions, *staying)
        ],
    )
    kept = [f"{number:,} {_STAYS[decision]}" for decision, number in plan.counts.items() if decision in _STAYS]
    if kept:
        console.line(f"Objects that stay, of which a few are shown: {', '.join(kept)}.")
    console.line()
    if plan.question:
        console.warn(f"{plan.question}. --yes alone will not do it: look, then add --confirm.")
    if plan.truncated:
        console.note("There is more than fits into one plan: run again afterwards.")
