"""One file, read to its end: what is wrong with it, what could not be proven, what it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs import check_key
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, InvalidKeyError, UnsupportedError
from airflow_provider_checkpoint.layouts.structured_streaming.files import _schema, _sst, _zip
from airflow_provider_checkpoint.layouts.structured_streaming.files._codecs import CannotDecode, decoded
from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import (
    DamagedFileError,
    DamagedZipError,
    TruncatedFileError,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import (
    Doubts,
    FileFacts,
    Lineage,
    SstRef,
    ZipMetadata,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed
from airflow_provider_checkpoint.layouts.structured_streaming.files._records import (
    changelog_header,
    walk_plain,
    walk_typed,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._rocksdb_manifest import sessions_of
from airflow_provider_checkpoint.layouts.structured_streaming.files.kinds import FileKind
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

_METADATA = b"metadata"
#: A hundred thousand SSTs.
_LARGEST_METADATA = 32 * 1024 * 1024
_TAIL = 64 * 1024


def inspect_file(
    blobs: BlobStore, key: str, *, kind: FileKind, size: int | None = None, codec: str | None = None
) -> FileFacts:
    """Read one file to its end and say what is wrong with it, what could not be proven, and what it holds.

    Bad bytes become issues, and so does a missing object (``artifact_missing``); only the store's own errors are
    raised. Memory is bounded, and several may run side by side.

    :param size: what the file is known to have, from a zip's metadata or a listing; another size is an issue.
    :param codec: the codec the query was set to; by default the file's own mark decides.

    Codes: ``state_truncated``, ``state_corrupt``, ``zip_corrupt``, ``sst_corrupt``, ``sst_block_corrupt``,
    ``state_schema_corrupt``, ``size_mismatch``, ``artifact_missing``.
    """
    doubts = Doubts()
    try:
        facts = _facts(blobs, key, kind, size, codec, doubts)
    except BlobNotFoundError:
        facts = FileFacts(issues=(Issue.error("artifact_missing", f"{key}: not in the store"),))
    except DamagedFileError as damage:
        facts = FileFacts(issues=(Issue.error(damage.code, f"{key}: {damage.message}"),))
    return replace(facts, unproven=tuple(doubts.statements))


def read_zip_metadata(blobs: BlobStore, key: str) -> ZipMetadata:
    """What a RocksDB zip refers to, fetching its directory and one member: one or two small reads.

    Raises BlobNotFoundError, or CorruptArtifactError if the zip or its metadata cannot be understood.
    """
    info = blobs.stat(key)
    if info is None:
        raise BlobNotFoundError("no such object", subject=key)
    try:
        return _parse_metadata(_member(blobs, key, info.size, _METADATA))
    except DamagedFileError as damage:
        raise type(damage)(damage.message, subject=key) from None


def read_origins(blobs: BlobStore, key: str) -> dict[str, tuple[int, int]]:
    """Where each table of a RocksDB zip must come from, by their names in the store.

    Those of which the zip does not tell are left out. Raises BlobNotFoundError.
    """
    info = blobs.stat(key)
    if info is None:
        raise BlobNotFoundError("no such object", subject=key)
    try:
        tables = _parse_metadata(_member(blobs, key, info.size, _METADATA)).ssts
        manifest = _member(blobs, key, info.size, b"CURRENT").strip()
        marks = sessions_of(_member(blobs, key, info.size, manifest))
    except DamagedFileError:
        return {}
    numbers = {table.dfs_name: table.local_name.partition(".")[0] for table in tables}
    return {
        name: (marks[int(number)], int(number))
        for name, number in numbers.items()
        if number.isdecimal() and int(number) in marks
    }


def read_lineage(blobs: BlobStore, key: str, codec: str | None = None) -> Lineage:
    """What a changelog builds on, fetching only its beginning; empty before version 3.

    Raises BlobNotFoundError, CorruptArtifactError, or UnsupportedError if the helper to undo its codec is missing;
    lz4, Spark's default, needs none for this.
    """
    try:
        try:
            return _lineage(blobs, key, codec, _TAIL)
        except TruncatedFileError:
            # Cut by us, perhaps: a lineage has up to 64 KiB, and it may begin in the second block.
            return _lineage(blobs, key, codec, None)
    except DamagedFileError as damage:
        raise type(damage)(damage.message, subject=key) from None
    except CannotDecode:
        raise UnsupportedError("cannot be decoded", subject=key, hint="Install the extra: native.") from None


def _lineage(blobs: BlobStore, key: str, codec: str | None, length: int | None) -> Lineage:
    feed = Feed(blobs.stream(key, length=length))
    return changelog_header(Feed(decoded(feed, codec, Doubts(), unaided=True))).lineage


# -- kinds -------------------------------------------------------------------------------------------------------


def _facts(
    blobs: BlobStore, key: str, kind: FileKind, size: int | None, codec: str | None, doubts: Doubts
) -> FileFacts:
    if kind is FileKind.SST:
        records, origin = _sst.verify(blobs, key, size, doubts)
        return FileFacts(records=records, origin=origin)
    feed = Feed(blobs.stream(key))
    if kind is FileKind.ZIP:
        facts = _zip_facts(feed)
    elif kind is FileKind.SCHEMA:
        _schema.walk(feed, doubts)
        facts = FileFacts()
    else:
        facts = _record_facts(feed, kind, codec, doubts)
    if size is not None and feed.place != size:
        issue = Issue.error("size_mismatch", f"{key}: {feed.place} bytes, {size} were expected")
        return replace(facts, issues=(issue,))
    return facts


def _record_facts(feed: Feed, kind: FileKind, codec: str | None, doubts: Doubts) -> FileFacts:
    content = Feed(decoded(feed, codec, doubts))
    try:
        if kind is not FileKind.CHANGELOG:
            return FileFacts(records=walk_plain(content, deletes=kind is FileKind.DELTA))
        header = changelog_header(content)
        count = walk_typed(content) if header.typed else walk_plain(content)
        return FileFacts(lineage=header.lineage, records=count)
    except CannotDecode:
        return FileFacts()


def _zip_facts(feed: Feed) -> FileFacts:
    kept = _zip.walk(feed, lambda name: _LARGEST_METADATA if name == _METADATA else 0)
    if _METADATA not in kept:
        raise DamagedZipError("no member 'metadata'")
    found = _parse_metadata(kept[_METADATA])
    return FileFacts(ssts=found.ssts, logs=found.logs, num_keys=found.num_keys)


# -- the metadata of a zip ---------------------------------------------------------------------------------------


def _member(blobs: BlobStore, key: str, size: int, name: bytes) -> bytes:
    start = max(0, size - _TAIL)
    tail = blobs.read(key, start=start, length=size - start)
    found = _zip.locate(tail, size, name)
    if not isinstance(found, _zip.Member):
        start, length = found
        tail = blobs.read(key, start=start, length=length)
        found = _zip.locate(tail, size, name)
    if not isinstance(found, _zip.Member) or found.shape.packed > _LARGEST_METADATA:
        raise DamagedZipError(f"the directory does not say where {name[:100].decode('utf-8', 'replace')} is")
    if found.offset >= start:
        data = tail[found.offset - start :]
    else:
        data = blobs.read(key, start=found.offset, length=found.span)
    return _zip.member_content(data, found, _LARGEST_METADATA)


def _parse_metadata(content: bytes) -> ZipMetadata:
    version, _, body = content.partition(b"\n")
    if version.strip() != b"v1":
        raise DamagedZipError(f"metadata of version {version[:20]!r}")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise DamagedZipError("the metadata is not JSON") from None
    if not isinstance(values, dict):
        raise DamagedZipError("the metadata is not a JSON object")
    keys = values.get("numKeys")
    return ZipMetadata(
        ssts=_refs(values.get("sstFiles"), "dfsSstFileName"),
        logs=_refs(values.get("logFiles"), "dfsLogFileName"),
        num_keys=keys if isinstance(keys, int) and keys >= 0 else None,
    )


def _refs(items: Any, name: str) -> tuple[SstRef, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise DamagedZipError("the metadata does not list its files")
    return tuple(_ref(item, name) for item in items)


def _ref(item: Any, name: str) -> SstRef:
    match item:
        case {"localFileName": str(local), "sizeBytes": int(size)} if size >= 0 and isinstance(item.get(name), str):
            return SstRef(_bare(local), _bare(item[name]), size)
    raise DamagedZipError("the metadata names a file without saying what it is")


def _bare(name: str) -> str:
    """A name from the file, as long as it names something in one folder."""
    try:
        check_key(name)
    except InvalidKeyError:
        name = ""
    if not name or "/" in name:
        raise DamagedZipError("the metadata names a file outside of its folder")
    return name
