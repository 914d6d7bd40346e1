"""A directory as one listing showed it, and what was read of it, each file once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming._directory import Directory
from airflow_provider_checkpoint.layouts.structured_streaming._logs import (
    Commit,
    Offsets,
    parse_commit,
    parse_offsets,
    parse_query_id,
)
from airflow_provider_checkpoint.layouts.structured_streaming._names import (
    COMMITS,
    DEFAULT_STORE,
    METADATA,
    OFFSETS,
    SEALS,
    seal_number,
)
from airflow_provider_checkpoint.layouts.structured_streaming._operators import (
    KEY_SCHEMA_BYTES,
    Operator,
    has_one_partition,
    parse_operator,
)
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    Lineage,
    ZipMetadata,
    read_lineage,
    read_zip_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

Value = TypeVar("Value")
_Token = tuple[str, object]


class View:
    """What a directory holds, as it was listed at one moment.

    Files are read when first asked for and then remembered, errors too, for as long as a listing shows the same
    version of them. May be used by several threads; two may then read the same file, which is harmless.
    """

    def __init__(self, blobs: BlobStore, directory: Directory) -> None:
        self._blobs = blobs
        self.directory = directory
        self._memory: dict[_Token, Any] = {}

    @classmethod
    def take(cls, blobs: BlobStore, folder: BlobStore, before: View | None = None) -> View:
        """List a directory, carrying over what an earlier view had read of files that are still the same.

        :param folder: the directory alone, without the records beside it.
        """
        numbers = (seal_number(info.key) for info in blobs.list(SEALS))
        directory = Directory.of(folder.list(), (number for number in numbers if number is not None))
        view = cls(blobs, directory)
        if before is not None:
            view.recall(before)
        return view

    # -- the logs ------------------------------------------------------------------------------------------------

    def offsets(self, batch: int) -> Offsets:
        """Raises CorruptManifestError, or BlobNotFoundError."""
        key = f"{OFFSETS}/{batch}"
        return self._remember(key, lambda: parse_offsets(read_small(self._blobs, key), subject=key))

    def commit(self, batch: int) -> Commit:
        """Raises CorruptManifestError, or BlobNotFoundError."""
        key = f"{COMMITS}/{batch}"
        return self._remember(key, lambda: parse_commit(read_small(self._blobs, key), subject=key))

    def query_id(self) -> str:
        """Raises CorruptManifestError, or BlobNotFoundError."""
        return self._remember(METADATA, lambda: parse_query_id(read_small(self._blobs, METADATA), subject=METADATA))

    # -- operators -----------------------------------------------------------------------------------------------

    def operator(self, operator: int, batch: int) -> Operator | None:
        """What an operator's metadata said by the time of a batch; None if it has none, as before Spark 4.

        Raises CorruptManifestError.
        """
        described = [
            (-1 if name.batch is None else name.batch, key)
            for key, name in self.directory.operators.get(operator, {}).items()
            if name.schema_of is None and (name.batch is None or name.batch <= batch)
        ]
        if not described:
            return None
        key = max(described)[1]
        return self._remember(key, lambda: parse_operator(read_small(self._blobs, key), subject=key))

    def one_partition(self, operator: int, store: str) -> bool:
        """Whether a store can only have partition 0. An unreadable schema says no: Spark itself would not start."""
        place = "" if store == DEFAULT_STORE else f"{store}/"
        key = f"state/{operator}/0/{place}_metadata/schema"
        if key not in self.directory.files:
            return False
        try:
            return self._remember(
                key, lambda: has_one_partition(self._blobs.read(key, length=KEY_SCHEMA_BYTES), subject=key)
            )
        except CorruptError:
            return False

    # -- state files ---------------------------------------------------------------------------------------------

    def zip_metadata(self, key: str) -> ZipMetadata:
        """Raises CorruptError, or BlobNotFoundError."""
        return self._remember(key, lambda: read_zip_metadata(self._blobs, key))

    def lineage(self, key: str, codec: str | None) -> Lineage:
        """Raises CorruptError, or BlobNotFoundError."""
        return self._remember(key, lambda: read_lineage(self._blobs, key, codec))

    # -- memory --------------------------------------------------------------------------------------------------

    def recall(self, before: View) -> None:
        """Take over what an earlier view had read of files that are still the same."""
        known = list(before._memory.items())
        self._memory |= {token: value for token, value in known if token == self._token(token[0])}

    def _remember(self, key: str, read: Callable[[], Value]) -> Value:
        token = self._token(key)
        if token not in self._memory:
            try:
                self._memory[token] = read()
            except CorruptError as error:
                self._memory[token] = error
        known = self._memory[token]
        if isinstance(known, CorruptError):
            # A fresh one each time: an exception that is raised twice collects the frames of both.
            raise type(known)(known.message, subject=known.subject, hint=known.hint)
        value: Value = known
        return value

    def _token(self, key: str) -> _Token:
        info = self.directory.files.get(key)
        return key, None if info is None else (info.version, info.size, info.modified)
