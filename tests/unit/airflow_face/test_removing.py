"""Prune, sweep, orphans, undelete and pin through the task runner."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    ConfirmationNeededError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.records import read_pins
from airflow_provider_checkpoint.lifecycle.trash import read_trash
from airflow_provider_checkpoint.operators.pin import CheckpointPinOperator
from airflow_provider_checkpoint.operators.prune import (
    CheckpointOrphanCleanupOperator,
    CheckpointPruneOperator,
    CheckpointSweepOperator,
    CheckpointUndeleteOperator,
)
from tests.unit.airflow_face.faults import faulty
from tests.unit.cli.making import everything_in, orphan_sidecar

KEEP_TWO = {"keep_last": 2}
YES = "{{ dag_run.conf['yes'] }}"
CONF = {"yes": "True", "no": "False", "two": "2", "policy": '{"keep_last": 2}', "span": "0s", "id": 1}


def prune(**arguments):
    return CheckpointPruneOperator(task_id="prune", **{"pipeline": "orders", "policy": KEEP_TWO, **arguments})


def sweep(**arguments):
    return CheckpointSweepOperator(task_id="sweep", pipeline="orders", **arguments)


def orphans(**arguments):
    return CheckpointOrphanCleanupOperator(task_id="orphans", pipeline="orders", **arguments)


def live() -> list[str]:
    return [str(each) for each in CheckpointHook().open("orders").candidates()]


def trashed() -> list[str]:
    return sorted(str(entry.checkpoint_id) for entry in read_trash(CheckpointHook().open("orders")))


# -- prune -------------------------------------------------------------------------------------------------------


def test_what_is_pruned_is_in_the_trash(run_task, orders):
    answer = run_task(prune()).answer
    assert sorted(answer["removed"]) == ["1", "2", "3"]
    assert (answer["kept"], answer["applied"]) == (2, True)
    assert answer["bytes"] > 0
    assert "plan" not in answer
    assert (live(), trashed()) == (["4", "5"], ["1", "2", "3"])
    assert (orders / "checkpoints" / "state-000001.bin").exists()


@pytest.mark.parametrize("dry_run", [True, "true", YES])
def test_a_dry_run_changes_nothing_and_answers_with_the_plan(run_task, orders, dry_run):
    before = everything_in(orders)
    answer = run_task(prune(dry_run=dry_run), conf=CONF).answer
    assert sorted(answer["removed"]) == ["1", "2", "3"]
    assert answer["applied"] is False
    assert answer["plan"]["items"]
    assert everything_in(orders) == before


@pytest.mark.parametrize(
    "policy",
    [
        '{"keep_last": 2}',
        "{{ dag_run.conf['policy'] }}",
        {"keep_last": "{{ dag_run.conf['two'] }}"},
        {"keep_last": 2, "keep_daily": None, "min_age": ""},
    ],
)
def test_a_policy_can_be_text_and_hold_templates(run_task, orders, policy):
    assert run_task(prune(policy=policy, dry_run="{{ dag_run.conf['no'] }}"), conf=CONF).answer["kept"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policy": {"keep_lots": 1}}, "policy.keep_lots"),
        ({"policy": {"keep_last": -1}}, "policy.keep_last"),
        ({"policy": {"keep_last": "many"}}, "policy.keep_last"),
        ({"policy": {"min_age": "soon"}}, "policy.min_age"),
        ({"policy": "keep two"}, "policy is not JSON"),
        ({"policy": "[2]"}, "policy is not a mapping"),
        ({"depth": "deep"}, "unknown depth"),
        ({"dry_run": "perhaps"}, "dry_run"),
    ],
)
def test_a_policy_that_makes_no_sense_removes_nothing(run_task, orders, arguments, words):
    before = everything_in(orders)
    ended = run_task(prune(retries=2, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)
    assert everything_in(orders) == before


def test_who_did_it_is_in_the_audit_trail(run_task, orders):
    run_task(prune(), run_id="manual__1")
    audit = "".join(path.read_text() for path in (orders / "audit").rglob("*") if path.is_file())
    assert "ada by airflow d/prune, run manual__1" in audit


def test_what_could_not_be_done_is_told_before_the_task_fails_and_a_retry_finishes_it(run_task, orders, monkeypatch):
    faults = faulty(monkeypatch)
    faults.fail(verb="delete", match="manifest-000002")
    ended = run_task(prune(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)
    assert ended.xcoms["not_done"] == 1
    assert ended.xcoms["return_value"]["applied"] is True
    faults.heal()
    assert run_task(prune(retries=1), try_number=2).answer["removed"] == ["2"]
    assert live() == ["4", "5"]


def test_a_store_that_answers_nothing_leaves_the_plan_behind(run_task, orders, monkeypatch):
    faults = faulty(monkeypatch)
    faults.fail(verb="create")
    ended = run_task(prune(retries=1))
    assert ended.state == "up_for_retry"
    assert ended.xcoms["applied"] is False
    assert ended.xcoms["plan"]["items"]
    assert live() == ["1", "2", "3", "4", "5"]


# -- undelete and sweep ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint_id", [1, "1", "{{ dag_run.conf['id'] }}"])
def test_what_was_pruned_comes_back(run_task, orders, checkpoint_id):
    run_task(prune())
    undelete = CheckpointUndeleteOperator(task_id="undelete", pipeline="orders", checkpoint_id=checkpoint_id)
    assert run_task(undelete, conf=CONF).answer["checkpoint_id"] == "1"
    assert live() == ["1", "4", "5"]


def test_what_was_never_there_does_not_come_back(run_task, orders):
    ended = run_task(CheckpointUndeleteOperator(task_id="undelete", pipeline="orders", checkpoint_id=99, retries=3))
    assert ended.state == "failed"
    assert isinstance(ended.error, CheckpointNotFoundError)


def test_a_sweep_leaves_what_can_still_be_undeleted(run_task, orders):
    run_task(prune())
    answer = run_task(sweep()).answer
    assert (answer["swept"], answer["applied"]) == ([], True)
    assert trashed() == ["1", "2", "3"]


def test_a_sweep_after_the_window_removes_for_good(run_task, orders):
    run_task(prune())
    planned = run_task(sweep(undo_window="{{ dag_run.conf['span'] }}", dry_run=YES), conf=CONF).answer
    assert (sorted(planned["swept"]), planned["applied"]) == (["1", "2", "3"], False)
    assert trashed() == ["1", "2", "3"]
    answer = run_task(sweep(undo_window="0s")).answer
    assert sorted(answer["swept"]) == ["1", "2", "3"]
    assert trashed() == []
    assert not (orders / "checkpoints" / "state-000001.bin").exists()


# -- orphans -----------------------------------------------------------------------------------------------------


def test_old_orphans_go_and_young_ones_stay(run_task, orders):
    old, young = orphan_sidecar(orders, 77, age_hours=48), orphan_sidecar(orders, 78, age_hours=2)
    answer = run_task(orphans()).answer
    assert (answer["orphans"], answer["applied"], answer["truncated"]) == (1, True, False)
    assert sum(answer["counts"].values()) >= 2
    assert (old.exists(), young.exists()) == (False, True)


def test_a_dry_run_finds_orphans_and_leaves_them(run_task, orders):
    old = orphan_sidecar(orders, 77, age_hours=48)
    answer = run_task(orphans(dry_run=YES), conf=CONF).answer
    assert (answer["orphans"], answer["applied"]) == (1, False)
    assert old.exists()


def test_no_argument_makes_anything_an_orphan_that_is_younger_than_an_hour(run_task, orders):
    young = orphan_sidecar(orders, 2, age_hours=0.5)
    (orders / "manifests" / "manifest-000002.json").unlink()
    assert run_task(orphans(min_age="0s", confirm=True)).answer["orphans"] == 0
    assert young.exists()


def test_unusually_many_bytes_need_a_person_who_finds_the_plan(run_task, orders):
    old = orphan_sidecar(orders, 77, age_hours=48)
    ended = run_task(orphans(max_bytes="1", retries=2))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfirmationNeededError)
    assert old.exists()
    assert (ended.xcoms["applied"], ended.xcoms["orphans"]) == (False, 1)
    assert ended.xcoms["plan"]
    assert run_task(orphans(max_bytes="1", confirm=YES), conf=CONF).answer["applied"] is True
    assert not old.exists()


# -- pins --------------------------------------------------------------------------------------------------------


def pin(**arguments):
    usual = {"checkpoint_id": "1", "name": "before-{{ run_id }}", "reason": "a {{ dag.dag_id }} test"}
    return CheckpointPinOperator(task_id="pin", pipeline="orders", **{**usual, **arguments})


def test_a_pinned_checkpoint_survives_a_prune(run_task, orders):
    assert run_task(pin(), run_id="7").answer == {"checkpoint_id": "1", "pin": "before-7"}
    assert sorted(run_task(prune()).answer["removed"]) == ["2", "3"]
    [found] = read_pins(CheckpointHook().open("orders").blobs)
    assert (found.reason, found.expires) == ("a d test", None)
    assert found.owner == "ada by airflow d/pin, run 7"


def test_a_pin_can_expire_and_have_an_owner(run_task, orders):
    run_task(pin(expires="90d", pin_owner="grace"))
    [found] = read_pins(CheckpointHook().open("orders").blobs)
    assert found.expires is not None
    assert (found.expires - found.created).days == 90
    assert found.owner == "grace"


def test_a_retry_of_a_pin_succeeds_and_a_pin_of_something_that_is_not_there_fails(run_task, orders):
    run_task(pin(name="p"))
    assert run_task(pin(name="p"), try_number=2).state == "success"
    ended = run_task(pin(name="q", checkpoint_id="99", retries=1))
    assert ended.state == "failed"
    assert isinstance(ended.error, CheckpointNotFoundError)


@pytest.mark.parametrize("name", [None, "", "{{ dag_run.conf.get('pin') }}"])
def test_a_pin_needs_a_name(run_task, orders, name):
    ended = run_task(pin(name=name, retries=1))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert read_pins(CheckpointHook().open("orders").blobs) == []


def test_an_owner_and_a_reason_of_which_nothing_is_said_are_none_of_that_name(run_task, orders):
    nothing = "{{ dag_run.conf.get('nothing') }}"
    run_task(pin(name=5, pin_owner=nothing, reason=nothing))
    [found] = read_pins(CheckpointHook().open("orders").blobs)
    assert (found.name, found.owner, found.reason) == ("5", "ada by airflow d/pin, run run", "")


@pytest.mark.parametrize("arguments", [{"pipeline": 2026}, {"pipeline": ["orders"]}, {"layout": ["x"]}])
def test_what_a_template_with_native_objects_makes_of_a_name_is_told(run_task, orders, arguments):
    ended = run_task(prune(retries=1, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert "is not text" in str(ended.error)
