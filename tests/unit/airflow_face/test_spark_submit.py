"""Starting a Spark job: what ``spark-submit`` is called with, and what is kept from it."""

from __future__ import annotations

import gc
import json
import os
import sys
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException

from airflow_provider_checkpoint.assets import checkpoint_asset
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ConfirmationNeededError,
    FencedWriterError,
    NoRecoveryPointError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.operators.spark_submit import CheckpointSparkSubmitOperator
from tests.unit.cli.making import partitioned_store

if TYPE_CHECKING:
    from pathlib import Path

# Airflow's hook does not close the output of the processes it starts.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCRIPT = """#!{python}
import json, os, sys
from pathlib import Path

Path({record!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
print("the job says", *sys.argv[-2:])
print(os.environ.get("LAST_WORDS", ""), file=sys.stderr)
sys.exit(int(os.environ.get("EXIT_CODE", "0")))
"""


@dataclass(frozen=True)
class Spark:
    """A ``spark-submit`` that only notes how it was called."""

    record: Path

    @property
    def called(self) -> bool:
        return self.record.exists()

    @property
    def words(self) -> list[str]:
        return json.loads(self.record.read_text())[0]

    @property
    def environment(self) -> dict[str, str]:
        return json.loads(self.record.read_text())[1]

    @property
    def arguments(self) -> list[str]:
        """What the job gets."""
        return self.words[self.words.index("job.py") + 1 :]

    @property
    def owner(self) -> str:
        """Who the job is told to have started it."""
        [said] = [word.partition("=")[2] for word in self.words if word.startswith("spark.checkpoint.owner=")]
        return said

    def option(self, name: str) -> str:
        return self.words[self.words.index(name) + 1]


@pytest.fixture(scope="module", autouse=True)
def unclosed_files():
    yield
    # Here, where the warning is expected.
    gc.collect()


@pytest.fixture
def spark(tmp_path, monkeypatch, connect) -> Spark:
    folder = tmp_path / "bin"
    folder.mkdir()
    record = tmp_path / "called.json"
    script = folder / "spark-submit"
    script.write_text(SCRIPT.format(python=sys.executable, record=str(record)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    connect("spark_default", "spark", host="local[1]")
    return Spark(record)


@pytest.fixture
def ids(root) -> list[str]:
    """The checkpoints of the pipeline ``orders``, oldest first."""
    return [str(each) for each in partitioned_store(root / "orders").candidates()]


def submit(**arguments):
    return CheckpointSparkSubmitOperator(
        task_id="job", application="job.py", **{"pipeline": "orders", "ship_runtime": False, **arguments}
    )


def layout():
    return CheckpointHook(layout="partitioned").open("orders")


def start_job(checkpoint_id: str | None, owner: str = "") -> None:
    """What a job does first: it opens a timeline after the checkpoint it starts from, if it starts from one."""
    store = layout()
    start = None if checkpoint_id is None else store.load(store.parse_id(checkpoint_id))
    open_timeline(store.blobs, start=start, has_checkpoints=True, writer="a job", now=datetime.now(UTC), owner=owner)


# -- the command -------------------------------------------------------------------------------------------------


def test_the_job_is_told_its_store_its_pipeline_and_where_to_start_in_text(run_task, spark, root, ids):
    ended = run_task(submit(recover_from=ids[1], application_args=["--max-epochs", 3, "--input", "/in"]))
    assert ended.state == "success", ended.error
    assert spark.arguments == [
        *("--store", str(root), "--pipeline", "orders", "--recover-from", ids[1]),
        *("--max-epochs", "3", "--input", "/in"),
    ]
    assert spark.option("--master") == "local[1]"
    assert spark.option("--name") == "checkpointed-job"


def test_every_argument_of_ours_can_be_a_template(run_task, spark, supervisor, root, ids, connect):
    connect("lake", host=str(root))
    supervisor.xcoms["select", "recover_from"] = ids[0]
    checked = submit(
        pipeline="{{ dag_run.conf['pipeline'] }}",
        checkpoint_conn_id="{{ 'lake' }}",
        recover_from="{{ ti.xcom_pull(task_ids='select', key='recover_from') }}",
        if_writer_alive="{{ 'fence' }}",
        alive_within="{{ '1h' }}",
        application_args=["--run", "{{ run_id }}"],
    )
    assert set(checked.template_fields) >= {"pipeline", "checkpoint_conn_id", "recover_from", "application_args"}
    assert run_task(checked, conf={"pipeline": "orders"}, run_id="7").state == "success"
    assert spark.arguments[-4:] == ["--recover-from", ids[0], "--run", "7"]


def test_arguments_may_be_what_a_template_makes_of_a_list(run_task, spark, supervisor, ids):
    supervisor.xcoms["before", "return_value"] = ["--input", "/my in", "--max-epochs", 3]
    run_task(submit(application_args="{{ ti.xcom_pull(task_ids='before') }}"))
    assert spark.arguments[-4:] == ["--input", "/my in", "--max-epochs", "3"]


@pytest.mark.parametrize("recover_from", ["latest", "fresh"])
def test_a_start_by_word(run_task, spark, ids, recover_from):
    run_task(submit(recover_from=f" {recover_from}"))
    assert spark.arguments[-2:] == ["--recover-from", recover_from]


def test_a_pipeline_that_never_ran_can_be_started(run_task, spark, root):
    answer = run_task(submit()).answer
    assert answer == {"checkpoint_id": "", "epoch": "", "timeline": "", "uri": f"file://{root}/orders"}


def test_the_runtime_is_shipped_with_the_users_own_files(run_task, spark, ids):
    run_task(submit(ship_runtime=True, py_files="mine.zip"))
    mine, runtime = spark.option("--py-files").split(",")
    assert mine == "mine.zip"
    with zipfile.ZipFile(runtime) as archive:
        names = archive.namelist()
    assert "airflow_provider_checkpoint/spark/job.py" in names
    assert not [name for name in names if "/operators/prune" in name or "/hooks/" in name]


def test_where_it_is_installed_it_is_not_shipped(run_task, spark, ids):
    run_task(submit())
    assert "--py-files" not in spark.words


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"conn_id": "spark_of_nobody"}, ConfigurationError, "no Spark connection 'spark_of_nobody'"),
        ({"recover_from": "yesterday"}, ConfigurationError, "yesterday"),
        ({"recover_from": ""}, ConfigurationError, "not the id"),
        ({"if_writer_alive": "kill"}, ConfigurationError, "if_writer_alive"),
        ({"alive_within": "{{ 'a while' }}"}, ConfigurationError, "alive_within"),
        ({"application_args": "--input /in"}, ConfigurationError, "application_args is not a list"),
        ({"checkpoint_conn_id": "nowhere"}, ConfigurationError, "no connection 'nowhere'"),
    ],
)
def test_what_makes_no_sense_is_not_submitted(run_task, spark, ids, arguments, kind, words):
    ended = run_task(submit(retries=2, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, kind)
    assert words in str(ended.error)
    assert not spark.called


def test_a_job_that_fails_is_retried_as_the_task_says(run_task, spark, ids, monkeypatch):
    monkeypatch.setenv("EXIT_CODE", "1")
    ended = run_task(submit(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, AirflowException)
    assert "the job says" in str(ended.error)


@pytest.mark.parametrize(
    ("words", "state", "kind"),
    [
        # Another has taken over: a retry would take the pipeline back from it.
        ("FencedWriterError: timeline 3 exists: /data\nHINT: Stop.", "failed", FencedWriterError),
        ("NoRecoveryPointError: no checkpoint fits", "failed", NoRecoveryPointError),
        ("AccessDeniedError: the store refused access\nWARN shutting down", "failed", AccessDeniedError),
        ("StoreUnavailableError: no answer", "up_for_retry", StoreUnavailableError),
        # The next start may pass over it.
        ("CorruptArtifactError: a digest is wrong", "up_for_retry", AirflowException),
        ("ValueError: a bug", "up_for_retry", AirflowException),
        ("annotations: no error", "up_for_retry", AirflowException),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else None,
)
def test_what_the_job_says_at_its_end_decides_about_a_retry(run_task, spark, ids, monkeypatch, words, state, kind):
    monkeypatch.setenv("EXIT_CODE", "1")
    monkeypatch.setenv("LAST_WORDS", words)
    ended = run_task(submit(retries=2))
    assert ended.state == state
    assert type(ended.error) is kind
    assert words.splitlines()[0].partition(": ")[2] in str(ended.error)


# -- another writer ----------------------------------------------------------------------------------------------


def test_if_told_so_nothing_is_submitted_while_another_writer_seems_to_run(run_task, spark, ids):
    start_job(ids[2])
    ended = run_task(submit(if_writer_alive="fail"))
    assert isinstance(ended.error, ConfirmationNeededError)
    assert not spark.called
    assert run_task(submit(if_writer_alive="fence")).state == "success"


def test_a_writer_that_an_earlier_try_has_started_is_no_other_writer(run_task, spark, ids, monkeypatch):
    task = {"if_writer_alive": "fail", "retries": 2, "conf": {"spark.log.level": "WARN"}}
    monkeypatch.setenv("EXIT_CODE", "1")
    assert run_task(submit(**task)).state == "up_for_retry"
    start_job(ids[2], spark.owner)
    spark.record.unlink()
    monkeypatch.setenv("EXIT_CODE", "0")
    again = run_task(submit(**task), try_number=2)
    assert again.state == "success", again.error
    assert spark.called
    assert "spark.log.level=WARN" in spark.words


@pytest.mark.parametrize("about", [{"run_id": "another"}, {"map_index": 1}], ids=str)
def test_a_writer_of_another_run_stays_another_one(run_task, spark, ids, about):
    run_task(submit())
    start_job(ids[2], spark.owner)
    spark.record.unlink()
    ended = run_task(submit(if_writer_alive="fail", retries=2), **about)
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfirmationNeededError)
    assert not spark.called


def test_a_writer_that_has_taken_over_from_an_earlier_try_is_another_one(run_task, spark, ids):
    run_task(submit(if_writer_alive="fail"))
    start_job(ids[2], spark.owner)
    start_job(ids[2], "somebody")
    ended = run_task(submit(if_writer_alive="fail", retries=2), try_number=2)
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfirmationNeededError)


# -- retries -----------------------------------------------------------------------------------------------------


def test_a_retry_goes_on_from_the_latest_checkpoint_if_the_try_before_had_started(run_task, spark, ids):
    run_task(submit(recover_from=ids[0]))
    start_job(ids[0])
    run_task(submit(recover_from=ids[0]), try_number=2)
    assert spark.arguments[-1] == "latest"
    run_task(submit(recover_from=ids[0]), try_number=3)
    assert spark.arguments[-1] == "latest"


def test_a_retry_of_a_fresh_start_does_not_give_up_what_the_try_before_has_done(run_task, spark, ids):
    run_task(submit(recover_from="fresh"))
    assert spark.arguments[-1] == "fresh"
    run_task(submit(recover_from="fresh"), try_number=2)
    assert spark.arguments[-1] == "fresh"
    start_job(None)
    run_task(submit(recover_from="fresh"), try_number=3)
    assert spark.arguments[-1] == "latest"


def test_a_retry_starts_where_it_was_told_if_the_try_before_had_not_got_so_far(run_task, spark, ids):
    run_task(submit(recover_from=ids[0]))
    run_task(submit(recover_from=ids[0]), try_number=2)
    assert spark.arguments[-1] == ids[0]


def test_a_task_that_is_sent_elsewhere_goes_there(run_task, spark, ids):
    run_task(submit(recover_from=ids[0]))
    start_job(ids[0])
    run_task(submit(recover_from=ids[1]), try_number=2)
    assert spark.arguments[-1] == ids[1]


def test_an_earlier_start_from_the_same_point_by_somebody_else_does_not_count(run_task, spark, ids):
    start_job(ids[0])
    run_task(submit(recover_from=ids[0]))
    assert spark.arguments[-1] == ids[0]
    run_task(submit(recover_from=ids[0]), try_number=2)
    assert spark.arguments[-1] == ids[0]


# -- the answer --------------------------------------------------------------------------------------------------


def test_it_answers_with_the_newest_checkpoint_and_tells_the_asset(run_task, spark, ids):
    asset = checkpoint_asset("orders")
    ended = run_task(submit(outlets=[asset]))
    assert ended.answer["checkpoint_id"] == ids[-1]
    assert all(isinstance(value, str) for value in ended.answer.values())
    [event] = ended.msg.outlet_events
    assert event["dest_asset_key"] == {"name": asset.name, "uri": asset.uri}
    assert event["extra"] == ended.answer


def test_the_defaults_of_a_dag_count_more_than_ours():
    with DAG("d", schedule=None, default_args={"durable": True, "retries": 7, "retry_policy": None, "name": "mine"}):
        task = submit()
    assert task.durable is True
    assert task.retries == 7
    assert task.retry_policy is None
    assert task.name == "mine"


def test_a_cleared_task_is_submitted_again_unless_asked_otherwise():
    task = submit()
    assert task.durable is False
    assert submit(durable=True).durable is True


# -- credentials -------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(connect, seaweedfs):
    """A store on S3, and the keys of a connection that can reach it."""
    extra = {"endpoint_url": seaweedfs.endpoint, "region_name": "us-east-1"}
    connect("cloud", "aws", login="admin", password="admin-secret", extra=extra)
    connect("checkpoint_default", host=seaweedfs.fresh(), extra={"storage_conn_id": "cloud"})


@pytest.mark.parametrize("deploy_mode", [None, "client"])
def test_credentials_go_to_the_driver_in_its_environment_only(
    run_task, supervisor, spark, cloud, connect, deploy_mode, capfd, caplog
):
    connect("spark_default", "spark", host="local[1]", extra={"deploy-mode": deploy_mode} if deploy_mode else {})
    ended = run_task(submit(ship_credentials=True, env_vars={"MINE": "1"}))
    assert ended.state == "success", ended.error
    assert spark.environment["AWS_SECRET_ACCESS_KEY"] == "admin-secret"
    assert (spark.environment["AWS_ACCESS_KEY_ID"], spark.environment["MINE"]) == ("admin", "1")
    assert "admin-secret" not in " ".join(spark.words)
    assert "admin-secret" not in repr(ended.task.env_vars)
    assert "admin-secret" not in repr(supervisor.told)
    out, err = capfd.readouterr()
    assert "admin-secret" not in out + err + caplog.text


def test_where_there_are_none_to_ship_a_cluster_is_no_obstacle(run_task, spark, root, connect):
    connect("spark_default", "spark", host="spark://127.0.0.1:7077", extra={"deploy-mode": "client"})
    assert run_task(submit(ship_credentials=True)).state == "success"
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "client"})
    assert run_task(submit(ship_credentials=True)).state == "success"


def test_without_being_told_no_credentials_are_shipped(run_task, spark, cloud):
    run_task(submit())
    assert "AWS_SECRET_ACCESS_KEY" not in spark.environment


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "spark://127.0.0.1:7077", "extra": {"deploy-mode": "cluster"}},
        {"host": "yarn", "extra": {"deploy-mode": "client"}},
        {"host": "yarn", "extra": {"deploy-mode": "cluster"}},
    ],
)
def test_where_others_could_read_them_credentials_are_not_shipped(run_task, spark, cloud, connect, fields):
    connect("spark_default", "spark", **fields)
    ended = run_task(submit(ship_credentials=True, retries=1))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert "ship_credentials" in str(ended.error)
    assert not spark.called
