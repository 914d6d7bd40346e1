"""Restore each new checkpoint as a drill, as soon as it is there.

Scheduled on the checkpoints themselves: the triggerer watches the store, so that checkpoints of jobs that no DAG has
started count too. A failure here says that the newest point of recovery is none, while there is still time.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_checkpoint.assets import checkpoint_asset
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator

with DAG(
    dag_id="checkpoint_drill",
    description="Decode the newest checkpoint as a restart would.",
    doc_md=__doc__,
    schedule=[checkpoint_asset("orders", watch=True, poll_interval=20)],
    # A drill for each of a burst of checkpoints is of no use; the next one looks at the newest.
    max_active_runs=1,
    tags=["checkpoint", "drill"],
):
    CheckpointValidateOperator(
        task_id="drill",
        pipeline="orders",
        # What the watcher saw is in the payload of its event; the job's own outlet tells the same without one.
        # Events that had to wait come along, too; the newest counts.
        checkpoint_ids="{% set events = triggering_asset_events.values() | sum(start=[]) %}"
        "{% if events %}"
        "{% set extra = (events | sort(attribute='timestamp') | last).extra %}"
        "{{ (extra.get('payload') or extra)['checkpoint_id'] }}"
        "{% endif %}",
        # Started by hand there is no event: the newest.
        sample=1,
        depth="restore",
        retries=1,
        retry_delay=timedelta(seconds=30),
    )
