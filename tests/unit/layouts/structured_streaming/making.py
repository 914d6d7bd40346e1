"""Checkpoint directories that Spark 4.3 wrote, in memory, to be looked at and damaged.

``tests/data/spark/directories.tar.xz`` holds one folder for each. All but a few are of one query over twelve small
files in ``/data/landing``, one file for each batch, with two partitions; they differ in what the name says.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout
from airflow_provider_checkpoint.model import CheckpointId

ARCHIVE = Path(__file__).parents[3] / "data" / "spark" / "directories.tar.xz"

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=3)
#: When directories on a disk were last written to: before the clock of any machine.
ABANDONED = 1_763_000_000

#: Every directory in the archive, and its last batch.
LAST = {
    "dedup": 11,
    "hdfs_agg": 11,
    "hdfs_global": 11,
    "hdfs_join": 12,
    "limit": 11,
    "offsets_v2": 11,
    "purged": 11,
    "purged_rocks": 11,
    "rate": 5,
    "rocks": 11,
    "rocks_changelog": 11,
    "rocks_join_v2": 12,
    "rocks_v2": 11,
    "stateless": 11,
    "tws": 11,
    "two_ops": 12,
    "union_two": 11,
    "zstd": 11,
}
KINDS = tuple(LAST)


@cache
def _archive() -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                kind, _, key = member.name.partition("/")
                found[kind][key] = file.read()
    return found


def files_of(kind: str, *, hadoop_checksums: bool = False) -> dict[str, bytes]:
    """The files of a directory as an object store has them; on a disk there are checksums of Hadoop beside them."""
    return {
        key: body
        for key, body in _archive()[kind].items()
        if hadoop_checksums or not key.rpartition("/")[2].startswith(".")
    }


@dataclass
class Scene:
    """A directory in memory, three days old, and the records of today beside it."""

    directory: MemoryBlobs = field(default_factory=lambda: MemoryBlobs("clicks", clock=lambda: LONG_AGO))
    records: MemoryBlobs = field(default_factory=lambda: MemoryBlobs("clicks.checkpoints", clock=lambda: NOW))

    @classmethod
    def of(cls, kind: str, *, hadoop_checksums: bool = False) -> Scene:
        scene = cls()
        for key, body in files_of(kind, hadoop_checksums=hadoop_checksums).items():
            scene.put(key, body)
        return scene

    @property
    def layout(self) -> StructuredStreamingLayout:
        """Opened anew each time, so that nothing is remembered."""
        return StructuredStreamingLayout(self.directory, records=self.records)

    @property
    def keys(self) -> list[str]:
        return sorted(info.key for info in self.directory.list(temporary=None))

    def find(self, pattern: str) -> str:
        """The one file whose whole name fits."""
        (key,) = [key for key in self.keys if re.fullmatch(pattern, key)]
        return key

    def read(self, key: str) -> bytes:
        return self.directory.read(key)

    def put(self, key: str, body: bytes) -> None:
        self.directory.replace(key, body)

    def remove(self, pattern: str) -> None:
        gone = [key for key in self.keys if re.fullmatch(pattern, key)]
        assert gone, f"nothing is called {pattern}"
        self.directory.delete(gone)

    def cut(self, pattern: str, share: float = 0.5) -> None:
        key = self.find(pattern)
        body = self.read(key)
        self.put(key, body[: int(len(body) * share)])

    def flip(self, pattern: str, at: float = 0.5) -> None:
        key = self.find(pattern)
        body = bytearray(self.read(key))
        body[int(len(body) * at)] ^= 1
        self.put(key, bytes(body))


def batch(number: int) -> CheckpointId:
    return CheckpointId(number)


def write_out(kind: str, folder: Path) -> Path:
    """A directory on a disk, to which nobody writes any more."""
    for key, body in files_of(kind).items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        os.utime(path, (ABANDONED, ABANDONED))
    return folder
