"""The pages without a running Airflow: connections from the environment, and rights from a table."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

_HOME = tempfile.TemporaryDirectory(prefix="airflow-pages-")
os.environ.setdefault("AIRFLOW_HOME", _HOME.name)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
# Whatever touches the metadata database fails.
os.environ.setdefault("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "sqlite:////dev/null/nowhere")

from fastapi import HTTPException, Request  # noqa: E402 - after the environment is set, as for Airflow itself

from airflow_provider_checkpoint.plugins.rights import RecoveryDag, Rights, Used  # noqa: E402
from tests.unit.cli import making  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_checkpoint.plugins.settings import PageSettings


class Browser:
    """Asks an application directly, without a server."""

    def __init__(self, app: Any, headers: dict[str, str]) -> None:
        self.app = app
        self._headers = headers

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {**self._headers, **more.pop("headers", {})}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


@dataclass(frozen=True)
class User:
    name: str

    def get_name(self) -> str:
        return self.name


def user_of(request: Request) -> User:
    name = request.headers.get("x-user")
    if name is None:
        raise HTTPException(401, "Not authenticated")
    return User(name)


def needs(*names: str) -> Callable[[Request], None]:
    def check(request: Request) -> None:
        if user_of(request).name not in names:
            raise HTTPException(403, "Forbidden")

    return check


class Table(Rights):
    """A reader reads every connection, an editor changes them, a starter may only start recoveries."""

    user = staticmethod(user_of)
    reads_connection = staticmethod(needs("reader", "editor"))
    changes_connection = staticmethod(needs("editor"))
    reads_dag = staticmethod(needs("reader", "editor", "starter"))
    reads_run = staticmethod(needs("reader", "editor", "starter"))

    def __init__(self) -> None:
        self.stores: list[str] = []
        self.used: list[Used] | None = []
        self.dag = RecoveryDag(exists=True, paused=False, may_start=True)

    def connections(self, user: Any) -> list[str]:
        return [each for each in self.stores if self.may_read(user, each)]

    def may_read(self, user: Any, connection: str) -> bool:
        return user.name in ("reader", "editor")

    def may_change(self, user: Any, connection: str) -> bool:
        return user.name == "editor"

    def recovery_dag(self, user: Any, dag_id: str) -> RecoveryDag:
        return self.dag

    def writers(self, user: Any, asset_uri: str) -> list[str]:
        return [f"writes {asset_uri}"]

    def used_by_dag(self, dag_id: str) -> list[Used] | None:
        return self.used

    def used_by_run(self, dag_id: str, run_id: str) -> list[Used] | None:
        return self.used


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory):
    making.templates = tmp_path_factory.mktemp("templates")


@pytest.fixture
def connect(monkeypatch) -> Callable[..., str]:
    def call(conn_id: str, host: str, **extra: Any) -> str:
        about = {"conn_type": "checkpoint_store", "host": host, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(about))
        return conn_id

    return call


@pytest.fixture
def rights() -> Table:
    return Table()


@pytest.fixture
def client(rights) -> Callable[..., Browser]:
    """Somebody's browser: ``client("reader")``."""
    from airflow_provider_checkpoint.plugins.app import create_app
    from airflow_provider_checkpoint.plugins.settings import PageSettings

    apps: dict[str, Any] = {}

    def call(name: str | None = "reader", settings: PageSettings | None = None) -> Browser:
        app = apps.setdefault("app", create_app(rights, settings or PageSettings(store_timeout=20)))
        return Browser(app, headers={} if name is None else {"x-user": name})

    return call


@pytest.fixture
def lake(tmp_path, connect, rights) -> Path:
    """A connection ``lake`` with a pipeline ``orders`` of five checkpoints; answers with the pipeline's folder."""
    folder = tmp_path / "store" / "orders"
    making.sidecar_store(folder, 5)
    rights.stores.append(connect("lake", str(tmp_path / "store")))
    return folder
