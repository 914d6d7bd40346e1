"""The pointer: a small object that names the newest checkpoint, so that readers need not list.

It is a hint. The truth is the listing, and whoever reads the pointer must be ready for it to be missing, outdated, or
to name what is gone.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    CorruptManifestError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts._json import parse_object
from airflow_provider_checkpoint.layouts._swap import swap, swapping
from airflow_provider_checkpoint.layouts.sidecar import _names as names

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

log = logging.getLogger(__name__)

_LIMIT = 4096


def encode_pointer(number: int) -> bytes:
    return json.dumps({"checkpoint_id": number}, separators=(",", ":")).encode()


def decode_pointer(data: bytes) -> int:
    """The id a pointer names; raises CorruptManifestError."""
    number = parse_object(data, subject=names.POINTER).get("checkpoint_id")
    # A bool is an int to Python; to JSON it is not.
    if type(number) is not int or not 0 <= number <= names.MAX_ID:
        raise CorruptManifestError("checkpoint_id is not an unsigned 64-bit number", subject=names.POINTER)
    return number


def read_pointer(blobs: BlobStore) -> int | None:
    """The id the pointer names, or None if there is no readable one."""
    try:
        return decode_pointer(blobs.read(names.POINTER, length=_LIMIT))
    except BlobNotFoundError:
        return None
    except CorruptManifestError as error:
        log.warning("%s: the pointer is ignored: %s", blobs.uri, error)
        return None


def read_legacy_pointer(blobs: BlobStore) -> int | None:
    try:
        text = blobs.read(names.LEGACY_POINTER, length=_LIMIT).decode(errors="replace")
    except BlobNotFoundError:
        return None
    number = names.parse_legacy_pointer(text.strip())
    if number is None:
        log.warning("%s/%s: the pointer is ignored: no checkpoint id", blobs.uri, names.LEGACY_POINTER)
    return number


def advance_pointer(blobs: BlobStore, number: int, highest: Callable[[], int]) -> None:
    """Let the pointer name a checkpoint, unless it names a higher one.

    Where the store has compare-and-swap, no race moves it back. Elsewhere a slow writer can; a reader then starts from
    an older checkpoint, which is whole. Without a readable pointer it is set to ``highest()``, the listing's answer.
    """

    def attempt() -> None:
        try:
            data, version = blobs.read_versioned(names.POINTER)
        except BlobNotFoundError:
            if not blobs.create(names.POINTER, encode_pointer(max(number, highest()))).created:
                raise BlobChangedError("another writer made the pointer first", subject=names.POINTER) from None
            return
        target = _successor(data, number, highest)
        if target is not None:
            swap(blobs, names.POINTER, encode_pointer(target), seen=version)

    try:
        swapping(attempt)
    except BlobChangedError:
        raise StoreUnavailableError(
            "the pointer changed each time it was about to be moved",
            subject=f"{blobs.uri}/{names.POINTER}",
            hint="The checkpoint itself is saved. Save it again to move the pointer.",
        ) from None


def move_pointer(blobs: BlobStore, number: int) -> None:
    """Let the pointer name a checkpoint, whatever it named before."""
    blobs.replace(names.POINTER, encode_pointer(number))


def _successor(data: bytes, number: int, highest: Callable[[], int]) -> int | None:
    """What the pointer shall name instead of what it holds; None if it may stay."""
    try:
        present = decode_pointer(data)
    except CorruptManifestError as error:
        log.warning("the pointer is set anew from the listing: %s", error)
        return max(number, highest())
    return number if present < number else None
