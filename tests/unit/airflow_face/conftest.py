"""Airflow without a database: its environment is set before anything imports it, and its database cannot exist."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

_HOME = tempfile.TemporaryDirectory(prefix="airflow-face-")
os.environ.update(
    AIRFLOW_HOME=_HOME.name,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="True",
    # Whatever touches the metadata database fails.
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN="sqlite:////dev/null/nowhere",
)

from tests.unit.airflow_face import running  # noqa: E402 - only now may Airflow be imported
from tests.unit.cli import making  # noqa: E402 - likewise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory):
    making.templates = tmp_path_factory.mktemp("templates")


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch, tmp_path_factory):
    """No credentials of whoever runs the tests, and no question to a metadata service."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "AIRFLOW_CONN_"))]:
        monkeypatch.delenv(name)
    nowhere = tmp_path_factory.getbasetemp() / "no-such-file"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere))


@pytest.fixture
def connect(monkeypatch) -> Callable[..., str]:
    """Make a connection: ``connect("lake", "aws", login=..., extra={...})``. Answers with its id."""

    def call(conn_id: str, conn_type: str = "checkpoint_store", *, extra: Any = None, **fields: Any) -> str:
        about = {"conn_type": conn_type, "extra": extra or {}, **fields}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(about))
        return conn_id

    return call


@pytest.fixture
def supervisor(monkeypatch) -> running.FakeSupervisor:
    from airflow.sdk.execution_time import task_runner

    fake = running.FakeSupervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", fake, raising=False)
    return fake


@pytest.fixture
def run_task(supervisor) -> Callable[..., running.Ended]:
    return partial(running.run_task, supervisor)


@pytest.fixture
def root(tmp_path, connect) -> Path:
    """The folder that the default connection names; pipelines are folders below it."""
    folder = tmp_path / "store"
    folder.mkdir()
    connect("checkpoint_default", host=str(folder))
    return folder


@pytest.fixture
def orders(root) -> Path:
    """A pipeline of five sidecar checkpoints, an hour apart, the newest an hour old."""
    folder = root / "orders"
    making.sidecar_store(folder)
    return folder
