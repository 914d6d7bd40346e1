"""State files as Spark 4.3 wrote them; ``python -m tests.integration.spark_native.samples`` makes them anew."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.layouts.structured_streaming.files import FileFacts, FileKind, inspect_file

ARCHIVE = Path(__file__).resolve().parents[4] / "data" / "spark" / "state_files.zip"

#: Streams without a checksum of their own: a changed value in them cannot be seen by reading them.
WITHOUT_CHECKSUM = frozenset(
    {
        "hdfs_lzf.delta",
        "hdfs_snappy.delta",
        "hdfs_zstd.delta",
        "rocksdb_zstd.changelog",
    }
)


@cache
def every() -> dict[str, bytes]:
    """All of them by name, sidecars included."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sample(name: str) -> bytes:
    return every()[name]


def names(*kinds: FileKind) -> list[str]:
    """Names of the samples of some kinds, or of all."""
    return [name for name in every() if not name.endswith(".crc") and (not kinds or kind_of(name) in kinds)]


def kind_of(name: str) -> FileKind:
    return FileKind(name.rpartition(".")[2])


def looked_at(name: str, data: bytes, **options: object) -> FileFacts:
    """What reading these bytes under the name of a sample tells."""
    blobs = MemoryBlobs()
    blobs.create(name, data)
    return inspect_file(blobs, name, kind=kind_of(name), **options)  # type: ignore[arg-type] # options are of the caller
