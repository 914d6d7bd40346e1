"""The job on a Spark cluster of two workers whose Python has no Airflow."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from airflow_provider_checkpoint.spark.runtime_zip import spark_runtime_zip
from tests.integration.spark.cluster import Cluster
from tests.integration.spark.rehearsal import BARE_PYTHON, Job, Stage, orders

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bare_python() -> Path:
    """A Python with what the runtime needs and no more; the dev script makes it."""
    if not BARE_PYTHON.exists():
        pytest.fail("no Python for executors: run the tests with ./dev test, which makes one", pytrace=False)
    return BARE_PYTHON


def test_the_executors_python_has_no_airflow_and_imports_the_runtime_from_the_zip(bare_python, tmp_path):
    archive = spark_runtime_zip(tmp_path)
    code = (
        "import importlib.util as u, airflow_provider_checkpoint.spark.operators as o;"
        "assert u.find_spec('airflow') is None; print(o.__file__)"
    )
    done = subprocess.run(
        [bare_python, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert archive.name in done.stdout


def test_the_zip_is_the_same_bytes_each_time_and_holds_no_airflow_face(tmp_path):
    import zipfile

    first, second = spark_runtime_zip(tmp_path / "a"), spark_runtime_zip(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    folders = {name.split("/")[1] for name in zipfile.ZipFile(first).namelist() if name.count("/") > 1}
    assert folders == {"blobs", "layouts", "lifecycle", "spark", "writing"}


def test_two_workers_share_the_work_and_losing_an_executor_changes_nothing(bare_python, tmp_path):
    with Cluster(tmp_path, bare_python) as cluster:
        stage = Stage.on_cluster(tmp_path, cluster, bare_python)
        orders.generate(stage.landing, files=8, orders=200, seed=9)
        job = Job(stage, more=("--tolerable-failures", "2"))
        assert job.wait_for("INFO checkpoint ", 2), job.output()[-3000:]
        victims = cluster.executors()
        assert len(victims) == 2
        os.kill(victims[0], signal.SIGKILL)
        assert job.wait() == 0, job.output()[-3000:]
        assert stage.differences() == []
        _until_gone(victims)


def _until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
