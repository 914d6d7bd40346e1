"""``restore`` for a checkpoint directory of Spark: a copy that ends with the batch, and its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.structured_streaming import ADVICE
from airflow_provider_checkpoint.layouts.structured_streaming.going_back import Rollback, go_back, plan_rollback
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout


def run(layout: StructuredStreamingLayout, arguments: Namespace, console: Console) -> int:
    if arguments.to is None:
        raise ConfigurationError(
            "a directory of Spark is not changed in place",
            subject=layout.blobs.uri,
            hint="Say where the copy goes that ends with the batch: --to URI. Then start the query on the copy.",
        )
    checkpoint = layout.load(layout.parse_id(arguments.id))
    rollback = plan_rollback(
        layout,
        checkpoint.id,
        arguments.to,
        options=arguments.store_options,
        now=console.now,
        new_query_id=arguments.new_query_id,
        file_sink=arguments.file_sink,
        batch_folders=arguments.batch_folders,
    )
    if arguments.yes:
        go_back(
            layout,
            rollback,
            by=who(arguments),
            reason=arguments.reason,
            depth=Depth(arguments.depth or "content"),
            missing_input_ok=arguments.missing_input_ok,
        )
    if console.json:
        sinks = [cleanup.model_dump(mode="json") for _, cleanup in rollback.sinks]
        console.document(rollback.plan.model_dump(mode="json") | {"sinks": sinks, "applied": bool(arguments.yes)})
    else:
        show(rollback, console, done=arguments.yes)
    return exits.FINE


def show(rollback: Rollback, console: Console, *, done: bool) -> None:
    """In words: what is copied, what goes from the sinks, and what to do next."""
    plan, sinks = rollback.plan, [cleanup for _, cleanup in rollback.sinks]
    verb = "was copied" if done else "would be copied"
    files = f"{counted(len(plan.items), 'file')}, {format_size(plan.bytes)}"
    console.line(f"The directory as it was after batch {plan.checkpoint_id} {verb} to {plan.target}: {files}.", "bold")
    for sink in sinks:
        gone = "removed" if done else "would be removed"
        entries = f"{len(sink.log):,} {'entry' if len(sink.log) == 1 else 'entries'} of its log, " if sink.log else ""
        console.line(f"{sink.uri}: {entries}{counted(len(sink.data), 'file')} of later batches {gone}.")
    if not sinks and plan.last > plan.checkpoint_id:
        console.line(
            f"Batches {int(plan.checkpoint_id.value) + 1} to {plan.last} will run again. What they published must go"
            " first: --file-sink, --batch-folders, or by hand."
        )
        for name, advice in ADVICE.items():
            console.line(f"  {name}: {advice}")
    for warning in plan.warnings:
        console.line(f"warning: {warning}", "yellow")
    if done:
        console.line(
            f"Start the query with checkpointLocation {plan.spark_location}. Keep the old directory until then."
        )
    else:
        console.line("Nothing was changed: this is a dry run. Add --yes to do it. Stop the query first.")
