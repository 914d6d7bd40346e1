"""State files of any content, in the framing that Spark's codecs use."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lz4.block
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 32 * 1024
END = b"\xff\xff\xff\xff"


def lz4_block(content: bytes, *, token: int = 0x25) -> bytes:
    """One block as lz4-java writes it."""
    packed = lz4.block.compress(content, store_size=False)
    checksum = xxhash.xxh32_intdigest(content, 0x9747B28C) & 0x0FFFFFFF
    return b"LZ4Block" + struct.pack("<BiiI", token, len(packed), len(content), checksum) + packed


def lz4_end(*, token: int = 0x15) -> bytes:
    return b"LZ4Block" + struct.pack("<BiiI", token, 0, 0, 0)


def lz4_stream(content: bytes) -> bytes:
    blocks = [lz4_block(content[start : start + BLOCK]) for start in range(0, len(content), BLOCK)]
    return b"".join(blocks) + lz4_end()


def record(key: bytes, value: bytes | None) -> bytes:
    head = struct.pack(">i", len(key)) + key
    return head + (END if value is None else struct.pack(">i", len(value)) + value)


def records(pairs: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    return b"".join(record(key, value) for key, value in pairs) + END


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data
