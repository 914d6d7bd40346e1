"""Our records lie beside Spark's directory, never in it.

Spark owns its directory: it lists it, cleans it, and users copy or remove it as a whole. So pins, proofs, trash, seals
and the rest go to a folder of the same name with ``.checkpoints`` behind it.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_checkpoint.blobs import (
    BlobInfo,
    BlobStore,
    Capabilities,
    Creation,
    Deletion,
    is_temporary,
    names_from,
)
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts._protocol import HOUSEKEEPING
from airflow_provider_checkpoint.layouts.structured_streaming._names import SEALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

RECORDS_SUFFIX = ".checkpoints"
_RECORDS = HOUSEKEEPING | {SEALS}


def records_address(uri: str) -> str:
    """The address of the records of a directory; raises ConfigurationError if nothing can lie beside it."""
    if "://" not in uri:
        # Spelt out: what lies beside "." is not "..checkpoints".
        bare = place = os.path.abspath(uri)
    else:
        parts = urlsplit(uri, allow_fragments=False)
        # A name in memory has no bucket or disk around it.
        place = f"{parts.netloc}{parts.path}" if parts.scheme == "memory" else posixpath.normpath(parts.path)
        bare = parts._replace(path=place).geturl() if parts.scheme == "file" else uri.rstrip("/")
    if not place.strip("/."):
        raise ConfigurationError(
            "a checkpoint directory of Spark cannot be a whole bucket or disk: records are kept beside it",
            subject=uri,
            hint="Give the folder that was the checkpointLocation, such as s3://bucket/checkpoints/clicks.",
        )
    return bare + RECORDS_SUFFIX


class RecordsBeside(BlobStore):
    """A directory and the records beside it, seen as one store. The address is that of the directory."""

    def __init__(self, directory: BlobStore, records: BlobStore) -> None:
        self.directory = directory
        self._records = records

    @property
    def uri(self) -> str:
        return self.directory.uri

    @property
    def capabilities(self) -> Capabilities:
        """What both of them promise."""
        ours, theirs = self._records.capabilities, self.directory.capabilities
        return Capabilities(
            exclusive_create=ours.exclusive_create and theirs.exclusive_create,
            compare_and_swap=ours.compare_and_swap and theirs.compare_and_swap,
            atomic_write=ours.atomic_write and theirs.atomic_write,
            durable=ours.durable and theirs.durable,
            bulk_delete=ours.bulk_delete and theirs.bulk_delete,
            streaming_list=ours.streaming_list and theirs.streaming_list,
        )

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._of(key).read(key, start=start, length=length)

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        return self._of(key).stream(key, start=start, length=length)

    def stat(self, key: str) -> BlobInfo | None:
        return self._of(key).stat(key)

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        return self._of(key).read_versioned(key)

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        return self._of(key).create(key, body)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        return self._of(key).replace(key, body, expected=expected)

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        if folder:
            yield from self._of(folder).list(folder, temporary=temporary)
            return
        everything = chain(
            ((self.directory, info) for info in self.directory.list(temporary=temporary)),
            ((self._records, info) for info in self._records.list(temporary=temporary)),
        )
        for place, info in everything:
            # What has the name of a record in the directory, or another name among the records, is out of reach.
            if self._of(info.key) is place:
                yield info

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        if folder:
            yield from self._of(folder).folders(folder, start=start)
            return
        directory = (name for name in self.directory.folders() if name not in _RECORDS)
        records = (name for name in self._records.folders() if name in _RECORDS)
        yield from names_from(start, chain(directory, records))

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        asked = [*keys]
        outcomes: dict[str, Deletion] = {}
        for place in (self.directory, self._records):
            ours = [key for key in asked if self._of(key) is place]
            if ours:
                outcomes |= {outcome.key: outcome for outcome in place.delete(ours)}
        return [replace(outcomes[key]) for key in asked]

    def _of(self, key: str) -> BlobStore:
        # The store is probed with objects of our own, which Spark must not find either.
        first, slash, _ = key.partition("/")
        ours = first in _RECORDS or (not slash and is_temporary(key))
        return self._records if ours else self.directory
