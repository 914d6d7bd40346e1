"""The sensors through the task runner: in a worker, rescheduled, and deferred."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout
from airflow.sdk.execution_time.comms import DeferTask, RescheduleTask

from airflow_provider_checkpoint.assets import checkpoint_asset
from airflow_provider_checkpoint.exceptions import AccessDeniedError, ConfigurationError, StoreUnavailableError
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.operators.recovery import CheckpointRestoreOperator
from airflow_provider_checkpoint.sensors.checkpoint import CheckpointCommittedSensor, CheckpointFreshnessSensor
from tests.unit.airflow_face.faults import faulty
from tests.unit.cli.making import add_sidecar, corrupt_sidecar, sidecar_store

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

WAYS = {"in a worker": {}, "deferred": {"deferrable": True}}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request):
    return request.param


def committed(**arguments):
    usual = {"pipeline": "orders", "poke_interval": 0.01, "timeout": 0.05}
    return CheckpointCommittedSensor(task_id="committed", **{**usual, **arguments})


def fresh(**arguments):
    usual = {"pipeline": "orders", "poke_interval": 0.01, "timeout": 0.05, "warn_after": "90m", "fail_after": "3h"}
    return CheckpointFreshnessSensor(task_id="fresh", **{**usual, **arguments})


def deferred(ended) -> BaseTrigger:
    """The trigger that a task waits for, made anew as the triggerer makes it: from its path and JSON."""
    assert ended.state == "deferred", ended.error
    assert isinstance(ended.msg, DeferTask)
    module, _, name = ended.msg.classpath.rpartition(".")
    arguments = ended.msg.trigger_kwargs
    arguments = json.loads(json.dumps(arguments if isinstance(arguments, dict) else arguments.root))
    return getattr(import_module(module), name)(**arguments)


def first_event(trigger: BaseTrigger):
    async def wait():
        async for event in trigger.run():
            return event.payload
        return None

    return asyncio.run(asyncio.wait_for(wait(), 20))


# -- committed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "5"),
        ({"min_epoch": 5}, "5"),
        ({"min_epoch": "5"}, "5"),
        ({"min_epoch": 6}, None),
        ({"min_timeline": 1}, "5"),
        ({"min_timeline": "2"}, None),
        ({"after": "2020-01-01T00:00Z"}, "5"),
        ({"after": "2100-01-01T00:00Z"}, None),
        ({"depth": "content"}, "5"),
        ({"min_epoch": "", "min_timeline": "None", "after": None}, "5"),
    ],
)
def test_what_counts_as_committed(run_task, orders, way, wanted, found):
    ended = run_task(committed(**way, **wanted))
    if found is None:
        assert ended.state == ("deferred" if way else "failed")
        return
    assert ended.answer["checkpoint_id"] == found
    assert all(isinstance(value, str) for value in ended.answer.values())
    assert ended.xcoms["epoch"] == "5"


def test_every_argument_can_be_a_template(run_task, orders):
    conf = {"epoch": 5, "timeline": 1, "after": "2020-01-01T00:00+00:00"}
    checked = committed(
        pipeline="{{ 'orders' }}",
        checkpoint_conn_id="{{ 'checkpoint_default' }}",
        layout="{{ 'sidecar' }}",
        min_epoch="{{ dag_run.conf['epoch'] }}",
        min_timeline="{{ dag_run.conf['timeline'] }}",
        after="{{ dag_run.conf['after'] }}",
        depth="{{ 'presence' }}",
    )
    assert set(checked.template_fields) <= set(vars(checked))
    assert run_task(checked, conf=conf).answer["checkpoint_id"] == "5"


def test_waiting_in_a_worker_ends_with_the_timeout(run_task, orders):
    ended = run_task(committed(min_epoch=6))
    assert ended.state == "failed"
    assert isinstance(ended.error, AirflowSensorTimeout)
    assert run_task(committed(min_epoch=6, soft_fail=True)).state == "skipped"


def test_waiting_between_reschedules_holds_no_worker(run_task, orders):
    ended = run_task(committed(min_epoch=6, mode="reschedule", timeout=60, poke_interval=30))
    assert ended.state == "up_for_reschedule"
    assert isinstance(ended.msg, RescheduleTask)


def test_waiting_in_the_triggerer_goes_on_with_what_it_saw(run_task, orders, supervisor):
    asset = checkpoint_asset("orders")
    sensor = {"min_epoch": "6", "deferrable": True, "outlets": [asset], "timeout": 3600}
    waiting = run_task(committed(**sensor))
    assert waiting.msg.trigger_timeout == timedelta(hours=1)
    trigger = deferred(waiting)
    assert trigger.serialize() == (waiting.msg.classpath, deferred(waiting).serialize()[1])
    layout = CheckpointHook(layout="sidecar").open("orders")
    add_sidecar(layout, 6, hours=0)
    event = first_event(trigger)
    assert json.loads(json.dumps(event)) == event
    ended = run_task(committed(**sensor), next_method="execute_complete", next_kwargs={"event": event})
    assert ended.answer["checkpoint_id"] == "6"
    assert "status" not in ended.answer
    [told] = ended.msg.outlet_events
    assert told["extra"] == ended.answer


def test_the_first_checkpoint_of_a_pipeline_that_never_ran_can_be_waited_for(run_task, root):
    """Also where the layout is recognised by what is there: nothing yet."""
    waiting = run_task(committed(deferrable=True))
    trigger = deferred(waiting)
    sidecar_store(root / "orders", 1)
    assert first_event(trigger)["checkpoint_id"] == "1"
    assert run_task(committed(pipeline="payments", mode="reschedule", timeout=9)).state == "up_for_reschedule"


def test_progress_after_a_restore_is_proven_by_a_later_timeline(run_task, orders):
    restored = run_task(CheckpointRestoreOperator(task_id="restore", pipeline="orders", checkpoint_id=3)).answer
    sensor = committed(min_timeline=int(restored["timeline"]))
    assert run_task(sensor).state == "failed"
    add_sidecar(CheckpointHook(layout="sidecar").open("orders"), 6, hours=0, epoch=4, timeline=2)
    assert run_task(committed(min_timeline=2)).answer["checkpoint_id"] == "6"


@pytest.mark.parametrize("damage", ["", "{", "null", '{"version": 1}'])
def test_a_manifest_that_cannot_be_read_ends_no_wait(run_task, orders, way, damage):
    (orders / "manifests" / "manifest-000005.json").write_text(damage)
    assert run_task(committed(**way)).answer["checkpoint_id"] == "4"


def test_one_that_cannot_be_proven_does_not_count(run_task, orders, way):
    corrupt_sidecar(orders, 5)
    assert run_task(committed(depth="content", **way)).answer["checkpoint_id"] == "4"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"min_epoch": "few"}, "min_epoch"),
        ({"after": "noon"}, "after"),
        ({"after": "2026-01-01T00:00"}, "without a zone"),
        ({"depth": "deep"}, "unknown depth"),
        ({"pipeline": "letters"}, "unknown content"),
    ],
)
def test_what_makes_no_sense_fails_at_once(run_task, orders, way, wanted, words):
    (orders.parent / "letters").mkdir()
    (orders.parent / "letters" / "to-ada.txt").write_text("Dear Ada")
    ended = run_task(committed(retries=2, **way, **wanted))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)


# -- a store that does not answer --------------------------------------------------------------------------------


@pytest.fixture
def silence(capfd, caplog):
    """How often in a row the store did not answer, as the log has told since the last call; each number once."""

    def call() -> list[int]:
        text = "".join([*capfd.readouterr(), caplog.text])
        caplog.clear()
        return [*dict.fromkeys(map(int, re.findall(r"the store did not answer \((\d+) of 10\)", text)))]

    return call


@pytest.mark.parametrize("sensor", [committed, fresh])
def test_in_a_worker_a_store_that_does_not_answer_for_a_while_is_asked_again(
    run_task, orders, monkeypatch, silence, sensor
):
    faults = faulty(monkeypatch)
    faults.fail(verb="list")
    monkeypatch.setattr("time.sleep", lambda _: len(faults.opened) == 3 and faults.heal())
    assert run_task(sensor(timeout=600)).answer["checkpoint_id"] == "5"
    assert silence() == [1, 2, 3]


def test_only_looks_in_a_row_wear_out_the_patience(run_task, orders, monkeypatch, silence):
    faults = faulty(monkeypatch)

    def every_other_time(_):
        if len(faults.opened) % 2:
            faults.fail(verb="list")
        else:
            faults.heal()
        if len(faults.opened) == 30:
            add_sidecar(CheckpointHook(layout="sidecar").open("orders"), 6, hours=0)

    monkeypatch.setattr("time.sleep", every_other_time)
    assert run_task(committed(min_epoch=6, timeout=600)).answer["checkpoint_id"] == "6"
    assert silence() == [1]


def test_in_a_worker_a_store_that_stays_silent_is_worth_a_retry(run_task, orders, monkeypatch, silence):
    faulty(monkeypatch).fail(verb="folders")
    ended = run_task(committed(retries=1, timeout=600))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)
    assert silence() == [*range(1, 11)]


def test_the_patience_lasts_from_one_reschedule_to_the_next(run_task, orders, monkeypatch, silence):
    waiting = {"min_epoch": 6, "mode": "reschedule", "timeout": 600, "retries": 1}
    faults = faulty(monkeypatch)
    states = []
    for silent in [True] * 9 + [False] + [True] * 10:
        faults.heal()
        if silent:
            faults.fail(verb="folders")
        states.append(run_task(committed(**waiting)).state)
    assert states == ["up_for_reschedule"] * 19 + ["up_for_retry"]
    assert silence()[-1] == 10
    # The next try begins with all of it.
    assert run_task(committed(**waiting), try_number=2).state == "up_for_reschedule"
    assert silence() == [1]


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_in_a_worker_a_missing_connection_is_not_waited_for(run_task, orders, mode):
    ended = run_task(committed(checkpoint_conn_id="nowhere", mode=mode, timeout=600, retries=1))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)


def test_in_a_worker_a_store_that_refuses_is_not_waited_for(run_task, connect, seaweedfs):
    extra = {"endpoint_url": seaweedfs.endpoint, "region_name": "us-east-1"}
    connect("cloud", "aws", login="admin", password="not the secret", extra=extra)
    connect("checkpoint_default", host=seaweedfs.fresh(), extra={"storage_conn_id": "cloud"})
    ended = run_task(committed(timeout=600, retries=1))
    assert (ended.state, type(ended.error)) == ("failed", AccessDeniedError)


def test_a_deferrable_sensor_leaves_the_patience_to_the_triggerer(run_task, orders, monkeypatch):
    faults = faulty(monkeypatch)
    faults.fail(verb="folders")
    trigger = deferred(run_task(committed(deferrable=True)))
    faults.heal()
    assert first_event(trigger)["checkpoint_id"] == "5"


def test_a_store_that_stays_silent_while_deferred_is_worth_a_retry_too(run_task, orders, monkeypatch):
    faulty(monkeypatch).fail(verb="folders")
    event = first_event(deferred(run_task(committed(deferrable=True, poke_interval=0.001))))
    assert event["status"] == "error"
    resumed = {"next_method": "execute_complete", "next_kwargs": {"event": event}}
    ended = run_task(committed(retries=1, deferrable=True), **resumed)
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)


def test_a_refusal_while_deferred_fails_for_good_or_is_skipped_if_told_so(run_task, orders):
    event = {"status": "error", "message": "the store refused access"}
    resumed = {"next_method": "execute_complete", "next_kwargs": {"event": event}}
    ended = run_task(committed(retries=3, deferrable=True), **resumed)
    assert ended.state == "failed"
    assert "refused access" in str(ended.error)
    assert run_task(committed(soft_fail=True, deferrable=True), **resumed).state == "skipped"


def test_one_that_shall_never_fail_does_not(run_task, orders, way):
    assert run_task(committed(never_fail=True, depth="deep", **way)).state == "skipped"
    silent = {"status": "error", "message": "no answer", "transient": True}
    resumed = {"next_method": "execute_complete", "next_kwargs": {"event": silent}}
    assert run_task(committed(never_fail=True, deferrable=True), **resumed).state == "skipped"


def test_the_triggerer_takes_a_depth_as_the_worker_does(run_task, orders):
    assert deferred(run_task(committed(min_epoch=6, depth=" content ", deferrable=True))).depth == "content"
    assert deferred(run_task(fresh(warn_after="30m", depth=" content ", deferrable=True))).depth == "content"


# -- freshness ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "state"),
    [
        # The newest is an hour old.
        ({"warn_after": "90m", "fail_after": "3h"}, "fresh"),
        ({"warn_after": timedelta(minutes=90), "fail_after": timedelta(hours=3)}, "fresh"),
        ({"warn_after": "30m", "fail_after": "3h"}, "late"),
        ({"warn_after": "10m", "fail_after": "30m"}, "stale"),
        ({"warn_after": "0s", "fail_after": "0s"}, "stale"),
        ({"warn_after": "2h", "fail_after": "2h"}, "fresh"),
    ],
)
def test_how_old_the_newest_may_be(run_task, orders, way, windows, state):
    ended = run_task(fresh(wait_when_late=False, retries=2, **way, **windows))
    if state == "stale":
        assert ended.state == "failed"
        assert isinstance(ended.error, AirflowFailException)
        assert "allowed are" in str(ended.error)
        return
    assert ended.answer["state"] == state
    assert ended.answer["checkpoint_id"] == "5"
    assert 3500 < int(ended.answer["age_seconds"]) < 3900
    assert all(isinstance(value, str) for value in ended.answer.values())


def test_while_it_is_late_a_fresh_one_is_waited_for(run_task, orders):
    assert run_task(fresh(warn_after="30m")).state == "failed"
    waiting = run_task(fresh(warn_after="30m", deferrable=True))
    trigger = deferred(waiting)
    add_sidecar(CheckpointHook(layout="sidecar").open("orders"), 6, hours=0)
    event = first_event(trigger)
    resumed = {"next_method": "execute_complete", "next_kwargs": {"event": event}}
    assert run_task(fresh(warn_after="30m", deferrable=True), **resumed).answer["checkpoint_id"] == "6"


def test_one_that_becomes_too_old_while_deferred_fails_the_task(run_task, orders):
    trigger = deferred(run_task(fresh(warn_after="30m", deferrable=True)))
    # As if time passed.
    trigger.fail_after = 1800.0
    event = first_event(trigger)
    assert event["state"] == "stale"
    resumed = {"next_method": "execute_complete", "next_kwargs": {"event": event}}
    ended = run_task(fresh(warn_after="30m", deferrable=True, retries=2), **resumed)
    assert ended.state == "failed"
    assert "allowed are 30m" in str(ended.error)


def test_a_broken_newest_does_not_make_a_pipeline_fresh(run_task, orders, way):
    corrupt_sidecar(orders, 5)
    late = fresh(warn_after="90m", fail_after="100m", depth="content", **way)
    assert run_task(late).state == "failed"


@pytest.mark.parametrize("mode", ["soft_fail", "never_fail"])
def test_an_alarm_can_be_turned_into_a_skip(run_task, orders, way, mode):
    assert run_task(fresh(warn_after="1m", fail_after="2m", **{mode: True}, **way)).state == "skipped"


def test_every_window_can_be_a_template(run_task, orders):
    checked = fresh(warn_after="{{ 90 }}m", fail_after="{{ 3 }}h", depth="{{ 'presence' }}")
    assert set(checked.template_fields) <= set(vars(checked))
    assert run_task(checked).answer["state"] == "fresh"


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ({"warn_after": "3h", "fail_after": "1h"}, "comes before"),
        ({"warn_after": "", "fail_after": "1h"}, "are needed"),
        ({"warn_after": "soon", "fail_after": "1h"}, "warn_after"),
        ({"depth": "deep"}, "unknown depth"),
    ],
)
def test_windows_that_make_no_sense_fail_at_once(run_task, orders, way, windows, words):
    ended = run_task(fresh(retries=2, **way, **windows))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)


# -- as every sensor ---------------------------------------------------------------------------------------------


def test_the_defaults_of_a_dag_count_more_than_ours():
    with DAG("d", schedule=None, default_args={"poke_interval": 7.0, "retry_policy": None}):
        sensor = CheckpointCommittedSensor(task_id="committed", pipeline="orders")
    assert (sensor.poke_interval, sensor.retry_policy) == (7.0, None)
    assert CheckpointCommittedSensor(task_id="committed", pipeline="orders").poke_interval == 30.0


def test_a_time_can_be_given_as_one(run_task, orders):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    assert run_task(committed(after=yesterday)).answer["checkpoint_id"] == "5"
    trigger = deferred(run_task(committed(after=datetime.now(UTC), deferrable=True)))
    assert isinstance(trigger.arguments()["after"], str)
