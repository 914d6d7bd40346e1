"""``checkpoints report``."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.main import main
from tests.unit.cli import making
from tests.unit.reports.reading import Page


@pytest.fixture(autouse=True)
def templates(tmp_path):
    making.templates = tmp_path / "templates"
    making.templates.mkdir()


@pytest.mark.parametrize("make", [making.sidecar_store, making.partitioned_store, making.stream_store])
def test_it_writes_one_file_that_needs_nothing_else(make, tmp_path, capsys):
    make(tmp_path / "store", 3)
    output = tmp_path / "r.html"
    pipeline = ["--pipeline", "orders"] if make is making.stream_store else []
    assert main(["report", str(tmp_path / "store"), *pipeline, "--output", str(output)]) == 0
    page = Page.of(output.read_text())
    assert "3 checkpoints" in page.words
    assert "http" not in "".join(page.links)
    assert "3 checkpoints" in capsys.readouterr().out


def test_the_rules_that_are_previewed_can_be_given(tmp_path, capsys):
    making.sidecar_store(tmp_path / "store", 5)
    output = tmp_path / "r.html"
    words = ["report", str(tmp_path / "store"), "--output", str(output), "--keep-last", "2", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["checkpoints"] == 5
    page = Page.of(output.read_text())
    assert "keep_last=2" in page.words
    assert "goes now" in page.words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--output", "/dev/null/x.html"], "cannot write the report"),
        (["--freshness-warn", "2h", "--freshness-fail", "1h"], "comes before"),
    ],
)
def test_what_cannot_be_done_is_told(words, told, tmp_path, capsys):
    making.sidecar_store(tmp_path / "store", 1)
    assert main(["report", str(tmp_path / "store"), *words]) == exits.USAGE
    assert told in capsys.readouterr().err
