"""Tasks of ``checkpoint_recovery`` one by one: what its form becomes in them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from airflow.sdk.exceptions import ParamValidationError

FILE = Path(__file__).resolve().parents[3] / "dags" / "checkpoint_recovery.py"


@pytest.fixture
def dag():
    spec = importlib.util.spec_from_file_location("checkpoint_recovery", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag


@pytest.mark.parametrize(
    ("copy_to", "location", "watched"),
    [
        (None, "", "orders"),
        ("orders-2", "/data/orders-2", "orders-2"),
        # Filled in for a pipeline that is not copied.
        ("orders-2", "", "orders"),
    ],
)
def test_what_was_restarted_is_watched(run_task, supervisor, orders, dag, copy_to, location, watched):
    restored = {"checkpoint_location": location, "epoch": "7", "timeline": "" if location else "3"}
    supervisor.xcoms.update({("restore", key): value for key, value in restored.items()})
    ended = run_task(dag.get_task("watch"), conf={"pipeline": "orders", "copy_to": copy_to})
    assert ended.state == "deferred", ended.error
    wanted = {"pipeline": watched, "min_epoch": 8, "min_timeline": 1 if location else 4}
    assert ended.msg.trigger_kwargs.items() >= wanted.items()


@pytest.mark.parametrize(
    "form",
    [
        {"copy_to": "s3://elsewhere/orders-2"},
        {"copy_to": "/data/orders-2"},
        {"pipeline": ""},
        {"strategy": "the best"},
        {"epoch": 0},
        {"max_rollback": "a bit"},
        {"approval": None},
        {"dry_run": "no"},
    ],
    ids=str,
)
def test_a_form_that_makes_no_sense_is_not_started(run_task, supervisor, orders, dag, form):
    with pytest.raises(ParamValidationError):
        run_task(dag.get_task("select"), conf=form)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"strategy": "id"}, "checkpoint_id"),
        ({"strategy": "pin"}, "pin"),
        ({"strategy": "before_time"}, "at"),
        ({"strategy": "before_time", "time": "yesterday"}, "yesterday"),
        ({"strategy": "before_time", "time": "2026-11-15T14:05:00"}, "zone"),
        ({"strategy": "before_epoch"}, "epoch"),
        ({"strategy": "id", "checkpoint": "99"}, "99"),
        ({"connection": "nowhere"}, "nowhere"),
        ({"pipeline": "clicks"}, "clicks"),
    ],
    ids=str,
)
def test_what_is_missing_is_told_by_the_first_task_and_not_tried_again(run_task, supervisor, orders, dag, form, words):
    ended = run_task(dag.get_task("select"), conf=form)
    assert ended.state == "failed"
    assert words in str(ended.error)
    assert "HINT" in str(ended.error)


# -- restart -----------------------------------------------------------------------------------------------------


@pytest.fixture
def restart(run_task, supervisor, dag):
    """Run the task ``restart`` of one and the same run."""
    supervisor.xcoms["restart_conf", "return_value"] = {"recover_from": "latest"}
    task = dag.get_task("restart")

    def call(**about):
        return run_task(task, run_id="manual__1", **about)

    return call


def test_the_run_that_is_started_bears_the_name_of_the_recovery(restart, supervisor):
    assert restart().state == "success"
    assert supervisor.runs == [("orders_pipeline", "recovery__manual__1")]
    assert supervisor.xcoms["restart", "trigger_run_id"] == "recovery__manual__1"


@pytest.mark.parametrize("cleared_after", [0, 1])
def test_a_retry_after_the_run_was_started_takes_that_one_and_starts_no_second(restart, supervisor, cleared_after):
    """As after a worker that was lost before it could tell that it had succeeded."""
    first, again = cleared_after + 1, cleared_after + 2
    restart(try_number=first, cleared_after=cleared_after)
    [started] = supervisor.runs
    # Airflow forgets the XComs of the try before.
    supervisor.xcoms = {key: value for key, value in supervisor.xcoms.items() if key[0] != "restart"}
    ended = restart(try_number=again, cleared_after=cleared_after)
    assert ended.state == "success", ended.error
    assert supervisor.runs == [started]
    assert ended.xcoms["trigger_run_id"] == started[1]
    assert started[1] in ended.xcoms["_link_TriggerDagRunLink"]


def test_each_time_it_is_cleared_a_run_of_its_own_is_started(restart, supervisor):
    restart()
    assert restart(try_number=2, cleared_after=1).state == "success"
    assert restart(try_number=5, cleared_after=4).state == "success"
    names = [run_id for _, run_id in supervisor.runs]
    assert names == ["recovery__manual__1", "recovery__manual__1__2", "recovery__manual__1__5"]


def test_a_paused_dag_is_no_restart(restart, supervisor):
    supervisor.paused.add("orders_pipeline")
    assert restart().state == "failed"
    assert supervisor.runs == []
    supervisor.paused.clear()
    assert restart(try_number=2, cleared_after=1).state == "success"
