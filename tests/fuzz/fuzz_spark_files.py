"""Any bytes, and real files with any bytes written into them, given to the decoders of Spark's state files."""

from __future__ import annotations

import zipfile
from pathlib import Path

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    FileKind,
    inspect_file,
    read_lineage,
    read_zip_metadata,
    verify_sidecars,
)

_KINDS = list(FileKind)
_ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "spark" / "state_files.zip"


def _samples() -> list[tuple[FileKind, bytes]]:
    with zipfile.ZipFile(_ARCHIVE) as archive:
        names = [name for name in archive.namelist() if not name.endswith(".crc")]
        return [(FileKind(name.rpartition(".")[2]), archive.read(name)) for name in names]


_SAMPLES = _samples()


def fuzz_one(data: bytes) -> None:
    """Bytes are facts or a typed error; a table that was written into is never taken for whole."""
    if len(data) < 4:
        return
    _look(_KINDS[data[0] % len(_KINDS)], data[1:])
    kind, sample = _SAMPLES[data[0] % len(_SAMPLES)]
    place = int.from_bytes(data[1:3], "big") % len(sample)
    changed = sample[:place] + data[3:11] + sample[place + len(data[3:11]) :]
    issues = _look(kind, changed)
    assert issues or changed == sample or kind is not FileKind.SST


def _look(kind: FileKind, data: bytes) -> int:
    blobs = MemoryBlobs()
    blobs.create("file", data)
    blobs.create("file.crc", data[:200] or b"-")
    blobs.create(".file.crc", b"crc\0\0\0\2\0" + data[:40])
    facts = inspect_file(blobs, "file", kind=kind)
    for ref in (*facts.ssts, *facts.logs):
        assert "/" not in ref.dfs_name
    verify_sidecars(blobs, "file", {"file", "file.crc", ".file.crc"})
    for read in (read_lineage, read_zip_metadata):
        try:
            read(blobs, "file")
        except CorruptError as error:
            assert error.subject == "file"  # noqa: PT017 - either outcome is fine, an error without a name is not
    return len(facts.issues)
