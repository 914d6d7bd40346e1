"""Read, change, write back: without losing what another writer did in between, where the store can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.exceptions import BlobChangedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

Answer = TypeVar("Answer")

#: Each lost round means that another writer won one, so this many say that something is wrong.
_ROUNDS = 32


def swapping(attempt: Callable[[], Answer]) -> Answer:
    """Run an attempt that reads afresh and swaps, again while another writer comes in between."""
    for _ in range(_ROUNDS - 1):
        try:
            return attempt()
        except BlobChangedError:
            continue
    return attempt()


def swap(blobs: BlobStore, key: str, body: bytes, *, seen: str | None) -> None:
    """Replace the version that was seen; on a store without compare-and-swap, whatever is there."""
    blobs.replace(key, body, expected=seen if blobs.capabilities.compare_and_swap else None)
