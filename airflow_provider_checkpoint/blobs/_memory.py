"""Objects in a dictionary: for tests and examples."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs._body import Body
from airflow_provider_checkpoint.blobs._protocol import (
    EXISTING_LIMIT,
    BlobInfo,
    BlobStore,
    Capabilities,
    Creation,
    Deletion,
    check_folder,
    check_key,
    check_new_key,
    is_temporary,
    names_from,
)
from airflow_provider_checkpoint.exceptions import BlobChangedError, BlobNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer


class MemoryBlobs(BlobStore):
    """Keeps every promise but durability, within one process. The clock can be handed in, so tests can age objects."""

    def __init__(self, name: str = "", *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._versions = count(1)
        self._objects: dict[str, tuple[bytes, BlobInfo]] = {}

    @property
    def uri(self) -> str:
        return f"memory://{self._name}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exclusive_create=True,
            compare_and_swap=True,
            atomic_write=True,
            durable=False,
            bulk_delete=True,
            streaming_list=True,
        )

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._get(key)[0][start : None if length is None else start + length]

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        yield self.read(key, start=start, length=length)

    def stat(self, key: str) -> BlobInfo | None:
        found = self._objects.get(check_key(key))
        return None if found is None else found[1]

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        body, info = self._get(key)
        return body, info.version

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        check_new_key(key)
        whole = Body(body)
        data = b"".join(whole)
        sha256 = whole.digest.sha256
        with self._lock:
            if key in self._objects:
                existing = self._objects[key][0]
                if existing != data:
                    shown = existing if len(existing) <= EXISTING_LIMIT else None
                    return Creation(False, len(data), sha256, shown)
            else:
                self._put(key, data)
        return Creation(True, len(data), sha256)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        check_new_key(key)
        with self._lock:
            if expected is not None and (key not in self._objects or self._objects[key][1].version != expected):
                raise BlobChangedError("the object was replaced by another writer", subject=f"{self.uri}/{key}")
            return self._put(key, bytes(body))

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        prefix = f"{check_folder(folder)}/" if folder else ""
        for key in list(self._objects):
            if (
                key.startswith(prefix)
                and temporary in (None, is_temporary(key))
                and (info := self.stat(key)) is not None
            ):
                yield info

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        prefix = f"{check_folder(folder)}/" if folder else ""
        below = (key.removeprefix(prefix) for key in list(self._objects) if key.startswith(prefix))
        yield from names_from(start, {rest.partition("/")[0] for rest in below if "/" in rest})

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        checked = [check_key(key) for key in keys]
        with self._lock:
            for key in checked:
                self._objects.pop(key, None)
        return [Deletion(key) for key in checked]

    def _get(self, key: str) -> tuple[bytes, BlobInfo]:
        try:
            return self._objects[check_key(key)]
        except KeyError:
            raise BlobNotFoundError("no such object", subject=f"{self.uri}/{key}") from None

    def _put(self, key: str, body: bytes) -> str:
        version = str(next(self._versions))
        self._objects[key] = (body, BlobInfo(key, len(body), self._clock(), version))
        return version
