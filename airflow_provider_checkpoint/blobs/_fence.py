"""Proof that a real store honours conditional writes, before anything relies on them.

Some servers take an ``If-None-Match`` and answer 200 all the same. On such a store two writers both believe they
created a manifest, so it is refused at the first conditional write, unless the user says ``allow_unfenced``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_checkpoint.blobs._protocol import BlobStore, Capabilities, Creation, probe_key
from airflow_provider_checkpoint.blobs._wrapper import WrapperBlobs
from airflow_provider_checkpoint.exceptions import BlobChangedError, UnfencedStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

log = logging.getLogger(__name__)

#: Stores that passed, by endpoint and address: a process asks each only once, or harmlessly twice at the same time.
_passed: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Probe:
    """What a store was seen to do with an object made for the purpose."""

    exclusive_create: bool
    """A second create of the same name was turned away."""
    compare_and_swap: bool
    """A replace that expected an outdated version was turned away, the right one was not."""
    deletes: bool
    """The object could be removed again."""
    clock_skew: float | None
    """Seconds by which the store's clock is ahead of ours; None if the store does not tell the time of a write."""


def probe(store: BlobStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Probe:
    """Write, contend for, replace and remove one small object. Raises what the store raises on the way.

    :param clock: the one with which the store's clock is compared.
    """
    key = probe_key()
    ours, theirs = (f"probe {uuid4().hex}".encode() for _ in range(2))
    try:
        first = store.create(key, ours)
        second = store.create(key, theirs)
        info = store.stat(key)
        seen = None if info is None else info.modified
        skew = None if seen is None else (seen - clock()).total_seconds()
        swaps = _swaps(store, key) if store.capabilities.compare_and_swap else False
    finally:
        outcome = store.delete([key])[0]
    deletes = outcome.deleted and store.stat(key) is None
    return Probe(first.created and not second.created, swaps, deletes, skew)


def _swaps(store: BlobStore, key: str) -> bool:
    version = store.read_versioned(key)[1]
    if version is None:
        return False
    store.replace(key, f"probe {uuid4().hex}".encode(), expected=version)
    try:
        store.replace(key, f"probe {uuid4().hex}".encode(), expected=version)
    except BlobChangedError:
        return True
    return False


class FencedBlobs(WrapperBlobs):
    """Lets conditional writes through only to a store that was seen to honour them."""

    def __init__(self, inner: BlobStore, *, endpoint: str = "", allow_unfenced: bool = False) -> None:
        super().__init__(inner)
        self._identity = (endpoint, inner.uri)
        self._allow_unfenced = allow_unfenced
        self._unfenced = False

    @property
    def capabilities(self) -> Capabilities:
        promised = self._inner.capabilities
        return replace(promised, exclusive_create=False, compare_and_swap=False) if self._unfenced else promised

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        self._require_fence()
        return self._inner.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        if expected is not None:
            self._require_fence()
        return self._inner.replace(key, body, expected=expected)

    def _require_fence(self) -> None:
        if self._unfenced or self._identity in _passed:
            return
        if self._honours_conditions():
            _passed.add(self._identity)
        elif self._allow_unfenced:
            log.warning("%s is used unfenced: two writers at once would corrupt it", self.uri)
            # For this handle only: another one of the same store may not have been given leave.
            self._unfenced = True
        else:
            raise UnfencedStoreError(
                "the store does not keep two writers apart: it has no conditional writes, or ignores the condition",
                subject=self.uri,
                hint="Use a store with conditional writes (AWS S3, GCS, Azure, a local disk, SeaweedFS from 4.17),"
                " or set allow_unfenced=True if exactly one writer can ever run.",
            )

    def _honours_conditions(self) -> bool:
        promised = self._inner.capabilities
        if not promised.exclusive_create:
            return False
        seen = probe(self._inner)
        return seen.exclusive_create and (seen.compare_and_swap or not promised.compare_and_swap)
