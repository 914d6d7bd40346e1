from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.cli.catalogue import VERBS
from airflow_provider_checkpoint.cli.console import Console
from airflow_provider_checkpoint.cli.main import main
from airflow_provider_checkpoint.cli.parser import parse
from tests.unit.cli import making

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.layouts import Layout


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of the command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    """No width, colour or credentials of whoever runs the tests."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory):
    making.templates = tmp_path_factory.mktemp("templates")


@pytest.fixture
def run(capsys) -> Callable[..., Result]:
    """The command in this process: ``run("list", store)``."""

    def call(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def run_on() -> Callable[..., Result]:
    """A verb on a layout that the test has opened, as another command line would call it."""

    def call(layout: Layout, *words: object) -> Result:
        # The address is not looked at: the layout is open.
        verb, *rest = (str(word) for word in words)
        arguments = parse([verb, "elsewhere", *rest])
        out, err = io.StringIO(), io.StringIO()
        console = Console(json=arguments.json, now=datetime.now(UTC), out=out, err=err)
        code = next(known for known in VERBS if known.name == verb).load()(layout, arguments, console)
        return Result(code, out.getvalue(), err.getvalue())

    return call
