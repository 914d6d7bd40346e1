"""The MANIFEST of a RocksDB snapshot: which tables belong to it.

RocksDB writes down the session in which it made each table, and does not open a database whose table is of another.
Spark then fails to load the state, although the table is whole and has the right size.

Only what is needed of the format is read. Nothing here is an error: a MANIFEST that is not understood tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedFileError
from airflow_provider_checkpoint.layouts.structured_streaming.files._sst_blocks import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 32 * 1024
_HEADER, _LONG_HEADER = 7, 11
_RECYCLABLE = 5
#: A record that is whole, or the last part of one.
_ENDS = (1, 4, 5, 8)

#: What an edit says, by tag: fields that are numbers, and fields that are texts.
_NUMBERS = (2, 3, 4, 9, 10, 200, 203)
_TEXTS = (1, 201)
_COMPACT_POINTER, _DELETED_FILE, _NEW_FILE = 5, 6, 103
#: Tags with this bit are followed by a text, which those who do not know them pass over.
_IGNORABLE = 1 << 13
_LAST_FIELD, _UNIQUE_ID = 1, 12

_HALF = 2**64 - 1


def sessions_of(manifest: bytes) -> dict[int, int]:
    """Of each table the mark of the session that made it, by the number of the table; empty if it cannot be told."""
    found: dict[int, int] = {}
    try:
        for edit in _records(manifest):
            _apply(edit, found)
    except (DamagedFileError, IndexError):
        return {}
    return found


def session_mark(session: str) -> int | None:
    """The mark of a session by its name, as a table has it among its properties: in base 36."""
    if not (13 <= len(session) <= 24 and session.isascii() and session.isalnum()):
        return None
    upper, lower = int(session[:-12], 36), int(session[-12:], 36)
    return (lower & (_HALF >> 2)) | (upper << 62 & _HALF)


def _records(data: bytes) -> Iterator[bytes]:
    place, record = 0, b""
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if kind == 0:
            return
        start = place + (_LONG_HEADER if kind >= _RECYCLABLE else _HEADER)
        record += data[start : start + length]
        place = start + length
        if kind in _ENDS:
            yield record
            record = b""


def _apply(edit: bytes, found: dict[int, int]) -> None:
    place = 0
    while place < len(edit):
        tag, place = varint(edit, place)
        if tag in _TEXTS or tag & _IGNORABLE:
            _, place = _text(edit, place)
        elif tag in _NUMBERS:
            _, place = varint(edit, place)
        elif tag == _COMPACT_POINTER:
            _, place = _text(edit, varint(edit, place)[1])
        elif tag == _DELETED_FILE:
            number, place = varint(edit, varint(edit, place)[1])
            found.pop(number, None)
        elif tag == _NEW_FILE:
            place = _new_file(edit, place, found)
        else:
            # A column family is dropped (202), or something that is not known: the rest cannot be read.
            raise DamagedFileError(f"an edit with tag {tag}")


def _new_file(edit: bytes, place: int, found: dict[int, int]) -> int:
    """Level, number, size, smallest and largest key, smallest and largest sequence number; then fields with names."""
    _, place = varint(edit, place)
    number, place = varint(edit, place)
    _, place = varint(edit, place)
    for read in (_text, _text, varint, varint):
        _, place = read(edit, place)
    while True:
        field, place = varint(edit, place)
        if field == _LAST_FIELD:
            return place
        value, place = _text(edit, place)
        if field == _UNIQUE_ID and len(value) >= 8:
            found[number] = int.from_bytes(value[:8], "little")


def _text(data: bytes, place: int) -> tuple[bytes, int]:
    length, place = varint(data, place)
    if place + length > len(data):
        raise DamagedFileError("an edit that is cut")
    return data[place : place + length], place + length
