"""A store seen from one of its folders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_provider_checkpoint.blobs._protocol import (
    BlobInfo,
    BlobStore,
    Capabilities,
    Creation,
    Deletion,
    check_folder,
    check_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer


class FolderView(BlobStore):
    """Every name is taken below ``folder``; no name reaches what lies beside it."""

    def __init__(self, inner: BlobStore, folder: str) -> None:
        self._inner = inner
        self._prefix = check_key(check_folder(folder)) + "/"

    @property
    def uri(self) -> str:
        outer = self._inner.uri.rstrip("/")
        folder = self._prefix.removesuffix("/")
        # A file address is percent-encoded; those of object stores hold names as they are.
        return f"{outer}/{quote(folder) if outer.startswith('file:') else folder}"

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._inner.read(self._full(key), start=start, length=length)

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        return self._inner.stream(self._full(key), start=start, length=length)

    def stat(self, key: str) -> BlobInfo | None:
        info = self._inner.stat(self._full(key))
        return None if info is None else replace(info, key=key)

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        return self._inner.read_versioned(self._full(key))

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        return self._inner.create(self._full(key), body)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        return self._inner.replace(self._full(key), body, expected=expected)

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        prefix = self._prefix
        # Not by replace(): a listing may be of millions.
        for info in self._inner.list(prefix + check_folder(folder), temporary=temporary):
            yield BlobInfo(info.key.removeprefix(prefix), info.size, info.modified, info.version)

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        return self._inner.folders(self._prefix + check_folder(folder), start=start)

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        outcomes = self._inner.delete([self._full(key) for key in keys])
        return [Deletion(outcome.key.removeprefix(self._prefix), outcome.error) for outcome in outcomes]
