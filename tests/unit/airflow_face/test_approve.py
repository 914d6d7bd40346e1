"""A person decides, through the task runner: the page, the choices, the answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.comms import AwaitInputTask, CreateHITLDetailPayload

from airflow_provider_checkpoint.exceptions import (
    ConfigurationError,
    ConfirmationNeededError,
    NoRecoveryPointError,
)
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.operators.approve import CheckpointApproveRecoveryOperator
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from tests.unit.cli.making import LocalBlobs, add_sidecar, corrupt_sidecar, everything_in, sidecar_store

ADA = {"id": "1", "name": "ada"}
PLAN = "{{ ti.xcom_pull(task_ids='select', key='plan') | tojson }}"


@pytest.fixture
def selected(run_task, orders):
    """A plan to go back to the newest point."""
    run_task(CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="orders"))


def approve(**arguments):
    return CheckpointApproveRecoveryOperator(task_id="approve", **{"pipeline": "orders", "plan": PLAN, **arguments})


@pytest.fixture
def answered(run_task):
    """Resume as Airflow does when an answer is there: the task is made anew from the DAG file."""

    def call(*chosen: str, user=ADA, **arguments):
        event = {
            "chosen_options": list(chosen),
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": user,
        }
        return run_task(approve(**arguments), next_method="execute_complete", next_kwargs={"event": event})

    return call


# -- the question ------------------------------------------------------------------------------------------------


def test_the_task_waits_without_holding_a_worker_and_asks_with_the_live_choices(run_task, supervisor, selected):
    ended = run_task(approve())
    assert ended.state == "awaiting_input"
    assert isinstance(ended.msg, AwaitInputTask)
    assert ended.msg.timeout == timedelta(hours=4)
    question = supervisor.one(CreateHITLDetailPayload)
    assert question.options == ["Go back to 5", "Go back to 4", "Go back to 3", "Reject"]
    assert question.defaults == ["Reject"]
    assert question.multiple is False
    assert question.subject == "Recover orders: go back to 5?"
    assert "Pipeline **orders** would go back to checkpoint **5**" in question.body
    assert "### Other points that can be restored" in question.body


@pytest.mark.parametrize(("alternatives", "options"), [(0, 2), (1, 3), (2, 4), (9, 6)])
def test_up_to_two_alternatives_there_are_buttons(run_task, supervisor, selected, alternatives, options):
    """Airflow shows up to four options as buttons, and more as a list."""
    run_task(approve(alternatives=alternatives))
    assert len(supervisor.one(CreateHITLDetailPayload).options) == options


def test_broken_points_are_not_offered(run_task, supervisor, selected, orders):
    corrupt_sidecar(orders, 4)
    corrupt_sidecar(orders, 3)
    run_task(approve())
    assert supervisor.one(CreateHITLDetailPayload).options == [
        *("Go back to 5", "Go back to 2", "Go back to 1", "Reject")
    ]


@pytest.mark.parametrize(
    ("limits", "offered"),
    [
        ({"max_rollback": "{{ '90m' }}"}, ["5", "4"]),
        ({"max_rollback_epochs": "{{ 1 }}"}, ["5", "4"]),
        ({"skip": "{{ [4] }}"}, ["5", "3", "2"]),
        ({"max_rollback": "", "max_rollback_epochs": "", "skip": ""}, ["5", "4", "3"]),
    ],
)
def test_points_that_the_choice_was_not_allowed_are_not_offered(run_task, supervisor, selected, limits, offered):
    run_task(approve(**limits))
    options = supervisor.one(CreateHITLDetailPayload).options
    assert options == [*(f"Go back to {number}" for number in offered), "Reject"]


def test_names_in_the_store_do_not_become_markup_nor_templates(run_task, supervisor, root):
    layout = SidecarLayout(LocalBlobs(root / "orders"), inline_threshold=8)
    name = "[click](http://evil.example)|`x`<b>{{ 'ja' * 3 }}"
    add_sidecar(layout, 1, hours=3, sink_epochs={name: 1}, sink_commit_statuses={}, sink_names=(name,))
    add_sidecar(layout, 2, hours=2, sink_epochs={name: 2}, sink_commit_statuses={}, sink_names=(name,))
    corrupt_sidecar(root / "orders", 2)
    run_task(CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="orders"))
    run_task(approve())
    body = supervisor.one(CreateHITLDetailPayload).body
    assert "[click]" not in body
    assert "<b>" not in body
    assert "http://evil" not in body
    assert "jajaja" not in body


def test_the_headline_is_plain_text_on_one_line(run_task, supervisor, root):
    """Airflow shows it as it is: marks of Markdown in it would be seen."""
    sidecar_store(root / "orders_v2-eu.west")
    run_task(CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="orders_v2-eu.west"))
    run_task(approve(pipeline="orders_v2-eu.west"))
    assert supervisor.one(CreateHITLDetailPayload).subject == "Recover orders_v2-eu.west: go back to 5?"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Shall orders go back?", "Shall orders go back?"),
        ("{{ dag_run.conf['incident'] }}: go back?", "INC-7: go back?"),
        ("two\nlines", "two\\nlines"),
        # A template that yields nothing leaves a headline all the same.
        ("{{ dag_run.conf.get('absent') }}", "Recover orders: go back to 5?"),
        ("", "Recover orders: go back to 5?"),
        (None, "Recover orders: go back to 5?"),
    ],
)
def test_a_headline_of_ones_own(run_task, supervisor, selected, said, shown):
    ended = run_task(approve(subject=said), conf={"incident": "INC-7"})
    assert ended.state == "awaiting_input", ended.error
    assert supervisor.one(CreateHITLDetailPayload).subject == shown


def test_a_headline_from_the_defaults_of_a_dag_counts(run_task, supervisor, selected):
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args={"subject": "Go back?"}):
        task = approve()
    run_task(task)
    assert supervisor.one(CreateHITLDetailPayload).subject == "Go back?"


def test_asking_changes_nothing(run_task, selected, orders):
    before = everything_in(orders)
    run_task(approve())
    assert everything_in(orders) == before


def test_every_argument_can_be_a_template(run_task, supervisor, selected, orders, connect):
    connect("lake", host=str(orders.parent))
    checked = approve(
        pipeline="{{ dag_run.conf['pipeline'] }}",
        checkpoint_conn_id="{{ 'lake' }}",
        layout="{{ 'sidecar' }}",
        ask="{{ 'true' }}",
        subject="About {{ dag_run.conf['pipeline'] }}",
    )
    assert set(checked.template_fields) <= set(vars(checked))
    assert run_task(checked, conf={"pipeline": "orders"}).state == "awaiting_input"
    assert supervisor.one(CreateHITLDetailPayload).subject == "About orders"


def test_people_who_may_answer_and_the_time_they_have_can_be_given(run_task, supervisor, selected):
    ended = run_task(approve(assigned_users=[ADA], response_timeout=timedelta(minutes=5)))
    assert ended.msg.timeout == timedelta(minutes=5)
    [user] = supervisor.one(CreateHITLDetailPayload).assigned_users
    assert user.name == "ada"


@pytest.mark.parametrize("ask", [False, "False", "{{ dag_run.conf['ask'] }}"])
def test_if_told_not_to_ask_the_plan_is_approved_as_it_is(run_task, supervisor, selected, ask):
    answer = run_task(approve(ask=ask), conf={"ask": False}).answer
    assert (answer["recover_from"], answer["approved_by"]) == ("5", "")
    assert not [msg for msg in supervisor.sent if isinstance(msg, CreateHITLDetailPayload)]


@pytest.mark.parametrize("ask", [None, "", "{{ dag_run.conf.get('approval') }}"])
def test_a_person_is_asked_if_nothing_is_said_about_it(run_task, selected, ask):
    assert run_task(approve(ask=ask)).state == "awaiting_input"


@pytest.mark.parametrize("plan", [PLAN, PLAN.replace(" | tojson", "")])
def test_a_plan_may_be_json_or_what_a_template_makes_of_it(run_task, selected, plan):
    assert run_task(approve(plan=plan)).state == "awaiting_input"


@pytest.mark.parametrize(
    ("arguments", "words"), [({"plan": "not a plan"}, "plan is not JSON"), ({"ask": "perhaps"}, "ask")]
)
def test_what_makes_no_sense_is_not_put_before_anyone(run_task, supervisor, selected, arguments, words):
    ended = run_task(approve(retries=2, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)


@pytest.mark.parametrize("plan", ["{}", '{"chosen": 5}', {"chosen": 5}, '{"kind": "recovery", "chosen": []}'])
def test_a_plan_that_is_none_is_an_error_that_says_so(run_task, selected, plan):
    ended = run_task(approve(retries=2, plan=plan))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert "plan" in str(ended.error)


# -- the answer --------------------------------------------------------------------------------------------------


def test_an_approval_answers_as_the_choice_did(run_task, selected, answered):
    run_task(approve())
    answer = answered("Go back to 5").answer
    assert (answer["checkpoint_id"], answer["recover_from"], answer["approved_by"]) == ("5", "5", "ada")
    assert answer["plan"]["chosen"] == 5
    assert all(isinstance(value, str) for name, value in answer.items() if name != "plan")


def test_another_point_can_be_approved_and_restored(run_task, selected, answered, orders):
    run_task(approve())
    ended = answered("Go back to 3")
    assert (ended.answer["checkpoint_id"], ended.answer["rollback_epochs"]) == ("3", "2")
    restore = CheckpointRestoreOperator(
        task_id="restore",
        pipeline="orders",
        checkpoint_id="{{ ti.xcom_pull(task_ids='approve', key='checkpoint_id') }}",
    )
    assert run_task(restore).answer["abandoned"] == ["4", "5"]


@pytest.mark.parametrize("chosen", [["Reject"], []])
def test_a_rejection_skips_what_follows(run_task, selected, answered, chosen):
    run_task(approve())
    ended = answered(*chosen)
    assert ended.state == "skipped"
    assert "approved_by" not in ended.xcoms


def test_no_answer_in_time_is_a_rejection(run_task, selected, answered):
    run_task(approve())
    assert answered("Reject", user=None).state == "skipped"


def test_if_told_so_a_rejection_fails_the_task_for_good(run_task, selected, answered):
    run_task(approve())
    ended = answered("Reject", fail_on_reject=True, retries=3)
    assert ended.state == "failed"
    assert isinstance(ended.error, AirflowFailException)
    assert "rejected by ada" in str(ended.error)


@pytest.mark.parametrize("chosen", ["Go back to 1", "Go back to 99", "Approve"])
def test_what_was_not_offered_is_not_approved(run_task, selected, answered, chosen):
    run_task(approve())
    ended = answered(chosen)
    assert ended.state == "failed"
    assert "approved_by" not in ended.xcoms


@pytest.mark.parametrize("chosen", [4, 5])
def test_a_point_that_broke_while_the_person_thought_is_an_error(run_task, selected, answered, orders, chosen):
    run_task(approve())
    corrupt_sidecar(orders, chosen)
    ended = answered(f"Go back to {chosen}", retries=2)
    assert ended.state == "failed"
    assert isinstance(ended.error, NoRecoveryPointError)


@pytest.mark.parametrize("ask", [True, False])
def test_of_two_recoveries_at_once_the_second_does_not_go_on_unseen(run_task, selected, answered, ask):
    run_task(approve(ask=ask))
    other = CheckpointRestoreOperator(task_id="restore", pipeline="orders", checkpoint_id=3)
    run_task(other, run_id="of somebody else")
    ended = answered("Go back to 5") if ask else run_task(approve(ask=ask, retries=2))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfirmationNeededError)
    assert "timeline 2" in str(ended.error)


def test_a_job_that_starts_while_the_person_thinks_does_not_stop_its_own_recovery(run_task, selected, answered):
    run_task(approve())
    layout = CheckpointHook().open("orders")
    start = layout.load(layout.parse_id("5"))
    open_timeline(layout.blobs, start=start, has_checkpoints=True, writer="a job", now=datetime.now(UTC))
    assert answered("Go back to 4").answer["checkpoint_id"] == "4"


def test_choices_that_are_gone_are_an_error_that_says_so(run_task, supervisor, selected, answered):
    run_task(approve())
    supervisor.task_state.clear()
    ended = answered("Go back to 5")
    assert ended.state == "failed"
    assert "ask again" in str(ended.error)


def test_a_start_from_nothing_can_be_approved(run_task, supervisor, orders, answered):
    run_task(
        CheckpointSelectRecoveryPointOperator(
            task_id="select", pipeline="orders", strategy="before_epoch", epoch=1, fresh_start_ok=True
        )
    )
    run_task(approve())
    question = supervisor.one(CreateHITLDetailPayload)
    assert question.options == ["Start from nothing", "Reject"]
    assert "from nothing" in question.body
    assert answered("Start from nothing").answer["recover_from"] == "fresh"


def test_what_is_kept_between_question_and_answer_is_small_json(run_task, supervisor, selected):
    run_task(approve())
    assert json.loads(json.dumps(supervisor.task_state)) == {
        "recovery_choices": {"Go back to 5": "5", "Go back to 4": "4", "Go back to 3": "3", "Reject": ""}
    }
