"""Values that run out and timers of transformWithState, with real Spark: going back to them, and going on."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.layouts.structured_streaming import (
    apply_clone,
    diagnose,
    plan_clone,
    seal,
)
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import CheckpointId, Depth
from tests.integration.spark_native.directory import flip, layout_of
from tests.integration.spark_native.queries import TIMERS, land
from tests.integration.spark_native.running import Outcome, make_session, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_native.queries import Query

pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("native")]

FILES = 6
LAST = FILES - 1
BACK_TO = 2


@pytest.mark.parametrize("name", TIMERS)
def test_timers_and_values_that_run_out_are_sealed_gone_back_to_and_gone_on_with(tmp_path, name):
    query = TIMERS[name]
    spark = make_session()
    landing = tmp_path / "landing"
    land(landing, 0, FILES)
    original = tmp_path / "checkpoint"
    truth = run_patiently(spark, query, landing, original)
    assert_tells_what_is_kept(truth)

    layout = layout_of(original)
    for batch in (BACK_TO, LAST):
        seal(layout, CheckpointId(batch))
    assert diagnose(layout).findings == ()
    flip(next(original.glob(f"state/0/0/{LAST + 1}*.changelog")))
    assert not validate(layout_of(original), CheckpointId(LAST), Depth.CONTENT).valid
    assert validate(layout_of(original), CheckpointId(BACK_TO), Depth.CONTENT).valid
    assert diagnose(layout_of(original)).recoverable == tuple(range(LAST - 1, -1, -1))

    target = tmp_path / "clone"
    plan = plan_clone(layout, CheckpointId(BACK_TO), str(target), now=datetime.now(UTC))
    apply_clone(layout, plan, layout_of(target))
    # Whatever still leads there fails from now on.
    shutil.move(original, tmp_path / "moved away")
    assert diagnose(layout_of(target)).findings == ()
    again = run_patiently(spark, query, landing, target)
    assert again == {batch: rows for batch, rows in truth.items() if batch > BACK_TO}
    assert diagnose(layout_of(target)).recoverable == tuple(range(LAST, -1, -1))


def run_patiently(spark: SparkSession, query: Query, landing: Path, directory: Path) -> dict[int, list[str]]:
    """All batches that are due, and what they put out.

    Spark gives a Python worker ten seconds to connect back; on a busy machine that may be too short. A batch that
    failed for it runs again as it was planned.
    """
    batches: dict[int, list[str]] = {}
    outcome = Outcome(error="not run")
    for _ in range(3):
        outcome = run(spark, query, landing, directory, directory.parent / "output")
        batches |= outcome.batches
        if "connect back" not in outcome.message:
            break
    assert outcome.error is None, outcome.message
    return batches


def assert_tells_what_is_kept(truth: dict[int, list[str]]) -> None:
    """The output depends on both: what must last, what must not, and timers of the batch before."""
    assert list(truth) == list(range(FILES))
    for batch, rows in truth.items():
        seen = 2 * (batch + 1)
        assert f"('k1', 'rows', {seen}, False)" in rows
        assert (f"('k1', 'timer', {seen}, True)" in rows) is (batch > 0)
        assert (f"('n{batch - 1}-0', 'timer', 1, False)" in rows) is (batch > 0)
