"""Manifests to save, stores to save them in, and the byte-exact vectors."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import settings

from airflow_provider_checkpoint.blobs import WrapperBlobs
from airflow_provider_checkpoint.exceptions import UnsupportedError
from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest
from airflow_provider_checkpoint.layouts.sidecar._names import legacy_manifest_key, manifest_key, state_beside
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_sweep
from airflow_provider_checkpoint.lifecycle.trash import read_trash
from airflow_provider_checkpoint.model import SinkState, SinkStatus

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
HOUR = timedelta(hours=1)

PENDING = SinkStatus(SinkState.PENDING)
COMMITTED = SinkStatus(SinkState.COMMITTED)

# A machine that is busy with other tests is not slow code.
patient = settings(deadline=None)

VECTORS = Path(__file__).parents[3] / "data" / "vectors"


def vector(name: str) -> bytes:
    (path,) = VECTORS.glob(f"{name}*")
    return path.read_bytes()


def failed(message: str) -> SinkStatus:
    return SinkStatus(SinkState.FAILED, message=message)


def manifest(number: int, epoch: int | None = None, **values: Any) -> CheckpointManifest:
    made = CheckpointManifest.new(number, number if epoch is None else epoch, timestamp_ms=NOON_MS)
    return made.changed(**values)


def pending(number: int) -> CheckpointManifest:
    return manifest(number, sink_epochs={"sink": number}, sink_commit_statuses={"sink": PENDING}, sink_names=("sink",))


def committed(made: CheckpointManifest) -> CheckpointManifest:
    return made.changed(sink_commit_statuses=dict.fromkeys(made.sink_commit_statuses, COMMITTED))


def put(blobs: BlobStore, made: CheckpointManifest | bytes, number: int, state: bytes | None = None) -> None:
    """Place a manifest as it is, past every check of the store."""
    _put(blobs, made, manifest_key(number), state)


def put_legacy(blobs: BlobStore, made: CheckpointManifest | bytes, number: int, state: bytes | None = None) -> None:
    _put(blobs, made, legacy_manifest_key(number), state)


def _put(blobs: BlobStore, made: CheckpointManifest | bytes, key: str, state: bytes | None) -> None:
    if state is not None:
        blobs.replace(state_beside(key), state)
    blobs.replace(key, made if isinstance(made, bytes) else made.to_json())


def objects(blobs: BlobStore) -> dict[str, bytes]:
    return {info.key: blobs.read(info.key) for info in blobs.list()}


def live(blobs: BlobStore) -> list[str]:
    """What is there besides the records of the lifecycle."""
    return sorted(key for key in objects(blobs) if key.partition("/")[0] in ("checkpoints", "manifests"))


def trashed(layout: SidecarLayout) -> list[int]:
    """Ids of checkpoints that were pruned and can be put back."""
    return sorted(int(entry.checkpoint_id.value) for entry in read_trash(layout))


def sweep(layout: SidecarLayout, clock: Clock) -> None:
    """Remove what is in the trash for good, after its undo window."""
    clock.advance(25 * HOUR)
    Executor(layout, by="test", clock=clock).sweep(plan_sweep(layout, now=clock()))


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


class WithoutSwap(WrapperBlobs):
    """A store without compare-and-swap, as fsspec's are."""

    @property
    def capabilities(self):
        return replace(super().capabilities, compare_and_swap=False)

    def read_versioned(self, key):
        return super().read_versioned(key)[0], None

    def replace(self, key, body, *, expected=None):
        if expected is not None:
            raise UnsupportedError("no compare-and-swap", subject=key)
        super().replace(key, body)
