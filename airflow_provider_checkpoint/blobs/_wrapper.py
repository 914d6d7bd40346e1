"""A store around a store: the base of those that watch, guard or break the one inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs._protocol import BlobInfo, BlobStore, Capabilities, Creation, Deletion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer


class WrapperBlobs(BlobStore):
    """Hands every call on unchanged."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._inner.read(key, start=start, length=length)

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        return self._inner.stream(key, start=start, length=length)

    def stat(self, key: str) -> BlobInfo | None:
        return self._inner.stat(key)

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        return self._inner.read_versioned(key)

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        return self._inner.create(key, body)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        return self._inner.replace(key, body, expected=expected)

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        return self._inner.list(folder, temporary=temporary)

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        return self._inner.folders(folder, start=start)

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        return self._inner.delete(keys)
