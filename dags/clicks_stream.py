"""Clicks per page and minute, as a plain Structured Streaming query with Spark's own checkpoint directory.

The job knows nothing of this package. After each run the newest batch is sealed: a SHA-256 of every file it needs, kept
beside the directory. ``checkpoint_recovery`` goes back to an earlier batch by a copy of the directory (*Copy to*) and
starts this DAG on the copy.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param

from airflow_provider_checkpoint.operators.seal import CheckpointSealOperator

with DAG(
    dag_id="clicks_stream",
    description="A plain Structured Streaming query whose checkpoints are sealed.",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    tags=["checkpoint", "pipeline"],
    params={
        "input": Param("/data/clicks", type="string", title="Input", description="Where clicks land, as *.json."),
        "output": Param("/data/pages", type="string", title="Output", description="Where the file sink writes."),
        "checkpoint_location": Param(
            "/data/checkpoints/clicks", type="string", title="Checkpoint location", description="As Spark calls it."
        ),
        "files_per_batch": Param(2, type="integer", minimum=1, title="Files per batch"),
    },
):
    run = SparkSubmitOperator(
        task_id="run",
        application=str(Path(__file__).parent / "jobs" / "clicks_stream.py"),
        application_args=[
            *("--input", "{{ params.input }}"),
            *("--output", "{{ params.output }}"),
            *("--checkpoint", "{{ params.checkpoint_location }}"),
            *("--files-per-batch", "{{ params.files_per_batch }}"),
        ],
        conf={"spark.log.level": "WARN", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"},
        retries=1,
        retry_delay=timedelta(seconds=10),
    )
    seal = CheckpointSealOperator(
        task_id="seal",
        # The folder of the directory is the name of the pipeline.
        pipeline="{{ params.checkpoint_location.rstrip('/').rpartition('/')[2] }}",
        layout="structured_streaming",
    )
    run >> seal
