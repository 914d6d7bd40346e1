"""The orders job, killed with SIGKILL at every step of the commit protocol and at random moments, ends exact."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.layouts import open_store
from tests.integration.spark.rehearsal import Job, Stage, checkpoint_ids, orders, rehearse

pytestmark = pytest.mark.timeout(900)


def test_killed_at_steps_and_at_random_and_sent_back_the_tables_are_exact(tmp_path):
    told: list[str] = []
    result = rehearse(Stage.local(tmp_path), kills=4, restores=1, seed=5, files=6, tell=told.append)
    assert result.differences == []
    assert result.kills >= 3
    # Whoever watches a long rehearsal sees it go on.
    assert [line.partition(" from ")[0] for line in told[:4]] == [f"run {number} of 4" for number in (1, 2, 3, 4)]
    assert told[4:] == [f"last run, tables compared; {result.counts()}"]


def test_on_a_real_object_store_as_well_checkpoints_and_tables_alike(tmp_path, seaweedfs):
    result = rehearse(Stage.on_s3(tmp_path, seaweedfs), kills=2, restores=1, seed=6, files=4)
    assert result.differences == []


def test_sigterm_commits_the_epoch_under_way_and_ends_cleanly(tmp_path):
    stage = Stage.local(tmp_path)
    orders.generate(stage.landing, files=30, orders=50, seed=1)
    # Without spark-submit, whose Java process would take a signal meant for the driver.
    job = Job(stage, plain_python=True)
    assert job.wait_for("INFO checkpoint ")
    job.process.terminate()
    assert job.wait() == 0, job.output()[-2000:]
    assert "DONE" in job.output()
    layout = open_store(stage.store, pipeline="orders")
    newest = layout.load(layout.candidates()[-1])
    assert {status.state for status in newest.sinks.values()} == {"committed"}
    assert newest.epoch < 30


def test_a_changed_number_of_vnodes_is_a_clear_error_and_harms_nothing(tmp_path):
    stage = Stage.local(tmp_path)
    orders.generate(stage.landing, files=2, orders=20, seed=1)
    assert Job(stage).wait() == 0
    before = checkpoint_ids(stage)
    job = Job(stage, more=("--vnodes", "8"))
    assert job.wait() != 0
    assert "checkpoint has 4, runtime expects 8" in job.output()
    assert checkpoint_ids(stage) == before
    assert stage.differences() == []


def test_a_zombie_driver_that_wakes_after_a_restore_is_fenced(tmp_path):
    import os
    import signal

    stage = Stage.local(tmp_path)
    orders.generate(stage.landing, files=6, orders=50, seed=3)
    zombie = Job(stage)
    assert zombie.wait_for("INFO checkpoint ")
    os.killpg(zombie.process.pid, signal.SIGSTOP)
    try:
        assert Job(stage).wait() == 0
        assert stage.differences() == []
    finally:
        os.killpg(zombie.process.pid, signal.SIGCONT)
    assert zombie.wait() != 0
    assert "FencedWriterError" in zombie.output()
    assert stage.differences() == []


def test_orders_without_a_time_and_in_files_with_odd_names_are_in_the_tables_too(tmp_path):
    import json

    stage = Stage.local(tmp_path)
    orders.generate(stage.landing, files=2, orders=20, seed=1)
    (stage.landing / "orders-000001.jsonl").rename(stage.landing / "orders-000001 [copy].jsonl")
    timeless = [{"order": 1000, "customer": "nobody", "cents": 5}, {"order": 1001, "customer": "nobody", "cents": 7}]
    (stage.landing / "orders-000002.jsonl").write_text("\n".join(map(json.dumps, timeless)) + "\n")
    job = Job(stage)
    assert job.wait() == 0, job.output()[-2000:]
    assert stage.differences() == []
