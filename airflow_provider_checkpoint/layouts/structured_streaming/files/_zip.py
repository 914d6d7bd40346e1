"""The zip of a RocksDB snapshot: walked as Spark reads it, from the front, and held against its own directory.

Spark's reader goes by the headers before each member; other tools go by the directory at the end. A flipped bit in one
of them shows as a difference between the two, in a member as a wrong CRC.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedZipError, TruncatedFileError
from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

_LOCAL = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_CENTRAL = b"PK\x01\x02"
_END = b"PK\x05\x06"

_STORED, _DEFLATED = 0, 8
_SIZES_FOLLOW = 0x08
#: A name is in UTF-8.
_KNOWN_FLAGS = _SIZES_FOLLOW | 0x0800
_ZIP64 = 0xFFFFFFFF

_LOCAL_FIELDS = struct.Struct("<HHHHHIIIHH")
_DESCRIPTOR_FIELDS = struct.Struct("<III")
_CENTRAL_FIELDS = struct.Struct("<HHHHHHIIIHHHHHII")
_END_FIELDS = struct.Struct("<HHHHIIH")

_PIECE = 256 * 1024
#: Members are small, and what is read too far is put back: begin with little.
_FIRST_PIECE = 4 * 1024


class Shape(NamedTuple):
    """What both headers of a member say."""

    version: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """One member and where its header stands."""

    offset: int
    shape: Shape

    @property
    def span(self) -> int:
        """How many bytes from its header on hold it, whatever the header brings along."""
        return 4 + _LOCAL_FIELDS.size + 2 * 0xFFFF + self.shape.packed


def walk(feed: Feed, keep: Callable[[bytes], int]) -> dict[bytes, bytes]:
    """Prove every member and the directory; answers the content of those that ``keep`` gives a largest size for."""
    kept: dict[bytes, bytes] = {}
    members: list[Member] = []
    while (signature := feed.take(4, "the zip")) == _LOCAL:
        member, content = _member(feed, keep)
        members.append(member)
        if content is not None:
            kept[member.shape.name] = content
    directory = feed.place - 4
    for member in members:
        if signature != _CENTRAL:
            raise DamagedZipError(f"byte {feed.place - 4}: the directory does not list {_shown(member.shape.name)}")
        if _directory_entry(feed) != member:
            raise DamagedZipError(f"the directory and the header of {_shown(member.shape.name)} differ")
        signature = feed.take(4, "the directory of the zip")
    if signature != _END:
        raise DamagedZipError(f"byte {feed.place - 4}: neither a member nor the end of the zip")
    length = feed.place - 4 - directory
    end = _END_FIELDS.unpack(feed.take(_END_FIELDS.size, "the end of the zip"))
    if end != (0, 0, len(members), len(members), length, directory, 0) or not feed.ended:
        raise DamagedZipError("the end of the zip does not describe what is before it")
    return kept


def locate(tail: bytes, size: int, name: bytes) -> Member | tuple[int, int]:
    """Find a member by the directory.

    :param tail: the last bytes of the zip, of which ``size`` is the length.

    Answers the range of the directory instead if the tail does not reach back to it. Raises DamagedZipError.
    """
    place = len(tail) - 4 - _END_FIELDS.size
    if place < 0 or tail[place : place + 4] != _END:
        raise TruncatedFileError("does not end like a zip")
    *_, count, length, start, comment = _END_FIELDS.unpack_from(tail, place + 4)
    if start + length != size - 4 - _END_FIELDS.size or comment:
        raise DamagedZipError("the end of the zip does not describe what is before it")
    first = start - (size - len(tail))
    if first < 0:
        return start, size - start
    return _find(tail[first:place], count, name)


def member_content(data: bytes, member: Member, limit: int) -> bytes:
    """Inflate one member from the bytes that begin with its header, and check it; raises DamagedZipError."""
    if data[:4] != _LOCAL or len(data) < 4 + _LOCAL_FIELDS.size:
        raise DamagedZipError(f"byte {member.offset}: no member begins here")
    *_, name_length, extra_length = _LOCAL_FIELDS.unpack_from(data, 4)
    start = 4 + _LOCAL_FIELDS.size + name_length + extra_length
    packed = data[start : start + member.shape.packed]
    if member.shape.size > limit:
        raise DamagedZipError(f"{_shown(member.shape.name)} of {member.shape.size} bytes")
    try:
        content = packed if member.shape.method == _STORED else zlib.decompressobj(-15).decompress(packed, limit + 1)
    except zlib.error:
        content = b""
    if len(content) != member.shape.size or zlib.crc32(content) != member.shape.crc:
        raise DamagedZipError(f"the CRC of {_shown(member.shape.name)} does not match")
    return content


# -- members -----------------------------------------------------------------------------------------------------


def _member(feed: Feed, keep: Callable[[bytes], int]) -> tuple[Member, bytes | None]:
    offset = feed.place - 4
    fields = _LOCAL_FIELDS.unpack(feed.take(_LOCAL_FIELDS.size, "the header of a member"))
    *_, name_length, extra = fields
    name = feed.take(name_length, "the name of a member")
    feed.skip(extra, "the header of a member")
    shape = Shape._make((*fields[:8], name))
    if shape.flags & ~_KNOWN_FLAGS or shape.method not in (_STORED, _DEFLATED):
        raise DamagedZipError(f"byte {offset}: a member that Spark does not write")
    limit = keep(name)
    content, crc, packed, size = (
        _stored(feed, shape, limit) if shape.method == _STORED else _inflated(feed, name, limit)
    )
    if shape.flags & _SIZES_FOLLOW:
        if (shape.crc, shape.packed, shape.size) != (0, 0, 0) or feed.take(4, "a member") != _DESCRIPTOR:
            raise DamagedZipError(f"{_shown(name)} is not followed by its sizes")
        told = _DESCRIPTOR_FIELDS.unpack(feed.take(_DESCRIPTOR_FIELDS.size, "the sizes of a member"))
        shape = shape._replace(crc=told[0], packed=told[1], size=told[2])
    if (crc, packed, size) != (shape.crc, shape.packed, shape.size):
        raise DamagedZipError(f"the CRC of {_shown(name)} does not match")
    return Member(offset, shape), content if limit else None


def _stored(feed: Feed, shape: Shape, limit: int) -> tuple[bytes, int, int, int]:
    if shape.flags & _SIZES_FOLLOW:
        raise DamagedZipError(f"{_shown(shape.name)} is stored without its size")
    if limit and shape.size > limit:
        raise DamagedZipError(f"{_shown(shape.name)} is larger than {limit} bytes")
    kept, crc, left = bytearray(), 0, shape.size
    while left:
        piece = feed.take(min(left, _PIECE), "a member")
        crc, left = zlib.crc32(piece, crc), left - len(piece)
        if limit:
            kept += piece
    return bytes(kept), crc, shape.size, shape.size


def _inflated(feed: Feed, name: bytes, limit: int) -> tuple[bytes, int, int, int]:
    """Inflate to the end of the deflate stream, a piece at a time; holds it only up to a limit that is not 0."""
    inflater = zlib.decompressobj(-15)
    kept, crc, size, packed = bytearray(), 0, 0, 0
    while not inflater.eof:
        data = inflater.unconsumed_tail or feed.upto(min(_FIRST_PIECE + packed, _PIECE))
        if not data:
            raise TruncatedFileError(f"ends at byte {feed.place}, inside {_shown(name)}")
        packed += 0 if inflater.unconsumed_tail else len(data)
        try:
            piece = inflater.decompress(data, _PIECE)
        except zlib.error:
            raise DamagedZipError(f"{_shown(name)} cannot be inflated") from None
        crc, size = zlib.crc32(piece, crc), size + len(piece)
        if limit:
            kept += piece
            if size > limit:
                raise DamagedZipError(f"{_shown(name)} is larger than {limit} bytes")
    feed.put_back(inflater.unused_data)
    return bytes(kept), crc, packed - len(inflater.unused_data), size


# -- directory ---------------------------------------------------------------------------------------------------


def _directory_entry(feed: Feed) -> Member:
    fields = _CENTRAL_FIELDS.unpack(feed.take(_CENTRAL_FIELDS.size, "the directory of the zip"))
    name_length, extra, comment, _disk, _internal, _external, offset = fields[9:]
    name = feed.take(name_length, "the directory of the zip")
    feed.skip(extra + comment, "the directory of the zip")
    return Member(offset, Shape._make((*fields[1:9], name)))


def _find(directory: bytes, count: int, name: bytes) -> Member:
    feed = Feed([directory])
    for _ in range(count):
        if feed.take(4, "the directory of the zip") != _CENTRAL:
            break
        member = _directory_entry(feed)
        if member.shape.name == name:
            if _ZIP64 in (member.offset, member.shape.packed, member.shape.size):
                break
            return member
    raise DamagedZipError(f"no member {_shown(name)}")


def _shown(name: bytes) -> str:
    return repr(name[:100].decode("utf-8", "replace"))
