"""``prune``: move checkpoints that no rule keeps to the trash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.cli.verbs._plans import apply_if_asked, plan_document, tell_outcome
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
from airflow_provider_checkpoint.lifecycle.retention import RULES, RetentionPolicy
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan

_COLUMNS = (
    Column("ID", whole=True),
    Column("ACTION", whole=True),
    Column("FREES", right=True, whole=True),
    Column("WHY"),
)


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    policy = policy_from(arguments)
    plan = plan_prune(layout, policy, now=console.now, depth=Depth(arguments.depth or "presence"))
    applied = apply_if_asked(arguments, lambda: Executor(layout, by=who(arguments)).prune(plan))
    if console.json:
        console.document(plan_document(plan, applied))
    else:
        show(plan, console)
        going = f"{len(plan.removed):,} of {counted(len(plan.items), 'checkpoint')}"
        would = f"{going} would go to the trash; a sweep would then free {format_size(plan.bytes)}."
        idle = (
            None if plan.removed else f"Nothing to prune: {counted(len(plan.items), 'checkpoint')}, all of them kept."
        )
        tell_outcome(console, applied, would=would, done=_done, idle=idle)
    return applied.exit_code


def _done(number: int, freed: str) -> str:
    return f"{counted(number, 'checkpoint')} moved to the trash; a sweep will free {freed}. undelete brings them back."


def policy_from(arguments: Namespace) -> RetentionPolicy:
    """The rules that were typed; raises ConfigurationError in the words of the command line."""
    given = {name: getattr(arguments, name) for name in (*RULES, "min_age", "time_zone")}
    if all(given[name] is None for name in RULES):
        raise ConfigurationError(
            "no rule says what to keep, so everything would go",
            hint="For example: --keep-last 3 --keep-daily 14. The other rules are in --help.",
        )
    try:
        return RetentionPolicy.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        raise ConfigurationError(f"--{name}: {first['msg'].removeprefix('Value error, ')}") from None


def show(plan: PrunePlan, console: Console) -> None:
    rows = [
        Row(
            (
                str(item.checkpoint_id),
                item.action,
                format_size(item.bytes) if item.action == "trash" else "",
                "; ".join(item.reasons),
            ),
            "yellow" if item.action == "trash" else "",
        )
        for item in plan.items
    ]
    console.table(_COLUMNS, rows)
    console.line()
