"""Operators on directories that Spark wrote itself, through the task runner."""

from __future__ import annotations

import os
import time

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError, ConfirmationNeededError, InputGoneError
from airflow_provider_checkpoint.operators.recovery import (
    CheckpointRestoreOperator,
    CheckpointSelectRecoveryPointOperator,
)
from airflow_provider_checkpoint.operators.seal import CheckpointSealOperator
from tests.unit.cli.making import everything_in
from tests.unit.layouts.structured_streaming.making import write_out


@pytest.fixture
def clicks(root):
    """A directory without input of its own (a rate source), to which nobody writes any more."""
    return write_out("rate", root / "clicks")


def restore(**arguments):
    usual = {"pipeline": "clicks", "checkpoint_id": "3", "target": "clicks-2"}
    return CheckpointRestoreOperator(task_id="restore", **{**usual, **arguments})


def test_a_batch_is_chosen_and_gone_back_to_by_a_copy_in_the_same_store(run_task, clicks, root):
    chosen = run_task(CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="clicks")).answer
    assert chosen["checkpoint_id"] == "5"
    before = everything_in(clicks)
    answer = run_task(restore()).answer
    assert answer["checkpoint_location"] == f"file:{root / 'clicks-2'}"
    assert (answer["epoch"], answer["abandoned"]) == ("3", ["4", "5"])
    assert everything_in(clicks) == before
    again = CheckpointSelectRecoveryPointOperator(task_id="again", pipeline="clicks-2")
    assert run_task(again).answer["checkpoint_id"] == "3"
    # A worker that was lost after the copy: the same task finishes.
    assert run_task(restore()).answer["checkpoint_location"] == answer["checkpoint_location"]


def test_a_dry_run_copies_nothing(run_task, clicks, root):
    run_task(restore(dry_run="true"))
    assert not (root / "clicks-2").exists()


def test_without_a_place_for_the_copy_the_task_says_so(run_task, clicks):
    ended = run_task(restore(target=""))
    assert isinstance(ended.error, ConfigurationError)
    assert "not changed in place" in str(ended.error)


def test_a_query_that_seems_to_run_is_not_gone_back_from(run_task, clicks, root):
    os.utime(clicks / "offsets" / "5", (time.time(), time.time()))
    ended = run_task(restore())
    assert isinstance(ended.error, ConfirmationNeededError)
    assert not (root / "clicks-2").exists()


def test_input_that_is_gone_fails_the_task(run_task, root):
    write_out("stateless", root / "clicks")
    assert isinstance(run_task(restore()).error, InputGoneError)


def test_the_newest_batch_is_sealed_and_named_ones_are_too(run_task, clicks, root):
    assert run_task(CheckpointSealOperator(task_id="seal", pipeline="clicks")).answer["sealed"] == ["5"]
    named = run_task(CheckpointSealOperator(task_id="named", pipeline="clicks", checkpoint_ids="3, 4")).answer
    assert named["sealed"] == ["3", "4"]
    assert named["files"] > 0
    assert (root / "clicks.checkpoints" / "seals" / "3.json").exists()


def test_other_layouts_have_nothing_to_seal(run_task, orders):
    assert isinstance(run_task(CheckpointSealOperator(task_id="seal", pipeline="orders")).error, ConfigurationError)
