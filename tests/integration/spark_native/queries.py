"""Streaming queries, one for each kind of checkpoint directory that Spark writes.

All of them read the same landing folder, so that a copy of a directory anywhere restarts on the same input.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key STRING, value LONG, at TIMESTAMP"
FIRST_MODIFIED = 1_700_000_000
ROWS = 12

_STATE = "spark.sql.streaming.stateStore."
_ROCKSDB = {
    f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_CHANGELOG = {**_ROCKSDB, f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true"}
_FORMAT_2 = {**_CHANGELOG, f"{_STATE}checkpointFormatVersion": "2"}
_SNAPSHOTS = {f"{_STATE}minDeltasForSnapshot": "2"}


@dataclass(frozen=True)
class Query:
    """One kind of directory: the query that writes it and the settings it runs with."""

    name: str
    build: Callable[[SparkSession, Path], DataFrame]
    mode: str = "append"
    conf: dict[str, str] = field(default_factory=dict)
    sink: str = "collect"
    """``collect``: every batch's rows come to the driver; ``files``: Spark's file sink."""
    stateful: bool = True


def land(landing: Path, first: int, count: int) -> None:
    """Put input files into both folders; equal numbers make equal files, in the order Spark will take them."""
    for side in ("left", "right"):
        (landing / side).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            path = landing / side / f"{number:04}.json"
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows(number)))
            os.utime(path, (FIRST_MODIFIED + number, FIRST_MODIFIED + number))


def rows(number: int) -> Iterator[dict[str, object]]:
    """Keys come back in later files, and some are new in each, so that lost state shows in the output."""
    for index in range(ROWS):
        key = f"k{index % 6}" if index % 2 else f"n{number}-{index}"
        yield {"key": key, "value": number * 100 + index, "at": f"2026-01-01T00:{number:02}:{index:02}Z"}


def files(spark: SparkSession, landing: Path, side: str = "left") -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file://{landing}/{side}")


def _stateless(spark: SparkSession, landing: Path) -> DataFrame:
    return files(spark, landing).where("value % 2 = 0").select("key", "value")


def _aggregate(spark: SparkSession, landing: Path) -> DataFrame:
    return files(spark, landing).groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def _windows(spark: SparkSession, landing: Path) -> DataFrame:
    late = files(spark, landing).withWatermark("at", "10 seconds")
    return late.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")


def _everything(spark: SparkSession, landing: Path) -> DataFrame:
    return files(spark, landing).agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def _join(spark: SparkSession, landing: Path) -> DataFrame:
    left = files(spark, landing).where("key LIKE 'k%'").withWatermark("at", "1 hour")
    right = files(spark, landing, "right").where("key LIKE 'k%'").withWatermark("at", "1 hour")
    right = right.select(F.col("key").alias("other"), F.col("value").alias("found"), F.col("at").alias("when"))
    return left.join(right, F.expr("key = other AND at <= when")).select("key", "value", "found")


def _distinct(spark: SparkSession, landing: Path) -> DataFrame:
    return files(spark, landing).select("key").dropDuplicates(["key"])


def _two_sources(spark: SparkSession, landing: Path) -> DataFrame:
    both = files(spark, landing).union(files(spark, landing, "right"))
    return both.groupBy("key").agg(F.sum("value").alias("total"))


def _two_operators(spark: SparkSession, landing: Path) -> DataFrame:
    late = files(spark, landing).withWatermark("at", "10 seconds")
    return (
        late.dropDuplicates(["key", "at"]).groupBy(F.window("at", "1 minute")).count().select("window.start", "count")
    )


def _process(spark: SparkSession, landing: Path) -> DataFrame:
    from tests.integration.spark_native.processor import counted

    return counted(files(spark, landing))


def _remind(spark: SparkSession, landing: Path) -> DataFrame:
    from tests.integration.spark_native.processor import reminded

    return reminded(files(spark, landing))


QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Query("stateless", _stateless, stateful=False),
        Query("hdfs", _aggregate, "complete"),
        Query("hdfs_snapshots", _aggregate, "complete", _SNAPSHOTS),
        Query("hdfs_zstd", _aggregate, "complete", {f"{_STATE}compression.codec": "zstd"}),
        Query("hdfs_snappy", _aggregate, "complete", {f"{_STATE}compression.codec": "snappy"}),
        Query("hdfs_lzf", _aggregate, "complete", {f"{_STATE}compression.codec": "lzf"}),
        Query("rocksdb", _aggregate, "complete", _ROCKSDB),
        Query("rocksdb_changelog", _aggregate, "complete", {**_CHANGELOG, **_SNAPSHOTS}),
        Query("rocksdb_format2", _aggregate, "complete", {**_FORMAT_2, **_SNAPSHOTS}),
        Query("rocksdb_zstd", _aggregate, "complete", {**_CHANGELOG, f"{_STATE}compression.codec": "zstd"}),
        Query("join", _join),
        Query("join_rocksdb", _join, conf=_CHANGELOG),
        Query("dedup", _distinct),
        Query("windows", _windows),
        Query("two_operators", _two_operators),
        Query("two_sources", _two_sources, "complete"),
        Query("global", _everything, "complete"),
        Query("process", _process, "update", _CHANGELOG),
        Query("process_format2", _process, "update", _FORMAT_2),
        Query("offset_log_v2", _aggregate, "complete", {"spark.sql.streaming.offsetLog.formatVersion": "2"}),
        Query("file_sink", _stateless, sink="files", stateful=False),
        Query("file_sink_hdfs", _distinct, sink="files"),
        Query("file_sink_rocksdb", _distinct, conf=_ROCKSDB, sink="files"),
        Query("file_sink_changelog", _distinct, conf=_CHANGELOG, sink="files"),
        Query("file_sink_format2", _distinct, conf=_FORMAT_2, sink="files"),
    )
}

#: Time passes in them, so that a query of this kind has always something to do; here it runs only for new input.
_ON_INPUT = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}

#: With timers and values that run out. They are not among those that are damaged in every way.
TIMERS: dict[str, Query] = {
    query.name: query
    for query in (
        Query("timers", _remind, "update", {**_CHANGELOG, **_ON_INPUT}),
        Query("timers_format2", _remind, "update", {**_FORMAT_2, **_ON_INPUT}),
    )
}
