"""Running a pipeline: one epoch after another, on a Spark session."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_checkpoint.exceptions import (
    AttentionError,
    ConfigurationError,
    FencedWriterError,
    PermanentError,
    SinkCommitError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionEntry, operators_of
from airflow_provider_checkpoint.spark.operators import (
    VNODE,
    WRITTEN,
    WRITTEN_DDL,
    VnodeTask,
    output_file,
    write_part,
)
from airflow_provider_checkpoint.spark.state_table import HASH
from airflow_provider_checkpoint.spark.vnodes import VnodeBook
from airflow_provider_checkpoint.writing.bases import SnapshotKind
from airflow_provider_checkpoint.writing.coordinator import Coordinator, EpochContents, PendingEpoch
from airflow_provider_checkpoint.writing.failures import FailureManager, FailureReason, FailureVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_provider_checkpoint.layouts.partitioned import OperatorEntry, PartitionedLayout
    from airflow_provider_checkpoint.model import Checkpoint
    from airflow_provider_checkpoint.spark.operators import KeyedOperator, StoreAddress
    from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
    from airflow_provider_checkpoint.spark.sources import Slice

log = logging.getLogger(__name__)


class Run:
    """One run: its place in the input, and where the state of each vnode lies."""

    def __init__(
        self,
        pipeline: CheckpointedPipeline,
        spark: SparkSession,
        layout: PartitionedLayout,
        coordinator: Coordinator,
        options: RunOptions,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._coordinator = coordinator
        self._options = options
        self._book = VnodeBook.of(layout, coordinator.last)
        self._failures = FailureManager(options.tolerable_failures)
        self._told: set[str] = set()
        """Input whose change was told."""

    def loop(self) -> Checkpoint | None:
        """Epoch after epoch, until the input ends, enough are done, or somebody asked to stop."""
        done = 0
        while not self._pipeline.stopping.is_set() and done != self._options.max_epochs:
            try:
                part = self._pipeline.next_slice(self._coordinator.last)
            except (AttentionError, PermanentError):
                raise
            except Exception:
                # It counts as an epoch that failed, but none has begun: there is nothing to discard.
                if self._failures.failed(FailureReason.IO) is FailureVerdict.FAIL_JOB:
                    raise
                log.exception("looking for input failed, %d in a row; trying again", self._failures.count)
                self._pipeline.stopping.wait(self._options.poll_seconds)
                continue
            self._tell_changed_input()
            if part is None:
                self._failures.nothing_to_do()
                if self._options.available_now:
                    break
                self._pipeline.stopping.wait(self._options.poll_seconds)
                continue
            done += self._epoch_or_failure(part)
        if self._options.savepoint_at_end:
            self._savepoint()
        return self._coordinator.last

    def _tell_changed_input(self) -> None:
        """Name input that was written again since it was read, once per run. Times are no proof: no reason to stop."""
        last = self._coordinator.last
        if last is None:
            return
        changed = [each for each in self._pipeline.source.changed_since(last.created) if each not in self._told]
        if changed:
            self._told.update(changed)
            log.warning(
                "source %r: written again after checkpoint %s had read it: %s. If the rows are others now, state and"
                " output still go by the old ones: go back to a checkpoint from before to read it anew, and put later"
                " corrections into new files. If it was only copied or touched, or the store's clock is ahead, all is"
                " well.",
                self._pipeline.source.name,
                last.id,
                ", ".join(map(repr, changed)),
            )

    def _epoch_or_failure(self, part: Slice) -> bool:
        """Whether the epoch was committed. A failure is raised unless it is tolerated; then the input is tried anew."""
        pending = self._coordinator.begin()
        try:
            self._epoch(pending, lambda: self._work(pending, part))
        except (FencedWriterError, SinkCommitError):
            raise
        except Exception:
            verdict = self._failures.failed(FailureReason.SNAPSHOT, pending.checkpoint_id)
            if verdict is FailureVerdict.FAIL_JOB:
                raise
            log.exception("epoch %d failed, %d in a row; trying again", pending.ref.epoch, self._failures.count)
            return False
        self._failures.succeeded(pending.checkpoint_id)
        return True

    def _savepoint(self) -> None:
        """An epoch without input whose checkpoint holds all state itself: it shares nothing and is kept for good."""
        last = self._coordinator.last
        if last is None:
            log.warning("nothing was ever committed: there is no state to take a savepoint of")
            return
        pending = self._coordinator.begin()
        self._epoch(pending, lambda: self._state(pending, last))

    def _epoch(self, pending: PendingEpoch, work: Callable[[], EpochContents]) -> None:
        began = time.monotonic()
        try:
            contents = work()
            checkpoint = self._coordinator.commit(pending, contents)
            self._book = self._book.committed(checkpoint.epoch, contents.operators)
        except (FencedWriterError, SinkCommitError):
            raise
        except Exception:
            self._coordinator.abandon(pending)
            raise
        finally:
            self._clear_cache()
        log.info(
            "checkpoint %s: epoch %d, %s events, %d bytes of state, %.2f s",
            checkpoint.id,
            checkpoint.epoch,
            checkpoint.event_count,
            checkpoint.size,
            time.monotonic() - began,
        )

    def _clear_cache(self) -> None:
        """What a job kept in memory for this epoch is of no use to the next."""
        try:
            self._spark.catalog.clearCache()
        except Exception:
            # It must not take the place of the epoch's own outcome: one that was committed would be tried again.
            log.warning("Spark's cache could not be cleared", exc_info=True)

    def _work(self, pending: PendingEpoch, part: Slice) -> EpochContents:
        """Everything before the commit: state and output are written, by the executors; sinks have prepared."""
        from airflow_provider_checkpoint.spark.pipeline import Epoch

        last = self._coordinator.last
        watermark = None if last is None else last.watermark
        rows = self._pipeline.source.read(self._spark, part)
        routed = self._pipeline.route(rows, Epoch(pending.ref.epoch, watermark, part))
        # Rows that go nowhere would be lost: the epoch's end is recorded as read.
        _require_known("operator", routed.operators, self._pipeline.operators)
        _require_known("sink", routed.outputs, self._pipeline.sinks)
        written, operators = self._update_all(routed, pending, SnapshotKind.CHECKPOINT)
        for name, frame in routed.outputs.items():
            address, folder = self._sink_places(pending)[name]
            written += write_frame(frame, address, folder, name)
        self._prepare(pending, written)
        return EpochContents(
            operators=operators,
            sources={self._pipeline.source.name: part.end},
            watermark=_later(watermark, routed.watermark),
            event_count=_total(last, routed),
            pipeline_hash=self._pipeline.hash,
            vnode_count=self._pipeline.vnodes,
        )

    def _state(self, pending: PendingEpoch, last: Checkpoint) -> EpochContents:
        """The state of the last checkpoint once more, whole."""
        from airflow_provider_checkpoint.spark.pipeline import Routed

        _, operators = self._update_all(Routed(), pending, SnapshotKind.SAVEPOINT)
        self._prepare(pending, [])
        return EpochContents(
            operators=operators,
            sources=last.sources,
            watermark=last.watermark,
            event_count=last.event_count,
            pipeline_hash=self._pipeline.hash,
            vnode_count=self._pipeline.vnodes,
            savepoint=True,
        )

    def _prepare(self, pending: PendingEpoch, written: Sequence[Row]) -> None:
        for name, sink in self._pipeline.sinks.items():
            files = [output_file(line.asDict()) for line in written if line.kind == "output" and line.name == name]
            sink.prepare(pending.ref, files)

    def _update_all(
        self, routed: Routed, pending: PendingEpoch, kind: SnapshotKind
    ) -> tuple[list[Row], dict[str, OperatorEntry]]:
        """What the operators wrote, and the entries of all their vnodes."""
        written: list[Row] = []
        entries: list[tuple[str, PartitionEntry]] = []
        for operator in self._pipeline.operators.values():
            lines, parts = self._update(operator, routed, pending, kind)
            written += lines
            entries += [(operator.name, part) for part in parts]
        return written, operators_of(entries)

    def _update(
        self, operator: KeyedOperator, routed: Routed, pending: PendingEpoch, kind: SnapshotKind
    ) -> tuple[list[Row], list[PartitionEntry]]:
        """Update an operator's vnodes; what was written, and the entries of all its vnodes, touched or not."""
        rules = self._pipeline.base_rules
        task = VnodeTask(
            operator=operator,
            store=self._options.store,
            checkpoint_id=pending.checkpoint_id,
            plans=self._book.plans(operator.name, rules, kind),
            sinks=self._sink_places(pending),
            cache_folder=self._options.cache_folder,
        )
        frame = routed.operators.get(operator.name)
        if frame is not None:
            _require_key(frame, operator)
        lines = [] if frame is None else run_on_vnodes(frame, operator, self._pipeline.vnodes, task)
        touched = {line.vnode for line in lines if line.kind == "artifact"}
        outdated = self._book.outdated(operator.name, touched, rules, kind)
        if outdated:
            lines += rewrite_vnodes(self._spark, outdated, task)
            touched |= set(outdated)
        written = {line.vnode: _entry(line) for line in lines if line.kind == "artifact"}
        entries = [
            entry
            for vnode, new in sorted(written.items())
            for entry in ((task.plans[vnode].snapshot, new) if new.is_delta else (new,))
            if entry is not None
        ]
        return lines, entries + self._book.carried(operator.name, touched)

    def _sink_places(self, pending: PendingEpoch) -> dict[str, tuple[StoreAddress, str]]:
        return {name: (sink.address, sink.folder(pending.ref)) for name, sink in self._pipeline.sinks.items()}


# -- what users get wrong ----------------------------------------------------------------------------------------


def _require_known(what: str, routed: Iterable[str], known: Collection[str]) -> None:
    unknown = sorted(set(routed) - set(known))
    if unknown:
        raise ConfigurationError(
            f"rows are routed to {what} {unknown[0]!r}, which the pipeline does not have",
            hint=f"It has {', '.join(sorted(known)) or 'none'}.",
        )


def _require_key(frame: DataFrame, operator: KeyedOperator) -> None:
    """A key goes to the vnode that Spark's hash says, and that differs with the type: 7 as int, 7 as long."""
    from pyspark.sql.pandas.types import from_arrow_type

    columns = {field.name: field.dataType for field in frame.schema.fields}
    for name in operator.key:
        wanted = from_arrow_type(operator.state.field(name).type, prefer_timestamp_ntz=True)
        if columns.get(name) != wanted:
            has = f"is {columns[name].simpleString()}" if name in columns else "is missing"
            raise ConfigurationError(
                f"key column {name!r} {has} in the rows, {wanted.simpleString()} in the state",
                subject=f"operator {operator.name!r}",
                hint="Cast or rename it in the pipeline's route.",
            )


# -- Spark jobs --------------------------------------------------------------------------------------------------


def run_on_vnodes(frame: DataFrame, operator: KeyedOperator, vnodes: int, task: VnodeTask) -> list[Row]:
    """Bring rows to their vnodes and run the task on each."""
    from pyspark.sql import functions as F  # noqa: N812 - the way Spark users write it

    hashed = frame.withColumn(HASH, F.xxhash64(*operator.key))
    placed = hashed.withColumn(VNODE, F.pmod(F.col(HASH), F.lit(vnodes)).cast("int"))
    return placed.groupBy(VNODE).applyInArrow(_as_function(task.update), WRITTEN_DDL).collect()


def rewrite_vnodes(spark: SparkSession, vnodes: Sequence[int], task: VnodeTask) -> list[Row]:
    """Write vnodes whole although nothing changed in them."""
    frame = spark.createDataFrame([(vnode,) for vnode in vnodes], f"{VNODE} int")
    return frame.groupBy(VNODE).applyInArrow(_as_function(task.rewrite), WRITTEN_DDL).collect()


def write_frame(frame: DataFrame, address: StoreAddress, folder: str, sink: str) -> list[Row]:
    """Write rows to a sink as they are: one file per partition of the frame."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if any(batch.num_rows for batch in held):
            line = write_part(address, folder, sink, "rows", pa.Table.from_batches(held))
            yield from pa.Table.from_pylist([line], schema=WRITTEN).to_batches()

    return frame.mapInArrow(write, WRITTEN_DDL).collect()


def _as_function(method: Any) -> Any:
    """Spark looks at the signature of what it is given and takes plain functions only."""

    def call(rows: pa.Table) -> pa.Table:
        return method(rows)

    return call


def _entry(line: Row) -> PartitionEntry:
    return PartitionEntry(
        partition_id=line.vnode, is_delta=line.is_delta, path=line.path, size_bytes=line.size, sha256=line.sha256
    )


def _later(before: int | None, now: int | None) -> int | None:
    known = [value for value in (before, now) if value is not None]
    return max(known, default=None)


def _total(last: Checkpoint | None, routed: Routed) -> int | None:
    before = 0 if last is None else last.event_count
    return None if routed.events is None or before is None else before + routed.events
