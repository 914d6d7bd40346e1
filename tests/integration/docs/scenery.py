"""The world in which the commands of the documentation make sense: ``/data``, ``s3://bucket``, and what is in them.

::

    /data/checkpoints/orders     checkpoints of the runtime's format, from weeks ago to now; the newest is damaged
    /data/checkpoints/clicks     a directory that Spark wrote: 46 batches
    /data/clicks, /data/pages    what that query has read and written
    /data/landing                orders, for the job orders_pipeline
    s3://bucket/checkpoints      orders once more
"""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    PartitionData,
    PartitionedLayout,
    SourceEntry,
    operators_of,
)
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import KafkaPartition, KafkaPosition, SinkState, SinkStatus

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

CLICKS = Path(__file__).parent / "clicks.tar.xz"
#: What stands for ``/data`` in the logs of that archive.
PLACE = "/data"
#: Pages name this time for a point in the past.
LONG_AGO = datetime(2026, 11, 14, 9, tzinfo=UTC)


def moments(now: datetime) -> list[datetime]:
    """When the checkpoints of ``orders`` were made: several a day, and one before a time that pages name."""
    ages = [timedelta(days=day, hours=hour) for day in (12, 5, 3, 2) for hour in (8, 2)]
    ages += [timedelta(minutes=minutes) for minutes in (300, 120, 60, 20)]
    return sorted({LONG_AGO, *(now - age for age in ages)})


def make_orders(blobs: BlobStore, now: datetime) -> None:
    """Checkpoints as the runtime writes them: a snapshot of each partition, then deltas on top of it."""
    layout = PartitionedLayout(blobs)
    first = now - timedelta(days=30)
    open_timeline(blobs, start=None, has_checkpoints=False, writer="orders-driver", now=first, reason="first start")
    base = None
    for epoch, made in enumerate(moments(now), 1):
        new = layout.next_id()
        parts = [PartitionData("totals", part, b"totals" * epoch, is_delta=base is not None) for part in range(2)]
        saved = layout.save_partitions(new, parts)
        position = KafkaPosition(partitions=(KafkaPartition(topic="orders", partition=0, offset=epoch * 1000),))
        layout.save_manifest(
            CheckpointManifestV2(
                checkpoint_id=new,
                epoch=epoch,
                timestamp_ms=int(made.timestamp() * 1000),
                operators=operators_of([*(base or ()), *saved]),
                source_offsets={"orders": SourceEntry.of(position, epoch)},
                timeline=1,
                sink_epochs={"totals": epoch},
                sink_commit_statuses={"totals": SinkStatus(SinkState.COMMITTED)},
                source_names=("orders",),
                sink_names=("totals",),
                event_count=epoch * 1000,
                writer="orders-driver",
            )
        )
        layout.update_latest(new)
        base = base or saved


def leave_orphan(folder: Path) -> None:
    """What a writer left that died two days ago, before it wrote its manifest."""
    orphan = folder / "01900000-0000-7000-8000-000000000000" / "operators" / "totals" / "partition-0.snap"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"left behind" * 100)
    moment = time.time() - 48 * 3600
    os.utime(orphan, (moment, moment))


def unpack_clicks(data: Path) -> None:
    """The query's directory, input and output; paths in its logs lead here, and a batch was made every ten minutes."""
    with tarfile.open(CLICKS) as archive:
        archive.extractall(data, filter="data")
    checkpoint = data / "checkpoints" / "clicks"
    logs = [*(checkpoint / "sources").rglob("*"), *(data / "pages" / "_spark_metadata").iterdir()]
    for log in filter(Path.is_file, logs):
        log.write_text(log.read_text().replace(f"file://{PLACE}/", f"file://{data}/"))
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir())
    for path in filter(Path.is_file, data.rglob("*")):
        digits = path.name.partition(".")[0]
        age = timedelta(minutes=10) * (last + 4 - int(digits)) if digits.isdigit() else timedelta(hours=8)
        moment = time.time() - age.total_seconds()
        os.utime(path, (moment, moment))


def copy(template: Path, data: Path) -> None:
    """A world of its own for a page; absolute paths in Spark's logs follow."""
    shutil.copytree(template, data, symlinks=True)
    for folder in (data / "checkpoints" / "clicks" / "sources", data / "pages" / "_spark_metadata"):
        for log in filter(Path.is_file, folder.rglob("*")):
            seen = log.stat()
            log.write_text(log.read_text().replace(f"file://{template}/", f"file://{data}/"))
            os.utime(log, (seen.st_atime, seen.st_mtime))
