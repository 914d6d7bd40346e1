"""Failures that a run may survive: epochs, and looks for input, one after another; never what a person must mend."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CorruptManifestError,
    InputGoneError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.spark.offset_source import DataSourceReader, OffsetSource
from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
from airflow_provider_checkpoint.spark.sinks import ParquetSink
from tests.unit.spark.letters import letters

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.timeout(900)

# Executors cannot import a test file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

AWAY = StoreUnavailableError("the store does not answer")
REFUSED = ValueError("no such letter")


class Weather(DataSourceReader):
    """Six rows, two per epoch, by a reader whose looks go as foretold; after that, all is well."""

    def __init__(self, looks: Sequence[Exception | None]) -> None:
        super().__init__(letters(), {"rows": "6", "perEpoch": "2"})
        self._looks = list(looks)
        self.looked = 0

    def latest(self, start):
        self.looked += 1
        coming = self._looks.pop(0) if self._looks else None
        if coming is not None:
            raise coming
        return super().latest(start)


def pipeline_of(folder, reader, epochs: Sequence[Exception | None] = ()) -> CheckpointedPipeline:
    """Copies its rows; epochs, too, go as foretold."""
    left = list(epochs)

    def route(rows, _):
        coming = left.pop(0) if left else None
        if coming is not None:
            raise coming
        return Routed(outputs={"rows": rows.select("i")})

    sinks = [ParquetSink("rows", str(folder / "rows"))]
    return CheckpointedPipeline("letters", source=OffsetSource("letters", reader), route=route, sinks=sinks)


def options(folder, **more) -> RunOptions:
    return RunOptions(StoreAddress(str(folder / "store")), **{"poll_seconds": 0.01, "tolerable_failures": 2} | more)


def numbers(spark, folder) -> list[int]:
    return sorted(row.i for row in spark.read.parquet(str(folder / "rows")).collect())


def test_looks_for_input_that_fail_are_tolerated_like_epochs_and_told_alike(spark, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    done = pipeline_of(tmp_path, Weather([AWAY, OSError("gone for a moment")])).run(spark, options(tmp_path))
    assert numbers(spark, tmp_path) == list(range(6))
    # A look is no epoch: it takes no number.
    assert done.epoch == 3
    told = [record.getMessage() for record in caplog.records if "in a row; trying again" in record.getMessage()]
    assert told == [f"looking for input failed, {count} in a row; trying again" for count in (1, 2)]
    assert "the store does not answer" in caplog.text


def test_one_failed_look_too_many_ends_the_run_and_the_next_goes_on(spark, tmp_path):
    reader = Weather([None, AWAY, AWAY, AWAY])
    with pytest.raises(StoreUnavailableError):
        pipeline_of(tmp_path, reader).run(spark, options(tmp_path))
    assert reader.looked == 4
    assert numbers(spark, tmp_path) == [0, 1]
    pipeline_of(tmp_path, reader).run(spark, options(tmp_path))
    assert numbers(spark, tmp_path) == list(range(6))


def test_a_committed_epoch_breaks_the_row(spark, tmp_path):
    looks = [AWAY, AWAY, None, AWAY, AWAY, None, AWAY, AWAY]
    pipeline_of(tmp_path, Weather(looks)).run(spark, options(tmp_path))
    assert numbers(spark, tmp_path) == list(range(6))


def test_looks_and_epochs_that_fail_by_turns_are_one_row(spark, tmp_path):
    reader = Weather([AWAY, None, AWAY])
    with pytest.raises(StoreUnavailableError):
        pipeline_of(tmp_path, reader, [REFUSED]).run(spark, options(tmp_path))
    assert reader.looked == 3


def test_a_look_that_finds_nothing_new_breaks_the_row(spark, tmp_path):
    """A job that waits for days for more input may fail to look now and then."""
    found = [None] * 4
    reader = Weather([*found, AWAY, AWAY, None, AWAY, AWAY, None, AWAY, AWAY])
    pipeline = pipeline_of(tmp_path, reader)
    latest = reader.latest

    def stop_in_the_end(start):
        if reader.looked == 12:
            pipeline.stop()
        return latest(start)

    reader.latest = stop_in_the_end
    pipeline.run(spark, options(tmp_path, available_now=False))
    assert reader.looked == 13
    assert numbers(spark, tmp_path) == list(range(6))


@pytest.mark.parametrize("error", [InputGoneError("x"), AccessDeniedError("x"), CorruptManifestError("x")])
def test_what_a_second_look_cannot_mend_ends_the_run_at_once(spark, tmp_path, error):
    reader = Weather([None, error])
    with pytest.raises(type(error)):
        pipeline_of(tmp_path, reader).run(spark, options(tmp_path))
    assert reader.looked == 2
    assert numbers(spark, tmp_path) == [0, 1]
