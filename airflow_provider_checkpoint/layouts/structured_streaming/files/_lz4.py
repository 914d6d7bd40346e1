"""LZ4 blocks in plain Python, for the few kilobytes that must be read even where no helper is installed."""

from __future__ import annotations


class LZ4BlockError(Exception):
    """Not an LZ4 block."""


def decompress(packed: bytes, uncompressed_size: int) -> bytes:
    """Undo LZ4, with the signature and the error of ``lz4.block``; makes no more than ``uncompressed_size`` bytes."""
    try:
        content = _expanded(packed, uncompressed_size)
    except IndexError:
        content = b""
    if len(content) != uncompressed_size:
        raise LZ4BlockError
    return content


def _expanded(packed: bytes, limit: int) -> bytes:
    out = bytearray()
    place = 0
    while place < len(packed) and len(out) <= limit:
        token = packed[place]
        literals, place = _length(packed, place + 1, token >> 4)
        out += packed[place : place + literals]
        place += literals
        if place >= len(packed):
            return bytes(out) if place == len(packed) else b""
        back = packed[place] | packed[place + 1] << 8
        length, place = _length(packed, place + 2, token & 0x0F)
        if not 0 < back <= len(out) or length + 4 > limit:
            return b""
        pattern = bytes(out[-back:])
        out += (pattern * ((length + 4) // back + 1))[: length + 4]
    return b""


def _length(packed: bytes, place: int, nibble: int) -> tuple[int, int]:
    if nibble < 15:
        return nibble, place
    length = nibble
    while True:
        byte = packed[place]
        place += 1
        length += byte
        if byte < 255:
            return length, place
