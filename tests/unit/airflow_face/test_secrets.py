"""The secret of a connection appears nowhere: not in logs, XComs, plans, rendered templates, questions or messages.

Airflow hides secrets it knows of in its logs; here it is told not to, so that nothing is left for it to hide.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.operators.approve import CheckpointApproveRecoveryOperator
from airflow_provider_checkpoint.operators.pin import CheckpointPinOperator
from airflow_provider_checkpoint.operators.prune import (
    CheckpointOrphanCleanupOperator,
    CheckpointPruneOperator,
    CheckpointSweepOperator,
    CheckpointUndeleteOperator,
)
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from airflow_provider_checkpoint.sensors.checkpoint import CheckpointCommittedSensor, CheckpointFreshnessSensor
from tests.unit.cli.making import add_sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.airflow_face.running import Ended, FakeSupervisor

SECRET = "admin-secret"
PLAN = "{{ ti.xcom_pull(task_ids='select', key='plan') | tojson }}"

TASKS: dict[str, tuple[type[BaseOperator], dict[str, Any]]] = {
    "validate": (CheckpointValidateOperator, {}),
    "select": (CheckpointSelectRecoveryPointOperator, {}),
    "approve": (CheckpointApproveRecoveryOperator, {"plan": PLAN}),
    "pin": (CheckpointPinOperator, {"checkpoint_id": 2, "name": "p", "reason": "r"}),
    "prune": (CheckpointPruneOperator, {"policy": {"keep_last": 0}}),
    "undelete": (CheckpointUndeleteOperator, {"checkpoint_id": 1}),
    "orphans": (CheckpointOrphanCleanupOperator, {"dry_run": True}),
    "sweep": (CheckpointSweepOperator, {"dry_run": True}),
    "restore": (CheckpointRestoreOperator, {"checkpoint_id": 2}),
    "committed": (CheckpointCommittedSensor, {"min_epoch": 9, "deferrable": True}),
    "fresh": (CheckpointFreshnessSensor, {"warn_after": "1d", "fail_after": "2d"}),
}
WAITING = {"approve": "awaiting_input", "committed": "deferred"}


@dataclass(frozen=True)
class Traces:
    """Everything that a task leaves where others can see it."""

    supervisor: FakeSupervisor
    capfd: pytest.CaptureFixture[str]
    caplog: pytest.LogCaptureFixture

    def text(self, *ended: Ended) -> str:
        out, err = self.capfd.readouterr()
        left = [repr((each.msg, each.error, str(each.error), each.xcoms)) for each in ended]
        return "\n".join([out, err, self.caplog.text, repr(self.supervisor.told), *left])


@pytest.fixture
def traces(supervisor, capfd, caplog, monkeypatch) -> Traces:
    monkeypatch.setenv("AIRFLOW__CORE__HIDE_SENSITIVE_VAR_CONN_FIELDS", "False")
    caplog.set_level(logging.DEBUG)
    return Traces(supervisor, capfd, caplog)


@pytest.fixture
def lake(seaweedfs, connect) -> Callable[..., None]:
    """A store of two checkpoints on S3, and a connection to it with some secret."""
    root = seaweedfs.fresh()
    layout = SidecarLayout(open_blobs(f"{root}/orders", seaweedfs.options()), inline_threshold=8)
    for number in (1, 2):
        add_sidecar(layout, number, hours=4 - number)

    def use(secret: str) -> None:
        extra = {"endpoint_url": seaweedfs.endpoint, "region_name": "us-east-1"}
        connect("cloud", "aws", login="admin", password=secret, extra=extra)
        connect("checkpoint_default", host=root, extra={"storage_conn_id": "cloud"})

    return use


def made(name: str) -> BaseOperator:
    kind, arguments = TASKS[name]
    return kind(task_id=name, pipeline="orders", **arguments)


def test_no_operator_and_no_sensor_shows_it(run_task, traces, lake):
    lake(SECRET)
    ended = {name: run_task(made(name)) for name in TASKS}
    assert {name: each.state for name, each in ended.items()} == {name: WAITING.get(name, "success") for name in TASKS}
    assert SECRET not in traces.text(*ended.values())


def test_no_refusal_shows_it(run_task, traces, lake):
    lake(f"not-{SECRET}")
    ended = {name: run_task(made(name)) for name in TASKS if name != "approve"}
    assert {each.state for each in ended.values()} == {"failed"}
    text = traces.text(*ended.values())
    assert "refused access" in text
    assert SECRET not in text


class Careless(BaseOperator):
    def execute(self, context):
        from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook

        secret = CheckpointHook.get_connection("cloud").password
        self.log.info("connecting with %s", secret)


def test_this_test_would_see_it(run_task, traces, lake):
    lake(SECRET)
    assert SECRET in traces.text(run_task(Careless(task_id="careless")))
