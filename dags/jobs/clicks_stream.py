"""Clicks per page and minute: a plain Structured Streaming query, which knows nothing of this package.

spark-submit dags/jobs/clicks_stream.py --input /data/clicks --output /data/pages --checkpoint /data/checkpoints/clicks
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "page STRING, at TIMESTAMP"
START = 1_767_225_600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="FOLDER", help="where clicks land, as *.json")
    parser.add_argument("--output", required=True, metavar="URI", help="where Spark's file sink writes")
    parser.add_argument("--checkpoint", required=True, metavar="URI", help="the checkpointLocation")
    parser.add_argument("--files-per-batch", type=int, default=2)
    arguments = parser.parse_args()

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.appName("clicks").getOrCreate()
    clicks = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", arguments.files_per_batch)
    counts = (
        clicks.json(arguments.input)
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "1 minute"), "page")
        .count()
        .select(F.col("window.start").cast("long").alias("minute"), "page", "count")
    )
    query = (
        counts.writeStream.outputMode("append")
        .format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


# -- input to try it with, and what must come out ---------------------------------------------------------------------


def generate(folder: Path, *, files: int, first: int = 0, clicks: int = 50, seed: int = 1) -> None:
    """Write clicks, in the order of their times: one minute in each file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        rng = random.Random(f"{seed}-{number}")
        lines = [
            json.dumps({"page": f"/page/{rng.randrange(8)}", "at": _text(START + number * 60 + rng.randrange(60))})
            for _ in range(clicks)
        ]
        temporary = folder / f".clicks-{number:05d}.tmp"
        temporary.write_text("\n".join(lines) + "\n")
        temporary.rename(folder / f"clicks-{number:05d}.json")


def truth(folder: Path, *, upto: int) -> Counter[tuple[int, str]]:
    """Clicks per minute and page of the first files, worked out without Spark."""
    counts: Counter[tuple[int, str]] = Counter()
    for number in range(upto):
        for line in (folder / f"clicks-{number:05d}.json").read_text().splitlines():
            counts[START + number * 60, json.loads(line)["page"]] += 1
    return counts


def _text(moment: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


if __name__ == "__main__":
    main()
