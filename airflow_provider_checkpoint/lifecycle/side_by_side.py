"""Asking a store many things at once: it is the network that one waits for, not the processor."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Requests under way at once.
WIDTH = 16

Given = TypeVar("Given")
Answer = TypeVar("Answer")


def side_by_side(act: Callable[[Given], Answer], items: Iterable[Given], *, width: int = WIDTH) -> list[Answer]:
    """Map over items with several threads; answers in order; the first error is raised."""
    return list(streaming(act, items, width=width))


def streaming(act: Callable[[Given], Answer], items: Iterable[Given], *, width: int = WIDTH) -> Iterator[Answer]:
    """The same, a few answers at a time, so that memory does not grow with the number of items."""
    pending: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(width) as pool:
        try:
            for item in items:
                pending.append(pool.submit(act, item))
                if len(pending) >= 4 * width:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
