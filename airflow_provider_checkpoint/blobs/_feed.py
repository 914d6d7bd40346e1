"""Handing a body to the client piece by piece, without leaving the caller's thread.

The client reads an iterator from inside its own runtime, and a body that calls the client there, such as the stream of
another object, would end the process's call in a panic. So the upload runs in a thread of its own, and the body stays
where its caller is.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Pieces that wait between body and upload.
_WAITING = 2
_LOOK_UP_SECONDS = 0.1

_Piece = bytes | BaseException | None


def feed(pieces: Iterable[bytes], upload: Callable[[Iterator[bytes]], None]) -> None:
    """Run ``upload`` on the pieces. If their source raises, so does the iterator that ``upload`` reads."""
    waiting: queue.Queue[_Piece] = queue.Queue(_WAITING)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(upload, _taken_from(waiting))
        try:
            for piece in pieces:
                if not _offer(waiting, piece, done):
                    break
        except BaseException as error:
            _offer(waiting, error, done)
            raise
        _offer(waiting, None, done)
        done.result()


def _taken_from(waiting: queue.Queue[_Piece]) -> Iterator[bytes]:
    while (piece := waiting.get()) is not None:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def _offer(waiting: queue.Queue[_Piece], piece: _Piece, done: Future[None]) -> bool:
    """Wait for room; False if the upload has ended before its time and nobody will make any."""
    while not done.done():
        try:
            waiting.put(piece, timeout=_LOOK_UP_SECONDS)
        except queue.Full:
            continue
        return True
    return False
