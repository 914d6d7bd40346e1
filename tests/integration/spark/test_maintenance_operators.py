"""The operators with ``engine="spark"`` and a real Spark: the same answer, the same log, the same XComs."""

from __future__ import annotations

import gc
import os
import re
import sys
import time

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.exceptions import NoEvidenceError
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.records import read_ledger
from tests.integration.spark.rehearsal import SETTINGS
from tests.unit.airflow_face.conftest import connect, plain_surroundings, root, run_task, supervisor
from tests.unit.spark.damaged import make_damaged

__all__ = ["connect", "plain_surroundings", "root", "run_task", "supervisor"]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("maintenance"),
    # Airflow's hook does not close the output of the processes it starts.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def unclosed_files():
    yield
    # Here, where the warning is expected.
    gc.collect()


@pytest.fixture
def made(root, connect, monkeypatch):
    """A damaged store, three days old, and a Spark on this machine."""
    (root / "orders").mkdir()
    made = make_damaged(LocalBlobs(root / "orders"))
    # It could name every orphan that is older than itself.
    (root / "orders" / str(made.unreadable) / "manifest.json").unlink()
    moment = time.time() - 3 * 86_400
    for path in (root / "orders").rglob("*"):
        os.utime(path, (moment, moment))
    connect("spark_default", "spark", host="local[2]")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return made


def validate(**arguments):
    from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator

    return CheckpointValidateOperator(
        task_id="validate", pipeline="orders", fail_on_invalid=False, spark_options={"conf": SETTINGS}, **arguments
    )


def orphans(**arguments):
    from airflow_provider_checkpoint.operators.prune import CheckpointOrphanCleanupOperator

    return CheckpointOrphanCleanupOperator(
        task_id="orphans", pipeline="orders", spark_options={"conf": SETTINGS}, **arguments
    )


def tables(log: str) -> list[str]:
    """The tables in the log of a task, without what Spark says."""
    return re.findall(r"^[^\n]*?(ID +VERDICT +FOUND\n.*? read\.)", log, re.DOTALL | re.MULTILINE)


def test_a_validation_answers_and_logs_the_same(run_task, made, capfd):
    local = run_task(validate())
    [table] = tables(capfd.readouterr().out)
    spark = run_task(validate(engine="spark"))
    assert spark.answer == local.answer
    assert spark.xcoms == local.xcoms
    assert tables(capfd.readouterr().out) == [table]
    assert (local.answer["valid"], local.answer["invalid"]) == (4, 3)
    layout = CheckpointHook().open("orders")
    assert {each for each, proof in read_ledger(layout.blobs, layout).items() if proof.valid} == set(made.valid)
    assert [info.key for info in layout.blobs.list(temporary=True)] == []


def test_orphans_are_the_same_and_are_removed_by_the_task(run_task, made, root):
    planned = run_task(orphans(dry_run=True, confirm=True)).answer
    done = run_task(orphans(engine="spark", confirm=True)).answer
    same = ("orphans", "bytes", "counts", "truncated")
    assert {name: done[name] for name in same} == {name: planned[name] for name in same}
    assert (done["applied"], done["bytes_done"]) == (True, planned["bytes"])
    doomed = [item["path"] for item in planned["plan"]["items"] if item["action"] == "delete"]
    assert set(made.orphans) < set(doomed)
    assert not [path for path in doomed if (root / "orders" / path).exists()]
    assert run_task(orphans(dry_run=True)).answer["orphans"] == 0


def test_what_stops_the_job_stops_the_task_with_the_same_error(run_task, made, root):
    for path in (root / "orders").glob("*/manifest.json"):
        path.unlink()
    errors = [run_task(orphans(engine=engine, retries=2)) for engine in ("local", "spark")]
    assert [ended.state for ended in errors] == ["failed", "failed"]
    assert all(isinstance(ended.error, NoEvidenceError) for ended in errors)
    assert str(errors[0].error) == str(errors[1].error)
