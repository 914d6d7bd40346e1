"""Cost of one epoch, side by side: this runtime against plain Structured Streaming with its two state stores.

The same files, the same aggregation (count and sum per key), the same output (changed keys as parquet), one Spark
session. The first epoch brings in all keys; each later one touches one per cent of them. What is compared is the median
of the later epochs, each measured as the whole of an epoch: read, update, write, commit. A small run of each comes
first and is not counted; who goes first changes from size to size.

What our run costs the driver is measured as well: how much larger its Python process got, what the Java heap holds
after a collection, and what tasks sent back to it per epoch.

    python -m tests.benchmarks.epochs [--keys 50000 500000 2000000] [--epochs 8]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.spark import run as runtime
from airflow_provider_checkpoint.spark.operators import KeyedOperator, StoreAddress, Update
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
from airflow_provider_checkpoint.spark.sinks import ParquetSink
from airflow_provider_checkpoint.spark.sources import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable

VNODES = 8
TOTALS = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("s", pa.int64())])
PROVIDER = "org.apache.spark.sql.execution.streaming.state."
MIB = 1024 * 1024


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


@dataclass
class Driver:
    """What our run cost the driver, and what it wrote."""

    grown: float = 0.0
    """MiB by which the peak of the Python process rose during the run."""
    heap: float = 0.0
    """MiB in use in the Java heap, after a collection."""
    answers: list[int] = field(default_factory=list)
    """Bytes of what tasks sent back, per Spark job."""
    state: int = 0
    """Bytes of all state, whole."""
    written: float = 0.0
    """Median bytes of state written per later epoch."""


def ours(spark: SparkSession, landing: Path, folder: Path, driver: Driver) -> list[float]:
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
    # From here on: making the input had its own peak, which would hide that of the run.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    answers: list[int] = []
    collect = runtime.run_on_vnodes

    def measured(*arguments):
        lines = collect(*arguments)
        answers.append(sum(len(repr(tuple(line))) for line in lines))
        return lines

    with mock.patch.object(runtime, "run_on_vnodes", measured):
        pipeline.run(spark, options, hook=lap)
    driver.grown = (_peak() - before) / MIB
    driver.heap = _heap(spark)
    driver.answers = answers
    _measure_state(folder, driver)
    return times


def _peak() -> int:
    """The most memory this process held since that was last reset, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _heap(spark: SparkSession) -> float:
    machine = spark._jvm.java.lang
    machine.System.gc()
    time.sleep(1)
    machine.System.gc()
    running = machine.Runtime.getRuntime()
    return (running.totalMemory() - running.freeMemory()) / MIB


def _measure_state(folder: Path, driver: Driver) -> None:
    layout = open_store(str(folder), layout="partitioned", pipeline="store")
    by_id = {str(each): 0 for each in layout.list_checkpoints()}
    for path in (folder / "store").rglob("partition-*"):
        by_id[next(part for part in path.parts if part in by_id)] += path.stat().st_size
    first, *later = (by_id[each] for each in sorted(by_id))
    driver.state, driver.written = first, statistics.median(later)


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


def measure(spark: SparkSession, keys: int, epochs: int, turn: int) -> tuple[dict[str, list[float]], Driver]:
    """Seconds per epoch of each, and what ours cost the driver."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-epochs-"))
    landing, driver = folder / "landing", Driver()
    runs: dict[str, Callable[[], list[float]]] = {
        "ours": lambda: ours(spark, landing, folder / "ours", driver),
        "rocks": lambda: structured_streaming(spark, landing, folder / "rocks", rocksdb=True),
        "hdfs": lambda: structured_streaming(spark, landing, folder / "hdfs", rocksdb=False),
    }
    names = list(runs)
    try:
        make_input(landing, keys, epochs)
        return {name: runs[name]() for name in names[turn % 3 :] + names[: turn % 3]}, driver
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(VNODES))
        .getOrCreate()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[50_000, 500_000, 2_000_000])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--memory",
        action="store_true",
        help="only what our driver holds: the rivals keep their state in the same Java process, which hides ours",
    )
    arguments = parser.parse_args()
    spark = session()
    if arguments.memory:
        _print_drivers([(keys, ours_alone(spark, keys, arguments.epochs)) for keys in arguments.keys])
        spark.stop()
        return 0
    measure(spark, 1_000, 3, 0)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, Spark {pyspark.__version__}, Python {platform.python_version()}, pyarrow"
        f" {pa.__version__}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start\n"
    )
    print("Median seconds of the epochs that touch 1 % of the keys:\n")
    print(
        "| keys | this runtime | RocksDB + changelog | HDFS-backed | ratio to RocksDB | first epoch, ours / RocksDB |"
    )
    print("|---|---|---|---|---|---|")
    drivers: list[tuple[int, Driver]] = []
    for turn, keys in enumerate(arguments.keys):
        times, driver = measure(spark, keys, arguments.epochs, turn)
        drivers.append((keys, driver))
        own, rival, other = (statistics.median(times[name][1:]) for name in ("ours", "rocks", "hdfs"))
        first = f"{times['ours'][0]:.2f} / {times['rocks'][0]:.2f}"
        print(f"| {keys:,} | {own:.2f} | {rival:.2f} | {other:.2f} | {own / rival:.2f} | {first} |", flush=True)
    _print_drivers(drivers)
    print(f"\nLoad average {os.getloadavg()[0]:.1f} at the end.")
    spark.stop()
    return 0


def ours_alone(spark: SparkSession, keys: int, epochs: int) -> Driver:
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-epochs-"))
    try:
        make_input(folder / "landing", keys, epochs)
        driver = Driver()
        ours(spark, folder / "landing", folder / "ours", driver)
        return driver
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _print_drivers(drivers: list[tuple[int, Driver]]) -> None:
    print("\nOur driver and our state:\n")
    print(
        "| keys | Python's peak grew by | Java heap in use | sent to the driver per epoch | state | written per epoch |"
    )
    print("|---|---|---|---|---|---|")
    for keys, driver in drivers:
        sent = f"{statistics.median(driver.answers):,.0f} bytes"
        share = f"{driver.written / MIB:.2f} MiB ({driver.written / driver.state:.1%})"
        memory = f"{driver.grown:.1f} MiB | {driver.heap:.0f} MiB"
        print(f"| {keys:,} | {memory} | {sent} | {driver.state / MIB:.1f} MiB | {share} |")


if __name__ == "__main__":
    sys.exit(main())
