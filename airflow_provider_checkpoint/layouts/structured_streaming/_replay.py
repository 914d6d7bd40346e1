"""Running batches again with the boundaries they had.

After a rollback Spark plans its batches anew: other boundaries, the same rows. Where a sink is keyed by the number of
the batch, or results must be compared batch by batch, the old plan is put before it, one batch at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointConflictError, CheckpointNotFoundError, ConfigurationError
from airflow_provider_checkpoint.layouts.structured_streaming._names import OFFSETS
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout


def replay(
    original: StructuredStreamingLayout,
    copy: StructuredStreamingLayout,
    run: Callable[[int], None],
    *,
    last: int | None = None,
) -> int:
    """Run the batches again that the original has and the copy has not, each exactly as it was planned then.

    The copy must have been made with ``whole_source_log``. A run that dies is taken up again by the same call. Answers
    with the last batch that was run.

    :param run: starts the query on the copy with ``trigger(once=True)`` and waits for its end; given the number of the
        batch that must be done by then.
    :param last: the last batch to run again; default: all that the original has planned.
    """
    planned = original.look().directory.offsets
    end = max(planned, default=-1) if last is None else last
    done = _committed(copy)
    for batch in range(done + 1, end + 1):
        if batch not in planned:
            raise CheckpointNotFoundError(f"the plan of batch {batch} is not there", subject=original.blobs.uri)
        outcome = copy.blobs.create(f"{OFFSETS}/{batch}", read_small(original.blobs, f"{OFFSETS}/{batch}"))
        if not outcome.created:
            raise CheckpointConflictError(
                f"batch {batch} was planned otherwise in the copy",
                subject=copy.blobs.uri,
                hint="Start from a fresh copy: the query has run on this one by itself.",
            )
        run(batch)
        done = _committed(copy)
        if done != batch:
            raise ConfigurationError(
                f"batch {batch} was to be run and the copy has committed up to {done}",
                subject=copy.blobs.uri,
                hint="run must start the query on the copy with trigger(once=True) and wait for its end.",
            )
    return done


def _committed(layout: StructuredStreamingLayout) -> int:
    return max(layout.look().directory.commits, default=-1)
