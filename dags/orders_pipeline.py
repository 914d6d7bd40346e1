"""Totals per customer from orders, as a checkpointed Spark job.

Each run takes in what has arrived since the last checkpoint and ends. After an incident, ``checkpoint_recovery`` goes
back to a point that can be trusted and starts this DAG again.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_provider_checkpoint.assets import checkpoint_asset
from airflow_provider_checkpoint.operators.spark_submit import CheckpointSparkSubmitOperator

with DAG(
    dag_id="orders_pipeline",
    description="Totals per customer; can be killed at any instant and restarted exactly.",
    doc_md=__doc__,
    schedule=None,
    # A second run would take the pipeline over from the first. That is safe, but hardly ever meant.
    max_active_runs=1,
    tags=["checkpoint", "pipeline"],
    params={
        "input": Param("/data/landing", type="string", title="Input", description="Where orders land, as *.jsonl."),
        "output": Param("/data/tables", type="string", title="Output", description="Where the tables go."),
        "recover_from": Param(
            "latest",
            type="string",
            title="Start from",
            description="latest, the id of a checkpoint, or fresh (gives up all state).",
        ),
        "files_per_epoch": Param(4, type="integer", minimum=1, title="Files per epoch"),
    },
):
    CheckpointSparkSubmitOperator(
        task_id="run",
        pipeline="orders",
        recover_from="{{ params.recover_from }}",
        application=str(Path(__file__).parent / "jobs" / "orders_pipeline.py"),
        application_args=[
            *("--input", "{{ params.input }}"),
            *("--output", "{{ params.output }}"),
            *("--files-per-epoch", "{{ params.files_per_epoch }}"),
        ],
        conf={"spark.log.level": "WARN", "spark.ui.enabled": "false"},
        ship_credentials=True,
        outlets=[checkpoint_asset("orders")],
        retries=1,
        retry_delay=timedelta(seconds=10),
    )
