"""The tables of a RocksDB snapshot, proven block by block.

Spark takes a block whose checksum does not match for the end of the table and goes on without the rest of the rows, in
silence. So every block is read here: data, filters, properties, index. The index at the end tells where they are; they
are then read in large windows from the front, whatever their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import (
    DamagedBlockError,
    DamagedSstError,
    TruncatedFileError,
)
from airflow_provider_checkpoint.layouts.structured_streaming.files._rocksdb_manifest import session_mark
from airflow_provider_checkpoint.layouts.structured_streaming.files._sst_blocks import (
    FOOTER,
    LARGEST_CONTENT,
    TRAILER,
    Handle,
    checker,
    content_of,
    entries,
    handle,
    index_handles,
    read_footer,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts

_WINDOW = 8 * 1024 * 1024
#: Most indexes and everything behind them fit.
_TAIL = 256 * 1024

_PROPERTIES = "rocksdb.properties"
_SESSION = "rocksdb.creating.session.identity"

Origin: TypeAlias = tuple[int, int]
"""The mark of the session of RocksDB that made a table, and its number there."""
_INDEX = "rocksdb.index"
_PARTITIONED_FILTER = "partitionedfilter."
#: RocksDB's blocks are of kilobytes; one of a single huge row is of that row's size.
_LARGEST_BLOCK = 512 * 1024 * 1024
_TWO_LEVEL, _WITH_FIRST_KEY = 2, 3


class Window:
    """A stored object of which one stretch is held, moved to wherever is looked."""

    def __init__(self, blobs: BlobStore, key: str, size: int) -> None:
        self._blobs, self._key, self.size = blobs, key, size
        self._start, self._held = 0, memoryview(b"")

    def view(self, start: int, length: int, ahead: int = _WINDOW) -> memoryview:
        """Exactly these bytes, which lie inside; fetches as much as ``ahead`` from there on if they are not held."""
        place = start - self._start
        if place < 0 or place + length > len(self._held):
            wanted = min(max(length, ahead), self.size - start)
            data = self._blobs.read(self._key, start=start, length=wanted)
            if len(data) != wanted:
                raise StoreUnavailableError(
                    f"the store sent {len(data)} of {wanted} bytes",
                    subject=self._key,
                    hint="Look again: the object was replaced while it was read.",
                )
            self._start, self._held, place = start, memoryview(data), 0
        return self._held[place : place + length]


def verify(blobs: BlobStore, key: str, size: int | None, doubts: Doubts) -> tuple[int | None, Origin | None]:
    """Prove every block of a table; answers how many entries it has and where it comes from, if it says.

    Raises DamagedFileError.
    """
    info = blobs.stat(key)
    if info is None:
        raise BlobNotFoundError("no such object", subject=key)
    if size is not None and info.size != size:
        raise TruncatedFileError(f"{info.size} bytes, {size} were expected")
    if info.size < FOOTER:
        raise TruncatedFileError(f"{info.size} bytes are no SST")
    return _Table(blobs, key, info.size, doubts).verify()


class _Table:
    def __init__(self, blobs: BlobStore, key: str, size: int, doubts: Doubts) -> None:
        self._size, self._doubts = size, doubts
        self._front = Window(blobs, key, size)
        # A small table is read once; of a large one the end is kept while the front passes by.
        self._back = self._front if size <= _WINDOW else Window(blobs, key, size)
        first = 0 if size <= _WINDOW else size - _TAIL
        self._back.view(first, size - first)
        self._footer = read_footer(bytes(self._back.view(size - FOOTER, FOOTER)), size, doubts)
        self._checksum = checker(self._footer.checksum, self._footer.context, doubts)
        self._proven: list[Handle] = []
        """Blocks other than data."""

    def verify(self) -> tuple[int | None, Origin | None]:
        if self._footer.metaindex.end != self._size - FOOTER:
            raise DamagedSstError("the footer does not follow the last block")
        metaindex = self._content(self._footer.metaindex)
        if metaindex is None:
            return None, None
        named = {name.decode("utf-8", "replace"): handle(value, 0)[0] for name, value in entries(metaindex)}
        properties = self._properties(named)
        # No checksum covers the version in the footer; the properties repeat it.
        if self._number(properties, "rocksdb.format.version") not in (None, 0, self._footer.version):
            raise DamagedSstError("the footer and the properties tell different versions")
        index = self._footer.index or named.get(_INDEX)
        if index is None:
            raise DamagedSstError("an SST without an index")
        differences = bool(self._number(properties, "rocksdb.index.value.is.delta.encoded"))
        for name, place in named.items():
            if name not in (_PROPERTIES, _INDEX):
                self._other(place, partitioned=name.startswith(_PARTITIONED_FILTER), differences=differences)
        kind = int.from_bytes(properties.get("rocksdb.block.based.table.index.type", b"\0")[:4], "little")
        blocks = self._data_blocks(index, kind, differences=differences)
        if blocks is not None:
            told = self._number(properties, "rocksdb.num.data.blocks")
            if told is not None and told != blocks:
                raise DamagedSstError(f"{blocks} data blocks, the properties say {told}")
        mark = session_mark(properties.get(_SESSION, b"").decode("utf-8", "replace"))
        number = self._number(properties, "rocksdb.original.file.number")
        origin = None if mark is None or number is None else (mark, number)
        return self._number(properties, "rocksdb.num.entries"), origin

    # -- parts ---------------------------------------------------------------------------------------------------

    def _properties(self, named: dict[str, Handle]) -> dict[str, bytes]:
        if _PROPERTIES not in named:
            raise DamagedSstError("an SST without properties")
        content = self._content(named[_PROPERTIES])
        return {} if content is None else {key.decode("utf-8", "replace"): value for key, value in entries(content)}

    @staticmethod
    def _number(properties: dict[str, bytes], name: str) -> int | None:
        return varint(properties[name], 0)[0] if name in properties else None

    def _other(self, place: Handle, *, partitioned: bool, differences: bool) -> None:
        if not partitioned:
            self._prove(self._back, place)
            self._proven.append(place)
            return
        content = self._content(place)
        for part in () if content is None else index_handles(content, differences=differences):
            self._prove(self._back, part)
            self._proven.append(part)

    def _data_blocks(self, index: Handle, kind: int, *, differences: bool) -> int | None:
        """Prove the data blocks in their order and see that nothing lies between the blocks; None if unreadable."""
        content = self._content(index)
        if content is None:
            return None
        if kind == _WITH_FIRST_KEY:
            self._doubts.add("an SST with an index of first keys: its data blocks were not proven")
            return None
        count = end = 0
        for place in self._leaves(content, kind, differences=differences):
            self._follow(end, place)
            self._prove(self._front, place)
            count, end = count + 1, place.end
        for place in sorted(self._proven):
            self._follow(end, place)
            end = place.end
        self._follow(end, Handle(self._size - FOOTER, 0))
        return count

    def _leaves(self, content: bytes, kind: int, *, differences: bool) -> Iterator[Handle]:
        if kind != _TWO_LEVEL:
            yield from index_handles(content, differences=differences)
            return
        for part in index_handles(content, differences=differences):
            leaf = self._content(part)
            if leaf is None:
                return
            yield from index_handles(leaf, differences=differences)

    def _follow(self, end: int, place: Handle) -> None:
        if place.offset < end:
            raise DamagedSstError(f"byte {place.offset}: two blocks overlap")
        if place.offset > end:
            self._doubts.add("bytes between the blocks of an SST, which no checksum covers")

    # -- blocks --------------------------------------------------------------------------------------------------

    def _content(self, place: Handle) -> bytes | None:
        if place.size > LARGEST_CONTENT:
            raise DamagedSstError(f"byte {place.offset}: an index of {place.size} bytes")
        block = self._prove(self._back, place)
        self._proven.append(place)
        return content_of(bytes(block[: place.size]), block[place.size], self._doubts)

    def _prove(self, window: Window, place: Handle) -> memoryview:
        """The block with its trailer, if its checksum matches."""
        offset, size = place
        if not 0 <= size <= _LARGEST_BLOCK or offset + size + TRAILER > self._size - FOOTER:
            raise DamagedSstError(f"byte {offset}: a block of {size} bytes cannot be")
        block = window.view(offset, size + TRAILER)
        if self._checksum is not None and self._checksum(block[:size], block[size], offset) != int.from_bytes(
            block[size + 1 :], "little"
        ):
            raise DamagedBlockError(f"byte {offset}: the checksum of a block of {size} bytes does not match")
        return block
