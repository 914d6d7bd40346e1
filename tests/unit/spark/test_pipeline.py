"""Whole pipelines on a Spark session: restarted, saved, and with a database as sink."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.safety import Safety
from airflow_provider_checkpoint.spark.operators import KeyedOperator, StoreAddress, Update
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
from airflow_provider_checkpoint.spark.sinks import ParquetSink, SqlUpsertSink
from tests.unit.spark.letters import source_of

# Several runs with a Spark session each take long on a loaded machine.
pytestmark = pytest.mark.timeout(900)

# Executors cannot import a test file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COUNTS = pa.schema([("letter", pa.string()), ("n", pa.int64())])


def count(rows: pa.Table, state: pa.Table) -> Update:
    both = pa.concat_tables([rows.select(COUNTS.names).cast(COUNTS), state.select(COUNTS.names).cast(COUNTS)])
    totals = both.group_by("letter").aggregate([("n", "sum")]).rename_columns({"n_sum": "n"}).sort_by("letter")
    return Update(totals, outputs={"counts": totals})


def run(spark, folder, **options):
    def route(rows, epoch):
        return Routed(
            operators={"counts": rows.groupBy("letter").agg(F.count("*").alias("n"))},
            outputs={"rows": rows.select("i")},
        )

    pipeline = CheckpointedPipeline(
        "letters",
        source=source_of(20, 6),
        route=route,
        operators=[KeyedOperator("counts", ("letter",), COUNTS, count)],
        sinks=[
            SqlUpsertSink(
                "counts",
                str(folder / "staging"),
                connect=lambda: sqlite3.connect(folder / "data.db"),
                table="counts",
                key=["letter"],
                values=["n"],
            ),
            ParquetSink("rows", str(folder / "rows")),
        ],
        vnodes=2,
    )
    store = StoreAddress(str(folder / "store" / "letters"))
    return pipeline.run(spark, RunOptions(store, cache_folder=str(folder / "cache"), **options))


@pytest.fixture
def folder(tmp_path):
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        connection.execute("CREATE TABLE counts (letter TEXT PRIMARY KEY, n INTEGER)")
    return tmp_path


def tables(spark, folder) -> tuple[list[int], dict[str, int]]:
    numbers = sorted(row.i for row in spark.read.parquet(str(folder / "rows")).collect())
    with closing(sqlite3.connect(folder / "data.db")) as connection:
        return numbers, dict(connection.execute("SELECT letter, n FROM counts").fetchall())


EXACT = (list(range(20)), {"a": 7, "b": 7, "c": 6})


def test_a_pipeline_restarted_from_a_middle_position_ends_with_the_same_tables(spark, folder):
    middle = run(spark, folder, max_epochs=2)
    assert middle.sources["letters"].offsets == {"part": '{"closed":false,"next":12}'}
    run(spark, folder)
    assert tables(spark, folder) == EXACT
    run(spark, folder, recover_from=str(middle.id), max_epochs=0)
    assert tables(spark, folder) == (list(range(12)), {"a": 4, "b": 4, "c": 4})
    run(spark, folder)
    assert tables(spark, folder) == EXACT


def test_a_savepoint_holds_all_state_itself_and_restores_when_all_else_is_gone(spark, folder):
    saved = run(spark, folder, max_epochs=2, savepoint_at_end=True)
    assert saved.savepoint
    assert saved.epoch == 3
    newest = run(spark, folder)
    layout = open_store(str(folder / "store"), pipeline="letters")

    def owners(checkpoint) -> set[object]:
        return {layout.named(artifact.key).checkpoint_id for artifact in checkpoint.artifacts}

    assert owners(saved) == {saved.id}
    assert saved.id not in owners(newest)

    at_once = Safety(undo_window=timedelta(0))
    executor = Executor(layout, by="test", safety=at_once)
    executor.prune(plan_prune(layout, RetentionPolicy(keep_last=1), now=datetime.now(UTC), safety=at_once))
    executor.sweep(plan_sweep(layout, now=datetime.now(UTC), safety=at_once))
    # Nothing from before the savepoint is left; of what came after, the newest and what it builds on.
    assert layout.list_checkpoints()[0] == saved.id
    owners_left = {path.parts[-4] for path in folder.rglob("partition-*")}
    assert owners_left == {str(each) for each in owners(saved) | owners(newest)}

    run(spark, folder, recover_from=str(saved.id), max_epochs=0)
    assert tables(spark, folder) == (list(range(12)), {"a": 4, "b": 4, "c": 4})
    run(spark, folder)
    assert tables(spark, folder) == EXACT


def test_a_savepoint_of_nothing_is_none(spark, folder):
    assert run(spark, folder, max_epochs=0, savepoint_at_end=True) is None


def pipeline_of(folder, route, *, operators=("counts",), sinks=("rows",), **more) -> CheckpointedPipeline:
    return CheckpointedPipeline(
        "letters",
        source=source_of(6),
        route=route,
        operators=[KeyedOperator(name, ("letter",), COUNTS, count) for name in operators],
        sinks=[ParquetSink(name, str(folder / name), **more) for name in sinks],
        vnodes=2,
    )


@pytest.mark.parametrize("twice", [{"operators": ("a", "a")}, {"sinks": ("a", "a")}])
def test_names_that_are_used_twice_are_refused(tmp_path, twice):
    with pytest.raises(ConfigurationError, match="must differ"):
        pipeline_of(tmp_path, None, **twice)


def test_two_sinks_in_one_folder_are_refused(tmp_path):
    sinks = [ParquetSink("one", str(tmp_path / "rows")), ParquetSink("other", f"{tmp_path}/rows/")]
    with pytest.raises(ConfigurationError, match="folders of sinks"):
        CheckpointedPipeline("letters", source=source_of(6), route=None, sinks=sinks)


WRONG_ROUTES = [
    (lambda rows, _: Routed(operators={"conuts": rows}), "operator 'conuts'"),
    (lambda rows, _: Routed(outputs={"rwos": rows}), "sink 'rwos'"),
    (lambda rows, _: Routed(operators={"counts": rows.select("i")}), "'letter' is missing"),
    (lambda rows, _: Routed(operators={"counts": rows.withColumn("letter", F.lit(7))}), "is int in the rows, string"),
]


@pytest.mark.parametrize(("route", "words"), WRONG_ROUTES)
def test_rows_that_are_routed_nowhere_or_with_another_key_are_an_error_and_not_lost(spark, tmp_path, route, words):
    store = StoreAddress(str(tmp_path / "store"))
    with pytest.raises(ConfigurationError, match=words):
        pipeline_of(tmp_path, route).run(spark, RunOptions(store))
    good = pipeline_of(tmp_path, lambda rows, _: Routed(outputs={"rows": rows.select("i")}))
    assert good.run(spark, RunOptions(store)) is not None
    assert sorted(row.i for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == list(range(6))


def test_an_epoch_that_is_committed_stays_so_when_the_cache_cannot_be_cleared(spark, folder, monkeypatch):
    def fail(_):
        raise RuntimeError("the JVM does not answer")

    monkeypatch.setattr(type(spark.catalog), "clearCache", fail)
    run(spark, folder, tolerable_failures=10)
    assert tables(spark, folder) == EXACT
