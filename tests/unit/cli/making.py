"""Stores on disk to run the command on, made by the real layouts."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    PartitionData,
    PartitionedLayout,
    SourceEntry,
    operators_of,
)
from airflow_provider_checkpoint.layouts.sidecar import ConnectorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId, StreamStore
from airflow_provider_checkpoint.model import KafkaPartition, KafkaPosition, SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_checkpoint.layouts import Layout

COMMITTED = SinkStatus(SinkState.COMMITTED)


def hours_ago(hours: float) -> int:
    """In milliseconds, as manifests have it."""
    return int((datetime.now(UTC) - timedelta(hours=hours)).timestamp() * 1000)


#: Where stores are written once and copied from: a copy needs no fsync. Set for the session in conftest.
templates: Path | None = None


def _copy(write: Callable[[Path, int], None], folder: Path, count: int) -> None:
    assert templates is not None
    # Checkpoints have ages, which tests go by: what is copied was written in the same half a minute.
    template = templates / f"{write.__name__}-{count}-{int(time.monotonic() // 30)}"
    if not template.exists():
        template.mkdir()
        write(template, count)
    shutil.copytree(template, folder, dirs_exist_ok=True)


# -- sidecar -----------------------------------------------------------------------------------------------------


def sidecar_store(folder: Path, count: int = 5) -> SidecarLayout:
    """Checkpoints 1 to ``count``, an hour apart, the newest an hour old."""
    _copy(_write_sidecar, folder, count)
    return SidecarLayout(LocalBlobs(folder), inline_threshold=8)


def _write_sidecar(folder: Path, count: int) -> None:
    layout = SidecarLayout(LocalBlobs(folder), inline_threshold=8)
    for number in range(1, count + 1):
        add_sidecar(layout, number, hours=count - number + 1)


def add_sidecar(layout: SidecarLayout, number: int, *, hours: float, **values: Any) -> None:
    source = ConnectorCheckpoint(
        offsets={"orders-0": str(number * 100)}, epoch=number, metadata={"connector_type": "kafka"}
    )
    manifest = layout.new_manifest(number, epoch=values.pop("epoch", number)).changed(
        **{
            "timestamp_ms": hours_ago(hours),
            "source_offsets": {"orders": source},
            "source_names": ("orders",),
            "sink_epochs": {"lake": number},
            "sink_commit_statuses": {"lake": COMMITTED},
            "sink_names": ("lake",),
            "watermark": number * 1000,
            "pipeline_hash": 4711,
            **values,
        }
    )
    layout.save_operator_states(manifest, {"window": f"state of {number}".encode() * 100})


def corrupt_sidecar(folder: Path, number: int) -> None:
    """Flip a bit in a checkpoint's state; its size stays."""
    path = folder / "checkpoints" / f"state-{number:06}.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def orphan_sidecar(folder: Path, number: int, *, age_hours: float) -> Path:
    """State of a checkpoint whose writer died before it wrote the manifest."""
    path = folder / "checkpoints" / f"state-{number:06}.bin"
    path.write_bytes(b"left behind")
    moment = time.time() - age_hours * 3600
    os.utime(path, (moment, moment))
    return path


# -- the others --------------------------------------------------------------------------------------------------


def partitioned_store(folder: Path, count: int = 3) -> PartitionedLayout:
    """Like ``sidecar_store``; the second and later ones are deltas on the first."""
    _copy(_write_partitioned, folder, count)
    return PartitionedLayout(LocalBlobs(folder))


def _write_partitioned(folder: Path, count: int) -> None:
    layout = PartitionedLayout(LocalBlobs(folder))
    base = None
    for number in range(1, count + 1):
        new = layout.next_id()
        saved = layout.save_partitions(
            new, [PartitionData("window", part, b"state" * number, is_delta=number > 1) for part in range(2)]
        )
        layout.save_manifest(
            CheckpointManifestV2(
                checkpoint_id=new,
                epoch=number,
                timestamp_ms=hours_ago(count - number + 1),
                operators=operators_of([*(base or ()), *saved]),
                source_offsets={"orders": SourceEntry.of(_kafka(number * 100), number)},
                sink_epochs={"lake": number},
                sink_commit_statuses={"lake": COMMITTED},
            )
        )
        layout.update_latest(new)
        base = base or saved


def _kafka(offset: int) -> KafkaPosition:
    return KafkaPosition(partitions=(KafkaPartition(topic="orders", partition=0, offset=offset),))


def stream_store(folder: Path, count: int = 3) -> Layout:
    """Checkpoints of the stream ``orders`` at events 10, 20, ..., an hour apart."""
    _copy(_write_stream, folder, count)
    return StreamStore(LocalBlobs(folder), max_per_stream=100).layout("orders")


def _write_stream(folder: Path, count: int) -> None:
    store = StreamStore(LocalBlobs(folder), max_per_stream=100)
    for number in range(1, count + 1):
        state = CheckpointState(StreamCheckpointId("orders", number * 10, datetime.now(UTC)), event_count=number * 10)
        state.set_operator_state("window", b"state" * number)
        state.set_source_offset("orders-0", number * 1000)
        store.save(state)
        moment = time.time() - (count - number + 1) * 3600
        os.utime(folder / "orders" / f"checkpoint-{number * 10:020}.ckpt", (moment, moment))


def everything_in(folder: Path) -> dict[str, bytes]:
    """Every file and what it holds, to compare before and after."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
