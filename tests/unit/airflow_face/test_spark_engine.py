"""``engine="spark"``: what is submitted, and what is taken for the answer."""

from __future__ import annotations

import gc
import json
import os
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    CorruptError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.operators.prune import CheckpointOrphanCleanupOperator
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from airflow_provider_checkpoint.spark.jobs import maintenance
from tests.unit.cli.making import everything_in

if TYPE_CHECKING:
    from pathlib import Path

# Airflow's hook does not close the output of the processes it starts.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCRIPT = """#!{python}
import json, os, sys
from pathlib import Path

words = sys.argv[1:]
calls = Path({calls!r})
calls.write_text(json.dumps([*json.loads(calls.read_text()), [words, dict(os.environ)]]))
mark = words[words.index("--mark") + 1]
if Path({answer!r}).exists():
    folder = Path({ledger!r})
    folder.mkdir(exist_ok=True)
    (folder / f".answer.{{mark}}.probe").write_text(Path({answer!r}).read_text().replace("MARK", mark))
print("the job says", mark)
sys.exit(int(os.environ.get("EXIT_CODE", "0")))
"""


@dataclass(frozen=True)
class Spark:
    """A ``spark-submit`` that notes how it was called, and leaves the answer that the test wants."""

    folder: Path
    uri: str

    @property
    def calls(self) -> list[list]:
        return json.loads((self.folder / "calls.json").read_text())

    @property
    def words(self) -> list[str]:
        return self.calls[-1][0]

    @property
    def arguments(self) -> list[str]:
        """What the job gets, but for the mark."""
        words = self.words[self.words.index(maintenance.__file__) + 1 :]
        assert words[-2] == "--mark"
        return words[:-2]

    def option(self, name: str) -> str:
        return self.words[self.words.index(name) + 1]

    def answers(self, **told) -> None:
        usual = {"verb": "validate", "uri": self.uri, "layout": "sidecar", "mark": "MARK"}
        (self.folder / "answer.json").write_text(json.dumps({**usual, **told}))


@pytest.fixture(scope="module", autouse=True)
def unclosed_files():
    yield
    # Here, where the warning is expected.
    gc.collect()


@pytest.fixture
def spark(tmp_path, monkeypatch, connect, orders) -> Spark:
    folder = tmp_path / "bin"
    folder.mkdir()
    paths = {"calls": tmp_path / "calls.json", "answer": tmp_path / "answer.json", "ledger": orders / "ledger"}
    paths["calls"].write_text("[]")
    script = folder / "spark-submit"
    script.write_text(SCRIPT.format(python=sys.executable, **{name: str(path) for name, path in paths.items()}))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    connect("spark_default", "spark", host="local[1]")
    return Spark(tmp_path, orders.as_uri())


def validate(**arguments):
    return CheckpointValidateOperator(
        task_id="validate", **{"pipeline": "orders", "engine": "spark", "ship_runtime": False, **arguments}
    )


def orphans(**arguments):
    return CheckpointOrphanCleanupOperator(
        task_id="orphans", pipeline="orders", **{"engine": "spark", "ship_runtime": False, **arguments}
    )


RESULT = {"checkpoint_id": 5, "depth": "content", "issues": [], "bytes_read": 7}


# -- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, ["--depth", "content"]),
        ({"depth": "presence", "rolling": "yes"}, ["--depth", "presence", "--rolling"]),
        ({"sample": "3", "rolling": True}, ["--depth", "content", "--sample", "3"]),
        (
            {"checkpoint_ids": "2,4", "sample": 1},
            ["--depth", "content", "--checkpoint-id", "2", "--checkpoint-id", "4"],
        ),
        (
            {"budget_bytes": "5GB", "budget": "10m"},
            ["--depth", "content", "--budget-bytes", "5000000000", "--budget-seconds", "600.0"],
        ),
    ],
)
def test_a_validation_is_told_what_to_prove(run_task, spark, root, arguments, told):
    spark.answers(selected=1, results=[RESULT])
    assert run_task(validate(**arguments)).state == "success"
    common = ["--store", str(root), "--pipeline", "orders", "--layout", "auto", "--threads", "8"]
    assert spark.arguments == ["validate", *common, *told]


def test_a_search_is_told_from_when_ages_are_counted(run_task, spark):
    assert run_task(orphans(min_age="6h", max_bytes="1kB")).state != "success"
    words = spark.arguments
    assert words[0] == "orphans"
    assert words[-6] == "--at"
    assert words[-4:] == ["--min-age", "21600s", "--max-bytes", "1000"]


def test_every_argument_of_the_engine_can_be_a_template(run_task, spark, connect):
    connect("cluster", "spark", host="local[3]")
    spark.answers(selected=1, results=[RESULT])
    conf = {"engine": "spark", "conn": "cluster", "memory": "2g", "partitions": "4", "threads": "16"}
    told = {name: f"{{{{ dag_run.conf['{name}'] }}}}" for name in conf}
    task = validate(
        engine=told["engine"],
        spark_conn_id=told["conn"],
        spark_options={"executor_memory": told["memory"], "conf": {"spark.ui.enabled": "false"}},
        spark_partitions=told["partitions"],
        spark_threads=told["threads"],
    )
    assert set(task.template_fields) <= set(vars(task))
    assert set(orphans().template_fields) <= set(vars(orphans()))
    assert run_task(task, conf=conf).state == "success"
    assert (spark.option("--master"), spark.option("--executor-memory")) == ("local[3]", "2g")
    assert (spark.option("--partitions"), spark.option("--threads")) == ("4", "16")
    assert spark.option("--name") == "checkpoint-validate"
    assert "spark.ui.enabled=false" in spark.words


def test_the_runtime_is_shipped_with_the_users_own_files_and_holds_the_job(run_task, spark):
    spark.answers(selected=1, results=[RESULT])
    run_task(validate(ship_runtime=True, spark_options='{"py_files": "mine.zip"}'))
    mine, runtime = spark.option("--py-files").split(",")
    assert mine == "mine.zip"
    with zipfile.ZipFile(runtime) as archive:
        names = archive.namelist()
    assert {f"airflow_provider_checkpoint/spark/jobs/{name}.py" for name in ("__init__", "maintenance")} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"engine": "flink"}, "unknown engine 'flink'"),
        ({"engine": ""}, "unknown engine ''"),
        ({"spark_conn_id": "spark_of_nobody"}, "no Spark connection 'spark_of_nobody'"),
        ({"spark_options": {"executor_size": "2g"}}, "'executor_size'"),
        ({"spark_options": {"application_args": ["--out", "x"]}}, "'application_args'"),
        ({"spark_options": {"yarn_track_via_rm_api": True}}, "'yarn_track_via_rm_api'"),
        ({"spark_options": "executor_memory=2g"}, "spark_options is not JSON"),
        ({"spark_partitions": "few"}, "spark_partitions"),
        ({"spark_partitions": "0"}, "spark_partitions is 0"),
        ({"spark_threads": -1}, "spark_threads is -1"),
        ({"checkpoint_ids": "x"}, "'x'"),
        ({"depth": "deep"}, "unknown depth"),
    ],
)
def test_what_makes_no_sense_is_not_submitted(run_task, spark, arguments, words):
    ended = run_task(validate(retries=3, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)
    assert spark.calls == []


def test_without_the_engine_spark_is_not_needed(run_task, spark, monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    assert run_task(validate(engine="local")).answer["valid"] == 5
    assert run_task(orphans(engine="{{ 'local' }}")).answer["orphans"] == 0
    assert spark.calls == []


# -- the answer --------------------------------------------------------------------------------------------------


def test_the_answer_is_that_of_the_job_and_is_gone_afterwards(run_task, spark, orders):
    spark.answers(selected=3, results=[RESULT, RESULT | {"checkpoint_id": 4}])
    before = everything_in(orders)
    answer = run_task(validate()).answer
    assert (answer["valid"], answer["left"], answer["bytes_read"], answer["newest_valid"]) == (2, 1, 14, "5")
    assert everything_in(orders) == before


def test_every_submission_has_a_mark_of_its_own(run_task, spark):
    spark.answers(selected=1, results=[RESULT])
    for number in (1, 2, 3):
        run_task(validate(), try_number=number)
    assert len({words[-1] for words, _ in spark.calls}) == 3


@pytest.mark.parametrize(
    "told",
    [
        {"mark": "0" * 32},
        {"uri": "file:///elsewhere"},
        {"verb": "orphans"},
        {"layout": "partitioned"},
        {"surprise": True},
    ],
)
def test_the_answer_to_something_else_is_not_taken(run_task, spark, orders, told):
    spark.answers(selected=1, results=[RESULT], **told)
    before = everything_in(orders)
    ended = run_task(validate())
    assert isinstance(ended.error, CorruptError)
    assert "valid" not in ended.xcoms
    assert everything_in(orders) == before


def test_a_job_that_leaves_no_answer_is_worth_a_retry(run_task, spark):
    ended = run_task(validate(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)


def test_a_job_that_dies_fails_the_task_with_the_end_of_its_log(run_task, spark, monkeypatch):
    monkeypatch.setenv("EXIT_CODE", "1")
    ended = run_task(validate(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, AirflowException)
    assert "the job says" in str(ended.error)


def test_an_answer_of_a_job_that_failed_after_it_is_not_taken(run_task, spark, monkeypatch):
    monkeypatch.setenv("EXIT_CODE", "1")
    spark.answers(selected=1, results=[RESULT])
    assert isinstance(run_task(validate()).error, AirflowException)


@pytest.mark.parametrize("code", ["0", "1"])
def test_an_error_of_the_job_is_raised_as_it_was_there(run_task, spark, monkeypatch, code):
    monkeypatch.setenv("EXIT_CODE", code)
    error = {"kind": "AccessDeniedError", "message": "the store refused", "subject": "s3://x", "hint": "Ask for it."}
    spark.answers(error=error)
    ended = run_task(validate(retries=3))
    # No retry: a person has to do something.
    assert ended.state == "failed"
    assert isinstance(ended.error, AccessDeniedError)
    assert str(ended.error) == "the store refused: s3://x\nHINT: Ask for it."


# -- credentials -------------------------------------------------------------------------------------------------


def test_credentials_go_to_the_driver_in_its_environment_only(run_task, spark, connect, seaweedfs, supervisor):
    extra = {"endpoint_url": seaweedfs.endpoint, "region_name": "us-east-1"}
    connect("cloud", "aws", login="admin", password="admin-secret", extra=extra)
    connect("checkpoint_default", host=seaweedfs.fresh(), extra={"storage_conn_id": "cloud", "layout": "partitioned"})
    run_task(validate(ship_credentials=True, spark_options={"env_vars": {"MINE": "1"}}))
    words, environment = spark.calls[-1]
    assert (environment["AWS_ACCESS_KEY_ID"], environment["MINE"]) == ("admin", "1")
    assert environment["AWS_SECRET_ACCESS_KEY"] == "admin-secret"
    assert "admin-secret" not in " ".join(words) + repr(supervisor.told)
    assert f"endpoint_url={seaweedfs.endpoint}" in words
    run_task(validate())
    assert "AWS_SECRET_ACCESS_KEY" not in spark.calls[-1][1]
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    ended = run_task(validate(ship_credentials=True))
    assert isinstance(ended.error, ConfigurationError)
    assert len(spark.calls) == 2
