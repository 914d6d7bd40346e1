"""Validation and orphan search on a cluster whose Python has no Airflow, and whose executors may only read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.records import read_ledger
from airflow_provider_checkpoint.lifecycle.safety import SAFE
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.jobs import maintenance
from airflow_provider_checkpoint.spark.jobs.maintenance import JobAnswer
from airflow_provider_checkpoint.spark.runtime_zip import spark_runtime_zip
from tests.contract.proxy import Trouble
from tests.integration.spark.cluster import Cluster
from tests.integration.spark.rehearsal import BARE_PYTHON, SETTINGS
from tests.unit.spark.damaged import LATER, make_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("maintenance")]

DEADLINE = 300.0
THREADS = 2


@dataclass(frozen=True)
class Submitting:
    """Runs the job on the cluster, as a person would by hand."""

    cluster: Cluster
    folder: Path

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        settings = SETTINGS | {
            "spark.pyspark.python": str(BARE_PYTHON),
            "spark.executor.memory": "600m",
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
        }
        command = ["spark-submit", "--master", self.cluster.master, "--py-files", str(spark_runtime_zip(self.folder))]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        python = {"PYSPARK_PYTHON": str(BARE_PYTHON), "PYSPARK_DRIVER_PYTHON": sys.executable}
        return subprocess.Popen(
            [*command, maintenance.__file__, *words, "--partitions", "2", "--threads", str(THREADS)],
            env=os.environ | python | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> str:
        return ended(self.start(*words, **environment))


def ended(job: subprocess.Popen[str]) -> str:
    """What a job printed; it must have succeeded."""
    try:
        output, _ = job.communicate(timeout=DEADLINE)
    finally:
        # Nothing outlives its test.
        job.kill()
    assert job.returncode == 0, output[-3000:]
    return output


@pytest.fixture(scope="module")
def submitting(tmp_path_factory) -> Iterator[Submitting]:
    if not BARE_PYTHON.exists():
        pytest.fail("no Python for executors: run the tests with ./dev test, which makes one", pytrace=False)
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        # What executors have; the driver gets its own.
        for name, value in credentials("reader").items():
            patch.setenv(name, value)
        cluster = Cluster(folder, BARE_PYTHON)
        cluster.__enter__()
    try:
        yield Submitting(cluster, folder)
    finally:
        cluster.__exit__()


def credentials(identity: str) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": identity, "AWS_SECRET_ACCESS_KEY": f"{identity}-secret"}


def answer_in(text: str | bytes) -> JobAnswer:
    return JobAnswer.model_validate_json(text)


# -- local files -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("store")
    make_damaged(open_blobs(str(root / "orders")))
    return root


def test_checkpoints_on_disk_are_proven_as_without_spark(submitting, on_disk, tmp_path):
    out = tmp_path / "answer.json"
    submitting.run("validate", "--store", str(on_disk), "--pipeline", "orders", "--no-record", "--out", str(out))
    layout = open_store(str(on_disk), pipeline="orders")
    ids = layout.candidates()[::-1]
    alone = validate_many(layout, ids, Depth.CONTENT, record=False)
    answer = answer_in(out.read_text())
    assert (answer.verb, answer.uri, answer.layout, answer.error) == ("validate", layout.blobs.uri, layout.name, None)
    assert answer.selected == len(ids)
    assert list(answer.results) == alone
    assert [result.valid for result in alone].count(True) == 4


def test_orphans_on_disk_are_found_as_without_spark(submitting, on_disk, tmp_path):
    now = datetime.now(UTC) + LATER
    out = tmp_path / "answer.json"
    submitting.run(
        *("orphans", "--store", str(on_disk), "--pipeline", "orders", "--min-age", "6h", "--max-bytes", "10"),
        *("--at", now.isoformat(), "--out", str(out)),
    )
    safety = replace(SAFE, orphan_age=timedelta(hours=6), max_orphan_bytes=10)
    plan = plan_orphans(open_store(str(on_disk), pipeline="orders"), now=now, safety=safety)
    assert answer_in(out.read_text()).plan == plan
    assert plan.deletions
    assert plan.question


# -- an object store ---------------------------------------------------------------------------------------------


def test_orphans_on_s3_are_found_as_without_spark(submitting, seaweedfs):
    uri, now = seaweedfs.fresh(), datetime.now(UTC) + LATER
    make_damaged(open_blobs(f"{uri}/orders", seaweedfs.options()))
    submitting.run(
        *("orphans", "--store", uri, "--pipeline", "orders", "--at", now.isoformat()),
        *("--store-option", f"endpoint_url={seaweedfs.endpoint}", "--store-option", "region=us-east-1"),
        *("--out", f"{uri}/answers/orphans.json"),
        **credentials("admin"),
    )
    answer = answer_in(open_blobs(f"{uri}/answers", seaweedfs.options()).read("orphans.json"))
    layout = open_store(uri, pipeline="orders", options=seaweedfs.options())
    assert answer.plan == plan_orphans(layout, now=now)
    assert answer.plan.deletions


def test_losing_an_executor_in_the_middle_changes_nothing(submitting, seaweedfs, proxy, tmp_path):
    uri = seaweedfs.fresh()
    made = make_damaged(open_blobs(f"{uri}/orders", seaweedfs.options()))
    layout = open_store(uri, pipeline="orders", options=seaweedfs.options())
    ids = layout.candidates()[::-1]
    alone = validate_many(layout, ids, Depth.CONTENT, record=False)
    # Every thread of both executors is held at an artifact: both are in the middle of their work.
    arrived, released = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        arrived.release()
        released.wait(DEADLINE)

    proxy.order(Trouble.BUSY_INSTEAD, "GET", "/operators/", times=2 * THREADS, then=hold)
    out = tmp_path / "answer.json"
    job = submitting.start(
        *("validate", "--store", uri, "--pipeline", "orders", "--out", str(out)),
        *("--store-option", f"endpoint_url={proxy.endpoint}", "--store-option", "region=us-east-1"),
        **credentials("admin"),
    )
    try:
        for _ in range(2 * THREADS):
            assert arrived.acquire(timeout=DEADLINE)
        executors = submitting.cluster.executors()
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        released.set()
        output = ended(job)
    finally:
        released.set()
        job.kill()
    assert "Lost executor" in output
    assert list(answer_in(out.read_text()).results) == alone
    # The driver has noted it, all but the one that was never committed; executors could not have.
    ledger = read_ledger(layout.blobs, layout)
    assert {each: proof.valid for each, proof in ledger.items()} == {
        result.checkpoint_id: result.valid for result in alone if result.checkpoint_id != made.uncommitted
    }
