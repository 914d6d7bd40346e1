"""The parts of a RocksDB block-based table: footer, handles, blocks, their entries and checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedSstError, TruncatedFileError
from airflow_provider_checkpoint.layouts.structured_streaming.files._native import absence, helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts

FOOTER = 53
#: Behind each block: its compression in one byte, its checksum in four.
TRAILER = 5
#: No index or property block is decompressed beyond this; Spark's are a thousand times smaller.
LARGEST_CONTENT = 64 * 1024 * 1024

_MAGIC = bytes.fromhex("f7cff485b741e288")
_VERSIONS = range(1, 8)
#: From this version on the footer has a checksum and a mark of its own, and block checksums depend on the place.
_PLACED = 6
_PLACED_MARK = b"\x3e\x00\x7a\x00"
_PLACED_FIELDS = struct.Struct("<III")
_U32 = struct.Struct("<I")
_LAST_BYTE = 0x6B9083D9
_LOW = 0xFFFFFFFF

_NONE, _CRC32C, _XXH32, _XXH64, _XXH3 = range(5)


class Handle(NamedTuple):
    """Where a block lies; its trailer follows."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size + TRAILER


@dataclass(frozen=True, slots=True)
class Footer:
    version: int
    checksum: int
    metaindex: Handle
    index: Handle | None
    """From version 6 on it stands in the metaindex."""
    context: int = 0


# -- numbers -----------------------------------------------------------------------------------------------------


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of up to 64 bits and the place behind it."""
    if place < len(data) and data[place] < 0x80:
        return data[place], place + 1
    value = shift = 0
    while shift < 64:
        try:
            byte = data[place]
        except IndexError:
            break
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                break  # The same number could be written shorter, which RocksDB does.
            return value, place
        shift += 7
    raise DamagedSstError("a number that nobody writes so")


def handle(data: bytes, place: int) -> tuple[Handle, int]:
    offset, place = varint(data, place)
    size, place = varint(data, place)
    return Handle(offset, size), place


# -- footer ------------------------------------------------------------------------------------------------------


def read_footer(footer: bytes, size: int, doubts: Doubts) -> Footer:
    """The footer of a table of ``size`` bytes; it has no checksum before version 6, so that each field is checked."""
    if len(footer) < FOOTER or footer[-8:] != _MAGIC:
        raise TruncatedFileError("does not end like an SST")
    checksum, (version,) = footer[0], _U32.unpack_from(footer, 41)
    if version not in _VERSIONS or checksum > _XXH3:
        raise DamagedSstError(f"table version {version} with checksum type {checksum}")
    if version >= _PLACED:
        return _placed_footer(footer, size, version, doubts)
    metaindex, place = handle(footer, 1)
    index, place = handle(footer, place)
    if place > 41 or any(footer[place:41]):
        raise DamagedSstError("the footer holds more than it should")
    return Footer(version, checksum, metaindex, index)


def _placed_footer(footer: bytes, size: int, version: int, doubts: Doubts) -> Footer:
    told, context, length = _PLACED_FIELDS.unpack_from(footer, 5)
    if footer[1:5] != _PLACED_MARK or any(footer[17:41]):
        raise DamagedSstError("the footer is not one of its version")
    place = size - FOOTER
    blank = footer[:5] + bytes(4) + footer[9:]
    found = checker(footer[0], context, doubts)
    if found is not None and found(blank[:-1], blank[-1], place) != told:
        raise DamagedSstError("the checksum of the footer does not match")
    return Footer(version, footer[0], Handle(place - length - TRAILER, length), None, context)


# -- checksums ---------------------------------------------------------------------------------------------------


def checker(kind: int, context: int, doubts: Doubts) -> Callable[[Any, int, int], int] | None:
    """The checksum of a block by its content, last byte and place; None, with a doubt, if it cannot be computed."""
    compute = _compute(kind, doubts)
    if compute is None or not context:
        return compute
    plain = compute

    def placed(content: Any, last: int, place: int) -> int:
        return plain(content, last, place) + (context ^ ((place & _LOW) + (place >> 32) & _LOW)) & _LOW

    return placed


def _compute(kind: int, doubts: Doubts) -> Callable[[Any, int, int], int] | None:
    if kind == _NONE:
        doubts.add("the SST was written without block checksums")
        return lambda _content, _last, _place: 0
    module = "google_crc32c" if kind == _CRC32C else "xxhash"
    library = helper(module)
    if library is None:
        doubts.add(absence(module, "the block checksums of SSTs were not proven"))
        return None
    if kind == _XXH3:
        xxh3 = library.xxh3_64_intdigest
        return lambda content, last, _: xxh3(content) & _LOW ^ last * _LAST_BYTE & _LOW
    if kind == _CRC32C:
        return lambda content, last, _: _masked(library.value(bytes(content) + bytes([last])))
    digest = library.xxh32_intdigest if kind == _XXH32 else library.xxh64_intdigest
    return lambda content, last, _: digest(bytes(content) + bytes([last])) & _LOW


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) & _LOW) + 0xA282EAD8 & _LOW


# -- content -----------------------------------------------------------------------------------------------------


def content_of(data: bytes, compression: int, doubts: Doubts) -> bytes | None:
    """The content of a block; None, with a doubt, if the helper for its compression is missing."""
    if compression == _PLAIN:
        return data
    if compression not in _UNPACK:
        raise DamagedSstError(f"a block of unknown compression {compression}")
    module, unpack = _UNPACK[compression]
    library = helper(module)
    if library is None:
        doubts.add(absence(module, "the index of SSTs could not be read, so that their blocks were not proven"))
        return None
    # Each begins with the length of what it holds; snappy's own format does anyway.
    length, place = varint(data, 0)
    packed = data if compression == _SNAPPY else data[place:]
    content = unpack(library, packed, length) if length <= LARGEST_CONTENT else None
    if content is None or len(content) != length:
        raise DamagedSstError("a block cannot be decompressed")
    return content


def _unsnapped(library: Any, data: bytes, _length: int) -> bytes | None:
    try:
        return bytes(library.snappy.decompress_raw(data))
    except library.DecompressionError:
        return None


def _unlz4ed(library: Any, data: bytes, length: int) -> bytes | None:
    try:
        content: bytes = library.decompress(data, uncompressed_size=length)
    except (library.LZ4BlockError, ValueError):
        return None
    return content


def _unzstded(library: Any, data: bytes, length: int) -> bytes | None:
    try:
        content: bytes = library.ZstdDecompressor().decompress(data, max_output_size=length)
    except library.ZstdError:
        return None
    return content


def _inflated(library: Any, data: bytes, length: int) -> bytes | None:
    try:
        content: bytes = library.decompressobj(-15).decompress(data, length + 1)
    except library.error:
        return None
    return content


_PLAIN, _SNAPPY = 0, 1
#: By the number in a block's trailer.
_UNPACK: dict[int, tuple[str, Callable[[Any, bytes, int], bytes | None]]] = {
    _SNAPPY: ("cramjam", _unsnapped),
    2: ("zlib", _inflated),
    4: ("lz4.block", _unlz4ed),
    5: ("lz4.block", _unlz4ed),
    7: ("zstandard", _unzstded),
}


def entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block."""
    place, end, key = 0, _entries_end(content), b""
    while place < end:
        shared, place = varint(content, place)
        own, place = varint(content, place)
        length, place = varint(content, place)
        if shared > len(key) or place + own + length > end:
            raise DamagedSstError("an entry that leads out of its block")
        key = key[:shared] + content[place : place + own]
        yield key, content[place + own : place + own + length]
        place += own + length


def index_handles(content: bytes, *, differences: bool) -> Iterator[Handle]:
    """The handles in an index block.

    :param differences: whether an entry that shares a part of its key tells only how its size differs from the
        block before, which it follows directly.
    """
    if not differences:
        for _, value in entries(content):
            yield handle(value, 0)[0]
        return
    place, end, last = 0, _entries_end(content), None
    while place < end:
        shared, place = varint(content, place)
        own, place = varint(content, place)
        place += own
        if shared == 0:
            last, place = handle(content, place)
        elif last is None:
            raise DamagedSstError("an index that begins with a difference")
        else:
            number, place = varint(content, place)
            last = Handle(last.end, last.size + (number >> 1 ^ -(number & 1)))
        if place > end:
            raise DamagedSstError("an entry that leads out of its block")
        yield last


def _entries_end(content: bytes) -> int:
    """Where the entries end and the list of restart points begins."""
    if len(content) < 4:
        raise DamagedSstError("a block without a list of restart points")
    restarts = _U32.unpack_from(content, len(content) - 4)[0] & 0x7FFFFFFF
    end = len(content) - 4 - 4 * restarts
    if end < 0:
        raise DamagedSstError("a list of restart points that is longer than its block")
    return int(end)
