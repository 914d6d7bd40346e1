"""Checkpointed pipelines: a PySpark job that can be killed at any instant and restarted from any retained checkpoint.

Per epoch: read the new input with Spark; update keyed state per vnode on the executors, which write state and output
files themselves; commit by the protocol in ``writing.coordinator``. The driver sees names and sizes, never state.

The number of vnodes belongs to the state. Changing it between runs is an error that says so; start fresh, or keep it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.run import Run
from airflow_provider_checkpoint.writing.bases import BaseRules
from airflow_provider_checkpoint.writing.coordinator import Coordinator, Hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_checkpoint.model import Checkpoint
    from airflow_provider_checkpoint.spark.operators import KeyedOperator, StoreAddress
    from airflow_provider_checkpoint.spark.sinks import ParquetSink
    from airflow_provider_checkpoint.spark.sources import Slice, Source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Routed:
    """Where the rows of an epoch go."""

    operators: Mapping[str, DataFrame] = field(default_factory=dict)
    outputs: Mapping[str, DataFrame] = field(default_factory=dict)
    """Rows that go to a sink as they are."""
    watermark: int | None = None
    """Event time up to which input is now complete; never goes back."""
    events: int | None = None
    """How many events these rows were."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a job may know about the epoch at hand."""

    number: int
    watermark: int | None
    """As of the end of the epoch before."""
    slice: Slice


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run behaves."""

    store: StoreAddress
    recover_from: str = "latest"
    available_now: bool = True
    """Stop at the end of the input; else wait for more."""
    max_epochs: int | None = None
    poll_seconds: float = 1.0
    tolerable_failures: int = 0
    """So many epochs, or looks for input, in a row may fail before the run does."""
    verify: Depth = Depth.CONTENT
    """How far the checkpoint to start from is proven."""
    cache_folder: str | None = None
    savepoint_at_end: bool = False
    """End with a checkpoint that holds all state itself and is never removed automatically."""
    owner: str = ""
    """Who has started the run, for the record."""

    def __post_init__(self) -> None:
        if self.max_epochs is not None and self.max_epochs < 0:
            raise ConfigurationError("the number of epochs is negative", subject=str(self.max_epochs))
        if not 0 < self.poll_seconds < threading.TIMEOUT_MAX:
            raise ConfigurationError(
                "the pause between two looks for input must be longer than nothing", subject=str(self.poll_seconds)
            )
        if self.tolerable_failures < 0:
            raise ConfigurationError(
                "the number of tolerable failures is negative", subject=str(self.tolerable_failures)
            )


class CheckpointedPipeline:
    """One source, operators with keyed state, sinks that take part in the commit.

    :param route: from the rows of an epoch to operators and sinks; called on the driver, builds a Spark plan.
    :param vnodes: into how many parts state is divided; fixed for the life of the state.
    """

    def __init__(
        self,
        name: str,
        *,
        source: Source,
        route: Callable[[DataFrame, Epoch], Routed],
        operators: Sequence[KeyedOperator] = (),
        sinks: Sequence[ParquetSink] = (),
        vnodes: int = 16,
        base_rules: BaseRules = BaseRules(),  # noqa: B008 - frozen
    ) -> None:
        if not 0 < vnodes < 2**16:
            raise ConfigurationError("the number of vnodes must be between 1 and 65535", subject=str(vnodes))
        _require_different("operators", [operator.name for operator in operators])
        _require_different("sinks", [sink.name for sink in sinks])
        # Two sinks in one folder would take each other's files for litter.
        _require_different("folders of sinks", [sink.address.uri.rstrip("/") for sink in sinks])
        self.name = name
        self.source = source
        self.route = route
        self.operators = {operator.name: operator for operator in operators}
        self.sinks = {sink.name: sink for sink in sinks}
        self.vnodes = vnodes
        self.base_rules = base_rules
        self.stopping = threading.Event()

    @property
    def hash(self) -> int:
        """What the pipeline is, in one number: the same in every process, another when its shape changes."""
        shape = {
            "source": dict(self.source.describe()),
            "operators": {
                name: {
                    "key": list(operator.key),
                    "state": [f"{column.name} {column.type}" for column in operator.state],
                }
                for name, operator in self.operators.items()
            },
            "sinks": sorted(self.sinks),
            "vnodes": self.vnodes,
        }
        canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return int.from_bytes(hashlib.sha256(canonical.encode()).digest()[:8])

    def next_slice(self, last: Checkpoint | None) -> Slice | None:
        """What the epoch after a checkpoint reads."""
        return self.source.next_slice(None if last is None else last.sources.get(self.source.name))

    def stop(self) -> None:
        """Ask a run to end after the epoch under way. Safe to call from a signal handler or another thread."""
        self.stopping.set()

    def run(self, spark: SparkSession, options: RunOptions, *, hook: Hook = lambda _: None) -> Checkpoint | None:
        """Run to the end of the input, or until stopped. Returns the last checkpoint."""
        layout = PartitionedLayout(options.store.open(), vnode_count=self.vnodes)
        coordinator = Coordinator.start(
            layout,
            self.sinks,
            recover_from=options.recover_from,
            depth=options.verify,
            pipeline_hash=self.hash,
            vnode_count=self.vnodes,
            owner=options.owner,
            reason=f"pipeline {self.name} from {options.recover_from}",
            hook=hook,
        )
        started = coordinator.last
        log.info("timeline %d starts from %s", coordinator.timeline, "nothing" if started is None else started.id)
        return Run(self, spark, layout, coordinator, options).loop()


def _require_different(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{what} of a pipeline must differ", subject=", ".join(twice))
