"""Damage that leaves each file readable, and that Spark still refuses or restarts wrongly."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout, seal
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth, Severity

ARCHIVE = Path(__file__).resolve().parents[3] / "data" / "spark" / "spark35.zip"


@pytest.fixture
def directory(tmp_path):
    """A directory with HDFS-backed state and without a watermark, six batches long."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.startswith("hdfs/")])
    return tmp_path / "hdfs"


def opened(directory: Path) -> StructuredStreamingLayout:
    layout = open_store(f"file://{directory}", layout="structured_streaming")
    assert isinstance(layout, StructuredStreamingLayout)
    return layout


def told(directory: Path) -> list[str]:
    layout = opened(directory)
    result = validate(layout, layout.candidates()[-1], Depth.CONTENT)
    return [issue.code for issue in result.issues if issue.severity is Severity.ERROR]


def errors(directory: Path) -> set[str]:
    return set(told(directory))


def test_a_healthy_directory_is_not_refused(directory):
    assert errors(directory) == set()


def test_a_source_that_lost_its_position_is_refused(directory):
    path = directory / "offsets" / "5"
    path.write_text(re.sub(r"\n\{[^\n]*$", "\n-", path.read_text()))
    assert errors(directory) == {"source_position_lost"}


def test_a_source_that_never_had_a_position_is_not(directory):
    for path in (directory / "offsets").iterdir():
        path.write_text(f"{path.read_text()}\n-")
    assert errors(directory) == set()


@pytest.mark.parametrize(("line", "code"), [("", "offsets_metadata_missing"), ("{}", "settings_lost")])
def test_an_entry_without_settings_is_refused(directory, line, code):
    path = directory / "offsets" / "5"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], line, *lines[2:]]))
    assert told(directory) == [code]


def test_state_that_was_removed_shows_by_the_seal(directory):
    layout = opened(directory)
    seal(layout, layout.candidates()[-1])
    shutil.rmtree(directory / "state")
    assert "state_missing" in errors(directory)
