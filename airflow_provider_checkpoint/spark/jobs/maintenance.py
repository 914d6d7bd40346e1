"""Validation and orphan search as a Spark job: what ``spark-submit`` runs, and what a notebook may call.

::

    spark-submit --py-files runtime.zip maintenance.py validate --store s3://lake/checkpoints --pipeline orders
    spark-submit --py-files runtime.zip maintenance.py orphans --store s3://lake/checkpoints --pipeline orders

The driver lists, decides and writes; executors only read. The answer is the one that the same work gives without
Spark, as JSON: to ``--out``, into the store under ``--mark``, or printed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.lifecycle.safety import SAFE
from airflow_provider_checkpoint.lifecycle.spans import parse_size, parse_span
from airflow_provider_checkpoint.lifecycle.validation import Budget, select
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.jobs._answers import JobAnswer, JobError, answer_key, write_answer
from airflow_provider_checkpoint.spark.jobs._engine import Engine
from airflow_provider_checkpoint.spark.jobs._tasks import AUTO, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_checkpoint.layouts import Layout

__all__ = ["Engine", "JobAnswer", "Place", "main"]

Value = TypeVar("Value")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, do the work, and exit: 0 done, 1 failed with a message that says what to do."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        answer = _run(arguments)
    except CheckpointError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    if answer.error is not None:
        sys.exit(f"{answer.error.kind}: {answer.error.as_error()}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Validation and orphan search on a Spark cluster.")
    verbs = parser.add_subparsers(dest="verb", required=True)

    validate = verbs.add_parser("validate", help="prove that checkpoints can be restored")
    _add_common(validate)
    which = validate.add_mutually_exclusive_group()
    which.add_argument("--checkpoint-id", action="append", default=[], metavar="ID", help="which ones; without, all")
    which.add_argument("--rolling", action="store_true", help="begin with what was proven longest ago")
    which.add_argument("--sample", type=int, metavar="N", help="so many at random, the newest always among them")
    validate.add_argument("--depth", choices=list(Depth), type=Depth, default=Depth.CONTENT)
    validate.add_argument("--budget-bytes", type=_told(parse_size), metavar="SIZE", help="begin no more after so much")
    validate.add_argument("--budget-seconds", type=float, metavar="N", help="begin no more after so long")
    validate.add_argument("--no-record", action="store_true", help="do not note in the ledger what was found out")

    orphans = verbs.add_parser("orphans", help="find objects that no checkpoint needs; removes nothing")
    _add_common(orphans)
    orphans.add_argument("--min-age", type=_told(parse_span), metavar="SPAN", help="only what is older, such as 24h")
    orphans.add_argument("--max-bytes", type=_told(parse_size), metavar="SIZE", help="ask a person if more would go")
    orphans.add_argument("--at", type=_told(_moment), metavar="TIME", help="from when ages are counted; without, now")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", required=True, metavar="URI", help="root of the checkpoint store")
    parser.add_argument("--pipeline", default="", metavar="NAME", help="folder of the pipeline in the store")
    parser.add_argument("--layout", default=AUTO, help="format of the checkpoints; without, it is recognised")
    parser.add_argument("--vnode-count", type=int, metavar="N", help="what checkpoints must have (partitioned)")
    parser.add_argument(
        "--store-option",
        type=_told(_pair),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how to reach the store, such as endpoint_url=...; credentials come from the environment",
    )
    parser.add_argument("--partitions", type=_positive, metavar="N", help="tasks at once; without, Spark decides")
    parser.add_argument("--threads", type=_positive, default=8, metavar="N", help="reads at once in each task")
    parser.add_argument("--out", metavar="FILE|URI", help="where the answer goes")
    parser.add_argument("--mark", help="leave the answer in the store, for whoever knows this mark")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs a zone, as in 2026-11-15T14:05Z")
    return moment


def _told(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Let what is wrong with a value be told in its own words."""

    def typed(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


# -- the work ----------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> JobAnswer:
    from pyspark.sql import SparkSession

    if arguments.mark is not None:
        answer_key(arguments.mark)  # A wrong one is told before hours of work.
    place = Place(
        arguments.store,
        arguments.pipeline or None,
        arguments.layout,
        dict(arguments.store_option),
        {} if arguments.vnode_count is None else {"vnode_count": arguments.vnode_count},
    )
    layout = place.open()
    spark = SparkSession.builder.appName(f"checkpoint-{arguments.verb}").getOrCreate()
    try:
        engine = Engine(spark.sparkContext, layout, place, partitions=arguments.partitions, threads=arguments.threads)
        answer = _answered(engine, layout, arguments)
    finally:
        spark.stop()
    _deliver(answer, layout, arguments)
    return answer


def _answered(engine: Engine, layout: Layout, arguments: argparse.Namespace) -> JobAnswer:
    found: dict[str, Any]
    try:
        found = _validated(engine, layout, arguments) if arguments.verb == "validate" else _planned(engine, arguments)
    except CheckpointError as error:
        found = {"error": JobError.of(error)}
    return JobAnswer(verb=arguments.verb, uri=layout.blobs.uri, layout=layout.name, mark=arguments.mark, **found)


def _validated(engine: Engine, layout: Layout, arguments: argparse.Namespace) -> dict[str, Any]:
    ids = select(
        layout, arguments.depth, named=arguments.checkpoint_id, size=arguments.sample, rolling=arguments.rolling
    )
    budget = Budget(arguments.budget_bytes, arguments.budget_seconds)
    results = engine.validate(ids, arguments.depth, budget=budget, record=not arguments.no_record)
    return {"selected": len(ids), "results": results}


def _planned(engine: Engine, arguments: argparse.Namespace) -> dict[str, Any]:
    given = {"orphan_age": arguments.min_age, "max_orphan_bytes": arguments.max_bytes}
    safety = replace(SAFE, **{name: value for name, value in given.items() if value is not None})
    return {"plan": engine.plan_orphans(now=arguments.at or datetime.now(UTC), safety=safety)}


def _deliver(answer: JobAnswer, layout: Layout, arguments: argparse.Namespace) -> None:
    if arguments.mark is not None:
        write_answer(layout.blobs, answer)
    if arguments.out is not None:
        out = arguments.out if "://" in arguments.out else str(Path(arguments.out).absolute())
        folder, _, name = out.rpartition("/")
        options = dict(arguments.store_option)
        open_blobs(folder or "/", options).replace(name, answer.model_dump_json(indent=2).encode())
    elif arguments.mark is None:
        print(answer.model_dump_json(indent=2))  # noqa: T201 - the job's answer


if __name__ == "__main__":
    # Under its own name: what executors unpickle must not belong to a module that they do not have.
    from airflow_provider_checkpoint.spark.jobs.maintenance import main as run

    run()
