"""Checkpoints as assets."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from airflow_provider_checkpoint.assets import checkpoint_asset
from airflow_provider_checkpoint.triggers.checkpoint import CheckpointEventTrigger


def test_the_same_pipeline_is_the_same_asset_and_another_is_another():
    assert checkpoint_asset("orders") == checkpoint_asset("orders")
    others = [checkpoint_asset("clicks"), checkpoint_asset("orders", checkpoint_conn_id="lake")]
    assert len({asset.uri for asset in [checkpoint_asset("orders"), *others]}) == 3
    assert len({asset.name for asset in [checkpoint_asset("orders"), *others]}) == 3


@pytest.mark.parametrize("pipeline", ["a/b", "a b", "ä", "a?b#c", "a%2Fb"])
def test_a_name_of_a_pipeline_never_leaves_its_place_in_the_address(pipeline):
    uri = checkpoint_asset(pipeline).uri
    assert uri.startswith("x-checkpoint://checkpoint_default/")
    assert uri.isascii()
    assert len(uri.split("/")) == 4
    assert uri != checkpoint_asset("a").uri


def test_without_being_told_nobody_watches():
    assert checkpoint_asset("orders").watchers == []


def test_a_dag_can_be_scheduled_on_what_a_watcher_sees():
    asset = checkpoint_asset("orders", checkpoint_conn_id="lake", watch=True, poll_interval=5.0)
    [watcher] = asset.watchers
    assert (
        watcher.trigger.serialize()
        == CheckpointEventTrigger(pipeline="orders", checkpoint_conn_id="lake", poll_interval=5.0).serialize()
    )
    assert DAG("d", schedule=[asset]).timetable is not None
