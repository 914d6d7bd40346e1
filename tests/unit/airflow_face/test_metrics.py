"""The numbers that tasks tell, as Airflow's metrics receive them."""

from __future__ import annotations

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats

from airflow_provider_checkpoint.operators.prune import CheckpointPruneOperator, CheckpointSweepOperator
from airflow_provider_checkpoint.operators.recovery import CheckpointSelectRecoveryPointOperator
from airflow_provider_checkpoint.operators.validate import CheckpointValidateOperator
from airflow_provider_checkpoint.sensors.checkpoint import CheckpointFreshnessSensor
from tests.unit.cli import making

TAGS = {"pipeline": "orders", "connection": "checkpoint_default"}


class Recorder(NoStatsLogger):
    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def gauge(self, stat, value, *_, tags=None, **__):
        self._note(stat, value, tags)

    def incr(self, stat, count=1, *_, tags=None, **__):
        self._note(stat, count, tags)

    def _note(self, stat, value, tags):
        if stat.startswith("checkpoint."):
            assert tags == TAGS
            self.seen[stat.removeprefix("checkpoint.")] = value


@pytest.fixture
def told():
    recorder = Recorder()
    stats.initialize(factory=lambda: recorder, export_legacy_names=True)
    yield recorder.seen
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def test_validating_tells_how_many_are_known_to_be_invalid_also_by_earlier_runs(run_task, orders, told):
    making.corrupt_sidecar(orders, 2)
    common = {"pipeline": "orders", "fail_on_invalid": False}
    run_task(CheckpointValidateOperator(task_id="all", **common))
    assert told == {"invalid_count": 1}
    run_task(CheckpointValidateOperator(task_id="one", checkpoint_ids=["5"], **common))
    assert told == {"invalid_count": 1}


def test_pruning_and_sweeping_tell_what_is_kept_and_what_becomes_free(run_task, orders, told):
    run_task(CheckpointPruneOperator(task_id="prune", pipeline="orders", policy={"keep_last": 2}))
    assert told["retained_count"] == 2
    assert told["retained_bytes"] > 0
    assert told["freshness_seconds"] == pytest.approx(3600, abs=120)
    pruned = told.pop("pruned_bytes")
    assert pruned > 0
    run_task(CheckpointSweepOperator(task_id="sweep", pipeline="orders", undo_window="0s"))
    assert told["freed_bytes"] >= pruned


def test_a_dry_run_frees_nothing(run_task, orders, told):
    run_task(CheckpointPruneOperator(task_id="prune", pipeline="orders", policy={"keep_last": 2}, dry_run=True))
    assert "pruned_bytes" not in told
    assert told["retained_count"] == 5


def test_selecting_tells_how_far_back_the_point_is(run_task, orders, told):
    making.corrupt_sidecar(orders, 5)
    run_task(CheckpointSelectRecoveryPointOperator(task_id="select", pipeline="orders"))
    assert told == {"recovery_distance_seconds": pytest.approx(3600, abs=60)}


@pytest.mark.parametrize(("warn", "fail", "state"), [("2h", "3h", "success"), ("1m", "2m", "failed")])
def test_watching_tells_the_age_whether_fresh_or_stale(run_task, orders, told, warn, fail, state):
    sensor = CheckpointFreshnessSensor(task_id="fresh", pipeline="orders", warn_after=warn, fail_after=fail)
    assert run_task(sensor).state == state
    assert told == {"freshness_seconds": pytest.approx(3600, abs=120)}
