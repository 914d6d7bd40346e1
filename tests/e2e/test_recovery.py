"""A recovery in a running Airflow, started and approved as the pages do it, and the Spark job restarted by it."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from tests.e2e.stage import Stage

# One Airflow serves all of them, so they run in one process.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("airflow")]

RECOVERY = "checkpoint_recovery"


def wait_until(happened, patience=300.0):
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.5)


def committed(stage):
    """All checkpoints that have a manifest, in their order."""
    layout, found = stage.layout, []
    for each in layout.candidates():
        with suppress(CheckpointNotFoundError):
            found.append(layout.load(each))
    return found


def test_the_dags_load_without_errors(airflow):
    assert airflow.get("/api/v2/importErrors")["import_errors"] == []
    found = {dag["dag_id"] for dag in airflow.get("/api/v2/dags")["dags"]}
    assert found >= {"checkpoint_maintenance", "checkpoint_recovery", "checkpoint_drill", "orders_pipeline"}


def test_the_connection_is_tested_by_writing_reading_and_removing_a_probe(airflow, stage):
    body = {"connection_id": "new", "conn_type": "checkpoint_store", "host": str(stage.folder / "elsewhere")}
    (stage.folder / "elsewhere").mkdir()
    answer = airflow.post("/api/v2/connections/test", body)
    assert answer["status"] is True, answer
    assert "Written, read and removed a probe" in answer["message"]
    assert list((stage.folder / "elsewhere").rglob("*.*")) == []


def test_people_write_while_tasks_start_and_end(airflow, stage):
    """In one API server for both, a change by a person could wait for a task that waited for that very change."""
    runs = [airflow.trigger(RECOVERY, {"pipeline": "orders", "dry_run": True}) for _ in range(4)]
    ended, path = ("success", "failed"), "/api/v2/connections/come-and-gone"
    while any(airflow.run_state(RECOVERY, run) not in ended for run in runs):
        for _ in range(10):
            airflow.add_connection("come-and-gone", "http", host="nowhere.invalid")
            assert airflow.ask("DELETE", path).is_success


def test_a_damaged_checkpoint_is_passed_over_and_the_point_a_person_approves_is_gone_back_to(airflow, stage):
    stage.more_orders(4)
    stage.run_pipeline()
    assert stage.differences() == []
    damaged = stage.damage_newest()
    stage.more_orders(2)

    run = stage.start_recovery()
    question = airflow.wait_for_question(RECOVERY, run, "approve")
    assert damaged.replace("-", "\\-") in question["body"]
    assert "SHA" in question["body"]
    assert question["options"][-1] == "Reject"
    assert question["defaults"] == ["Reject"]
    assert not any(damaged[-8:] in option for option in question["options"])

    for user in ("vera", None):
        assert airflow.ask("GET", f"/api/v2/dags/{RECOVERY}/dagRuns/{run}", user=user).status_code in (200, 401)
    assert airflow.answer(RECOVERY, run, "approve", question["options"][1], user="vera").status_code == 403

    # Not the newest that is offered, but the one before it.
    assert airflow.answer(RECOVERY, run, "approve", question["options"][1], user="uwe").is_success
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    restored = airflow.xcom(RECOVERY, run, "restore")
    assert question["options"][1].endswith(restored["checkpoint_id"][-8:])
    assert restored["recover_from"] == "latest"
    assert airflow.xcom(RECOVERY, run, "approve")["approved_by"] == "uwe"
    watched = airflow.xcom(RECOVERY, run, "watch")
    assert int(watched["timeline"]) > int(restored["timeline"])

    assert airflow.wait_for_run("orders_pipeline", f"recovery__{run}") == "success"
    assert stage.differences() == []
    (record,) = [each for each in read_timelines(stage.layout.blobs) if each.number == int(restored["timeline"])]
    assert record.owner.startswith("admin by airflow checkpoint_recovery/restore")


def test_a_rejection_changes_nothing(airflow, stage):
    stage.more_orders(1)
    stage.run_pipeline()
    before = [each.number for each in read_timelines(stage.layout.blobs)]
    run = stage.start_recovery()
    airflow.wait_for_question(RECOVERY, run, "approve")
    assert airflow.answer(RECOVERY, run, "approve", "Reject").is_success
    airflow.wait_for_run(RECOVERY, run)
    states = airflow.tasks(RECOVERY, run)
    assert {states[task] for task in ("approve", "restore", "restart", "watch")} == {"skipped"}
    assert [each.number for each in read_timelines(stage.layout.blobs)] == before

    # And with a dry run nobody is even asked.
    run = stage.start_recovery(dry_run=True)
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    assert airflow.tasks(RECOVERY, run)["approve"] == "skipped"
    assert airflow.xcom(RECOVERY, run, "select")["checkpoint_id"]


def test_a_recovery_outlives_its_scheduler_and_its_worker(airflow, stage):
    """The Spark driver outlives the worker that started it, so the next try finds a writer that is still at work."""
    stage.more_orders(3)
    stage.run_pipeline()
    stage.damage_newest()
    stage.more_orders(40)

    run = stage.start_recovery()
    question = airflow.wait_for_question(RECOVERY, run, "approve")
    for component in ("scheduler", "triggerer"):
        airflow.kill(component)
        airflow.start(component)
    assert airflow.answer(RECOVERY, run, "approve", question["options"][0]).is_success

    restarted = f"recovery__{run}"
    airflow.wait_for_task(RECOVERY, run, "restart", "success")
    airflow.wait_for_task("orders_pipeline", restarted, "run", "running")
    restored = int(airflow.xcom(RECOVERY, run, "restore")["timeline"])
    wait_until(lambda: committed(stage)[-1].timeline > restored)
    airflow.kill("scheduler")
    assert stage.drivers(), "the driver has died with its worker: this test tries nothing"
    airflow.start("scheduler")

    assert airflow.wait_for_run("orders_pipeline", restarted) == "success"
    assert airflow.wait_for_run(RECOVERY, run) == "success"
    wait_until(lambda: not stage.drivers())
    assert stage.differences() == []
    # One line of descent, and nobody has added to a timeline that another had taken over.
    line = [each for each in committed(stage) if each.timeline > restored]
    assert [each.epoch for each in line] == sorted({each.epoch for each in line})
    assert [each.timeline for each in line] == sorted(each.timeline for each in line)


def test_maintenance_proves_prunes_and_reports_what_cannot_be_restored(airflow, stage):
    stage.more_orders(4)
    stage.run_pipeline()
    conf = {"policy": {"keep_last": 2}, "pipelines": []}
    run = airflow.trigger("checkpoint_maintenance", conf)
    assert airflow.wait_for_run("checkpoint_maintenance", run) == "success", airflow.tasks(
        "checkpoint_maintenance", run
    )
    (row,) = airflow.xcom("checkpoint_maintenance", run, "report")["pipelines"]
    assert row["pipeline"] == "orders"
    assert row["validate"]["valid"] == 4
    assert len(row["prune"]["removed"]) >= 1

    damaged = stage.damage_newest()
    run = airflow.trigger("checkpoint_maintenance", conf)
    assert airflow.wait_for_run("checkpoint_maintenance", run) == "failed"
    states = airflow.tasks("checkpoint_maintenance", run)
    assert states["care.orphans[0]"] == "success", "the rest is done all the same"
    assert f"orders: cannot be restored: {damaged}" in airflow.task_log("checkpoint_maintenance", run, "report")


def test_a_new_checkpoint_starts_the_drill(airflow, stage):
    airflow.unpause("checkpoint_drill")
    stage.more_orders(1)
    # The first look of the watcher announces nothing; a store without checkpoints lets it see the first one as new.
    time.sleep(5)
    stage.run_pipeline()
    deadline = time.monotonic() + 180
    while not (runs := airflow.get("/api/v2/dags/checkpoint_drill/dagRuns")["dag_runs"]):
        assert time.monotonic() < deadline, airflow.log_of("triggerer")[-3000:]
        stage.more_orders(1)
        stage.run_pipeline()
    assert airflow.wait_for_run("checkpoint_drill", runs[0]["dag_run_id"]) == "success"


def test_on_a_real_object_store_with_the_credentials_of_an_aws_connection(airflow, tmp_path, seaweedfs):
    keys = seaweedfs.options()
    if airflow.ask("GET", "/api/v2/connections/seaweed").status_code == 404:
        airflow.add_connection(
            "seaweed",
            "aws",
            login=keys["access_key_id"],
            password=keys["secret_access_key"],
            extra={"endpoint_url": keys["endpoint_url"], "region_name": keys["region"]},
        )
    stage = Stage(airflow, tmp_path, seaweedfs.fresh(), options=keys)
    stage.connect({"storage_conn_id": "seaweed"})
    stage.more_orders(3)
    stage.run_pipeline()
    stage.damage_newest()
    stage.more_orders(1)
    run = stage.start_recovery(approval=False)
    assert airflow.wait_for_run(RECOVERY, run) == "success", airflow.tasks(RECOVERY, run)
    assert airflow.wait_for_run("orders_pipeline", f"recovery__{run}") == "success"
    assert stage.differences() == []
    for task in ("select", "approve", "restore", "watch"):
        assert keys["secret_access_key"] not in airflow.task_log(RECOVERY, run, task)
    assert keys["secret_access_key"] not in airflow.task_log("orders_pipeline", f"recovery__{run}", "run")
