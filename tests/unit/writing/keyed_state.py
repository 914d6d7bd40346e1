"""A real keyed state to take snapshots of, and a pipeline that commits them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.layouts.partitioned import CheckpointManifestV2, PartitionedLayout, Slot
from airflow_provider_checkpoint.writing.snapshot import (
    SnapshotMode,
    SnapshotOptions,
    SnapshotOwner,
    SnapshotRunner,
    SnapshotTask,
)
from airflow_provider_checkpoint.writing.strategies import IncrementalSnapshots, SnapshotResult
from airflow_provider_checkpoint.writing.streams import ArtifactStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import CheckpointId
    from airflow_provider_checkpoint.writing.snapshot import SnapshotStrategy

NOON_MS = 1_772_366_400_000

PLAIN = SnapshotOptions()

Values = dict[str, str]
Contents = dict[Slot, Values]


class KeyedState:
    """Keys and values in operator partitions, with the moment of each key's last change.

    Moments are counted, and each captured view notes its own, so what changed since a checkpoint is what has a later
    moment. ``forget`` drops the moments that no base needs any more, as a real state has to.
    """

    def __init__(self) -> None:
        self.contents: Contents = {}
        self._changed: defaultdict[Slot, dict[str, int]] = defaultdict(dict)
        self._moment = 0
        self._captured: dict[CheckpointId, int] = {}
        self.views: list[KeyedView] = []

    def put(self, slot: Slot, key: str, value: str) -> None:
        self.contents.setdefault(slot, {})[key] = value
        self._note(slot, key)

    def remove(self, slot: Slot, key: str) -> None:
        if self.contents.get(slot, {}).pop(key, None) is not None:
            self._note(slot, key)

    def drop(self, slot: Slot) -> None:
        """The partition loses all its keys, and is no more."""
        for key in self.contents.pop(slot, {}):
            self._note(slot, key)

    def _note(self, slot: Slot, key: str) -> None:
        self._moment += 1
        self._changed[slot][key] = self._moment

    def capture(self, checkpoint_id: CheckpointId) -> KeyedView:
        self._moment += 1
        self._captured[checkpoint_id] = self._moment
        view = KeyedView(
            {slot: dict(values) for slot, values in self.contents.items()},
            {slot: dict(moments) for slot, moments in self._changed.items()},
            dict(self._captured),
        )
        self.views.append(view)
        return view

    def forget(self, remember_since: Callable[[str, int], CheckpointId | None]) -> None:
        """Keep only the changes that a snapshot yet to come may ask for."""
        for slot in list(self._changed):
            since = remember_since(*slot)
            if since is not None:
                moments = self._changed[slot].items()
                self._changed[slot] = {key: moment for key, moment in moments if moment > self._captured[since]}


@dataclass
class KeyedView:
    contents: Contents
    changed: dict[Slot, dict[str, int]]
    captured: dict[CheckpointId, int]
    releases: int = 0
    progress: int = 0
    """Pieces handed out so far."""

    def slots(self) -> list[Slot]:
        return list(self.contents)

    def full(self, operator: str, partition: int) -> Iterator[bytes]:
        return self._lines(self.contents[operator, partition])

    def changes(self, operator: str, partition: int, base: CheckpointId) -> Iterator[bytes]:
        values = self.contents[operator, partition]
        return self._lines({key: values.get(key) for key in self._changed_since((operator, partition), base)})

    def touched(self, operator: str, partition: int, since: CheckpointId) -> bool:
        return bool(self._changed_since((operator, partition), since))

    def release(self) -> None:
        self.releases += 1

    def _changed_since(self, slot: Slot, checkpoint_id: CheckpointId) -> list[str]:
        moments = self.changed.get(slot, {})
        return [key for key, moment in moments.items() if moment > self.captured[checkpoint_id]]

    def _lines(self, values: Mapping[str, str | None]) -> Iterator[bytes]:
        for key, value in sorted(values.items()):
            assert not self.releases, "a view was read after its release"
            self.progress += 1
            yield json.dumps([key, value]).encode() + b"\n"


def decode(snapshot: bytes, deltas: list[bytes]) -> Values:
    values: Values = {}
    for piece in (snapshot, *deltas):
        for line in piece.splitlines():
            key, value = json.loads(line)
            values.pop(key, None) if value is None else values.update({key: value})
    return values


class TrackedStreams(ArtifactStreams):
    """The real streams, with a list of all that were opened."""

    __slots__ = ("opened",)

    def __init__(self, layout: PartitionedLayout, **options: object) -> None:
        super().__init__(layout, **options)
        object.__setattr__(self, "opened", [])

    def open(self, *args, **kwargs):
        stream = super().open(*args, **kwargs)
        self.opened.append(stream)
        return stream

    def left_open(self) -> list[str]:
        return [stream.description for stream in self.opened if not stream._spool.closed]


@dataclass
class Pipeline:
    """Takes checkpoints of a keyed state into a store, as a coordinator without sinks would."""

    blobs: BlobStore = field(default_factory=MemoryBlobs)
    state: KeyedState = field(default_factory=KeyedState)
    strategy: SnapshotStrategy | None = None
    mode: SnapshotMode = SnapshotMode.SYNCHRONOUS

    def __post_init__(self) -> None:
        self.layout = PartitionedLayout(self.blobs)
        self.strategy = self.strategy or IncrementalSnapshots(self.state.capture)
        self.owner = SnapshotOwner("test")
        self.streams = TrackedStreams(self.layout)
        self.epoch = 0

    def begin(self, options: SnapshotOptions = PLAIN) -> tuple[CheckpointId, SnapshotTask[SnapshotResult]]:
        checkpoint_id = self.layout.next_id()
        runner = SnapshotRunner("test", self.strategy, self.owner, self.mode)
        return checkpoint_id, runner.snapshot(checkpoint_id, NOON_MS, self.streams, options)

    def commit(self, checkpoint_id: CheckpointId, result: SnapshotResult) -> None:
        self.epoch += 1
        self.layout.save_manifest(
            CheckpointManifestV2(
                checkpoint_id=checkpoint_id,
                epoch=self.epoch,
                timestamp_ms=NOON_MS + self.epoch,
                operators=dict(result.operators),
                total_size_bytes=result.total_size_bytes,
                savepoint=result.savepoint,
            )
        )
        if isinstance(self.strategy, IncrementalSnapshots):
            self.strategy.committed(checkpoint_id)
            self.state.forget(self.strategy.remember_since)

    def checkpoint(self, options: SnapshotOptions = PLAIN) -> tuple[CheckpointId, SnapshotResult]:
        checkpoint_id, task = self.begin(options)
        result = task.result(10)
        self.commit(checkpoint_id, result)
        return checkpoint_id, result

    def restored(self, checkpoint_id: CheckpointId) -> Contents:
        """The state as a new process would find it, every byte verified."""
        layout = PartitionedLayout(self.blobs)
        manifest = layout.load_manifest(checkpoint_id)
        return {slot: decode(*layout.load_state(manifest, *slot)) for slot in layout.resolve(manifest)}
