"""A stored object, read once from its beginning in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import TruncatedFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer


class Feed:
    """Hands out bytes from the front; holds one piece of the stream and what was asked for, never more."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")
        self._put_aside: list[memoryview] = []
        self.place = 0
        """Bytes handed out so far."""

    @property
    def ended(self) -> bool:
        return not self._piece and not self._refill()

    @property
    def held(self) -> memoryview:
        """What is in memory already, perhaps nothing: for a reader that goes over many small parts at once."""
        return self._piece

    def advance(self, length: int) -> None:
        """Pass over a part of what is held."""
        self._piece = self._piece[length:]
        self.place += length

    def peek(self, length: int) -> bytes:
        """The next bytes, few, which stay where they are; fewer than asked for only at the end."""
        while len(self._piece) < length:
            before = bytes(self._piece)
            if not self._refill():
                self._piece = memoryview(before)
                break
            self._piece = memoryview(before + bytes(self._piece))
        return bytes(self._piece[:length])

    def take(self, length: int, what: str) -> bytes:
        """Exactly so many bytes. The caller has made sure that ``length`` is not absurd."""
        found = self.upto(length)
        if len(found) < length:
            raise TruncatedFileError(f"ends at byte {self.place}, inside {what}")
        return found

    def upto(self, length: int) -> bytes:
        """So many bytes, fewer only at the end."""
        if len(self._piece) >= length:
            taken = bytes(self._piece[:length])
            self._piece = self._piece[length:]
            self.place += length
            return taken
        parts = []
        while length and (self._piece or self._refill()):
            part = self._piece[:length]
            parts.append(part)
            self._piece = self._piece[len(part) :]
            length -= len(part)
        taken = b"".join(parts)
        self.place += len(taken)
        return taken

    def skip(self, length: int, what: str) -> None:
        """Pass over so many bytes; nothing of them is held, however many there are."""
        while length:
            if not self._piece and not self._refill():
                raise TruncatedFileError(f"ends at byte {self.place}, inside {what}")
            passed = min(length, len(self._piece))
            self._piece = self._piece[passed:]
            self.place += passed
            length -= passed

    def put_back(self, taken: bytes) -> None:
        """Return the last bytes that were taken, which turned out to belong to what follows."""
        if taken:
            self._put_aside.append(self._piece)
            self._piece = memoryview(taken)
            self.place -= len(taken)

    def _refill(self) -> bool:
        while self._put_aside:
            self._piece = self._put_aside.pop()
            if self._piece:
                return True
        for piece in self._pieces:
            self._piece = memoryview(piece).cast("B")
            if self._piece:
                return True
        return False
