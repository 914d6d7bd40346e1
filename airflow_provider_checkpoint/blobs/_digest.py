"""SHA-256 of an object by streaming it, in constant memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs._anew import anew

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs._protocol import BlobStore


@dataclass(frozen=True, slots=True)
class Digest:
    sha256: str
    size: int


def sha256_of(store: BlobStore, key: str, *, start: int = 0, length: int | None = None) -> Digest:
    """Digest and size of an object, or of a range of it; raises BlobNotFoundError if it is not there."""

    def whole() -> Digest:
        digest = hashlib.sha256()
        size = 0
        for chunk in store.stream(key, start=start, length=length):
            digest.update(chunk)
            size += memoryview(chunk).nbytes
        return Digest(digest.hexdigest(), size)

    return anew(whole)
