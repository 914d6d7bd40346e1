"""Running a query on a directory, and what Spark makes of it."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tests.integration.spark_native.queries import Query

#: What is recorded when Spark took its whole process down.
JVM_DIED = "the JVM dies"

_PATIENCE = 120
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_CLASS = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")
#: Names that only say that something else went wrong.
_WRAPPERS = frozenset(
    {
        "FOREACH_BATCH_USER_FUNCTION_ERROR",
        "Py4JException",
        "Py4JJavaError",
        "STREAM_FAILED",
        "SparkException",
        "StreamingQueryException",
    }
)


@dataclass
class Outcome:
    """What became of one run."""

    error: str | None = None
    """The condition or class of Spark's error; None if it ended well."""
    message: str = ""
    batches: dict[int, list[str]] = field(default_factory=dict)
    """The output of each batch, sorted."""


def make_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("native checkpoints")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.fileSource.log.compactInterval": "4",
        "spark.sql.streaming.fileSink.log.compactInterval": "4",
        # Snapshots are made by a thread in the background: let it look often.
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.codegen.wholeStage": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def revive() -> SparkSession:
    """A new session after the JVM of the last one has died; PySpark itself would go on talking to the dead one."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.wait(60)
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return make_session()


def run(
    spark: SparkSession, query: Query, landing: Path, directory: Path, output: Path, *, once: bool = False
) -> Outcome:
    """Run a query on all input that is there, from wherever its directory says, and tell what happened.

    :param once: only the next batch, as it was planned.
    """
    outcome = Outcome()
    try:
        _run(spark, query, landing, directory, output, outcome, once=once)
    except (OSError, Py4JError):
        # Nothing answers any more: a damaged length made Spark ask for more memory than there is.
        outcome.error = JVM_DIED
    if query.sink == "files" and outcome.error is None:
        outcome.batches = _published(output)
    return outcome


def _run(
    spark: SparkSession,
    query: Query,
    landing: Path,
    directory: Path,
    output: Path,
    outcome: Outcome,
    *,
    once: bool,
) -> None:
    def collect(frame: DataFrame, batch: int) -> None:
        outcome.batches[batch] = sorted(repr(tuple(row)) for row in frame.collect())

    with _settings(spark, query.conf):
        writer = query.build(spark, landing).writeStream.outputMode(query.mode)
        writer = writer.option("checkpointLocation", f"file://{directory}")
        writer = writer.trigger(once=True) if once else writer.trigger(availableNow=True)
        if query.sink == "files":
            writer = writer.format("json").option("path", f"file://{output}")
        else:
            writer = writer.foreachBatch(collect)
        try:
            running = writer.start()
            ended = running.awaitTermination(_PATIENCE)
            if not ended:
                running.stop()
                outcome.error = "Hangs"
        except (PySparkException, Py4JJavaError) as error:
            outcome.error, outcome.message = _named(error)


def _published(output: Path) -> dict[int, list[str]]:
    """The rows that Spark's log of the sink vouches for, as one batch; paths are taken relative to the output."""
    listed: set[str] = set()
    for entry in (output / "_spark_metadata").iterdir():
        if not entry.name.startswith("."):
            lines = entry.read_text().splitlines()[1:]
            listed |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
    return {0: sorted(line for name in listed for line in (output / name).read_text().splitlines())}


def _named(error: Exception) -> tuple[str, str]:
    """Spark's own name for an error if it has one, else the class of its last cause; and all that was said."""
    text = "\n".join([str(error), *_causes(error)])
    conditions = [name for name in _CONDITION.findall(text) if name not in _WRAPPERS]
    classes = [name for name in _CLASS.findall(text) if name not in _WRAPPERS]
    return (conditions or classes[-1:] or [type(error).__name__])[0], text


def _causes(error: Exception) -> Iterator[str]:
    java: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        yield str(java.toString())
        java = java.getCause()


@contextmanager
def _settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
