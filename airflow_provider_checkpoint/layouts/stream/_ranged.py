"""A stored object of which only some places are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import StoreUnavailableError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

_FIRST_WINDOW = 64 * 1024
_LARGEST_WINDOW = 8 * 1024 * 1024
_READS_PER_SIZE = 8


class RangedSource:
    """Fetches a window around what is looked at, moving forward.

    A few operators with large states cost a few small reads. The window grows as reads add up, so an object of ten
    thousand operators costs about one read per 8 MiB, never one per operator; and a small object is read once.
    """

    def __init__(self, blobs: BlobStore, key: str, size: int) -> None:
        self._blobs = blobs
        self._key = key
        self._size = size
        self._start = 0
        self._window = memoryview(b"")
        self._reads = 0

    @property
    def size(self) -> int:
        return self._size

    def view(self, start: int, length: int) -> memoryview:
        if length and not self._start <= start <= start + length <= self._start + len(self._window):
            self._fetch(start, length)
        return self._window[start - self._start : start - self._start + length]

    def _fetch(self, start: int, length: int) -> None:
        usual = min(_FIRST_WINDOW << (self._reads // _READS_PER_SIZE), _LARGEST_WINDOW)
        wanted = min(max(usual, length), self._size - start)
        data = self._blobs.read(self._key, start=start, length=wanted)
        if len(data) != wanted:
            # These objects are never rewritten, so this is a store that answers wrongly, or somebody's hand.
            raise StoreUnavailableError(
                f"the store sent {len(data)} of {wanted} bytes",
                subject=self._key,
                hint="Look again: the object was replaced while it was read.",
            )
        self._start, self._window = start, memoryview(data)
        self._reads += 1
