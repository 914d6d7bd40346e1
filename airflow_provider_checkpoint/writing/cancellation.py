"""Telling a snapshot to stop, and stopping what it waits in."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_provider_checkpoint.exceptions import SnapshotCancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)


class Abortable(Protocol):
    """Something that may hold up a snapshot: an open stream, a query under way."""

    def abort(self) -> None:
        """Give up, so that whoever waits in it gets an error. No effect once it is done; any thread may call it."""


Guarded = TypeVar("Guarded", bound=Abortable)


class Cancellation:
    """Handed to the asynchronous part of a snapshot, which asks it whether to go on and lets it guard its streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guarded: dict[int, Abortable] = {}
        self._requested = False
        self._ended = False

    @property
    def requested(self) -> bool:
        return self._requested

    def check(self) -> None:
        """Raise SnapshotCancelledError if the snapshot is to stop. For loops that do no guarded I/O."""
        if self._requested:
            raise cancelled()

    @contextmanager
    def guard(self, stream: Guarded) -> Iterator[Guarded]:
        """Let a cancellation abort the stream for as long as the block lasts.

        A block that ends without having closed its stream has failed, so the stream is aborted then as well. If the
        snapshot is cancelled or over already, the stream is aborted and the block is not entered.
        """
        with self._lock:
            too_late = self._requested or self._ended
            if not too_late:
                self._guarded[id(stream)] = stream
        try:
            if too_late:
                raise cancelled()
            yield stream
        finally:
            with self._lock:
                self._guarded.pop(id(stream), None)
            stream.abort()

    def request(self) -> None:
        """Stop the snapshot: from now on ``check`` raises, and every guarded stream is aborted."""
        with self._lock:
            self._requested = True
        self._abort_guarded()

    def end(self) -> None:
        """The snapshot is over: abort what it left open, say on a thread of its own, and let nothing be opened."""
        with self._lock:
            self._ended = True
        self._abort_guarded()

    def _abort_guarded(self) -> None:
        # What is guarded from now on sees the flag, so this copy is all there is. Without the lock, because a stream
        # that is aborted may make its writer leave ``guard`` before ``abort`` returns.
        with self._lock:
            streams = list(self._guarded.values())
        for stream in streams:
            try:
                stream.abort()
            except Exception:
                # The others must be aborted too, and whoever waits in this one gets its own error.
                log.exception("a stream could not be aborted")


def cancelled() -> SnapshotCancelledError:
    return SnapshotCancelledError("snapshot was cancelled")
