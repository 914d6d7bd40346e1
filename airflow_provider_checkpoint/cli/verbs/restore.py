"""``restore``: go back to a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import some_ids
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.restoring import plan_restore
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import RestorePlan
    from airflow_provider_checkpoint.model import Timeline


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    if arguments.yes and arguments.dry_run:
        raise ConfigurationError("--yes and --dry-run contradict each other", hint="Leave one of them out.")
    if isinstance(layout, StructuredStreamingLayout):
        from airflow_provider_checkpoint.cli.verbs import _going_back

        return _going_back.run(layout, arguments, console)
    if arguments.to is not None:
        raise ConfigurationError("--to is for checkpoint directories of Spark", hint="Leave it out.")
    # First: one that is not there at all is a mistake of typing, not a want of recovery points.
    checkpoint = layout.load(layout.parse_id(arguments.id))
    wish = Wish(strategy=Strategy.ID, checkpoint_id=checkpoint.id, depth=Depth(arguments.depth or "content"))
    plan = plan_restore(layout, choose(layout, wish, now=console.now))
    opened = None
    if arguments.yes:
        mark = f"{RESTORE_MARK}{uuid4().hex}"
        opened = Executor(layout, by=who(arguments)).restore(plan, reason=arguments.reason, mark=mark)
    if console.json:
        timeline = None if opened is None else opened.model_dump(mode="json")
        console.document(plan.model_dump(mode="json") | {"applied": opened is not None, "timeline": timeline})
    else:
        show(plan, opened, console)
    return exits.FINE


def show(plan: RestorePlan, opened: Timeline | None, console: Console) -> None:
    """In words: where history goes on, and what is left behind."""
    where = "from nothing" if plan.checkpoint_id is None else f"after checkpoint {plan.checkpoint_id}"
    epoch = "" if plan.epoch is None else f" (epoch {plan.epoch})"
    if opened is None:
        console.line(f"History would go on {where}{epoch}, on a new timeline.", "bold")
    else:
        console.line(f"Timeline {opened.number} goes on {where}{epoch}.", "bold")
    would = "would be" if opened is None else "are"
    console.line(f"Writers of earlier timelines {would} refused. Checkpoints left behind: {some_ids(plan.abandons)}.")
    for warning in plan.warnings:
        console.line(f"warning: {warning}", "yellow")
    if opened is None:
        console.line("Nothing was changed: this is a dry run. Add --yes to do it.")
