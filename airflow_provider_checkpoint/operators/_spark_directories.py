"""Going back in a checkpoint directory that Spark wrote itself, for the operator that restores."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli.verbs._going_back import show
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout
from airflow_provider_checkpoint.layouts.structured_streaming.going_back import go_back, plan_rollback
from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import who

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.operators.recovery import CheckpointRestoreOperator


def go_back_in(operator: CheckpointRestoreOperator, layout: Layout, context: Context) -> dict[str, Any]:
    """Copy the directory as it was after a batch, and take its sinks back."""
    assert isinstance(layout, StructuredStreamingLayout)
    named = _values.text(operator.target)
    if named is None:
        raise ConfigurationError(
            "a checkpoint directory of Spark is not changed in place",
            subject=layout.blobs.uri,
            hint="Say where the copy goes: target='clicks-2', or a whole address.",
        )
    root = operator.hook.settings.uri.rstrip("/")
    target = named if "://" in named or named.startswith("/") else f"{root}/{named}"
    now = datetime.now(UTC)
    checkpoint_id = layout.parse_id(str(operator.checkpoint_id))
    rollback = plan_rollback(
        layout,
        checkpoint_id,
        target,
        options=operator.hook.options,
        now=now,
        new_query_id=operator.new_query_id,
        file_sink=_values.text(operator.file_sink),
        batch_folders=_values.text(operator.batch_folders),
    )
    plan, batch = rollback.plan, layout.batch_of(checkpoint_id)
    dry = _values.flag("dry_run", operator.only_plan)
    if not dry:
        go_back(layout, rollback, by=who(context), reason=operator.reason, depth=_values.depth(operator.depth))
    operator.log_table(lambda console: show(rollback, console, done=not dry), now)
    return {
        "timeline": "",
        "checkpoint_id": str(checkpoint_id),
        "recover_from": str(checkpoint_id),
        "uri": plan.target,
        "store": plan.target,
        "pipeline": operator.pipeline or "",
        "epoch": str(batch),
        "abandoned": [str(each) for each in range(batch + 1, int(plan.last.value) + 1)],
        "checkpoint_location": plan.spark_location,
        "restored_at": now.isoformat(),
        "applied": not dry,
    }
