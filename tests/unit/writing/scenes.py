"""A stage on which a snapshot can go wrong in every place, with everything it takes and gives back on record."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import StoreUnavailableError
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.writing.snapshot import (
    SnapshotMode,
    SnapshotOptions,
    SnapshotOwner,
    SnapshotRunner,
    SnapshotTask,
)
from tests.unit.writing.keyed_state import NOON_MS, TrackedStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.model import CheckpointId
    from airflow_provider_checkpoint.writing.cancellation import Cancellation

PATIENCE = 10
"""Seconds after which a test that waits has failed. None of them waits when all is well."""


@dataclass
class Held:
    """Resources that know how often they were released, and whether somebody was still using them."""

    events: list[str]
    fails: bool = False
    releases: int = 0
    in_use: bool = False
    on_release: Callable[[], object] = lambda: None

    def release(self) -> None:
        assert not self.in_use, "released while the snapshot still used them"
        self.on_release()
        self.releases += 1
        self.events.append("cleanup")
        if self.fails:
            raise OSError("resources that cannot be released")


@dataclass
class BlockingStream:
    """A stream that gets stuck in its first write until it is aborted, as on a connection that hangs."""

    events: list[str]
    stuck: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        self.stuck.set()
        assert self.freed.wait(PATIENCE), "nobody unblocked the stream"
        raise StoreUnavailableError("the connection was closed under the writer")

    def abort(self) -> None:
        if not self.freed.is_set():
            self.events.append("cancel")
        self.freed.set()


@dataclass
class Scene:
    """A strategy, an owner and a runner. What shall happen is set before it starts."""

    mode: SnapshotMode = SnapshotMode.ASYNCHRONOUS
    owner: SnapshotOwner = field(default_factory=SnapshotOwner)
    during: Callable[[Cancellation], str] = lambda cancellation: "result"
    in_prepare: Callable[[], object] = lambda: None
    in_snapshot: Callable[[], object] = lambda: None
    release_fails: bool = False

    def __post_init__(self) -> None:
        self.events: list[str] = []
        self.held: list[Held] = []
        self.layout = PartitionedLayout(MemoryBlobs())
        self.streams = TrackedStreams(self.layout)
        self.checkpoint_id = self.layout.next_id()
        self.blocking = BlockingStream(self.events)

    # -- the strategy --------------------------------------------------------------------------------------------

    def prepare(self, checkpoint_id: CheckpointId) -> Held:
        self.in_prepare()
        self.held.append(Held(self.events, self.release_fails))
        return self.held[-1]

    def snapshot(
        self,
        resources: Held,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,
        streams: TrackedStreams,
        options: SnapshotOptions,
    ) -> Callable[[Cancellation], str]:
        self.in_snapshot()

        def write(cancellation: Cancellation) -> str:
            resources.in_use = True
            self.events.append("call")
            try:
                return self.during(cancellation)
            finally:
                resources.in_use = False

        return write

    # -- acting --------------------------------------------------------------------------------------------------

    def start(self) -> SnapshotTask[str]:
        runner = SnapshotRunner("scene", self, self.owner, self.mode)
        return runner.snapshot(self.checkpoint_id, NOON_MS, self.streams, SnapshotOptions())

    def write_one(self, cancellation: Cancellation) -> str:
        """Write one artifact as a strategy does."""
        with cancellation.guard(self.streams.open(self.checkpoint_id, "window", 0)) as stream:
            stream.write(b"state")
            return stream.close().path

    def get_stuck(self, cancellation: Cancellation) -> str:
        """Hang in a stream, next to another that is half written."""
        with (
            cancellation.guard(self.streams.open(self.checkpoint_id, "window", 0)) as stream,
            cancellation.guard(self.blocking),
        ):
            stream.write(b"half of the sta")
            self.blocking.write()
        raise AssertionError("unreachable")

    def run_until_stuck(self, task: SnapshotTask[str]) -> threading.Thread:
        """Run the task on a thread of its own and return when it hangs."""
        thread = threading.Thread(target=task.run)
        thread.start()
        assert self.blocking.stuck.wait(PATIENCE)
        return thread

    # -- afterwards ----------------------------------------------------------------------------------------------

    def assert_clean(self) -> None:
        assert [held.releases for held in self.held] == [1] * len(self.held)
        assert self.owner.under_way == 0
        assert self.streams.left_open() == []

    def objects(self) -> list[str]:
        return [info.key for info in self.layout.blobs.list(temporary=None)]
