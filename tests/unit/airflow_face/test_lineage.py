"""What OpenLineage is told of each task, asked by its own provider and written by its own client."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.sdk import TaskInstanceState
from openlineage.client.serde import Serde

from airflow_provider_checkpoint.operators._lineage import named
from airflow_provider_checkpoint.operators.pin import CheckpointPinOperator
from airflow_provider_checkpoint.operators.prune import CheckpointPruneOperator
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from tests.unit.cli import making


def lineage_of(task, state=TaskInstanceState.SUCCESS):
    """What the provider's listener would send, as JSON."""
    found = ExtractorManager().extract_metadata(
        SimpleNamespace(run_id="run"), task, task_instance_state=state, task_instance=SimpleNamespace()
    )
    return {
        "inputs": [json.loads(Serde.to_json(each)) for each in found.inputs],
        "outputs": [json.loads(Serde.to_json(each)) for each in found.outputs],
        "run": {name: json.loads(Serde.to_json(facet)) for name, facet in found.run_facets.items()},
    }


def numbers(lineage):
    return {name: value for name, value in lineage["run"]["checkpoint"].items() if not name.startswith("_")}


def test_whoever_only_reads_has_the_checkpoints_as_input(run_task, orders):
    task = CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="orders")
    ended = run_task(task)
    answer = ended.answer
    lineage = lineage_of(ended.task)
    [dataset] = lineage["inputs"]
    assert (dataset["namespace"], dataset["name"]) == ("file", str(orders))
    assert dataset["facets"]["version"]["datasetVersion"] == answer["checkpoint_id"] == "5"
    assert lineage["outputs"] == []
    assert numbers(lineage) == {
        "pipeline": "orders",
        "connection": "checkpoint_default",
        "checkpointId": "5",
        "epoch": 5,
        "timeline": int(answer["timeline"]),
        "rollbackSeconds": 0,
    }


def test_whoever_changes_them_has_them_as_output(run_task, orders):
    task = CheckpointRestoreOperator(task_id="restore", pipeline="orders", checkpoint_id="3")
    lineage = lineage_of(run_task(task).task)
    assert [each["name"] for each in lineage["outputs"]] == [str(orders)]
    assert lineage["inputs"] == []
    assert numbers(lineage)["timeline"] == 2


@pytest.mark.parametrize(
    "task",
    [
        CheckpointRestoreOperator(task_id="restore", pipeline="orders", checkpoint_id="3", dry_run=True),
        CheckpointPruneOperator(task_id="prune", pipeline="orders", policy={"keep_last": 2}, dry_run=True),
    ],
    ids=lambda task: task.task_id,
)
def test_a_dry_run_has_only_read(run_task, orders, task):
    lineage = lineage_of(run_task(task).task)
    assert (len(lineage["inputs"]), len(lineage["outputs"])) == (1, 0)


def test_pruning_tells_how_many_went_and_stayed(run_task, orders):
    task = CheckpointPruneOperator(task_id="prune", pipeline="orders", policy={"keep_last": 2})
    lineage = lineage_of(run_task(task).task)
    assert len(lineage["outputs"]) == 1
    told = numbers(lineage)
    assert (told["removed"], told["kept"]) == (3, 2)
    assert told["bytes"] > 0


def test_a_task_that_fails_for_an_invalid_checkpoint_tells_so(run_task, orders):
    making.corrupt_sidecar(orders, 5)
    task = CheckpointValidateOperator(task_id="validate", pipeline="orders")
    ended = run_task(task)
    assert ended.state == "failed"
    lineage = lineage_of(ended.task, TaskInstanceState.FAILED)
    told = numbers(lineage)
    assert (told["valid"], told["invalid"]) == (4, 1)
    assert lineage["inputs"][0]["facets"]["version"]["datasetVersion"] == "4"


def test_a_task_that_never_got_to_a_store_tells_nothing(run_task, orders):
    task = CheckpointPinOperator(task_id="pin", pipeline="orders", checkpoint_id="99", name="x", reason="r")
    ended = run_task(task)
    assert ended.state == "failed"
    assert lineage_of(ended.task, TaskInstanceState.FAILED) == {"inputs": [], "outputs": [], "run": {}}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///data/checkpoints/orders", ("file", "/data/checkpoints/orders")),
        ("/data/checkpoints", ("file", "/data/checkpoints")),
        ("s3://bucket/checkpoints/orders/", ("s3://bucket", "checkpoints/orders")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("abfss://container@account.dfs.core.windows.net/x", ("abfss://container@account.dfs.core.windows.net", "x")),
    ],
)
def test_a_place_is_named_as_openlineage_names_it(uri, expected):
    assert named(uri) == expected
