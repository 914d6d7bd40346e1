"""Zstandard frames, walked block by block.

The walk is ours, because the library takes a stream that was cut for one that has ended, and because it keeps memory
bounded: no block makes more than 128 KiB. Spark writes frames without a checksum; one that has it is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedFileError
from airflow_provider_checkpoint.layouts.structured_streaming.files._native import absence, helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
    from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

MAGIC = b"\x28\xb5\x2f\xfd"
_LARGEST_BLOCK = 128 * 1024
#: What the library itself takes unless told otherwise; Spark's levels stay below.
_LARGEST_WINDOW = 1 << 27
_RAW, _REPEATED, _PACKED = 0, 1, 2


def blocks(feed: Feed, doubts: Doubts) -> Iterator[bytes]:
    """The content of each block of each frame."""
    from airflow_provider_checkpoint.layouts.structured_streaming.files._codecs import CannotDecode

    zstandard = helper("zstandard")
    if zstandard is None:
        doubts.add(absence("zstandard", "the content of zstd frames was not proven"))
    while not feed.ended:
        yield from _frame(feed, zstandard, doubts)
    if zstandard is None:
        raise CannotDecode


def _frame(feed: Feed, zstandard: Any | None, doubts: Doubts) -> Iterator[bytes]:
    place = feed.place
    header, has_checksum = _header(feed)
    if not has_checksum:
        doubts.add("zstd frame without a checksum: a changed value would not be seen")
    frame = None
    if zstandard is not None:
        frame = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
        yield from _fed(frame, zstandard, header, place)
    last = False
    while not last:
        at = feed.place
        head = feed.take(3, "the header of a zstd block")
        number = int.from_bytes(head, "little")
        last, kind, length = bool(number & 1), number >> 1 & 3, number >> 3
        if kind not in (_RAW, _REPEATED, _PACKED) or length > _LARGEST_BLOCK:
            raise DamagedFileError(f"byte {at}: no zstd block begins here")
        body = feed.take(1 if kind == _REPEATED else length, "a zstd block")
        if last and has_checksum:
            body += feed.take(4, "the checksum of a zstd frame")
        if frame is not None:
            yield from _fed(frame, zstandard, head + body, at)
    if frame is not None and not frame.eof:
        raise DamagedFileError(f"byte {place}: a zstd frame does not end where its last block does")


def _header(feed: Feed) -> tuple[bytes, bool]:
    place = feed.place
    fixed = feed.take(5, "the header of a zstd frame")
    descriptor = fixed[4]
    if fixed[:4] != MAGIC or descriptor & 0x08:
        raise DamagedFileError(f"byte {place}: no zstd frame begins here")
    single = bool(descriptor & 0x20)
    rest = (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + ((1 if single else 0), 2, 4, 8)[descriptor >> 6]
    return fixed + feed.take(rest, "the header of a zstd frame"), bool(descriptor & 0x04)


def _fed(frame: Any, zstandard: Any, data: bytes, place: int) -> Iterator[bytes]:
    try:
        content: bytes = frame.decompress(data)
    except (zstandard.ZstdError, EOFError):
        raise DamagedFileError(f"byte {place}: a zstd block cannot be decompressed") from None
    if frame.unused_data:
        raise DamagedFileError(f"byte {place}: a zstd frame ends before its last block")
    if content:
        yield content
