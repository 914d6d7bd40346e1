"""The compression of deltas, snapshots and changelogs, undone block by block.

Spark names the codec in the offset log (``spark.sql.streaming.stateStore.compression.codec``); each stream also begins
with a mark of its own. Memory stays bounded whatever a file claims: a block is refused before anything is allocated for
it if it is larger than its writer can make it, or than its compressed bytes could ever become.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.layouts.structured_streaming.files import _lz4, _lzf, _zstd
from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedFileError, TruncatedFileError
from airflow_provider_checkpoint.layouts.structured_streaming.files._native import absence, helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
    from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

LZ4_MAGIC = b"LZ4Block"
SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_MARK = max(len(LZ4_MAGIC), len(SNAPPY_MAGIC))

_MAGICS = {"lz4": LZ4_MAGIC, "zstd": _zstd.MAGIC, "snappy": SNAPPY_MAGIC, "lzf": _lzf.MAGIC}
#: Spark takes class names as well.
_ALIASES = {
    "lz4compressioncodec": "lz4",
    "zstdcompressioncodec": "zstd",
    "snappycompressioncodec": "snappy",
    "lzfcompressioncodec": "lzf",
    "uncompressed": "none",
}

_LZ4_HEADER = struct.Struct("<BiiI")
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_LZ4_SEED = 0x9747B28C
#: No LZ4 sequence makes more than 255 bytes of one.
_LZ4_RATIO = 255

#: Far above any block size that Spark can be set to.
_SNAPPY_LARGEST = 64 * 1024 * 1024
#: A copy of 64 bytes takes at least two.
_SNAPPY_RATIO = 64

_PIECE = 1024 * 1024


class CannotDecode(Exception):  # noqa: N818 - not an error of the file: a helper is missing
    """The helper that undoes a codec is not installed; what was checked until then was sound."""


def decoded(feed: Feed, codec: str | None, doubts: Doubts, *, unaided: bool = False) -> Iterator[bytes]:
    """The content of a stream in pieces, each proven as far as the codec allows before it is handed out.

    :param unaided: undo lz4 also without its helper, which is slow: for a caller that wants the beginning only.

    Raises DamagedFileError; raises CannotDecode after the whole structure was walked if a helper is missing.
    """
    first = feed.peek(_MARK)
    name = _codec(codec, first)
    match name:
        case "lz4":
            yield from _lz4_blocks(feed, helper("lz4.block") or (_lz4 if unaided else None), doubts)
        case "zstd":
            yield from _zstd.blocks(feed, doubts)
        case "snappy":
            yield from _snappy_blocks(feed, doubts)
        case "lzf":
            yield from _lzf.chunks(feed, doubts)
        case _:
            doubts.add("not compressed: the format has no checksum, so that a changed value would not be seen")
            while piece := feed.upto(_PIECE):
                yield piece


def _codec(codec: str | None, first: bytes) -> str:
    """The name of the codec; what the file says of itself must agree with what the query was set to."""
    if not first:
        raise TruncatedFileError("empty")
    seen = next((name for name, magic in _MAGICS.items() if first.startswith(magic)), None)
    if codec is None:
        if seen is None:
            raise DamagedFileError(f"begins with no mark of a known compression: {first!r}")
        return seen
    short = codec.rpartition(".")[2].lower()
    name = _ALIASES.get(short, short)
    if name in _MAGICS and name != seen:
        raise DamagedFileError(f"begins with {first!r}, which is not {name}")
    return name if name in (*_MAGICS, "none") else seen or "none"


# -- lz4 ---------------------------------------------------------------------------------------------------------


def _lz4_blocks(feed: Feed, lz4: Any | None, doubts: Doubts) -> Iterator[bytes]:
    """lz4-java's blocks: a header, bytes, and the xxHash32 of what they stand for; the last block is empty."""
    xxhash = helper("xxhash")
    if lz4 is None:
        doubts.add(absence("lz4.block", "the content of lz4 blocks and their checksums were not proven"))
    elif xxhash is None:
        doubts.add(absence("xxhash", "the checksums of lz4 blocks were not proven"))
    level, ended = None, False
    while not feed.ended:
        place = feed.place
        if feed.take(len(LZ4_MAGIC), "the mark of an lz4 block") != LZ4_MAGIC:
            raise DamagedFileError(f"byte {place}: no lz4 block begins here")
        token, packed, length, checksum = _LZ4_HEADER.unpack(feed.take(_LZ4_HEADER.size, "the header of an lz4 block"))
        _check_lz4_header(place, token, packed, length, checksum)
        # The writer's setting stands in each header, and no checksum covers it; but it never changes inside a file.
        if level not in (None, token & 0x0F):
            raise DamagedFileError(f"byte {place}: an lz4 block of another size class than the one before")
        level, ended = token & 0x0F, length == 0
        payload = feed.take(packed, "an lz4 block")
        if lz4 is not None and length:
            yield _lz4_content(lz4, xxhash, place, token, payload, length, checksum)
    if not ended:
        raise TruncatedFileError(f"ends at byte {feed.place}, before the last lz4 block")
    if lz4 is None:
        raise CannotDecode


def _check_lz4_header(place: int, token: int, packed: int, length: int, checksum: int) -> None:
    method, largest = token & 0xF0, 1 << (10 + (token & 0x0F))
    sound = (
        method in (_LZ4_RAW, _LZ4_PACKED)
        and 0 <= length <= min(largest, packed * _LZ4_RATIO)
        and 0 <= packed <= largest * 2
        and (method == _LZ4_PACKED or packed == length)
        and (length == 0) == (packed == 0)
        and (length > 0 or checksum == 0)
    )
    if not sound:
        raise DamagedFileError(f"byte {place}: the header of an lz4 block contradicts itself")


def _lz4_content(
    lz4: Any, xxhash: Any | None, place: int, token: int, payload: bytes, length: int, checksum: int
) -> bytes:
    content = payload
    if token & 0xF0 == _LZ4_PACKED:
        try:
            content = lz4.decompress(payload, uncompressed_size=length)
        except (lz4.LZ4BlockError, ValueError):
            raise DamagedFileError(f"byte {place}: an lz4 block cannot be decompressed") from None
    if len(content) != length:
        raise DamagedFileError(f"byte {place}: an lz4 block holds {len(content)} bytes, its header says {length}")
    # lz4-java keeps 28 of the 32 bits.
    if xxhash is not None and xxhash.xxh32_intdigest(content, _LZ4_SEED) & 0x0FFFFFFF != checksum:
        raise DamagedFileError(f"byte {place}: the checksum of an lz4 block does not match")
    return content


# -- snappy ------------------------------------------------------------------------------------------------------


def _snappy_blocks(feed: Feed, doubts: Doubts) -> Iterator[bytes]:
    """snappy-java's chunks: a length and raw snappy; a stream appended to another brings its header along."""
    cramjam = helper("cramjam")
    if cramjam is None:
        doubts.add(absence("cramjam", "the content of snappy blocks was not proven"))
    doubts.add("snappy has no checksum: a changed value would not be seen")
    _check_snappy_header(feed, feed.take(len(SNAPPY_MAGIC), "the snappy header"))
    while not feed.ended:
        place = feed.place
        head = feed.take(4, "the length of a snappy block")
        if head == SNAPPY_MAGIC[:4]:
            _check_snappy_header(feed, head + feed.take(4, "the snappy header"))
            continue
        packed = int.from_bytes(head, "big")
        if not 0 < packed <= _SNAPPY_LARGEST:
            raise DamagedFileError(f"byte {place}: a snappy block of {packed} bytes")
        payload = feed.take(packed, "a snappy block")
        if cramjam is not None:
            yield _snappy_content(cramjam, place, payload)
    if cramjam is None:
        raise CannotDecode


def _check_snappy_header(feed: Feed, magic: bytes) -> None:
    versions = feed.take(8, "the snappy header")
    if magic != SNAPPY_MAGIC or versions != b"\0\0\0\x01" * 2:
        raise DamagedFileError(f"byte {feed.place - 16}: not the header of a snappy stream")


def _snappy_content(cramjam: Any, place: int, payload: bytes) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(payload)
        if length <= min(len(payload) * _SNAPPY_RATIO, _SNAPPY_LARGEST):
            return bytes(cramjam.snappy.decompress_raw(payload))
    except cramjam.DecompressionError:
        pass
    raise DamagedFileError(f"byte {place}: a snappy block cannot be decompressed")
