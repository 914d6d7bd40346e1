"""Keep checkpoint stores healthy, every night.

For each pipeline of the store, side by side: prove what was proven longest ago, move what no rule keeps to the trash,
remove for good what was pruned long ago, and remove what dead writers left. The report at the end fails if a checkpoint
cannot be restored or a step went wrong, so that an alarm on this DAG is an alarm on the checkpoints.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task, task_group
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_checkpoint.operators.prune import (
    CheckpointOrphanCleanupOperator,
    CheckpointPruneOperator,
    CheckpointSweepOperator,
)
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator

with DAG(
    dag_id="checkpoint_maintenance",
    description="Prove, prune, sweep and clean the checkpoints of every pipeline.",
    doc_md=__doc__,
    schedule="30 3 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in the zone of the DAG
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["checkpoint", "maintenance"],
    params={
        "connection": Param("checkpoint_default", type="string", title="Checkpoint connection"),
        "pipelines": Param(
            [], type="array", items={"type": "string"}, title="Pipelines", description="Empty: all of the store."
        ),
        "policy": Param(
            {"keep_last": 10, "keep_hourly": 24, "keep_daily": 14, "keep_weekly": 8, "min_age": "1h"},
            type="object",
            title="What to keep",
        ),
        "undo_window": Param("24h", type="string", title="Undo window"),
        "orphan_age": Param("24h", type="string", title="Age of orphans"),
        "budget": Param("10m", type="string", title="Time for proving, per pipeline"),
        "dry_run": Param(False, type="boolean", title="Dry run", description="Plan and report; remove nothing."),
    },
) as dag:

    @task
    def pipelines(params: dict[str, Any]) -> list[str]:
        """The pipelines to look after."""
        from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook

        found = params["pipelines"] or CheckpointHook(params["connection"]).pipelines()
        if not found:
            raise AirflowFailException("the store holds no pipeline: is the address of the connection right?")
        return list(found)

    @task_group
    def care(pipeline: str) -> None:
        """One pipeline."""
        store: dict[str, Any] = {"pipeline": pipeline, "checkpoint_conn_id": "{{ params.connection }}"}
        removing = {**store, "dry_run": "{{ params.dry_run }}"}
        # What is found invalid is told by the report. It must not keep the rest from being done.
        validate = CheckpointValidateOperator(
            task_id="validate", **store, rolling=True, budget="{{ params.budget }}", fail_on_invalid=False
        )
        prune = CheckpointPruneOperator(task_id="prune", **removing, policy="{{ params.policy | tojson }}")
        sweep = CheckpointSweepOperator(task_id="sweep", **removing, undo_window="{{ params.undo_window }}")
        orphans = CheckpointOrphanCleanupOperator(task_id="orphans", **removing, min_age="{{ params.orphan_age }}")
        validate >> prune >> sweep >> orphans

    @task(trigger_rule=TriggerRule.ALL_DONE)
    def report(names: list[str] | None, **context: Any) -> dict[str, Any]:
        """A table of what was found and done; fails if a person should look."""
        from maintenance_report import rows_of, table_of, troubles_of

        if names is None:
            raise AirflowFailException("nothing was done: which pipelines there are could not be told")
        rows = rows_of(names, context["ti"])
        print(table_of(rows))
        troubles = troubles_of(rows)
        if troubles:
            raise AirflowFailException("; ".join(troubles))
        return {"pipelines": rows}

    names = pipelines()
    care.expand(pipeline=names) >> report(names)
