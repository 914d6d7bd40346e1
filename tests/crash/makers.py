"""Writers of small checkpoints, one per layout, so that a test of the lifecycle is written once for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CorruptArtifactError
from airflow_provider_checkpoint.layouts._uuid7 import Uuid7
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    PartitionData,
    PartitionedLayout,
    operators_of,
)
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId, StreamLayout, StreamStore
from airflow_provider_checkpoint.model import CheckpointId, SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)

PENDING = SinkStatus(SinkState.PENDING)
COMMITTED = SinkStatus(SinkState.COMMITTED)


class Clock:
    """Stands until it is moved."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


@dataclass(frozen=True)
class Draft:
    """What a checkpoint shall be, decided before it is written, so that writing it again writes the same."""

    id: CheckpointId
    epoch: int
    timeline: int = 1
    base: CheckpointId | None = None
    """A checkpoint with a snapshot of its own, on which this one puts a delta; None for a snapshot of its own."""
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)


class Maker(ABC):
    """Writes checkpoints of one layout as its pipelines do. ``clock`` dates them."""

    name: str
    has_sinks = True
    has_bases = False
    gives_ids = True
    """Whether the layout gives out ids; where it does not they come from the events."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    @abstractmethod
    def layout(self, root: BlobStore) -> Layout:
        """As another process opens it: nothing is remembered."""

    @abstractmethod
    def next_id(self, root: BlobStore) -> CheckpointId: ...

    @abstractmethod
    def write_artifacts(self, root: BlobStore, draft: Draft) -> Sequence[str]:
        """The part of a save after which nothing is visible yet; answers with the keys."""

    @abstractmethod
    def write(self, root: BlobStore, draft: Draft) -> None:
        """The whole save: artifacts, manifest, pointer. May be repeated."""

    def record_commit(self, root: BlobStore, checkpoint_id: CheckpointId) -> None:
        """Note that all sinks have published."""
        raise NotImplementedError


def state_of(draft: Draft) -> bytes:
    return f"state of {draft.id}".encode()


class SidecarMaker(Maker):
    """Integer ids, one sidecar each, and a little state in the manifest."""

    name = "sidecar"

    def layout(self, root: BlobStore) -> SidecarLayout:
        return SidecarLayout(root, inline_threshold=8, clock=self.clock)

    def next_id(self, root: BlobStore) -> CheckpointId:
        return CheckpointId(self.layout(root).next_id())

    def write_artifacts(self, root: BlobStore, draft: Draft) -> Sequence[str]:
        number = int(draft.id.value)
        self.layout(root).save_state_data(number, [state_of(draft)])
        return [f"checkpoints/state-{number:06d}.bin"]

    def write(self, root: BlobStore, draft: Draft) -> None:
        layout = self.layout(root)
        manifest = layout.new_manifest(int(draft.id.value), draft.epoch).changed(
            timeline=draft.timeline,
            sink_epochs=dict.fromkeys(draft.sinks, draft.epoch),
            sink_commit_statuses=dict(draft.sinks),
            sink_names=tuple(sorted(draft.sinks)),
        )
        layout.save_operator_states(manifest, {"window": state_of(draft), "count": b"%d" % draft.epoch})

    def record_commit(self, root: BlobStore, checkpoint_id: CheckpointId) -> None:
        layout = self.layout(root)
        manifest = layout.load_by_id(int(checkpoint_id.value))
        assert manifest is not None
        layout.update_manifest(
            manifest.changed(sink_commit_statuses=dict.fromkeys(manifest.sink_commit_statuses, COMMITTED))
        )


class PartitionedMaker(Maker):
    """UUIDv7 ids, two partitions; deltas build on a snapshot in the folder of an older checkpoint."""

    name = "partitioned"
    has_bases = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        steps = count(1)
        self._ids = Uuid7(
            clock_ms=lambda: int(self.clock().timestamp() * 1000), random_bits=lambda bits: next(steps) % 2**bits
        )

    def layout(self, root: BlobStore) -> PartitionedLayout:
        return PartitionedLayout(root, decode=_decode, ids=self._ids)

    def next_id(self, root: BlobStore) -> CheckpointId:
        return self.layout(root).next_id()

    def write_artifacts(self, root: BlobStore, draft: Draft) -> Sequence[str]:
        return [entry.path for _, entry in self._save(self.layout(root), draft)]

    def _save(self, layout: PartitionedLayout, draft: Draft):
        data = [PartitionData("window", n, state_of(draft), is_delta=draft.base is not None) for n in range(2)]
        # One at a time, so that the order of the calls is the same in every run.
        return layout.save_partitions(draft.id, data, max_concurrent=1)

    def write(self, root: BlobStore, draft: Draft) -> None:
        layout = self.layout(root)
        saved = self._save(layout, draft)
        if draft.base is not None:
            entries = layout.load_manifest(draft.base).operators["window"].partitions
            saved = [("window", entry) for entry in entries if not entry.is_delta] + saved
        layout.save_manifest(
            CheckpointManifestV2(
                checkpoint_id=draft.id,
                epoch=draft.epoch,
                timestamp_ms=int(self.clock().timestamp() * 1000),
                operators=operators_of(saved),
                timeline=draft.timeline,
                sink_epochs=dict.fromkeys(draft.sinks, draft.epoch),
                sink_commit_statuses=dict(draft.sinks),
                sink_names=tuple(sorted(draft.sinks)),
                vnode_count=2,
            )
        )
        layout.update_latest(draft.id)

    def record_commit(self, root: BlobStore, checkpoint_id: CheckpointId) -> None:
        sinks = self.layout(root).load(checkpoint_id).sinks
        self.layout(root).update_statuses(checkpoint_id, dict.fromkeys(sinks, COMMITTED))


def _decode(operator: str, partition: int, snapshot: bytes, deltas: Sequence[bytes]) -> None:
    for piece in (snapshot, *deltas):
        if not piece.startswith(b"state of "):
            raise CorruptArtifactError(f"not a state of {operator}, partition {partition}")


class StreamMaker(Maker):
    """The file is manifest and artifact at once; its digest lies beside it. No sinks, no bases, no ids of its own."""

    name = "stream"
    has_sinks = False
    gives_ids = False

    def layout(self, root: BlobStore) -> StreamLayout:
        return self._store(root).layout("orders")

    def _store(self, root: BlobStore) -> StreamStore:
        return StreamStore(root, max_per_stream=1000, clock=self.clock)

    def next_id(self, root: BlobStore) -> CheckpointId:
        return CheckpointId(1 + max((each.value for each in self.layout(root).candidates()), default=0))

    def write_artifacts(self, root: BlobStore, draft: Draft) -> Sequence[str]:
        # What the reference implementation leaves behind when it dies before it renames.
        key = f"checkpoint-{draft.id.value:020}.ckpt.tmp"
        self.layout(root).blobs.create(key, state_of(draft))
        return [key]

    def write(self, root: BlobStore, draft: Draft) -> None:
        sequence = int(draft.id.value)
        self._store(root).save(
            CheckpointState(
                StreamCheckpointId("orders", sequence, self.clock()),
                {"window": state_of(draft)},
                {"orders-0": sequence},
                event_count=sequence,
            )
        )


MAKERS = (SidecarMaker, PartitionedMaker, StreamMaker)
