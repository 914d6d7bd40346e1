"""The state files of Spark's checkpoint directories: decoded and proven byte by byte, without a JVM.

What each kind is proven by: deltas, snapshots and changelogs by the checksums of their codec (lz4 has one per block,
zstd, snappy and lzf have none) and by walking their records to the end mark; zips by the CRC of each member; SSTs by
the checksum of each block. Schema files have no checksum: their structure is walked.

Everything here reads in bounded memory, may run in several threads, and writes nothing.
"""

from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import (
    FileFacts,
    Lineage,
    SstRef,
    ZipMetadata,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._inspect import (
    inspect_file,
    read_lineage,
    read_origins,
    read_zip_metadata,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._sidecars import verify_sidecars
from airflow_provider_checkpoint.layouts.structured_streaming.files.kinds import FileKind

__all__ = [
    "FileFacts",
    "FileKind",
    "Lineage",
    "SstRef",
    "ZipMetadata",
    "inspect_file",
    "read_lineage",
    "read_origins",
    "read_zip_metadata",
    "verify_sidecars",
]
