"""``CheckpointValidateOperator`` through the task runner."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError, CorruptError, StoreUnavailableError
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from tests.unit.airflow_face.faults import faulty
from tests.unit.cli.making import corrupt_sidecar


def task(**arguments):
    return CheckpointValidateOperator(task_id="validate", **{"pipeline": "orders", **arguments})


def test_every_key_of_the_answer_is_an_xcom_of_its_own(run_task, orders):
    ended = run_task(task())
    assert ended.answer == {
        "valid": 5,
        "invalid": 0,
        "left": 0,
        "invalid_ids": [],
        "findings": {},
        "newest_valid": "5",
        "bytes_read": ended.answer["bytes_read"],
    }
    assert ended.answer["bytes_read"] > 0
    assert ended.xcoms == {**ended.answer, "return_value": ended.answer}


def test_every_argument_can_be_a_template(run_task, orders, connect):
    conf = {
        "pipeline": "orders",
        "conn": connect("lake", host=str(orders.parent)),
        "layout": "sidecar",
        "ids": "2,4",
        "no": "false",
        "depth": "presence",
        "bytes": "5GB",
        "span": "10m",
    }
    told = {name: f"{{{{ dag_run.conf['{name}'] }}}}" for name in conf}
    checked = task(
        pipeline=told["pipeline"],
        checkpoint_conn_id=told["conn"],
        layout=told["layout"],
        checkpoint_ids=told["ids"],
        rolling=told["no"],
        sample="{{ None }}",
        depth=told["depth"],
        budget_bytes=told["bytes"],
        budget=told["span"],
        fail_on_invalid=told["no"],
    )
    assert set(checked.template_fields) <= set(vars(checked))
    assert run_task(checked, conf=conf).answer["valid"] == 2


def test_an_invalid_checkpoint_fails_the_task_and_its_answer_is_there_all_the_same(run_task, orders):
    corrupt_sidecar(orders, 4)
    ended = run_task(task())
    assert ended.state == "failed"
    assert isinstance(ended.error, CorruptError)
    assert ended.xcoms["return_value"]["invalid_ids"] == ["4"]
    assert ended.xcoms["valid"] == 4
    assert "4" in ended.xcoms["findings"]


def test_if_told_so_an_invalid_checkpoint_is_only_reported(run_task, orders):
    corrupt_sidecar(orders, 5)
    answer = run_task(task(fail_on_invalid="False")).answer
    assert (answer["valid"], answer["invalid"], answer["newest_valid"]) == (4, 1, "4")


def test_a_depth_that_does_not_look_so_far_does_not_find_it(run_task, orders):
    corrupt_sidecar(orders, 5)
    assert run_task(task(depth="presence")).answer["invalid"] == 0


@pytest.mark.parametrize(
    ("arguments", "valid", "left"),
    [
        ({"checkpoint_ids": [1, "3"]}, 2, 0),
        ({"sample": 2}, 2, 0),
        ({"sample": "3"}, 3, 0),
        ({"rolling": True}, 5, 0),
        ({"rolling": "yes", "budget_bytes": 1}, 1, 4),
    ],
)
def test_which_checkpoints_are_proven(run_task, orders, arguments, valid, left):
    # One at a time: what is begun is finished, so that a budget holds to the checkpoint.
    answer = run_task(task(threads=1, **arguments)).answer
    assert (answer["valid"], answer["left"]) == (valid, left)


def test_a_rolling_proof_goes_on_with_what_was_proven_longest_ago(run_task, orders):
    proven = [run_task(task(rolling=True, budget_bytes=1, threads=1)).answer["newest_valid"] for _ in range(5)]
    assert sorted(proven) == ["1", "2", "3", "4", "5"]


def test_a_store_that_does_not_answer_is_worth_a_retry_and_what_was_found_is_there(run_task, orders, monkeypatch):
    blobs = faulty(monkeypatch)
    blobs.fail(verb="stream", match="state-000003")
    blobs.fail(verb="read", match="state-000003")
    ended = run_task(task(retries=1))
    assert ended.state == "up_for_retry"
    assert isinstance(ended.error, StoreUnavailableError)
    assert ended.xcoms["valid"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"depth": "deep"}, "unknown depth 'deep'"),
        ({"layout": "parquet"}, "parquet"),
        ({"pipeline": "payments"}, "nothing is there"),
        ({"checkpoint_ids": "x"}, "'x'"),
        ({"sample": "few"}, "sample"),
        ({"budget": "soon"}, "budget"),
        ({"rolling": "perhaps"}, "rolling"),
    ],
)
def test_what_makes_no_sense_fails_at_once_however_many_retries_there_are(run_task, orders, arguments, words):
    ended = run_task(task(retries=5, **arguments))
    assert ended.state == "failed"
    assert isinstance(ended.error, ConfigurationError)
    assert words in str(ended.error)
