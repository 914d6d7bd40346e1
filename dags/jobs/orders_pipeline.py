"""Totals per customer from orders that arrive as JSON lines, with late ones set apart.

Run it with::

    spark-submit --py-files runtime.zip dags/jobs/orders_pipeline.py \
        --store /data/checkpoints --pipeline orders --input /data/landing --output /data/tables

An order is late if its time is more than ``--delay`` before the latest time in all files before its own. That depends
on the order of the files alone, not on how they fall into epochs, so a replay sets apart exactly the same orders. An
order without a time is not late; one without a customer ends the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_checkpoint.spark.job import main, store_options
from airflow_provider_checkpoint.spark.operators import KeyedOperator, Update
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Epoch, Routed
from airflow_provider_checkpoint.spark.sinks import ParquetSink
from airflow_provider_checkpoint.spark.sources import FILE, FileSource

if TYPE_CHECKING:
    import argparse

LONG_AGO = -(2**62)
TOTALS = pa.schema([("customer", pa.string()), ("orders", pa.int64()), ("cents", pa.int64())])


def update_totals(rows: pa.Table, state: pa.Table) -> Update:
    """Add an epoch's sums to the totals so far, and put the new totals out."""
    both = pa.concat_tables([rows.select(TOTALS.names).cast(TOTALS), state.select(TOTALS.names).cast(TOTALS)])
    totals = both.group_by("customer").aggregate([("orders", "sum"), ("cents", "sum")])
    totals = totals.rename_columns({"orders_sum": "orders", "cents_sum": "cents"}).sort_by("customer")
    return Update(totals, outputs={"totals": totals})


def watermarks(epoch: Epoch, latest: dict[str, int], delay: int) -> tuple[dict[str, int], int]:
    """The watermark before each file of an epoch, and the one after all of them. A handful of numbers."""
    mark = epoch.watermark if epoch.watermark is not None else LONG_AGO
    before = {}
    for name in epoch.slice.parts:
        before[name] = mark
        mark = max(mark, latest.get(name, LONG_AGO + delay) - delay)
    return before, mark


def build(arguments: argparse.Namespace) -> CheckpointedPipeline:
    delay = arguments.delay

    def route(orders: DataFrame, epoch: Epoch) -> Routed:
        orders = orders.persist()
        per_file = orders.groupBy(FILE).agg(F.max("time").alias("latest"), F.count("*").alias("count")).collect()
        latest = {row[FILE]: row["latest"] for row in per_file if row["latest"] is not None}
        before, watermark = watermarks(epoch, latest, delay)
        mark = F.create_map(*[F.lit(value) for pair in before.items() for value in pair])[F.col(FILE)]
        # An order without a time is not late: neither true nor false, it would be in no table.
        late = F.coalesce(F.col("time") < mark, F.lit(False))
        sums = orders.where(~late).groupBy("customer").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
        return Routed(
            operators={"totals": sums},
            outputs={"late_orders": orders.where(late).select("order", "customer", "cents", "time")},
            watermark=watermark,
            events=sum(row["count"] for row in per_file),
        )

    options = store_options(arguments.store_option)
    return CheckpointedPipeline(
        "orders",
        source=FileSource(
            "orders",
            arguments.input,
            schema="order long, customer string, cents long, time long",
            suffix=".jsonl",
            max_files=arguments.files_per_epoch,
        ),
        route=route,
        operators=[KeyedOperator("totals", ("customer",), TOTALS, update_totals)],
        sinks=[
            ParquetSink("totals", f"{arguments.output}/totals", options),
            ParquetSink("late_orders", f"{arguments.output}/late_orders", options),
        ],
        vnodes=arguments.vnodes,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", required=True, metavar="FOLDER", help="where orders land, as *.jsonl")
    parser.add_argument("--output", required=True, metavar="URI", help="where the tables go")
    parser.add_argument("--files-per-epoch", type=int, default=4)
    parser.add_argument("--delay", type=int, default=60_000, help="milliseconds an order may be late")
    parser.add_argument("--vnodes", type=int, default=8)


if __name__ == "__main__":
    main(build, add_arguments=add_arguments)
