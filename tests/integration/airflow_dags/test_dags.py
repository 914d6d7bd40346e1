"""Each DAG by ``dag.test()``, which ``airflow dags test`` calls, with lineage written by OpenLineage's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from tests.unit.cli import making

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "dags" / "jobs"))

import clicks_stream  # noqa: E402 - it is a job
import orders  # noqa: E402 - it lives beside the job, where spark-submit finds it

# They share a store and go from one to the next: what the first has written, the others look after.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("dags")]


class Place:
    """A folder with an Airflow that nobody has started, a store, and orders that have landed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.landing, self.tables = folder / "store", folder / "landing", folder / "tables"
        self.lineage = folder / "lineage.jsonl"
        self.store.mkdir()
        settings = {
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(self.lineage), "append": True}
            ),
            "AIRFLOW_CONN_CHECKPOINT_DEFAULT": json.dumps({"conn_type": "checkpoint_store", "host": str(self.store)}),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        mine = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.environment = mine | settings | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def airflow(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def run_dag(self, dag_id: str, conf: dict[str, object], *, fails: bool = False) -> str:
        """Run a DAG to its end; answers with its log."""
        done = self.airflow("dags", "test", dag_id, "--conf", json.dumps(conf))
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, text[-6000:]
        return text

    def run_program(self, name: str, *words: str) -> dict[str, Any]:
        """Run a program that lies beside this file; answers with the JSON document it prints among its log."""
        done = subprocess.run(
            [sys.executable, "-m", f"tests.integration.airflow_dags.{name}", *words],
            env=self.environment | {"PYTHONPATH": str(ROOT)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        [found] = [line for line in done.stdout.splitlines() if line.startswith("{")]
        answer: dict[str, Any] = json.loads(found)
        return answer

    def connect(self, conn_id: str) -> Path:
        """A store of its own, and a connection to it."""
        folder = self.folder / conn_id
        folder.mkdir()
        about = {"conn_type": "checkpoint_store", "host": str(folder)}
        self.environment[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(about)
        return folder

    def lineage_of(self, job: str) -> dict[str, object]:
        """What OpenLineage was last told of a task that has ended."""
        events = [json.loads(line) for line in self.lineage.read_text().splitlines()]
        return next(e for e in reversed(events) if e["job"]["name"] == job and e["eventType"] != "START")


@pytest.fixture(scope="module")
def empty_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    making.templates = tmp_path_factory.mktemp("templates")
    made = Place(tmp_path_factory.mktemp("dags"))
    done = made.airflow("db", "migrate")
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.fixture(scope="module")
def place(empty_place: Place) -> Place:
    made = empty_place
    orders.generate(made.landing, files=4, orders=100, seed=3, customers=50)
    made.run_dag("orders_pipeline", {"input": str(made.landing), "output": str(made.tables), "files_per_epoch": 1})
    return made


def layout_of(place: Place):
    return open_store(str(place.store), pipeline="orders", layout="partitioned")


def test_the_pipeline_takes_in_all_orders_and_its_lineage_names_the_checkpoint(place):
    assert orders.differences(place.landing, place.tables) == []
    [opened] = read_timelines(layout_of(place).blobs)
    assert opened.owner.startswith("dag_test by airflow orders_pipeline/run, run manual__")
    event = place.lineage_of("orders_pipeline.run")
    newest = str(layout_of(place).candidates()[-1])
    [dataset] = event["outputs"]
    assert (dataset["namespace"], dataset["name"]) == ("file", f"{place.store}/orders")
    assert dataset["facets"]["version"]["datasetVersion"] == newest
    facet = event["run"]["facets"]["checkpoint"]
    assert (facet["pipeline"], facet["checkpointId"], facet["epoch"]) == ("orders", newest, 4)


def test_the_drill_started_by_hand_restores_the_newest(place):
    log = place.run_dag("checkpoint_drill", {})
    assert str(layout_of(place).candidates()[-1]) in log


def test_a_recovery_without_approval_opens_a_timeline_after_the_point(place):
    *_, older, _ = layout_of(place).candidates()
    conf = {"strategy": "id", "checkpoint": str(older), "approval": False, "restart_dag": None, "reason": "a test"}
    place.run_dag("checkpoint_recovery", conf)
    assert read_timelines(layout_of(place).blobs)[-1].fork_checkpoint == older
    assert place.lineage_of("checkpoint_recovery.restore")["run"]["facets"]["checkpoint"]["checkpointId"] == str(older)


def test_a_restore_that_is_cleared_goes_back_again_and_starts_a_run_of_its_own(empty_place):
    folder = empty_place.connect("cleared") / "letters"
    making.sidecar_store(folder)
    conf = {
        "connection": "cleared",
        "pipeline": "letters",
        "approval": False,
        "strategy": "id",
        "checkpoint": "3",
        "restart_dag": "orders_pipeline",
    }
    ended = empty_place.run_program(
        "clearing", str(ROOT / "dags" / "checkpoint_recovery.py"), str(folder), json.dumps(conf)
    )
    assert ended["state"] == "success", ended
    assert ended["started"] == [f"recovery__{ended['run']}", f"recovery__{ended['run']}__2"]
    # Not the one that the first of them has committed.
    assert ended["watched"] == ["7"]
    restored, job, restored_again, job_again = read_timelines(open_store(str(folder)).blobs)
    assert [restored.fork_epoch, restored_again.fork_epoch] == [3, 3]
    assert restored.number < job.number < restored_again.number < job_again.number


def test_maintenance_looks_after_every_pipeline_of_the_store(place):
    # What is pruned leaves its artifacts, and so its folder, until it is swept.
    before = len(survey(layout_of(place)).checkpoints)
    place.run_dag("checkpoint_maintenance", {"policy": {"keep_last": 1, "min_age": "0s"}})
    left = len(survey(layout_of(place)).checkpoints)
    assert left < before
    facet = place.lineage_of("checkpoint_maintenance.care.prune")["run"]["facets"]["checkpoint"]
    assert (facet["removed"], facet["kept"]) == (before - left, left)


def test_maintenance_fails_if_its_last_step_has_made_a_plan_and_asks_for_a_person(empty_place):
    folder = empty_place.connect("littered")
    making.sidecar_store(folder / "letters")
    litter = [making.orphan_sidecar(folder / "letters", number, age_hours=48) for number in range(100, 120)]
    log = empty_place.run_dag("checkpoint_maintenance", {"connection": "littered"}, fails=True)
    assert "letters: orphans did not finish" in log
    assert all(path.exists() for path in litter)


def test_maintenance_of_an_empty_store_says_so_and_no_more(empty_place):
    empty_place.connect("bare")
    log = empty_place.run_dag("checkpoint_maintenance", {"connection": "bare"}, fails=True)
    assert "the store holds no pipeline" in log
    assert "TypeError" not in log


def test_a_plain_streaming_query_is_run_and_sealed(place):
    landing, directory = place.folder / "clicks", place.store / "clicks"
    clicks_stream.generate(landing, files=2)
    conf = {"input": str(landing), "output": str(place.folder / "pages"), "checkpoint_location": str(directory)}
    place.run_dag("clicks_stream", conf)
    newest = open_store(str(directory)).candidates()[-1]
    outputs = place.lineage_of("clicks_stream.seal")["outputs"]
    assert [each["name"] for each in outputs] == [str(directory)]
    assert open_store(str(directory)).load(newest)
