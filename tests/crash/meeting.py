"""Two processes that meet: at a chosen call of the one, the other runs from beginning to end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import MUTATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore

#: Reads between two changes are much alike: so many of them, evenly spread, stand for all.
_READS = 12


class MeetingBlobs(WrapperBlobs):
    """Counts calls, and lets somebody in just before one of them.

    :param at: the number of the call, from 0; None to count only.
    """

    def __init__(self, inner: BlobStore, at: int | None = None, act: Callable[[], object] = lambda: None) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self._at = at
        self._act = act
        self._lock = threading.Lock()

    def _meet(self, verb: str) -> None:
        with self._lock:
            number = len(self.calls)
            self.calls.append(verb)
        if number == self._at:
            self._act()

    def read(self, key, *, start=0, length=None):
        self._meet("read")
        return super().read(key, start=start, length=length)

    def stream(self, key, *, start=0, length=None) -> Iterator:
        self._meet("stream")
        yield from super().stream(key, start=start, length=length)
        # Between the last byte that is read and whatever is done with it.
        self._meet("streamed")

    def stat(self, key):
        self._meet("stat")
        return super().stat(key)

    def read_versioned(self, key):
        self._meet("read_versioned")
        return super().read_versioned(key)

    def create(self, key, body):
        self._meet("create")
        return super().create(key, body)

    def replace(self, key, body, *, expected=None):
        self._meet("replace")
        return super().replace(key, body, expected=expected)

    def list(self, folder="", *, temporary=False) -> Iterator:
        self._meet("list")
        yield from super().list(folder, temporary=temporary)

    def folders(self, folder="", *, start="") -> Iterator:
        self._meet("folders")
        yield from super().folders(folder, start=start)

    def delete(self, keys: Iterable[str]) -> Sequence:
        outcomes = []
        for key in keys:
            self._meet("delete")
            outcomes.extend(super().delete([key]))
        return outcomes


def moments(calls: Sequence[str]) -> list[int]:
    """Where a meeting can make a difference: at every change and right after it, and at some of the reads."""
    changes = {number for number, verb in enumerate(calls) if verb in MUTATIONS or verb == "streamed"}
    after = {number + 1 for number in changes if number + 1 < len(calls)}
    spread = set(range(0, len(calls), max(1, len(calls) // _READS)))
    return sorted(changes | after | spread)
