"""Sealing each batch as soon as Spark has committed it, from inside the job.

    spark.streams.addListener(SealingListener("s3://lake/checkpoints/clicks"))

Sealing reads every file that the batch needs, so it happens in a thread of its own, and only for the newest batch:
where batches come faster than they can be sealed, some are left out. It never stops the query.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout, seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)


class SealingListener(StreamingQueryListener):
    """Seals batches of one query.

    :param location: its checkpointLocation, as an address of ours (``s3://``, not ``s3a://``).
    :param query_id: the query to listen to; without, every query of the session is taken for it.
    :param options: how to reach the store, without secrets.
    :param every: only each so-many-th batch.
    """

    def __init__(
        self,
        location: str,
        *,
        query_id: str | None = None,
        options: Mapping[str, Any] | None = None,
        every: int = 1,
    ) -> None:
        self._location = location
        self._query_id = query_id
        self._options = dict(options or {})
        self._every = every
        self._wanted: int | None = None
        self._wake = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="checkpoint-sealing", daemon=True)
        self._thread.start()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is committed yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing new."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch was committed."""
        progress = event.progress
        ours = self._query_id in (None, str(progress.id))
        if ours and progress.batchId % self._every == 0:
            with self._wake:
                self._wanted = progress.batchId
                self._wake.notify()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """What is wanted is still sealed."""

    def close(self, patience: float = 60.0) -> None:
        """Seal what is still wanted, and end the thread."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join(patience)

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._wanted is not None or self._ended)
                batch, self._wanted = self._wanted, None
            if batch is None:
                return
            try:
                layout = open_store(self._location, layout="structured_streaming", options=self._options)
                assert isinstance(layout, StructuredStreamingLayout)
                seal(layout, layout.parse_id(str(batch)))
            except CheckpointError as error:
                # The query goes on without: an unsealed batch is proven by Spark's own checksums.
                log.warning("batch %d was not sealed: %s", batch, error)
            except Exception:
                # Whatever it is, it must not end this thread: the next batch may be another matter.
                log.exception("batch %d was not sealed", batch)
