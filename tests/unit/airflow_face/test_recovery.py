"""Choosing a point and going back to it, through the task runner."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.exceptions import (
    ConfigurationError,
    ConfirmationNeededError,
    FencedWriterError,
    NoRecoveryPointError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline, read_timelines
from airflow_provider_checkpoint.operators.pin import CheckpointPinOperator
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from tests.unit.airflow_face.faults import faulty
from tests.unit.cli.making import corrupt_sidecar, everything_in, hours_ago, partitioned_store


def select(**arguments):
    return CheckpointSelectRecoveryPointOperator(task_id="select", **{"pipeline": "orders", **arguments})


def restore(**arguments):
    usual = {"pipeline": "orders", "checkpoint_id": "3", "reason": "a test"}
    return CheckpointRestoreOperator(task_id="restore", **{**usual, **arguments})


def layout():
    return CheckpointHook().open("orders")


def timelines():
    return read_timelines(layout().blobs)


# -- select ------------------------------------------------------------------------------------------------------


def test_all_that_a_spark_job_takes_is_text(run_task, orders):
    ended = run_task(select())
    answer = ended.answer
    plan = answer.pop("plan")
    assert all(isinstance(value, str) for value in answer.values())
    assert answer | {"created": ""} == {
        "checkpoint_id": "5",
        "recover_from": "5",
        "uri": f"file://{orders}",
        "store": str(orders.parent),
        "pipeline": "orders",
        "epoch": "5",
        "timeline": "1",
        "created": "",
        "rollback_seconds": "0",
        "rollback_epochs": "0",
        "rollback_events": "",  # this layout does not count them
    }
    assert datetime.fromisoformat(answer["created"]).tzinfo is not None
    assert RecoveryPlan.model_validate(json.loads(json.dumps(plan))).chosen is not None
    assert ended.xcoms["recover_from"] == "5"


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ({}, "5"),
        ({"strategy": "latest", "skip": [5, "4"]}, "3"),
        ({"skip": "5,4"}, "3"),
        ({"strategy": "id", "checkpoint_id": 2}, "2"),
        ({"strategy": "before_epoch", "epoch": 3}, "2"),
        ({"strategy": "before_epoch", "epoch": "3"}, "2"),
        ({"strategy": "before_watermark", "watermark": "3500"}, "3"),
        ({"strategy": "before_offset", "source": "orders", "partition": "orders-0", "offset": "250"}, "2"),
        ({"strategy": "before_offset", "source": "orders", "offset": 250}, "2"),
        # As a form fills in what the strategy does not use.
        ({"strategy": "latest", "epoch": 3, "at": "2020-01-01T00:00Z", "pin": "none", "checkpoint_id": ""}, "5"),
    ],
)
def test_each_strategy(run_task, orders, arguments, chosen):
    assert run_task(select(**arguments)).answer["checkpoint_id"] == chosen


@pytest.mark.parametrize("as_text", [True, False])
def test_before_a_time(run_task, orders, as_text):
    at = datetime.fromtimestamp(hours_ago(2.5) / 1000, UTC)
    assert run_task(select(strategy="before_time", at=at.isoformat() if as_text else at)).answer["epoch"] == "3"


def test_by_the_name_of_a_pin(run_task, orders):
    run_task(CheckpointPinOperator(task_id="pin", pipeline="orders", checkpoint_id=2, name="good", reason="known"))
    assert run_task(select(strategy="pin", pin="good")).answer["checkpoint_id"] == "2"


def test_every_argument_can_be_a_template(run_task, orders):
    conf = {"strategy": "before_offset", "source": "orders", "partition": "orders-0", "offset": 450}
    told = {name: f"{{{{ dag_run.conf['{name}'] }}}}" for name in conf}
    nothing = dict.fromkeys(("checkpoint_id", "at", "epoch", "watermark", "pin"), "{{ dag_run.conf.get('absent') }}")
    checked = select(
        **told,
        **nothing,
        depth="{{ 'presence' }}",
        max_rollback="{{ 24 }}h",
        max_rollback_epochs="{{ 10 }}",
        fresh_start_ok="{{ false }}",
        skip="{{ [4] }}",
    )
    assert set(checked.template_fields) <= set(vars(checked))
    answer = run_task(checked, conf=conf).answer
    assert (answer["checkpoint_id"], answer["plan"]["depth"]) == ("3", "presence")


def test_a_broken_checkpoint_is_passed_over_and_the_plan_says_why(run_task, orders):
    corrupt_sidecar(orders, 5)
    answer = run_task(select()).answer
    assert answer["checkpoint_id"] == "4"
    assert (answer["rollback_epochs"], int(answer["rollback_seconds"]) // 60) == ("1", 60)
    [skipped] = answer["plan"]["skipped"]
    assert skipped["checkpoint_id"] == 5


def test_a_checkpoint_with_other_vnodes_than_the_connections_does_not_fit(run_task, orders, connect):
    connect("checkpoint_default", host=str(orders.parent), extra={"vnode_count": 7})
    assert run_task(select()).state == "failed"
    assert run_task(restore()).state == "failed"
    connect("checkpoint_default", host=str(orders.parent), extra={"vnode_count": 256})
    assert run_task(select()).answer["checkpoint_id"] == "5"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"strategy": "newest"}, ConfigurationError, "unknown strategy 'newest'"),
        ({"strategy": "before_epoch"}, ConfigurationError, "needs epoch"),
        ({"strategy": "before_epoch", "epoch": "few"}, ConfigurationError, "epoch"),
        ({"strategy": "before_time", "at": "noon"}, ConfigurationError, "at"),
        ({"strategy": "before_time", "at": "2026-01-01T00:00"}, ConfigurationError, "without a zone"),
        ({"strategy": "before_epoch", "epoch": 1}, NoRecoveryPointError, ""),
        ({"strategy": "id", "checkpoint_id": "99"}, Exception, "99"),
        ({"depth": "deep"}, ConfigurationError, "unknown depth"),
        ({"strategy": "id", "checkpoint_id": 1, "max_rollback": "2h"}, NoRecoveryPointError, "2h"),
        ({"strategy": "id", "checkpoint_id": 1, "max_rollback_epochs": "2"}, NoRecoveryPointError, ""),
        ({"fresh_start_ok": "perhaps"}, ConfigurationError, "fresh_start_ok"),
    ],
)
def test_what_cannot_be_fails_at_once(run_task, orders, arguments, kind, words):
    ended = run_task(select(retries=3, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, kind)
    assert words in str(ended.error)


def test_a_fresh_start_is_an_answer_only_if_it_was_asked_for(run_task, orders):
    answer = run_task(select(strategy="before_epoch", epoch=1, fresh_start_ok="{{ True }}")).answer
    assert (answer["checkpoint_id"], answer["recover_from"], answer["epoch"]) == ("", "fresh", "")
    assert answer["plan"]["chosen"] is None


def test_a_store_that_does_not_answer_is_asked_again_by_a_retry(run_task, orders, monkeypatch):
    faulty(monkeypatch).fail(verb="read", match="manifest-")
    ended = run_task(select(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)


def test_choosing_changes_nothing(run_task, orders):
    before = everything_in(orders)
    run_task(select())
    assert everything_in(orders) == before


# -- restore -----------------------------------------------------------------------------------------------------


def test_going_back_opens_a_timeline_after_the_checkpoint(run_task, orders):
    ended = run_task(restore(), run_id="manual__1")
    restored_at = ended.answer.pop("restored_at")
    assert datetime.now(UTC) - datetime.fromisoformat(restored_at) < timedelta(minutes=5)
    assert ended.answer == {
        "timeline": "2",
        "checkpoint_id": "3",
        "recover_from": "latest",
        "uri": f"file://{orders}",
        "store": str(orders.parent),
        "pipeline": "orders",
        "epoch": "3",
        "abandoned": ["4", "5"],
        "checkpoint_location": "",
        "applied": True,
    }
    [opened] = timelines()
    assert (opened.number, opened.fork_epoch, opened.reason) == (2, 3, "a test")
    assert opened.owner == "ada by airflow d/restore, run manual__1"
    assert run_task(select()).answer["checkpoint_id"] == "3"


def test_every_argument_of_a_restore_can_be_a_template(run_task, orders, supervisor):
    supervisor.xcoms["select", "checkpoint_id"] = "4"
    checked = restore(
        checkpoint_id="{{ ti.xcom_pull(task_ids='select', key='checkpoint_id') }}",
        reason="{{ dag_run.conf['why'] }}",
        depth="{{ 'presence' }}",
        if_writer_alive="{{ 'fence' }}",
        alive_within="{{ 5 }}m",
        dry_run="{{ False }}",
    )
    assert set(checked.template_fields) <= set(vars(checked))
    assert run_task(checked, conf={"why": "bad deploy"}).answer["checkpoint_id"] == "4"
    assert timelines()[-1].reason == "bad deploy"


def test_a_worker_that_is_lost_after_the_restore_is_followed_by_one_that_opens_no_second_timeline(run_task, orders):
    first = run_task(restore(), try_number=1).answer
    again = run_task(restore(), try_number=2).answer
    assert (first["timeline"], again["timeline"]) == ("2", "2")
    assert [each.number for each in timelines()] == [2]
    assert again["recover_from"] == "latest"


def test_another_run_restores_again(run_task, orders):
    run_task(restore(), run_id="first")
    assert run_task(restore(checkpoint_id="2"), run_id="second").answer["timeline"] == "3"


def test_a_task_that_is_cleared_and_sent_elsewhere_goes_there(run_task, orders):
    """Not: answers with the other point and stays on the timeline that goes on after the first."""
    run_task(restore(checkpoint_id="3"))
    answer = run_task(restore(checkpoint_id="2"), try_number=2).answer
    assert (answer["timeline"], answer["checkpoint_id"]) == ("3", "2")
    assert timelines()[-1].fork_epoch == 2


def test_a_lost_answer_of_the_store_is_settled_by_a_retry(run_task, orders, monkeypatch):
    faults = faulty(monkeypatch)
    faults.fail(verb="list", match="timelines")
    assert run_task(restore(retries=1)).state == "up_for_retry"
    faults.heal()
    assert run_task(restore(retries=1), try_number=2).answer["timeline"] == "2"
    assert len(timelines()) == 1


@pytest.mark.parametrize("dry_run", [True, "{{ 1 }}"])
def test_a_dry_run_of_a_restore_changes_nothing(run_task, orders, dry_run):
    before = everything_in(orders)
    answer = run_task(restore(dry_run=dry_run)).answer
    assert (answer["timeline"], answer["abandoned"]) == ("", ["4", "5"])
    assert everything_in(orders) == before


def test_a_running_writer_is_refused_from_then_on(run_task, orders):
    running = layout()
    writer = open_timeline(
        running.blobs,
        start=running.load(running.candidates()[-1]),
        has_checkpoints=True,
        writer="a job",
        now=datetime.now(UTC),
    )
    writer.check()
    assert run_task(restore()).answer["timeline"] == "3"
    with pytest.raises(FencedWriterError):
        writer.check()


def test_a_sign_of_a_running_writer_fails_the_task_if_told_so(run_task, orders):
    running = layout()
    newest = running.load(running.candidates()[-1])
    open_timeline(running.blobs, start=newest, has_checkpoints=True, writer="a job", now=datetime.now(UTC))
    ended = run_task(restore(if_writer_alive="fail", retries=2))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfirmationNeededError)
    assert "a writer opened timeline 2" in str(ended.error)
    assert len(timelines()) == 1
    # One that is silent for longer than that does not count as running.
    assert run_task(restore(if_writer_alive="fail", alive_within="0s")).answer["timeline"] == "3"


def test_a_fresh_commit_is_a_sign_of_a_writer_too(run_task, orders):
    # The newest is an hour old.
    assert run_task(restore(if_writer_alive="fail", alive_within="2h")).state == "failed"
    assert run_task(restore(if_writer_alive="fail", alive_within="30m")).state == "success"


def test_its_own_restore_is_no_sign_of_a_writer(run_task, orders):
    run_task(restore(if_writer_alive="fail"))
    assert run_task(restore(if_writer_alive="fail"), try_number=2).answer["timeline"] == "2"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"if_writer_alive": "kill"}, ConfigurationError, "if_writer_alive"),
        ({"alive_within": "soon"}, ConfigurationError, "alive_within"),
        ({"depth": "deep"}, ConfigurationError, "unknown depth"),
        ({"checkpoint_id": ""}, ConfigurationError, "no checkpoint"),
        ({"checkpoint_id": "None"}, ConfigurationError, "no checkpoint"),
        ({"checkpoint_id": "x"}, ConfigurationError, "'x'"),
        ({"dry_run": "perhaps"}, ConfigurationError, "dry_run"),
    ],
)
def test_a_restore_that_makes_no_sense_changes_nothing(run_task, orders, arguments, kind, words):
    before = everything_in(orders)
    ended = run_task(restore(retries=3, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, kind)
    assert words in str(ended.error)
    assert everything_in(orders) == before


def test_a_broken_checkpoint_is_not_gone_back_to(run_task, orders):
    corrupt_sidecar(orders, 3)
    ended = run_task(restore(retries=1))
    assert ended.state == "failed"
    assert timelines() == []


def test_a_start_from_nothing_leaves_everything_behind(run_task, orders):
    answer = run_task(restore(checkpoint_id="fresh")).answer
    assert (answer["recover_from"], answer["checkpoint_id"], answer["epoch"]) == ("fresh", "", "")
    assert answer["abandoned"] == ["1", "2", "3", "4", "5"]
    assert run_task(restore(checkpoint_id="fresh"), try_number=2).answer["timeline"] == answer["timeline"]
    assert run_task(select()).state == "failed"


def test_the_layout_of_the_spark_runtime_works_alike(run_task, root):
    ids = [str(each) for each in partitioned_store(root / "orders").candidates()]
    assert run_task(select()).answer["recover_from"] == ids[-1]
    assert run_task(restore(checkpoint_id=ids[0])).answer["abandoned"] == ids[1:]
