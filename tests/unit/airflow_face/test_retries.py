"""Which errors are worth a retry, as the task runner decides it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import DAG, BaseOperator, ExceptionRetryPolicy

from airflow_provider_checkpoint import exceptions
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from airflow_provider_checkpoint.retries import CHECKPOINT_RETRY_POLICY


class Failing(BaseOperator):
    """Fails as it is told."""

    def __init__(self, *, error: Exception, **kwargs):
        super().__init__(retry_policy=CHECKPOINT_RETRY_POLICY, **kwargs)
        self.error = error

    def execute(self, context):
        raise self.error


def leaves(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in leaves(below))]


EVERY = leaves(exceptions.CheckpointError)[1:]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_of_this_package_decides_by_its_group(run_task, kind):
    ended = run_task(Failing(task_id="failing", error=kind("it did not work"), retries=3))
    transient = issubclass(kind, exceptions.TransientError)
    assert ended.state == ("up_for_retry" if transient else "failed")
    if transient:
        assert ended.msg.retry_delay_seconds == 30


def test_the_last_try_fails_also_if_the_store_may_come_back(run_task):
    error = exceptions.StoreUnavailableError("no answer")
    assert run_task(Failing(task_id="failing", error=error, retries=1), try_number=2).state == "failed"
    assert run_task(Failing(task_id="failing", error=error)).state == "failed"


def test_errors_of_others_are_retried_as_the_task_says(run_task):
    assert run_task(Failing(task_id="failing", error=RuntimeError(), retries=1)).state == "up_for_retry"


def test_every_operator_has_the_policy_unless_told_otherwise():
    own = ExceptionRetryPolicy(rules=[])
    assert CheckpointValidateOperator(task_id="a").retry_policy is CHECKPOINT_RETRY_POLICY
    assert CheckpointValidateOperator(task_id="a", retry_policy=own).retry_policy is own
    with DAG("d", schedule=None, default_args={"retry_policy": own, "retry_delay": timedelta(seconds=9)}):
        task = CheckpointValidateOperator(task_id="a")
    assert task.retry_policy is own
    assert task.retry_delay == timedelta(seconds=9)


def test_every_operator_answers_by_key_unless_told_otherwise():
    assert CheckpointValidateOperator(task_id="a").multiple_outputs is True
    assert CheckpointValidateOperator(task_id="a", multiple_outputs=False).multiple_outputs is False
