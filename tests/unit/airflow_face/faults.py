"""Stores that a hook opens, with faults put in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint import blobs as blobs_room
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.layouts import _open

if TYPE_CHECKING:
    import pytest

#: For as long as a test lasts.
ALWAYS = 1_000_000


class Faults:
    """What goes wrong with every store that is opened from now on."""

    def __init__(self) -> None:
        self.opened: list[FaultyBlobs] = []
        self.latency = 0.0
        self._orders: list[tuple[Fault, str, str, int]] = []

    def fail(self, *, verb: str, match: str = "", times: int = ALWAYS, fault: Fault = Fault.FAIL) -> None:
        self._orders.append((fault, verb, match, times))

    def heal(self) -> None:
        self._orders.clear()

    def wrap(self, inner: blobs_room.BlobStore) -> FaultyBlobs:
        faulty_store = FaultyBlobs(inner, latency=self.latency)
        for fault, verb, match, times in self._orders:
            faulty_store.inject(fault, verb=verb, match=match, times=times)
        self.opened.append(faulty_store)
        return faulty_store


def faulty(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Put faults between the layouts and the stores they are opened on."""
    faults = Faults()
    open_blobs = blobs_room.open_blobs
    monkeypatch.setattr(_open, "open_blobs", lambda uri, options=None: faults.wrap(open_blobs(uri, options)))
    return faults
