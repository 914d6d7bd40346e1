"""The records inside deltas, snapshots and changelogs, walked to their end mark.

::

    plain (delta, snapshot, changelog 1 and 3):  int key size, key, int value size, value ... | int -1
                                                 value size -1: the key was deleted
    typed (changelog 2 and 4):                   0x01 put, 0x11 merge, 0x20 delete range: two sized blocks
                                                 0x10 delete: a sized block, int -1
                                                 0x00: the end

Numbers are big-endian. A changelog from version 2 on begins with its version, and from 3 on with its lineage, each as a
16-bit length and text. Keys and values are rows without a checksum: only their sizes are looked at.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedFileError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Lineage
    from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

_INT = struct.Struct(">i")
_END = -1
_DELETED = -1
#: Java cannot hold a larger array, so that no row is.
_LARGEST = 2**31 - 1

_EOF, _PUT, _DELETE, _MERGE, _DELETE_RANGE = 0x00, 0x01, 0x10, 0x11, 0x20
_TYPES = frozenset({_PUT, _DELETE, _MERGE, _DELETE_RANGE})

#: ``v`` and a digit behind a 16-bit length of two.
_VERSION = re.compile(rb"\x00\x02v(\d)", re.DOTALL)
_NEWEST = 4


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a changelog."""

    version: int
    lineage: Lineage = ()

    @property
    def typed(self) -> bool:
        return self.version in (2, 4)


def changelog_header(feed: Feed) -> Header:
    """Version and lineage; the feed then stands at the first record. Version 1 has no header."""
    match = _VERSION.match(feed.peek(4))
    if match is None:
        return Header(1)
    version = int(match[1])
    if not 2 <= version <= _NEWEST:
        raise DamagedFileError(f"changelog version {version}; known are 1 to {_NEWEST}")
    feed.take(4, "the version")
    return Header(version, _lineage(feed) if version >= 3 else ())


def walk_plain(feed: Feed, *, deletes: bool = True) -> int:
    """Go over records to the end mark and make sure that nothing follows; answers how many there were.

    :param deletes: whether a key may come without a value; in a snapshot none does.
    """
    count = 0
    while True:
        # Most records lie whole in what is held; the one that does not, or that is wrong, gets a closer look.
        place, passed = _plain_held(feed.held, least=_DELETED if deletes else 0)
        feed.advance(place)
        count += passed
        size = _int(feed, "the size of a key")
        if size == _END:
            break
        _skip_block(feed, size, "a key")
        value = _int(feed, "the size of a value")
        if value != _DELETED:
            _skip_block(feed, value, "a value")
        elif not deletes:
            raise DamagedFileError(f"record {count + 1}: a key without a value in a snapshot")
        count += 1
    _check_end(feed)
    return count


def walk_typed(feed: Feed) -> int:
    """The same for records that begin with their type."""
    count = 0
    while True:
        place, passed = _typed_held(feed.held)
        feed.advance(place)
        count += passed
        kind = feed.take(1, "the type of a record")[0]
        if kind == _EOF:
            break
        if kind not in _TYPES:
            raise DamagedFileError(f"record {count + 1}: unknown type {kind:#04x}")
        _skip_block(feed, _int(feed, "the size of a key"), "a key")
        value = _int(feed, "the size of a value")
        if kind != _DELETE:
            _skip_block(feed, value, "a value")
        elif value != _DELETED:
            raise DamagedFileError(f"record {count + 1}: a deleted key with a value")
        count += 1
    _check_end(feed)
    return count


def _plain_held(held: memoryview, least: int) -> tuple[int, int]:
    """Go over the sound records that lie whole in some bytes: where they end, how many they are."""
    unpack = _INT.unpack_from
    place = count = 0
    limit = len(held) - 4
    while place <= limit:
        size = unpack(held, place)[0]
        middle = place + 4 + size
        if size < 0 or middle > limit:
            break
        value = unpack(held, middle)[0]
        end = middle + 4 + value if value > 0 else middle + 4
        if value < least or end > limit + 4:
            break
        place, count = end, count + 1
    return place, count


def _typed_held(held: memoryview) -> tuple[int, int]:
    unpack = _INT.unpack_from
    place = count = 0
    limit = len(held) - 4
    while place < limit:
        kind, size = held[place], unpack(held, place + 1)[0]
        middle = place + 5 + size
        if kind not in _TYPES or size < 0 or middle > limit:
            break
        value = unpack(held, middle)[0]
        end = middle + 4 + value if value > 0 else middle + 4
        if (value < 0) != (kind == _DELETE) or value < _DELETED or end > limit + 4:
            break
        place, count = end, count + 1
    return place, count


def _int(feed: Feed, what: str) -> int:
    value: int = _INT.unpack(feed.take(4, what))[0]
    return value


def _skip_block(feed: Feed, size: int, what: str) -> None:
    if not 0 <= size <= _LARGEST:
        raise DamagedFileError(f"content byte {feed.place}: {what} of {size} bytes")
    feed.skip(size, what)


def _check_end(feed: Feed) -> None:
    if not feed.ended:
        raise DamagedFileError(f"content byte {feed.place}: more bytes behind the end mark")


def _lineage(feed: Feed) -> Lineage:
    length = int.from_bytes(feed.take(2, "the length of the lineage"), "big")
    text = feed.take(length, "the lineage")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedFileError("the lineage is not JSON") from None
    if not isinstance(items, list):
        raise DamagedFileError("the lineage is not a list")
    return tuple(_lineage_item(item) for item in items)


def _lineage_item(item: Any) -> tuple[int, str]:
    match item:
        case {"version": int(version), "checkpointUniqueId": str(unique_id)} if version >= 0:
            return version, unique_id
    raise DamagedFileError("the lineage names something that is not a version with a unique id")
