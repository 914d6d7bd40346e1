"""How ``directories.tar.xz`` was made, with Spark 4.3 on a local disk.

Writes to ``/data``: twelve small files in ``landing`` and ``landing2``, then one checkpoint directory per query in
``ckpt``. Afterwards, in ``/data/ckpt``: ``tar --sort=name --owner=0 --group=0 -cJf directories.tar.xz *``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

ROOT = Path("/data")
FILES = 12
STATE = "spark.sql.streaming.stateStore"
ROCKSDB = {f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
CHANGELOG = {**ROCKSDB, f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true"}
SNAPSHOTS = {f"{STATE}.minDeltasForSnapshot": "4"}
FORMAT_2 = {**CHANGELOG, f"{STATE}.checkpointFormatVersion": "2"}
RETAIN = {"spark.sql.streaming.minBatchesToRetain": "3", f"{STATE}.minDeltasForSnapshot": "2"}
EVOLUTION = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}


class Counter(StatefulProcessor):
    """Counts rows per key with transformWithState."""

    def init(self, handle):
        self.count = handle.getValueState("c", "n long")

    def handleInputRows(self, key, rows, timer_values):  # noqa: N802 - Spark's own name
        before = self.count.get()[0] if self.count.exists() else 0
        now = before + sum(len(part) for part in rows)
        self.count.update((now,))
        yield pd.DataFrame({"k": [key[0]], "n": [now]})

    def close(self):
        """Nothing is open."""


def land():
    began = time.time() - 1000
    for folder in ("landing", "landing2"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            path = ROOT / folder / f"{number:02}.json"
            rows = (
                f'{{"k":"k{row % 5}","v":{number * 10 + row},"t":"2026-01-01T00:{number:02}:00"}}\n' for row in range(6)
            )
            path.write_text("".join(rows))
            os.utime(path, (began + number, began + number))


def make(spark):
    def source(folder="landing", name=None):
        reader = spark.readStream.schema("k string, v int, t timestamp").option("maxFilesPerTrigger", 1)
        return (reader if name is None else reader.name(name)).json(str(ROOT / folder))

    def count():
        return source().groupBy("k").agg(F.count("*"), F.sum("v"))

    def joined():
        left, right = (source(folder).withWatermark("t", "5 minutes") for folder in ("landing", "landing2"))
        return left.alias("a").join(right.alias("b"), F.expr("a.k = b.k and a.v = b.v and a.t = b.t"))

    def twice():
        first = source().withWatermark("t", "1 minutes").groupBy(F.window("t", "1 minute"), "k").count()
        return first.groupBy(F.window("window", "5 minutes")).count()

    def with_state():
        return source().groupBy("k").transformWithStateInPandas(Counter(), "k string, n long", "Update", "None")

    queries = {
        "stateless": (source, "append", {}),
        "union_two": (lambda: source().union(source("landing2")), "append", {}),
        "offsets_v2": (lambda: source(name="alpha").groupBy("k").count(), "update", EVOLUTION),
        "hdfs_agg": (count, "update", {}),
        "hdfs_global": (lambda: source().groupBy().agg(F.count("*")), "update", {}),
        "hdfs_join": (joined, "append", {}),
        "dedup": (lambda: source().dropDuplicates(["k"]), "append", {}),
        "limit": (lambda: source().limit(3), "append", {}),
        "two_ops": (twice, "append", {}),
        "zstd": (count, "update", {f"{STATE}.compression.codec": "zstd"}),
        "rocks": (count, "update", ROCKSDB),
        "rocks_changelog": (count, "update", CHANGELOG | SNAPSHOTS),
        "rocks_v2": (count, "update", FORMAT_2 | SNAPSHOTS),
        "rocks_join_v2": (joined, "append", FORMAT_2),
        "tws": (with_state, "update", CHANGELOG),
        "purged": (count, "update", RETAIN),
        "purged_rocks": (count, "update", CHANGELOG | RETAIN),
        "rate": (lambda: spark.readStream.format("rate").option("rowsPerSecond", 5).load(), "append", RETAIN),
    }
    for kind, (query, mode, settings) in queries.items():
        for name, value in settings.items():
            spark.conf.set(name, value)
        # A batch takes long enough for the clean-up of old state to run meanwhile.
        pause = 1.0 if "purged" in kind else 0.0
        writer = query().writeStream.outputMode(mode).option("checkpointLocation", str(ROOT / "ckpt" / kind))
        writer = writer.foreachBatch(lambda frame, _, pause=pause: (time.sleep(pause), frame.count()))
        if kind == "rate":
            running = writer.trigger(processingTime="1 second").start()
            time.sleep(6)
            running.stop()
        else:
            writer.trigger(availableNow=True).start().awaitTermination()
        for name in settings:
            spark.conf.unset(name)


if __name__ == "__main__":
    land()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "2s")
        .getOrCreate()
    )
    try:
        make(session)
    finally:
        session.stop()
