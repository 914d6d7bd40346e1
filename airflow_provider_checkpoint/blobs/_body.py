"""A body on its way into a store: counted, and with its own errors told apart from the store's."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs._digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer


class Body:
    """An iterator over a body that knows what went through it and remembers the error that broke it.

    Pieces come out as bytes of their own, so a source may fill one buffer again and again.
    """

    def __init__(self, body: bytes | Iterable[Buffer]) -> None:
        # A buffer of any kind is one piece: iterated, it would come apart into numbers.
        self._pieces = iter([body] if isinstance(body, bytes | bytearray | memoryview) else body)
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._error: BaseException | None = None

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
            # By way of a view, which only bytes have: bytes(3) would be three zeros.
            data = piece if isinstance(piece, bytes) else bytes(memoryview(piece))
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise
        self._sha256.update(data)
        self._size += len(data)
        return data

    def take(self, limit: int) -> tuple[bytes, bool]:
        """The pieces up to a limit and the one that passes it, and whether that was all."""
        taken: list[bytes] = []
        before = self._size
        for piece in self:
            taken.append(piece)
            if self._size - before > limit:
                return b"".join(taken), False
        return b"".join(taken), True

    @property
    def digest(self) -> Digest:
        """What went through so far."""
        return Digest(self._sha256.hexdigest(), self._size)

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """A body that broke is the caller's own error, not the store's: it goes out as it came."""
        try:
            yield
        except Exception as error:
            if self._error is None or self._error is error:
                raise
            raise self._error from self._error.__cause__
