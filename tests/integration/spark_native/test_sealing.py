"""A query that seals its own batches by a listener, with real Spark."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.sealing import SealingListener

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("native")]


def land(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        lines = [json.dumps({"page": page}) for page in name]
        (folder / f"{name}.json").write_text("\n".join(lines))


def count_pages(spark: SparkSession, folder: Path) -> str:
    """Take in all that has landed, a file to a batch; answers with the id of the query."""
    rows = spark.readStream.schema("page string").option("maxFilesPerTrigger", 1).json(str(folder / "landing"))
    query = (
        rows.groupBy("page")
        .count()
        .writeStream.outputMode("complete")
        .format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query.id


def sealed(layout: StructuredStreamingLayout) -> list[int]:
    return [int(str(each)) for each in layout.candidates() if layout.seal_of(int(str(each))) is not None]


def layout_of(folder: Path) -> StructuredStreamingLayout:
    layout = open_store(str(folder / "checkpoint"), layout="structured_streaming")
    assert isinstance(layout, StructuredStreamingLayout)
    return layout


@pytest.fixture
def listening(corpus):
    """Adds a listener for the length of a test; waits until Spark has told it everything."""
    added = []

    def add(listener: SealingListener) -> SealingListener:
        corpus.spark.streams.addListener(listener)
        added.append(listener)
        return listener

    yield add
    for listener in added:
        corpus.spark.streams.removeListener(listener)
        listener.close()


def wait_for(batch: int, layout: StructuredStreamingLayout) -> None:
    """Spark tells its listeners some time after the query has ended."""
    deadline = time.monotonic() + 60
    while batch not in sealed(layout):
        assert time.monotonic() < deadline, sealed(layout)
        time.sleep(0.1)


def test_the_newest_batch_is_sealed_and_a_flipped_bit_is_found_by_it(corpus, listening, tmp_path):
    land(tmp_path / "landing", "aab", "bcc", "cda")
    listening(SealingListener(str(tmp_path / "checkpoint")))
    count_pages(corpus.spark, tmp_path)
    layout = layout_of(tmp_path)
    wait_for(2, layout)
    newest = layout.candidates()[-1]
    assert validate(layout, newest, Depth.CONTENT).valid
    # Spark's own offset log has no checksum: only the seal can tell.
    log = tmp_path / "checkpoint" / "offsets" / "2"
    log.write_bytes(log.read_bytes().replace(b'"logOffset":2', b'"logOffset":1'))
    assert not validate(layout_of(tmp_path), newest, Depth.CONTENT).valid


def test_only_each_so_many_th_batch_of_its_own_query(corpus, listening, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        land(folder / "landing", "aa", "bb", "cc")
    query_id = count_pages(corpus.spark, ours)
    land(ours / "landing", "dd", "ee", "ff")
    listening(SealingListener(str(ours / "checkpoint"), query_id=query_id, every=4))
    # Its batches have numbers of their own, which are none of ours.
    count_pages(corpus.spark, theirs)
    count_pages(corpus.spark, ours)
    wait_for(4, layout_of(ours))
    assert sealed(layout_of(ours)) == [4]


def test_a_store_that_is_gone_does_not_stop_the_query(corpus, listening, tmp_path, caplog):
    land(tmp_path / "landing", "ab")
    shutil.rmtree(tmp_path / "nowhere", ignore_errors=True)
    listener = listening(SealingListener(str(tmp_path / "nowhere")))
    count_pages(corpus.spark, tmp_path)
    deadline = time.monotonic() + 60
    while "batch 0 was not sealed" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    listener.close()
    assert str(layout_of(tmp_path).candidates()[-1]) == "0"
