"""What prune, sweep and orphans share: a plan is made, applied if asked for, and told with what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row, error_document
from airflow_provider_checkpoint.cli.text import counted, on_one_line
from airflow_provider_checkpoint.exceptions import CheckpointError, ConfigurationError
from airflow_provider_checkpoint.lifecycle.spans import format_size

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan, PrunePlan, Report, SweepPlan

_OUTCOMES = (Column("NOT DONE"), Column("WHY"))
#: A person does not read more; a program gets all.
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan: nothing yet (a dry run), a report, or an error that stopped it."""

    report: Report | None = None
    error: CheckpointError | None = None

    @property
    def exit_code(self) -> int:
        if self.error is not None:
            return exits.exit_code(self.error)
        return exits.FINDINGS if self.report is not None and self.report.failures else exits.FINE


def apply_if_asked(arguments: Namespace, apply: Callable[[], Report]) -> Applied:
    """Apply only with ``--yes``. The plan must be told in any case, so that an error is kept and not raised."""
    if arguments.yes and arguments.dry_run:
        raise ConfigurationError("--yes and --dry-run contradict each other", hint="Leave one of them out.")
    if not arguments.yes:
        return Applied()
    try:
        return Applied(apply())
    except CheckpointError as error:
        return Applied(error=error)


def plan_document(plan: PrunePlan | SweepPlan | OrphanPlan, applied: Applied) -> dict[str, Any]:
    document = plan.model_dump(mode="json") | {"bytes": plan.bytes, "applied": applied.report is not None}
    if applied.report is not None:
        document |= {
            "run": applied.report.run or None,
            "outcomes": [outcome.model_dump(mode="json") for outcome in applied.report.outcomes],
            "bytes_done": applied.report.bytes,
        }
    if applied.error is not None:
        document["error"] = error_document(applied.error)
    return document


def show_some(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    console.table(columns, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        console.line(f"... and {len(rows) - _SHOWN:,} more (--json has all)")


def tell_outcome(
    console: Console, applied: Applied, *, would: str, done: Callable[[int, str], str], idle: str | None = None
) -> None:
    """The last lines: what would happen, or what has happened and what has not.

    :param done: words for how many items were done and how much they hold.
    :param idle: words for a plan in which nothing happens; None for every other.
    """
    if applied.error is not None:
        console.complain(applied.error)
        return
    if idle is not None:
        console.line(idle, "bold")
        return
    if applied.report is None:
        console.line(f"{would} Nothing was changed: this is a dry run. Add --yes to do it.", "bold")
        return
    failures = applied.report.failures
    finished = len(applied.report.outcomes) - len(failures)
    console.line(done(finished, format_size(applied.report.bytes)), "bold")
    if failures:
        console.line()
        show_some(console, _OUTCOMES, [Row((one.subject, on_one_line(one.message)), "red") for one in failures])
        console.note(f"{counted(len(failures), 'item')} not done; running the same again is safe.")
