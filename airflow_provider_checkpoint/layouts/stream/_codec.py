"""The bytes of a checkpoint state: little-endian, without magic, version or checksum.

::

    u64 sequence | u64 watermark_ns | u64 event_count
    u32 n, then n operators:  u32 length, name in UTF-8 | u32 length, state
    u32 n, then n sources:    u32 length, name in UTF-8 | u64 offset

Reading is strict: whatever is cut, left over, named twice or larger than it can be is an error that says where. The
``lenient`` reader accepts what the reference implementation accepts: the part about sources may be cut off when fewer
than 4 bytes of it are left, bytes after it are ignored, the last of two equal names wins, and no limit applies.

Reading never copies state: it answers where each operator's state lies. So the same walk serves a buffer in memory and
an object of which only names and lengths are fetched.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from airflow_provider_checkpoint.exceptions import CorruptArtifactError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Buffer

Value = TypeVar("Value")

MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1

#: Neither written nor, unless lenient, read beyond these. The format could; no pipeline has such names or so many.
MAX_NAME_BYTES = 1024 * 1024
MAX_ENTRIES = 1_000_000

#: Encoded states leave in pieces of about this size, so that whoever takes them never holds a second copy of the whole.
PIECE = 1024 * 1024

_HEADER = struct.Struct("<QQQ")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_HINT = "The file was cut or changed, or something else wrote it. Go back to an older checkpoint."


# -- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """Where the state of an operator lies."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Outline:
    """Everything a checkpoint state says, but for the states themselves."""

    sequence: int
    watermark_ns: int
    event_count: int
    operators: Mapping[str, Span]
    source_offsets: Mapping[str, int]


class Source(Protocol):
    """Bytes that can be looked at here and there."""

    @property
    def size(self) -> int: ...

    def view(self, start: int, length: int) -> memoryview:
        """Exactly these bytes. The caller has made sure that they lie inside."""


class BufferSource:
    """Bytes in memory."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B")

    @property
    def size(self) -> int:
        return len(self._view)

    def view(self, start: int, length: int) -> memoryview:
        return self._view[start : start + length]


def outline(source: Source, *, subject: str, lenient: bool = False) -> Outline:
    """Walk over an encoded state; raises CorruptArtifactError that names the byte and what was expected there."""
    cursor = _Cursor(source, subject, lenient=lenient)
    sequence, watermark_ns, event_count = _HEADER.unpack(cursor.take(_HEADER.size, "the header"))
    operators = cursor.entries(
        "operator", 8, lambda: cursor.skip(cursor.u32("the length of the operator state"), "the operator state")
    )
    if lenient and cursor.left < _U32.size:
        return Outline(sequence, watermark_ns, event_count, operators, {})
    sources = cursor.entries("source", 12, lambda: cursor.u64("the source offset"))
    if cursor.left and not lenient:
        cursor.fail(f"expected the end, {cursor.left} bytes are left over")
    return Outline(sequence, watermark_ns, event_count, operators, sources)


class _Cursor:
    """A place in the bytes that moves forward and knows how to complain."""

    def __init__(self, source: Source, subject: str, *, lenient: bool) -> None:
        self._source = source
        self._subject = subject
        self._lenient = lenient
        self._size = source.size
        self._place = 0

    @property
    def left(self) -> int:
        return self._size - self._place

    def fail(self, problem: str, *, place: int | None = None) -> NoReturn:
        where = self._place if place is None else place
        raise CorruptArtifactError(f"byte {where} of {self._size}: {problem}", subject=self._subject, hint=_HINT)

    def take(self, length: int, what: str) -> memoryview:
        span = self.skip(length, what)
        return self._source.view(span.start, span.length)

    def skip(self, length: int, what: str) -> Span:
        if length > self.left:
            self.fail(f"expected {what} ({length} bytes), only {self.left} are left")
        span = Span(self._place, length)
        self._place += length
        return span

    def u32(self, what: str) -> int:
        value: int = _U32.unpack(self.take(_U32.size, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack(self.take(_U64.size, what))[0]
        return value

    def name(self, what: str) -> str:
        length = self.u32(f"the length of the {what} name")
        if length > MAX_NAME_BYTES and not self._lenient:
            self.fail(f"a name of {length} bytes, the limit is {MAX_NAME_BYTES}", place=self._place - _U32.size)
        start = self._place
        try:
            return str(self.take(length, f"the {what} name"), "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"expected the {what} name in UTF-8", place=start + error.start)

    def entries(self, what: str, least: int, value: Callable[[], Value]) -> dict[str, Value]:
        """A counted list of names with values, none of which takes fewer bytes than ``least``."""
        start = self._place
        count = self.u32(f"the number of {what}s")
        if count * least > self.left:
            self.fail(f"{count} {what}s cannot fit into the {self.left} bytes that are left", place=start)
        if count > MAX_ENTRIES and not self._lenient:
            self.fail(f"{count} {what}s, the limit is {MAX_ENTRIES}", place=start)
        found: dict[str, Value] = {}
        for _ in range(count):
            start = self._place
            name = self.name(what)
            if name in found and not self._lenient:
                self.fail(f"the {what} {name!r} appears twice", place=start)
            found[name] = value()
        return found


# -- writing -----------------------------------------------------------------------------------------------------


def pieces(
    sequence: int,
    watermark_ns: int,
    event_count: int,
    operator_states: Mapping[str, Buffer],
    source_offsets: Mapping[str, int],
) -> list[Buffer]:
    """The encoded state as a list that refers to the states and copies none; names sorted by their UTF-8 bytes.

    Everything is checked before the first byte leaves; raises UnsupportedError for what the format cannot hold.
    """
    header = _HEADER.pack(
        _fits(sequence, MAX_U64, "sequence"),
        _fits(watermark_ns, MAX_U64, "watermark_ns"),
        _fits(event_count, MAX_U64, "event_count"),
    )
    parts: list[Buffer] = [header, _count(operator_states, "operators")]
    for name, operator in _sorted_names(operator_states):
        state = operator_states[operator]
        length = _fits(memoryview(state).nbytes, MAX_U32, f"the size of the state of operator {operator!r}")
        parts += (_U32.pack(len(name)) + name + _U32.pack(length), state)
    parts.append(_count(source_offsets, "sources"))
    for name, source in _sorted_names(source_offsets):
        offset = _fits(source_offsets[source], MAX_U64, f"the offset of source {source!r}")
        parts.append(_U32.pack(len(name)) + name + _U64.pack(offset))
    return parts


def gathered(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    """The same bytes in pieces of about :data:`PIECE`: small parts are put together, large ones cut without copying."""
    small = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        if len(small) + len(view) <= PIECE:
            small += view
            continue
        if small:
            yield bytes(small)
            small.clear()
        for start in range(0, len(view), PIECE):
            yield view[start : start + PIECE]
    if small:
        yield bytes(small)


def _sorted_names(values: Mapping[str, object]) -> list[tuple[bytes, str]]:
    return sorted((_encoded(name), name) for name in values)


def _encoded(name: str) -> bytes:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise UnsupportedError("a name that is not valid Unicode cannot be written", subject=repr(name)) from None
    if len(encoded) > MAX_NAME_BYTES:
        raise UnsupportedError(
            f"a name of {len(encoded)} bytes cannot be written, the limit is {MAX_NAME_BYTES}",
            subject=f"{name[:40]!r}...",
        )
    return encoded


def _count(values: Mapping[str, object], what: str) -> bytes:
    return _U32.pack(_fits(len(values), MAX_ENTRIES, f"the number of {what}"))


def _fits(value: int, most: int, what: str) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise UnsupportedError(
            f"{what} is {value!r}, the format holds whole numbers from 0 to {most}",
            hint="Nothing was written. Larger states go into several operators, or into the partitioned layout.",
        )
    return value
