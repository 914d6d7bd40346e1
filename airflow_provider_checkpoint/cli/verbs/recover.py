"""``recover``: choose the point to go back to, and say why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row, error_document
from airflow_provider_checkpoint.cli.text import ago, counted, moment_text
from airflow_provider_checkpoint.exceptions import ConfigurationError, NoRecoveryPointError
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import Distance, RecoveryPlan, SinkAction, Skipped

_SKIPPED = (Column("PASSED OVER", whole=True), Column("WHY"))
_SINKS = (Column("SINK"), Column("ACTION"), Column("EPOCHS"))
_AGAIN = (Column("SOURCE"), Column("PARTITION"), Column("TO READ AGAIN", right=True))

#: The argument that speaks for a strategy without naming it.
_SPEAKS_FOR = {
    "id": Strategy.ID,
    "at": Strategy.BEFORE_TIME,
    "epoch": Strategy.BEFORE_EPOCH,
    "watermark": Strategy.BEFORE_WATERMARK,
    "offset": Strategy.BEFORE_OFFSET,
    "pin": Strategy.PIN,
}
_EPOCHS_SHOWN = 8


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    wish = wish_from(layout, arguments)
    try:
        plan = choose(layout, wish, now=console.now)
    except NoRecoveryPointError as error:
        _tell_none(layout, wish, error, console)
        return exits.FINDINGS
    if console.json:
        console.document(plan.model_dump(mode="json"))
    else:
        show(plan, console)
    return exits.FINE


# -- what is wanted ----------------------------------------------------------------------------------------------


def wish_from(layout: Layout, arguments: Namespace) -> Wish:
    return Wish(
        strategy=strategy_from(arguments),
        checkpoint_id=None if arguments.id is None else layout.parse_id(arguments.id),
        at=arguments.at,
        epoch=arguments.epoch,
        watermark=arguments.watermark,
        source=arguments.source,
        partition=arguments.partition,
        offset=arguments.offset,
        pin=arguments.pin,
        depth=Depth(arguments.depth or "content"),
        max_rollback=arguments.max_rollback,
        max_rollback_epochs=arguments.max_rollback_epochs,
        fresh_start_ok=arguments.fresh_start_ok,
        pipeline_hash=arguments.pipeline_hash,
        hash_policy=arguments.hash_policy,
        vnode_count=arguments.vnode_count,
        source_names=None if arguments.expect_source is None else frozenset(arguments.expect_source),
        sink_names=None if arguments.expect_sink is None else frozenset(arguments.expect_sink),
        skip=frozenset(layout.parse_id(word) for word in arguments.skip),
    )


def strategy_from(arguments: Namespace) -> Strategy:
    """The strategy that was named, or else the one the other arguments speak for. What does not fit, Wish refuses."""
    if arguments.strategy is not None:
        return Strategy(arguments.strategy)
    spoken = [name for name in _SPEAKS_FOR if getattr(arguments, name) is not None]
    if len(spoken) > 1:
        raise ConfigurationError(f"--{' and --'.join(spoken)} ask for different points", hint="Give one of them.")
    return _SPEAKS_FOR[spoken[0]] if spoken else Strategy.LATEST


# -- nothing fits ------------------------------------------------------------------------------------------------


def _tell_none(layout: Layout, wish: Wish, error: NoRecoveryPointError, console: Console) -> None:
    if console.json:
        console.complain(error)
        console.document(_none_document(layout, wish, error))
        return
    # Who wants one certain checkpoint is told what is wrong with that one, and not that the others are others.
    if error.skipped and not wish.exact:
        _show_skipped(error.skipped, console)
        # The hint repeats the first of them; they stand above.
        error = NoRecoveryPointError(
            error.message,
            subject=error.subject,
            hint="Widen the limits, choose another strategy, or allow a --fresh-start-ok, which gives up all state.",
        )
    console.complain(error)


def _none_document(layout: Layout, wish: Wish, error: NoRecoveryPointError) -> dict[str, Any]:
    return {
        "uri": layout.blobs.uri,
        "layout": layout.name,
        "strategy": wish.strategy.value,
        "depth": wish.depth.value,
        "chosen": None,
        "skipped": [skipped.model_dump(mode="json") for skipped in error.skipped],
        "distance": None,
        "sinks": [],
        "warnings": [],
        "error": error_document(error),
    }


# -- for people --------------------------------------------------------------------------------------------------


def show(plan: RecoveryPlan, console: Console) -> None:
    if plan.chosen is None:
        console.line("Fresh start: no checkpoint fits, and this was allowed.", "bold yellow")
    else:
        console.line(f"Recover from checkpoint {plan.chosen}", "bold green")
        console.pairs(_about(plan, console))
    if plan.skipped:
        console.line()
        _show_skipped(plan.skipped, console)
    if plan.distance is not None and plan.distance.sources:
        console.line()
        console.table(_AGAIN, list(_again(plan.distance)))
    if plan.sinks:
        console.line()
        console.table(_SINKS, [_sink(action) for action in plan.sinks])
    if plan.warnings:
        console.line()
        for warning in plan.warnings:
            console.line(f"warning: {warning}", "yellow")


def _about(plan: RecoveryPlan, console: Console) -> Iterator[tuple[str, str]]:
    yield "epoch", str(plan.epoch)
    yield "timeline", str(plan.timeline)
    if plan.created is not None:
        yield "made", f"{moment_text(plan.created)} ({ago(plan.created, console.now)})"
    yield "proven", f"to depth {plan.depth}"
    yield "distance", _distance(plan)


def _distance(plan: RecoveryPlan) -> str:
    distance = plan.distance
    if distance is None or not distance.checkpoints:
        return "none: it is the newest"
    from datetime import timedelta

    parts = [
        counted(distance.checkpoints, "checkpoint"),
        counted(distance.epochs, "epoch"),
        format_span(timedelta(seconds=distance.seconds)),
    ]
    if distance.events is not None:
        parts.append(counted(distance.events, "event"))
    return f"{', '.join(parts)} behind {plan.head}"


def _show_skipped(skipped: Sequence[Skipped], console: Console) -> None:
    console.table(_SKIPPED, [Row((str(one.checkpoint_id), one.reason)) for one in skipped])


def _again(distance: Distance) -> Iterator[Row]:
    for source, partitions in distance.sources.items():
        for partition, amount in partitions.items():
            yield Row((source, partition, f"{amount:,}"))


def _sink(action: SinkAction) -> Row:
    epochs = [str(epoch) for epoch in action.epochs]
    shown = ", ".join(epochs if len(epochs) <= _EPOCHS_SHOWN else [*epochs[:_EPOCHS_SHOWN], f"... ({len(epochs)})"])
    return Row((action.sink, action.action.replace("_", " "), shown))
