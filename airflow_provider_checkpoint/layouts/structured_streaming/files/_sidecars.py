"""Checksums that lie beside a file.

::

    .<name>.crc   Hadoop's local filesystem: "crc" and a zero, int bytes per chunk, a CRC32 or CRC32C per chunk
    <name>.crc    Spark 4.1 and later: JSON with the CRC32C and the size of the whole file

The two differ by a dot only. Both are optional: a file without them is no worse.
"""

from __future__ import annotations

import struct
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptManifestError
from airflow_provider_checkpoint.layouts._json import parse_object
from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed
from airflow_provider_checkpoint.layouts.structured_streaming.files._native import absence, helper
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from airflow_provider_checkpoint.blobs import BlobStore

_HADOOP_MAGIC = b"crc\0"
_HADOOP_HEADER = 8
#: Spark's is about a hundred bytes.
_LARGEST_JSON = 64 * 1024
#: Hadoop's default is 512; nobody sets more than this.
_LARGEST_CHUNK = 1024 * 1024


def hadoop_sidecar(key: str) -> str:
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def spark_sidecar(key: str) -> str:
    return f"{key}.crc"


def verify_sidecars(blobs: BlobStore, key: str, names: Collection[str]) -> tuple[Issue, ...]:
    """Compare an object with the checksums that lie beside it, whichever of them exist.

    :param names: keys that are known to be there, as a listing showed them; sidecars not among them are not asked for.

    Codes: ``artifact_missing`` (the object itself), ``crc_mismatch`` (it changed), ``crc_corrupt`` (the sidecar cannot
    be read; Spark would refuse the file), and the warning ``crc_unproven`` (a helper is missing).
    """
    try:
        issues: list[Issue] = []
        if spark_sidecar(key) in names:
            issues += _spark_issues(blobs, key)
        if hadoop_sidecar(key) in names:
            issues += _hadoop_issues(blobs, key)
    except BlobNotFoundError as error:
        if error.subject is not None and error.subject.endswith(".crc"):
            return ()  # It went away since the listing: then there is nothing to compare with.
        return (Issue.error("artifact_missing", f"{key}: not in the store"),)
    return tuple(issues)


# -- Spark -------------------------------------------------------------------------------------------------------


def _spark_issues(blobs: BlobStore, key: str) -> list[Issue]:
    sidecar = spark_sidecar(key)
    try:
        told = parse_object(blobs.read(sidecar, length=_LARGEST_JSON), subject=sidecar)
    except CorruptManifestError as error:
        return [Issue.error("crc_corrupt", f"{sidecar}: {error.message}")]
    match told:
        case {"algorithm": "CRC32C", "value": int(value), "mainFileSize": int(size)}:
            pass
        case {"algorithm": str(other)} if other != "CRC32C":
            return [Issue.warning("crc_unproven", f"{sidecar}: a checksum of unknown kind {other[:40]!r}")]
        case _:
            return [Issue.error("crc_corrupt", f"{sidecar}: does not hold a checksum and a size")]
    crc32c = helper("google_crc32c")
    found, length = 0, 0
    for piece in blobs.stream(key):
        length += memoryview(piece).nbytes
        found = crc32c.extend(found, bytes(piece)) if crc32c is not None else 0
    if length != size:
        return [Issue.error("crc_mismatch", f"{key}: {length} bytes, {sidecar} says {size}")]
    if crc32c is None:
        return [Issue.warning("crc_unproven", f"{key}: {absence('google_crc32c', 'its CRC32C was not proven')}")]
    # Java's checksum is kept in a signed int.
    if found != value & 0xFFFFFFFF:
        return [Issue.error("crc_mismatch", f"{key}: its CRC32C is not the one in {sidecar}")]
    return []


# -- Hadoop ------------------------------------------------------------------------------------------------------


def _hadoop_issues(blobs: BlobStore, key: str) -> list[Issue]:
    sidecar = hadoop_sidecar(key)
    sums = Feed(blobs.stream(sidecar))
    header = sums.upto(_HADOOP_HEADER)
    chunk = int.from_bytes(header[4:], "big")
    if len(header) < _HADOOP_HEADER or header[:4] != _HADOOP_MAGIC or not 0 < chunk <= _LARGEST_CHUNK:
        return [Issue.error("crc_corrupt", f"{sidecar}: not a Hadoop checksum file")]
    chunks = _chunks(Feed(blobs.stream(key)), chunk)
    first = next(chunks, b"")
    if not first:
        return [] if sums.ended else [Issue.error("crc_mismatch", f"{key}: empty, {sidecar} says it is not")]
    # Which of the two checksums it is stands nowhere: the first chunk tells.
    compute = _matching(first, sums.peek(4))
    if compute is None:
        if helper("google_crc32c") is None:
            statement = absence("google_crc32c", "its Hadoop checksums were not proven")
            return [Issue.warning("crc_unproven", f"{key}: {statement}")]
        return [_differs(key, sidecar, 0)]
    for number, piece in enumerate(chain([first], chunks)):
        if sums.upto(4) != struct.pack(">I", compute(piece)):
            return [_differs(key, sidecar, number * chunk)]
    return [] if sums.ended else [Issue.error("crc_mismatch", f"{key}: shorter than {sidecar} says")]


def _matching(first: bytes, told: bytes) -> Callable[[bytes], int] | None:
    crc32c: Any = helper("google_crc32c")
    known: list[Callable[[bytes], int]] = [zlib.crc32] if crc32c is None else [zlib.crc32, crc32c.value]
    return next((compute for compute in known if struct.pack(">I", compute(first)) == told), None)


def _chunks(feed: Feed, size: int) -> Iterator[bytes]:
    while piece := feed.upto(size):
        yield piece


def _differs(key: str, sidecar: str, place: int) -> Issue:
    return Issue.error("crc_mismatch", f"{key}: changed at byte {place} or soon after, says {sidecar}")
