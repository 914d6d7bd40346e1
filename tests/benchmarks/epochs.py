"""Cost of one epoch, side by side: this runtime against plain Structured Streaming with its two state stores.

The same files, the same aggregation (count and sum per key), the same output (changed keys as parquet), one Spark
session. The first epoch brings in all keys; each later one touches one per cent of them. What is compared is the median
of the later epochs, each measured as the whole of an epoch: read, update, write, commit.

    python -m tests.benchmarks.epochs [--keys 50000 500000 2000000] [--epochs 8]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_checkpoint.spark.operators import KeyedOperator, StoreAddress, Update
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
from airflow_provider_checkpoint.spark.sinks import ParquetSink
from airflow_provider_checkpoint.spark.sources import FileSource

VNODES = 8
TOTALS = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("s", pa.int64())])
PROVIDER = "org.apache.spark.sql.execution.streaming.state."


def make_input(folder: Path, keys: int, epochs: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(epochs):
        chosen = np.arange(keys) if number == 0 else rng.choice(keys, max(1, keys // 100), replace=False)
        table = pa.table({"key": chosen, "v": rng.integers(0, 1000, len(chosen))})
        pq.write_table(table, folder / f"part-{number:05d}.parquet")
        # Structured Streaming takes files in order of their times.
        os.utime(folder / f"part-{number:05d}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))


def update(rows: pa.Table, state: pa.Table) -> Update:
    both = pa.concat_tables([rows.select(TOTALS.names).cast(TOTALS), state.cast(TOTALS)])
    totals = both.group_by("key").aggregate([("n", "sum"), ("s", "sum")])
    totals = totals.rename_columns({"n_sum": "n", "s_sum": "s"}).select(TOTALS.names)
    return Update(totals, outputs={"totals": totals})


def ours(spark: SparkSession, landing: Path, folder: Path) -> list[float]:
    times: list[float] = []
    began = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal began
        if step == "pointer":
            times.append(time.perf_counter() - began)
            began = time.perf_counter()

    pipeline = CheckpointedPipeline(
        "benchmark",
        source=FileSource("input", str(landing), schema="key long, v long", format="parquet", max_files=1),
        route=lambda rows, _: Routed(
            operators={"totals": rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("v").alias("s"))}
        ),
        operators=[KeyedOperator("totals", ("key",), TOTALS, update)],
        sinks=[ParquetSink("totals", str(folder / "tables"))],
        vnodes=VNODES,
    )
    options = RunOptions(StoreAddress(str(folder / "store")), cache_folder=str(folder / "cache"))
    pipeline.run(spark, options, hook=lap)
    return times


def structured_streaming(spark: SparkSession, landing: Path, folder: Path, *, rocksdb: bool) -> list[float]:
    provider = "RocksDBStateStoreProvider" if rocksdb else "HDFSBackedStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDER + provider)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", str(rocksdb).lower())
    rows = spark.readStream.schema("key long, v long").option("maxFilesPerTrigger", 1).parquet(str(landing))
    totals = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("v").alias("s"))

    def publish(frame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "tables" / f"epoch={number}"))

    query = (
        totals.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(publish)
        .start()
    )
    query.awaitTermination()
    return [progress["durationMs"]["triggerExecution"] / 1000 for progress in query.recentProgress]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[50_000, 500_000, 2_000_000])
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(VNODES))
        .getOrCreate()
    )
    print(f"load average {os.getloadavg()[0]:.1f}; median seconds of the epochs that touch 1 % of the keys\n")
    print(
        "| keys | this runtime | RocksDB + changelog | HDFS-backed | ratio to RocksDB | first epoch: ours / RocksDB |"
    )
    print("|---|---|---|---|---|---|")
    for keys in arguments.keys:
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-epochs-"))
        try:
            make_input(folder / "landing", keys, arguments.epochs)
            rocks = structured_streaming(spark, folder / "landing", folder / "rocks", rocksdb=True)
            mine = ours(spark, folder / "landing", folder / "ours")
            hdfs = structured_streaming(spark, folder / "landing", folder / "hdfs", rocksdb=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        own, rival, other = (statistics.median(times[1:]) for times in (mine, rocks, hdfs))
        first = f"{mine[0]:.2f} / {rocks[0]:.2f}"
        print(f"| {keys:,} | {own:.2f} | {rival:.2f} | {other:.2f} | {own / rival:.2f} | {first} |", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
