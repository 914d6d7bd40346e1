"""Bring a pipeline back after an incident.

1. **select** looks for the newest checkpoint that fits and can be proven, and says why it passed over the others.
2. **approve** puts the choice before a person: how far back it is, what is read again, what happens to the sinks.
3. **restore** opens a timeline that goes on after the checkpoint. Whoever still writes is refused from then on.
4. **restart** starts the DAG of the pipeline.
5. **watch** waits until the restarted job has committed a checkpoint of its own.

With *dry run*, only the first step is taken. Clearing **restore** and what follows goes back to the same point once
more and starts another run of the pipeline; for another point, start a new run of this DAG.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.providers.standard.operators.trigger_dagrun import XCOM_RUN_ID, TriggerDagRunOperator
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import DagRunTriggerException

from airflow_provider_checkpoint.operators.approve import CheckpointApproveRecoveryOperator
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from airflow_provider_checkpoint.sensors.checkpoint import CheckpointCommittedSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

STRATEGIES = {
    "latest": "the newest that can be proven",
    "before_time": "made at or before a time",
    "before_epoch": "of an epoch before a certain one",
    "id": "a certain checkpoint",
    "pin": "the one that bears a pin",
}

WHAT, HOW = "What to go back to", "How to go on from there"


class RestartOperator(TriggerDagRunOperator):
    """Starts a run, unless an earlier try has started it and could not tell."""

    def execute(self, context: Context) -> None:
        try:
            super().execute(context)
        except DagRunTriggerException as wanted:
            instance = context["ti"]
            if not instance.get_dr_count(wanted.trigger_dag_id, run_ids=[wanted.dag_run_id]):
                raise
            self.log.info("an earlier try has started run %s of %s", wanted.dag_run_id, wanted.trigger_dag_id)
            instance.xcom_push(key=XCOM_RUN_ID, value=wanted.dag_run_id)


with DAG(
    dag_id="checkpoint_recovery",
    description="Choose a recovery point, have it approved, go back to it, restart the pipeline and watch it.",
    doc_md=__doc__,
    schedule=None,
    tags=["checkpoint", "recovery"],
    params={
        "pipeline": Param("orders", type="string", minLength=1, title="Pipeline", section=WHAT),
        "connection": Param(
            "checkpoint_default",
            type="string",
            title="Connection",
            description="The Checkpoint Store that the pipeline is in.",
            section=WHAT,
        ),
        "reason": Param(
            None,
            type=["null", "string"],
            title="Reason",
            description="For the record, such as the number of the incident.",
            section=WHAT,
        ),
        "strategy": Param(
            "latest",
            type="string",
            enum=list(STRATEGIES),
            values_display=STRATEGIES,
            title="Go back to",
            section=WHAT,
        ),
        "time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Time",
            description="For a point before a time: the last moment at which all was well.",
            section=WHAT,
        ),
        "epoch": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Epoch",
            description="For a point before an epoch.",
            section=WHAT,
        ),
        "checkpoint": Param(
            None,
            type=["null", "string"],
            title="Checkpoint or pin",
            description="For a certain checkpoint its id, for a pin its name.",
            section=WHAT,
        ),
        "max_rollback": Param(
            None,
            type=["null", "string"],
            pattern=r"^\s*(\d+[smhdw]\s*)+$",
            title="Longest rollback",
            description="Fail rather than go back further than this behind the newest checkpoint, such as 2h.",
            section=WHAT,
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only choose and explain.",
            section=HOW,
        ),
        "approval": Param(
            True,
            type="boolean",
            title="Ask a person",
            description="Wait for approval before anything changes.",
            section=HOW,
        ),
        "restart_dag": Param(
            "orders_pipeline",
            type=["null", "string"],
            title="Restart DAG",
            description="Started with the parameters below. Empty: go back, but start nothing.",
            section=HOW,
        ),
        "restart_conf": Param(
            {},
            type="object",
            title="Parameters of the restart",
            description="Parameters for the DAG of the pipeline; recover_from or checkpoint_location is added.",
            section=HOW,
        ),
        "copy_to": Param(
            None,
            type=["null", "string"],
            # A name, not an address: what is restarted is watched in the same store.
            pattern=r"^[^/:][^:]*$",
            title="Copy to",
            description="Only for a checkpoint directory that Spark wrote itself: the name of a new pipeline in the"
            " same store, for the copy that ends with the chosen batch. The restart gets it as checkpoint_location.",
            section=HOW,
        ),
        "file_sink": Param(
            None,
            type=["null", "string"],
            title="File sink",
            description="Only for a directory of Spark: the output of its file sink, which goes back as well.",
            section=HOW,
        ),
    },
) as dag:
    store = {"pipeline": "{{ params.pipeline }}", "checkpoint_conn_id": "{{ params.connection }}"}

    select = CheckpointSelectRecoveryPointOperator(
        task_id="select",
        **store,
        strategy="{{ params.strategy }}",
        at="{{ params.time or '' }}",
        epoch="{{ params.epoch or '' }}",
        checkpoint_id="{{ params.checkpoint or '' }}",
        pin="{{ params.checkpoint or '' }}",
        max_rollback="{{ params.max_rollback or '' }}",
        retries=2,
    )

    @task.short_circuit
    def go_on(params: dict[str, object]) -> bool:
        """End here if this is a dry run."""
        return not params["dry_run"]

    approve = CheckpointApproveRecoveryOperator(
        task_id="approve",
        **store,
        plan=select.output["plan"],
        ask="{{ params.approval }}",
        max_rollback="{{ params.max_rollback or '' }}",
        response_timeout=timedelta(hours=4),
    )

    restore = CheckpointRestoreOperator(
        task_id="restore",
        **store,
        checkpoint_id=approve.output["recover_from"],
        reason="{{ params.reason or '' }}",
        target="{{ params.copy_to or '' }}",
        file_sink="{{ params.file_sink or '' }}",
        retries=2,
    )

    @task.short_circuit
    def restart_wanted(params: dict[str, object]) -> bool:
        """End here if nothing shall be started."""
        return bool(params["restart_dag"])

    @task
    def restart_conf(params: dict[str, dict[str, object]], recover_from: str, location: str) -> dict[str, object]:
        """Parameters for the DAG of the pipeline: where to start, or for a directory of Spark, the copy to start on."""
        start = {"checkpoint_location": location} if location else {"recover_from": recover_from}
        return {**params["restart_conf"], **start}

    conf = restart_conf(recover_from=restore.output["recover_from"], location=restore.output["checkpoint_location"])
    restart = RestartOperator(
        task_id="restart",
        trigger_dag_id="{{ params.restart_dag }}",
        # The same in each retry, so that none starts a second run; another once the task was cleared, when its retries
        # begin anew.
        trigger_run_id="{% set tries_before = ti.max_tries - task.retries %}"
        "recovery__{{ run_id }}{{ '__%d' % (tries_before + 1) if tries_before > 0 else '' }}",
        conf=conf,
        # A run that waits until somebody unpauses it is no restart.
        fail_when_dag_is_paused=True,
    )

    watch = CheckpointCommittedSensor(
        task_id="watch",
        # Only a directory of Spark is copied.
        pipeline="{{ params.copy_to if ti.xcom_pull(task_ids='restore', key='checkpoint_location')"
        " else params.pipeline }}",
        checkpoint_conn_id=store["checkpoint_conn_id"],
        min_epoch="{{ ti.xcom_pull(task_ids='restore', key='epoch') | int + 1 }}",
        min_timeline="{{ ti.xcom_pull(task_ids='restore', key='timeline') | int + 1 }}",
        poke_interval=10,
        timeout=timedelta(hours=1).total_seconds(),
        deferrable=True,
    )

    select >> go_on() >> approve >> restore >> restart_wanted() >> conf >> restart >> watch
