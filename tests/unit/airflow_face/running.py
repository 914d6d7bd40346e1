"""The real task runner of Airflow against a supervisor from memory: no database, no scheduler, no process.

Import it only after the environment is set, as conftest.py does.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog
from airflow.sdk import DAG, DagRunState
from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import BaseOperator


class FakeSupervisor:
    """Answers what a task asks of its supervisor, and keeps what it was told."""

    def __init__(self) -> None:
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.task_state: dict[str, Any] = {}
        self.asset_state: dict[tuple[str, str], Any] = {}
        self.runs: list[tuple[str, str]] = []
        self.paused: set[str] = set()
        self.sent: list[Any] = []

    def send(self, msg: Any) -> Any:
        self.sent.append(msg)
        match msg:
            case comms.GetConnection():
                return comms.ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND, detail={"conn_id": msg.conn_id})
            case comms.SetXCom():
                self.xcoms[msg.task_id, msg.key] = msg.value
            case comms.GetXCom():
                return comms.XComResult(key=msg.key, value=self.xcoms.get((msg.task_id, msg.key)))
            case comms.GetXComSequenceSlice():
                value = self.xcoms.get((msg.task_id, msg.key))
                return comms.XComSequenceSliceResult(root=[] if value is None else [value])
            case comms.GetTaskStateStore():
                if msg.key not in self.task_state:
                    return comms.ErrorResponse(error=ErrorType.TASK_STORE_NOT_FOUND, detail={"key": msg.key})
                return comms.TaskStateStoreResult(value=self.task_state[msg.key])
            case comms.SetTaskStateStore():
                self.task_state[msg.key] = msg.value
            case comms.GetAssetStateStoreByName():
                if (msg.name, msg.key) not in self.asset_state:
                    return comms.ErrorResponse(error=ErrorType.ASSET_STORE_NOT_FOUND, detail={"key": msg.key})
                return comms.AssetStateStoreResult(value=self.asset_state[msg.name, msg.key])
            case comms.SetAssetStateStoreByName():
                self.asset_state[msg.name, msg.key] = msg.value
            case comms.ValidateInletsAndOutlets():
                return comms.InactiveAssetsResult(inactive_assets=[])
            case comms.GetDag():
                unsaid = dict.fromkeys(("bundle_name", "bundle_version", "relative_fileloc", "owners", "next_dagrun"))
                return comms.DagResult(dag_id=msg.dag_id, is_paused=msg.dag_id in self.paused, tags=[], **unsaid)
            case comms.TriggerDagRun():
                if (msg.dag_id, msg.run_id) in self.runs:
                    return comms.ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
                self.runs.append((msg.dag_id, msg.run_id))
            case comms.GetDRCount():
                return comms.DRCount(count=sum((msg.dag_id, each) in self.runs for each in msg.run_ids or ()))
            case comms.GetTaskRescheduleStartDate():
                return comms.TaskRescheduleStartDate(start_date=None)
        return comms.OKResponse(ok=True)

    async def asend(self, msg: Any) -> Any:
        return self.send(msg)

    @property
    def told(self) -> list[Any]:
        """Everything that was sent, but for the secrets that the supervisor is told in order to hide them."""
        return [msg for msg in self.sent if not isinstance(msg, comms.MaskSecret)]

    def one(self, kind: type[Any]) -> Any:
        """The only message of a kind that was sent."""
        [found] = [msg for msg in self.sent if isinstance(msg, kind)]
        return found


@dataclass(frozen=True)
class Ended:
    """How a task ended."""

    state: str
    msg: Any
    error: BaseException | None
    task: BaseOperator
    xcoms: Mapping[str, Any]
    """What this task has pushed, by key."""

    @property
    def answer(self) -> Any:
        assert self.state == "success", self.error
        return self.xcoms.get("return_value")


def run_task(
    supervisor: FakeSupervisor,
    task: BaseOperator,
    *,
    run_id: str = "run",
    conf: Mapping[str, Any] | None = None,
    try_number: int = 1,
    cleared_after: int = 0,
    map_index: int = -1,
    next_method: str | None = None,
    next_kwargs: Mapping[str, Any] | None = None,
) -> Ended:
    """Run one task as a worker does: templates, XComs, retries, deferral. ``conf`` is what templates can refer to.

    :param cleared_after: how many tries there had been when the task was last cleared.
    """
    if not task.has_dag():
        DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)).add_task(task)
    now = datetime.now(UTC)
    # What Airflow makes of it when a task is cleared: its retries begin anew.
    max_tries = cleared_after + (task.retries or 0)
    details = {
        "dag_id": task.dag.dag_id,
        "run_id": run_id,
        "logical_date": now,
        "data_interval_start": now,
        "data_interval_end": now,
        "run_after": now,
        "start_date": now,
        "end_date": None,
        "run_type": "manual",
        "state": DagRunState.RUNNING,
        "conf": dict(conf or {}),
        "consumed_asset_events": [],
        "partition_key": None,
        "triggering_user_name": "ada",
    }
    told = TIRunContext(
        dag_run=DagRun(**details),
        max_tries=max_tries,
        should_retry=try_number <= max_tries,
        next_method=next_method,
        next_kwargs=None if next_kwargs is None else dict(next_kwargs),
    )
    instance = RuntimeTaskInstance.model_construct(
        id=uuid4(),
        task_id=task.task_id,
        dag_id=task.dag.dag_id,
        run_id=run_id,
        try_number=try_number,
        map_index=map_index,
        dag_version_id=uuid4(),
        queue="default",
        task=task,
        max_tries=max_tries,
        start_date=now,
        state="running",
        bundle_instance=SimpleNamespace(name="test", version=None),
        _ti_context_from_server=told,
        _cached_template_context=None,
        is_mapped=False,
    )
    handler = signal.getsignal(signal.SIGTERM)
    try:
        state, msg, error = run(instance, instance.get_template_context(), structlog.get_logger("task"))
    finally:
        # The runner takes the signal for itself, as in a process of its own.
        signal.signal(signal.SIGTERM, handler)
    xcoms = {key: value for (task_id, key), value in supervisor.xcoms.items() if task_id == task.task_id}
    return Ended(str(state.value), msg, error, instance.task, xcoms)
