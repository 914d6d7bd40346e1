"""A program: ``checkpoint_recovery`` runs to its end, and its task ``restore`` is then cleared with what follows.

Called with the file of the DAG, a folder of sidecar checkpoints and the parameters of the run. Says in a line of JSON
what came of it.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow import settings
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.xcom import XComModel
from airflow.sdk import DagRunState, TaskInstanceState
from airflow.sdk.definitions.dag import _run_task
from sqlalchemy import select

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from tests.unit.cli.making import add_sidecar


def commit_as_a_job(folder: Path, number: int, start: int) -> None:
    """What the restarted job does: it opens a timeline of its own and commits the next epoch on it."""
    layout = SidecarLayout(LocalBlobs(folder), inline_threshold=8)
    point = layout.load(layout.parse_id(str(start)))
    held = open_timeline(layout.blobs, start=point, has_checkpoints=True, writer="a job", now=datetime.now(UTC))
    add_sidecar(layout, number, hours=0, epoch=start + 1, timeline=held.timeline.number)


def finish(dag: Any, run: DagRun, after: dict[str, Any], session: Any) -> None:
    """The loop of ``dag.test()``, for a run that exists already."""
    while run.state == DagRunState.RUNNING:
        session.expire_all()
        ready, _ = run.update_state(session=session)
        for instance in ready:
            instance.try_number += 1
            instance.state = TaskInstanceState.SCHEDULED
        session.commit()
        for instance in ready:
            _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)
            after.get(instance.task_id, lambda: None)()


def main(file: str, folder: Path, conf: dict[str, Any]) -> None:
    dag = DagBag(file).dags["checkpoint_recovery"]
    run_id = dag.test(run_conf=conf, mark_success_pattern="watch").run_id
    commit_as_a_job(folder, 6, start=3)

    session = settings.Session()
    serialized = SerializedDagModel.get(dag.dag_id, session=session).dag
    named = ["restore", *(task.task_id for task in dag.get_task("restore").get_flat_relatives(upstream=False))]
    serialized.clear(task_ids=named, run_id=run_id, dag_run_state=DagRunState.RUNNING, session=session)
    session.commit()
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == run_id))
    run.dag = serialized
    finish(dag, run, {"restart": lambda: commit_as_a_job(folder, 7, start=3)}, session)

    of_it = DagRun.dag_id == conf["restart_dag"], DagRun.run_id.startswith("recovery__")
    started = session.scalars(select(DagRun.run_id).where(*of_it).order_by(DagRun.id))
    watched = XComModel.get_many(run_id=run_id, dag_ids=dag.dag_id, task_ids="watch", key="checkpoint_id")
    about = {
        "run": run_id,
        "state": run.state,
        "started": started.all(),
        "watched": [each.value for each in session.scalars(watched)],
        "states": {each.task_id: each.state for each in run.get_task_instances(session=session)},
    }
    print(json.dumps(about))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
