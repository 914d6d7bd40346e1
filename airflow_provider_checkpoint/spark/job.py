"""The command line of a checkpointed job: what ``spark-submit`` runs.

A job file builds its pipeline and calls :func:`main`::

    def pipeline(arguments):
        return CheckpointedPipeline("orders", ...)

    if __name__ == "__main__":
        main(pipeline, add_arguments=lambda parser: parser.add_argument("--input", required=True))
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.lifecycle.liveness import OWNER_SETTING
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_checkpoint.writing.coordinator import Step

log = logging.getLogger(__name__)

#: For tests: die at the n-th occurrence of a step, as ``CHECKPOINT_DIE_AT=manifest:3``.
DIE_AT = "CHECKPOINT_DIE_AT"


def main(
    build: Callable[[argparse.Namespace], CheckpointedPipeline],
    *,
    add_arguments: Callable[[argparse.ArgumentParser], object] = lambda _: None,
    argv: Sequence[str] | None = None,
) -> None:
    """Parse arguments, run the pipeline, and exit: 0 done, 1 failed with a message that says what to do."""
    arguments = _parser(add_arguments).parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        checkpoint = _run(build(arguments), arguments)
    except CheckpointError as error:
        # One line that a person, or an operator that reads the end of a log, can act on.
        sys.exit(f"{type(error).__name__}: {error}")
    except Exception as error:
        log.exception("the run failed")
        sys.exit(_in_one_line(error))
    print(f"DONE checkpoint={'none' if checkpoint is None else checkpoint.id}")  # noqa: T201 - the job's answer


def _in_one_line(error: Exception) -> str:
    """What went wrong, and for our own errors the hint. Spark hides an executor's error in pages of stack traces."""
    told = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+(?:\nHINT: .+)?)", str(error), re.MULTILINE)
    return told[-1] if told else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _parser(add_arguments: Callable[[argparse.ArgumentParser], object]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A checkpointed pipeline.")
    parser.add_argument("--store", required=True, metavar="URI", help="root of the checkpoint store")
    parser.add_argument(
        "--pipeline", required=True, type=_folder, metavar="NAME", help="folder of this pipeline in the store"
    )
    parser.add_argument(
        "--recover-from",
        default="latest",
        metavar="latest|ID|fresh",
        help="where to start: the newest checkpoint that can be restored, a certain one, or nothing",
    )
    parser.add_argument("--max-epochs", type=int, metavar="N", help="stop after so many epochs")
    parser.add_argument("--continuous", action="store_true", help="wait for more input instead of stopping at its end")
    parser.add_argument("--poll-seconds", type=float, default=1.0, help="how often to look for more input")
    parser.add_argument("--tolerable-failures", type=int, default=0, help="failed epochs in a row that are tolerated")
    parser.add_argument(
        "--verify",
        choices=[Depth.PRESENCE, Depth.CONTENT],
        type=Depth,
        default=Depth.CONTENT,
        help="how far the checkpoint to start from is proven",
    )
    parser.add_argument(
        "--store-option",
        action="append",
        type=_option,
        default=[],
        metavar="NAME=VALUE",
        help="how to reach the store, such as endpoint_url=...; credentials come from the environment",
    )
    parser.add_argument("--cache", metavar="FOLDER", help="where executors keep artifacts on local disk")
    parser.add_argument(
        "--savepoint-at-end",
        action="store_true",
        help="end with a checkpoint that holds all state itself and is never removed automatically",
    )
    add_arguments(parser)
    return parser


def _folder(text: str) -> str:
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a folder in the store")
    return text


def _option(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return text


def store_options(pairs: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` as a mapping."""
    return dict(pair.split("=", 1) for pair in pairs)


def _run(pipeline: CheckpointedPipeline, arguments: argparse.Namespace) -> Any:
    from pyspark.sql import SparkSession

    options = RunOptions(
        store=StoreAddress(
            f"{arguments.store.rstrip('/')}/{arguments.pipeline}", store_options(arguments.store_option)
        ),
        recover_from=arguments.recover_from,
        available_now=not arguments.continuous,
        max_epochs=arguments.max_epochs,
        poll_seconds=arguments.poll_seconds,
        tolerable_failures=arguments.tolerable_failures,
        verify=arguments.verify,
        cache_folder=arguments.cache,
        savepoint_at_end=arguments.savepoint_at_end,
    )
    _stop_on_sigterm(pipeline)
    spark = SparkSession.builder.appName(pipeline.name).getOrCreate()
    try:
        # Whoever submits the job says it so: an argument would be unknown to a runtime that is older.
        options = replace(options, owner=spark.conf.get(OWNER_SETTING, "") or "")
        return pipeline.run(spark, options, hook=_death_hook())
    finally:
        spark.stop()


def _stop_on_sigterm(pipeline: CheckpointedPipeline) -> None:
    """Finish and commit the epoch under way, then end.

    A second signal ends the process as usual; the next start then discards what was not committed.
    """

    def stop(*_: object) -> None:
        pipeline.stop()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, stop)


def _death_hook() -> Callable[[Step], None]:
    wanted, _, count = os.environ.get(DIE_AT, "").partition(":")
    left = int(count or 1)

    def hook(step: Step) -> None:
        nonlocal left
        if step == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
