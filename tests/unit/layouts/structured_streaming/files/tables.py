"""Tables as RocksDB lays them out, for shapes that Spark's settings do not produce. Written after RocksDB's format."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import google_crc32c
import xxhash

MAGIC = 0x88E241B785F4CFF7
CRC32C, XXH32, XXH64, XXH3 = 1, 2, 3, 4


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def checksum(kind: int, content: bytes) -> int:
    """Of a block that is not compressed, whose last byte is therefore zero."""
    whole = content + b"\0"
    if kind == CRC32C:
        crc = google_crc32c.value(whole)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if kind == XXH32:
        return xxhash.xxh32_intdigest(whole)
    if kind == XXH64:
        return xxhash.xxh64_intdigest(whole) & 0xFFFFFFFF
    return xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF if kind == XXH3 else 0


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Entries that share nothing, and one restart point."""
    body = b"".join(varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs)
    return body + struct.pack("<II", 0, 1)


@dataclass
class Table:
    """Blocks one after another, with the handles that point at them."""

    kind: int = XXH3
    data: bytearray = field(default_factory=bytearray)

    def add(self, content: bytes) -> bytes:
        handle = varint(len(self.data)) + varint(len(content))
        self.data += content + b"\0" + struct.pack("<I", checksum(self.kind, content))
        return handle

    def index(self, handles: list[bytes]) -> bytes:
        return self.add(block([(f"{number:08}".encode(), handle) for number, handle in enumerate(handles)]))

    def finish(self, index: bytes, blocks: int, *, index_type: int = 0, **others: bytes) -> bytes:
        properties = {
            b"rocksdb.block.based.table.index.type": struct.pack("<I", index_type),
            b"rocksdb.format.version": varint(5),
            b"rocksdb.num.data.blocks": varint(blocks),
            b"rocksdb.num.entries": varint(blocks),
        }
        named = {name.replace("_", ".").encode(): handle for name, handle in others.items()}
        named[b"rocksdb.properties"] = self.add(block(sorted(properties.items())))
        footer = bytes([self.kind]) + self.add(block(sorted(named.items()))) + index
        return bytes(self.data) + footer.ljust(41, b"\0") + struct.pack("<IQ", 5, MAGIC)


def plain(contents: list[bytes], kind: int = XXH3) -> bytes:
    """A table with one index."""
    table = Table(kind)
    handles = [table.add(content) for content in contents]
    return table.finish(table.index(handles), len(contents))


def two_level(contents: list[bytes]) -> bytes:
    """A table whose index is cut in two, and whose filter is as well."""
    table = Table()
    handles = [table.add(content) for content in contents]
    filters = table.index([table.add(b"filter 1"), table.add(b"filter 2")])
    half = len(handles) // 2
    index = table.index([table.index(handles[:half]), table.index(handles[half:])])
    return table.finish(index, len(contents), index_type=2, partitionedfilter_bloom=filters)
