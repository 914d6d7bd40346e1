"""The job in the guide runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.integration.spark.rehearsal import ROOT, SETTINGS

pytestmark = pytest.mark.timeout(600)


def test_the_complete_job_of_the_guide_counts_orders_and_goes_on_where_it_was(tmp_path):
    guide = (ROOT / "docs" / "writing-pipelines.md").read_text()
    job = tmp_path / "counts.py"
    job.write_text(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1])
    landing = tmp_path / "landing"
    landing.mkdir()
    for customers in ("aab", "bcc"):
        lines = [json.dumps({"customer": customer}) for customer in customers]
        (landing / f"{customers}.jsonl").write_text("\n".join(lines))
        run(job, tmp_path)
    newest = {}
    for path in sorted((tmp_path / "tables").rglob("*.parquet"), key=str):
        newest |= {row["customer"]: row["orders"] for row in pq.read_table(path, partitioning=None).to_pylist()}
    assert newest == {"a": 2, "b": 2, "c": 2}


def run(job, folder) -> None:
    settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    more = {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {settings} pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [
            *(sys.executable, job, "--store", folder / "store", "--pipeline", "counts", "--cache", folder / "cache"),
            *("--input", folder / "landing", "--output", folder / "tables"),
        ],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | more,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DONE checkpoint=" in done.stdout
