"""Proving state files of Spark, side by side: our ``content`` depth, reading the same bytes, and Spark's own reader.

Spark's ``statestore`` reader loads the state and counts its rows, in a session that is up and warm; it finds what
loading finds, and not a flipped bit in a RocksDB table. Ours finds that, too. Medians of interleaved repeats.

    python -m tests.benchmarks.native [--keys 400000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth
from tests.benchmarks._measure import MIB, Contender, load, race
from tests.integration.spark_native.running import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE = "spark.sql.streaming.stateStore."
KINDS = {
    "HDFS-backed": {f"{_STATE}providerClass": "HDFSBackedStateStoreProvider"},
    "RocksDB": {f"{_STATE}providerClass": "RocksDBStateStoreProvider"},
}
PACKAGE = "org.apache.spark.sql.execution.streaming.state."


def make(spark: SparkSession, folder: Path, keys: int, conf: dict[str, str]) -> Path:
    """A directory of three batches, all keys in the first."""
    landing = folder / "landing"
    landing.mkdir()
    rng = np.random.default_rng(1)
    for number in range(3):
        chosen = np.arange(keys) if number == 0 else rng.choice(keys, keys // 10, replace=False)
        pq.write_table(
            pa.table({"key": chosen, "v": rng.integers(0, 2**60, len(chosen))}), landing / f"{number}.parquet"
        )
        os.utime(landing / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    for name, value in conf.items():
        spark.conf.set(name, PACKAGE + value)
    rows = spark.readStream.schema("key long, v long").option("maxFilesPerTrigger", 1).parquet(str(landing))
    totals = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    directory = folder / "checkpoint"
    (
        totals.writeStream.outputMode("update")
        .option("checkpointLocation", str(directory))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: frame.write.format("noop").mode("overwrite").save())
        .start()
        .awaitTermination()
    )
    return directory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    spark = make_session()
    print(f"load average {load()}, {arguments.keys:,} keys, medians of {arguments.repeats}\n")
    print("| state | files | MiB | read the bytes | ours, content | Spark's reader | MiB/s, ours | ours / Spark |")
    print("|---|---|---|---|---|---|---|---|")
    for name, conf in KINDS.items():
        with tempfile.TemporaryDirectory(prefix="checkpoint-native-") as root:
            directory = make(spark, Path(root), arguments.keys, conf)
            layout = open_store(str(directory))
            files = [directory / artifact.key for artifact in layout.load(layout.candidates()[-1]).artifacts]
            size = sum(path.stat().st_size for path in files)

            def read(files: list[Path] = files) -> None:
                for path in files:
                    path.read_bytes()

            def ours(directory: Path = directory) -> None:
                # Opened anew each time, so that nothing is remembered.
                layout = open_store(str(directory))
                found = validate(layout, layout.candidates()[-1], Depth.CONTENT)
                assert found.valid, found.reason

            def theirs(directory: Path = directory) -> None:
                assert spark.read.format("statestore").load(str(directory)).count() == arguments.keys

            contenders = [Contender("read", read), Contender("ours", ours), Contender("theirs", theirs)]
            raw, own, spark_took = race(contenders, arguments.repeats).values()
            print(
                f"| {name} | {len(files)} | {size / MIB:.1f} | {raw:.3f} s | {own:.3f} s | {spark_took:.3f} s"
                f" | {size / MIB / own:.0f} | {own / spark_took:.2f} |",
                flush=True,
            )
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
