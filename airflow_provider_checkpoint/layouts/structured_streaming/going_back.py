"""A whole rollback of a query: its directory and its sinks, in the order that loses nothing.

The copy comes first. As long as it is not whole and proven, nothing has been taken from a sink, and the old directory
still fits its output. Then the sinks are taken back; until that is done, nobody has started the query on the copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import StoreOptions, open_blobs
from airflow_provider_checkpoint.exceptions import ConfirmationNeededError
from airflow_provider_checkpoint.layouts.structured_streaming._beside import records_address
from airflow_provider_checkpoint.layouts.structured_streaming._clone import ClonePlan, apply_clone, plan_clone
from airflow_provider_checkpoint.layouts.structured_streaming._sink_cleanup import (
    SinkCleanup,
    apply_cleanup,
    plan_batch_folders,
    plan_file_sink,
)
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
    from airflow_provider_checkpoint.model import CheckpointId


@dataclass(frozen=True, slots=True)
class Rollback:
    """The copy, where it goes, and what goes from each sink."""

    plan: ClonePlan
    target: StructuredStreamingLayout
    sinks: tuple[tuple[BlobStore, SinkCleanup], ...] = ()


def plan_rollback(
    layout: StructuredStreamingLayout,
    checkpoint_id: CheckpointId,
    target: str,
    *,
    options: StoreOptions | None,
    now: datetime,
    new_query_id: bool = False,
    file_sink: str | None = None,
    batch_folders: str | None = None,
) -> Rollback:
    """Plan the copy and what goes from the sinks; they and the input are reached in the same way. Changes nothing.

    :param file_sink: the output of Spark's file sink.
    :param batch_folders: output of ``foreachBatch``, in folders ``batch_id=N``.
    """
    reach = StoreOptions() if options is None else options
    plan = plan_clone(layout, checkpoint_id, target, now=now, new_query_id=new_query_id, options=reach)
    batch = layout.batch_of(checkpoint_id)
    sinks = []
    for address, planned in ((file_sink, plan_file_sink), (batch_folders, plan_batch_folders)):
        if address is not None:
            place = open_blobs(address, options)
            sinks.append((place, planned(place, batch)))
    records = open_blobs(records_address(target), options)
    copy = type(layout)(open_blobs(target, options), records=records)
    return Rollback(plan, copy, tuple(sinks))


def go_back(
    layout: StructuredStreamingLayout,
    rollback: Rollback,
    *,
    by: str,
    reason: str = "",
    depth: Depth = Depth.CONTENT,
    missing_input_ok: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Make the copy, prove it, and take the sinks back. Whatever died in between, the same call finishes it.

    Refuses while the query seems to run: Spark keeps no lock, and what it would still write would be lost.
    """
    # Here, because the records are the lifecycle's, which knows layouts in general and not this one.
    from airflow_provider_checkpoint.lifecycle.records import AuditRun

    sign = layout.alive(clock())
    if sign is not None:
        raise ConfirmationNeededError(
            f"the query seems to be running: {sign}",
            subject=layout.blobs.uri,
            hint="Stop it and wait; what it writes from now on would be lost.",
        )
    run = AuditRun(layout.blobs, "restore", by=by, now=clock())
    about = {"batch": rollback.plan.checkpoint_id.value, "target": rollback.plan.target, "reason": reason}
    run.started(clock(), about | {"sinks": [sink.uri for _, sink in rollback.sinks]})
    apply_clone(layout, rollback.plan, rollback.target, depth=depth, missing_input_ok=missing_input_ok)
    for blobs, cleanup in rollback.sinks:
        apply_cleanup(blobs, cleanup)
    run.finished(clock(), about | {"files": len(rollback.plan.items), "bytes": rollback.plan.bytes})
