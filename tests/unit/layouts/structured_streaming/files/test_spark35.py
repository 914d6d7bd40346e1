"""Directories that Spark 3.5 wrote are valid, every batch of them, and damage in them is found."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth, Severity

ARCHIVE = Path(__file__).resolve().parents[4] / "data" / "spark" / "spark35.zip"
KINDS = ("stateless", "hdfs", "rocksdb_changelog")


def unpacked(kind: str, folder: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(f"{kind}/")])
    return folder / kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_of_spark_3_5_is_valid(kind, tmp_path):
    layout = open_store(f"file://{unpacked(kind, tmp_path)}", layout="structured_streaming")
    candidates = layout.candidates()
    assert [each.value for each in candidates] == [0, 1, 2, 3, 4, 5]
    for checkpoint_id in candidates:
        result = validate(layout, checkpoint_id, Depth.CONTENT)
        assert [issue for issue in result.issues if issue.severity is Severity.ERROR] == []


@pytest.mark.parametrize("pattern", ["*.delta", "*.changelog"])
def test_a_flipped_bit_in_a_directory_of_spark_3_5_is_found(pattern, tmp_path):
    kind = "hdfs" if pattern == "*.delta" else "rocksdb_changelog"
    directory = unpacked(kind, tmp_path)
    # All of them: which ones a batch needs depends on when Spark made its snapshots.
    for path in directory.glob(f"state/0/1/{pattern}"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    layout = open_store(f"file://{directory}", layout="structured_streaming")
    found = {
        issue.code
        for checkpoint_id in layout.candidates()
        for issue in validate(layout, checkpoint_id, Depth.CONTENT).issues
    }
    assert "state_corrupt" in found
