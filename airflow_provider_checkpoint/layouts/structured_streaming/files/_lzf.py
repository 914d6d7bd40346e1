"""LZF as ning-compress writes it: chunks that begin with ``ZV``, without a checksum.

No wheel decodes it, and it is rarely chosen, so this is plain Python: a few MB/s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
    from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

MAGIC = b"ZV"
_PLAIN, _PACKED = 0, 1
_LITERALS = 32


def chunks(feed: Feed, doubts: Doubts) -> Iterator[bytes]:
    """The content of each chunk, at most 64 KiB."""
    doubts.add("lzf has no checksum: a changed value would not be seen")
    while not feed.ended:
        place = feed.place
        header = feed.take(5, "the header of an lzf chunk")
        kind, length = header[2], int.from_bytes(header[3:], "big")
        if header[:2] != MAGIC or kind not in (_PLAIN, _PACKED):
            raise DamagedFileError(f"byte {place}: no lzf chunk begins here")
        if kind == _PLAIN:
            yield feed.take(length, "an lzf chunk")
            continue
        expected = int.from_bytes(feed.take(2, "the header of an lzf chunk"), "big")
        content = expand(feed.take(length, "an lzf chunk"), expected)
        if content is None:
            raise DamagedFileError(f"byte {place}: an lzf chunk cannot be decompressed")
        yield content


def expand(packed: bytes, expected: int) -> bytes | None:
    """Undo LZF; None unless it makes exactly the expected number of bytes."""
    out = bytearray()
    place, end = 0, len(packed)
    while place < end and len(out) <= expected:
        control = packed[place]
        place += 1
        if control < _LITERALS:
            literals = packed[place : place + control + 1]
            out += literals
            place += control + 1
            continue
        length = control >> 5
        if length == 7:
            if place >= end:
                return None
            length += packed[place]
            place += 1
        if place >= end:
            return None
        back = ((control & 0x1F) << 8) + packed[place] + 1
        place += 1
        if back > len(out):
            return None
        _repeat(out, back, length + 2)
    return bytes(out) if place == end and len(out) == expected else None


def _repeat(out: bytearray, back: int, length: int) -> None:
    """Append bytes from further back; they may run into those just written."""
    start = len(out) - back
    if back >= length:
        out += out[start : start + length]
        return
    pattern = out[start:]
    out += (pattern * (length // back + 1))[:length]
