"""Object stores (S3 and compatible, GCS, Azure) through obstore.

Three things are ours and not the client's: answers to conditional writes are settled by reading back, deletes are
answered key by key, and errors say what to do (``_object_errors``).
"""

from __future__ import annotations

import operator
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from airflow_provider_checkpoint.blobs import _fork
from airflow_provider_checkpoint.blobs._anew import anew
from airflow_provider_checkpoint.blobs._body import Body
from airflow_provider_checkpoint.blobs._feed import feed
from airflow_provider_checkpoint.blobs._object_errors import translate
from airflow_provider_checkpoint.blobs._protocol import (
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
    temporary_key,
)
from airflow_provider_checkpoint.blobs._settle import (
    Backoff,
    ConditionFailedError,
    settle_create,
    settle_large_create,
    settle_replace,
)
from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    CheckpointError,
    StoreUnavailableError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from obstore import GetOptions
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

_READ_CHUNK = 1024 * 1024
_LIST_CHUNK = 1000
#: Sorts behind everything else that can stand in a name.
_HIGHEST = chr(0x10FFFF)
_MARK = "writer"
_PART = 16 * 1024 * 1024
#: The client spreads one call over several requests at once, so a batch holds several requests' worth of keys.
_DELETE_BATCHES = (10_000, 1_000, 100, 1)


class ObjectBlobs(BlobStore):
    """Objects in a bucket or container below a prefix.

    :param uri: where this is, for people.
    :param connect: makes the client's handle; called once per process, on first use.
    :param compare_and_swap: whether the store has conditional replace.
    :param single_put: objects up to this size are created by one conditional PUT. Larger ones are staged by multipart
        upload under a temporary name and then copied to their own, on condition that it is free.
    """

    def __init__(
        self,
        uri: str,
        connect: Callable[[], ObjectStore],
        *,
        compare_and_swap: bool = True,
        single_put: int = 64 * 1024 * 1024,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    ) -> None:
        self._uri = uri.rstrip("/")
        self._connect = connect
        self._compare_and_swap = compare_and_swap
        self._single_put = single_put
        self._backoff = backoff
        self._handle: tuple[int, ObjectStore] | None = None

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exclusive_create=True,
            compare_and_swap=self._compare_and_swap,
            atomic_write=True,
            durable=True,
            bulk_delete=True,
            streaming_list=True,
        )

    # -- read ----------------------------------------------------------------------------------------------------

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return anew(lambda: b"".join(bytes(chunk) for chunk in self.stream(key, start=start, length=length)))

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        check_key(key)
        if length == 0 or start > 0:
            # A range that starts past the end is an error to the store but an empty answer to us.
            size = self._require(key).size
            if length == 0 or start >= size:
                return
        yield from self._resuming(key, start, None if length is None else start + length)

    def _resuming(self, key: str, start: int, stop: int | None) -> Iterator[Buffer]:
        """Stream a range; if the connection breaks, go on where it broke, of the same version or not at all.

        From the first byte on, the range is asked for only if the object turns out to be much larger. Nearly all that
        is read with a limit is small, and a range of an empty object would be an error to the store.
        """
        pauses = self._backoff.pauses()
        version: str | None = None
        ranged = False
        while True:
            try:
                with self._errors(key, conditional=version is not None):
                    options = _range_options(start, stop if ranged or start else None, version)
                    result = obstore.get(self._store, key, options=options)
                    version = result.meta["e_tag"]
                    size = result.range[1]
                    if stop is not None and size > max(stop, start + _READ_CHUNK):
                        ranged = True
                        continue
                    stop = size if stop is None else min(stop, size)
                    for chunk in result.stream(min_chunk_size=_READ_CHUNK):
                        piece = chunk if start + len(chunk) <= stop else memoryview(chunk)[: stop - start]
                        start += len(piece)
                        yield piece
                        if start == stop:
                            return
                    if start == stop:
                        return
                    raise StoreUnavailableError(f"the store sent {stop - start} bytes too few", subject=self._name(key))
            except ConditionFailedError:
                raise BlobChangedError("the object was replaced while it was read", subject=self._name(key)) from None
            except TransientError:
                pause = next(pauses, None)
                if pause is None:
                    raise
            if start == stop:
                return
            time.sleep(pause)

    def stat(self, key: str) -> BlobInfo | None:
        try:
            with self._errors(check_key(key)):
                return _info(obstore.head(self._store, key))
        except BlobNotFoundError:
            return None

    def _require(self, key: str) -> BlobInfo:
        info = self.stat(key)
        if info is None:
            raise BlobNotFoundError("no such object", subject=self._name(key))
        return info

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        with self._errors(check_key(key)):
            result = obstore.get(self._store, key)
            return bytes(result.bytes()), result.meta["e_tag"]

    # -- create and replace --------------------------------------------------------------------------------------

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        check_new_key(key)
        whole = Body(body)
        start, all_of_it = whole.take(self._single_put)
        if all_of_it:
            return settle_create(self, key, start, lambda: self._put(key, start, "create"), self._backoff)
        return self._create_staged(key, start, whole)

    def _create_staged(self, key: str, start: bytes, body: Body) -> Creation:
        """Upload in parts under a temporary name, then take the real name in one conditional step on the server."""
        temporary = temporary_key(key)
        parts = chain([start], body)
        try:
            with body.own_errors(), self._errors(temporary):
                feed(parts, lambda parts: self._upload(temporary, parts))

            def take_name() -> None:
                with self._errors(key, conditional=True):
                    obstore.copy(self._store, temporary, key, overwrite=False)

            return settle_large_create(self, key, body.digest, take_name, self._backoff)
        finally:
            # If this fails the staged upload stays as a half-written object, which the orphan search removes.
            self.delete([temporary])

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        check_new_key(key)
        if expected is None:
            return self._put(key, body, "overwrite")
        # Another writer may send the very same bytes, so what tells our write from theirs is a mark beside them.
        mark = uuid4().hex
        return settle_replace(
            lambda: self._put(key, body, {"e_tag": expected}, mark),
            lambda: self._version_and_mark(key),
            self._backoff,
            expected=expected,
            mark=mark,
            subject=self._name(key),
        )

    def _put(self, key: str, body: bytes, mode: obstore.PutMode, mark: str | None = None) -> str | None:
        marks: obstore.Attributes | None = None if mark is None else {_MARK: mark}
        with self._errors(key, conditional=mode != "overwrite"):
            return obstore.put(self._store, key, body, mode=mode, attributes=marks, use_multipart=False)["e_tag"]

    def _version_and_mark(self, key: str) -> tuple[str | None, str | None]:
        with self._errors(key):
            found = obstore.get(self._store, key, options={"head": True})
            return found.meta["e_tag"], found.attributes.get(_MARK)

    def _upload(self, key: str, parts: Iterator[bytes]) -> None:
        obstore.put(self._store, key, parts, use_multipart=True, chunk_size=_PART, max_concurrency=4)

    # -- list ----------------------------------------------------------------------------------------------------

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        prefix = check_folder(folder) or None
        with self._errors(folder):
            for page in obstore.list(self._store, prefix, chunk_size=_LIST_CHUNK):
                for meta in page:
                    if temporary is None or is_temporary(meta["path"]) is temporary:
                        yield _info(meta)

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        prefix = check_folder(folder)
        with self._errors(folder):
            if start and isinstance(self._store, S3Store):
                yield from self._folders_from(prefix, start)
                return
            found = obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
        yield from names_from(start, (path.rstrip("/").rpartition("/")[2] for path in found))

    def _folders_from(self, folder: str, start: str) -> Iterator[str]:
        """Folders from a name on, out of a listing of keys: S3 knows where to begin one, but not one of folders.

        A full page is not followed by the next one, but by the one behind the folder that it ended in. So each request
        answers with a thousand keys, or passes by a folder of any size.
        """
        prefix = f"{folder}/" if folder else ""
        # Into the folder: some servers take a name without a slash to mean all that is below it as well.
        offset = f"{prefix}{start}/ "
        seen: set[str] = set()
        while True:
            keys = self._keys_behind(folder, offset)
            if keys is None:
                yield from names_from(start, set(self.folders(folder)) - seen)
                return
            for key in keys:
                name, slash, _ = key[len(prefix) :].partition("/")
                if slash and name >= start and name not in seen:
                    seen.add(name)
                    yield name
            if len(keys) < _LIST_CHUNK:
                return
            name, slash, _ = keys[-1][len(prefix) :].partition("/")
            offset = f"{prefix}{name}/{_HIGHEST}" if slash else keys[-1]

    def _keys_behind(self, folder: str, offset: str) -> Sequence[str] | None:
        """A page of keys in ascending order, all behind a certain one; None if the server does not list like that.

        Directory buckets do not sort and know no place to begin at, and some servers do not look at the one they are
        told: without a check, whoever skips from page to page would be given the first page for ever.
        """
        try:
            page = next(iter(obstore.list(self._store, folder or None, offset=offset, chunk_size=_LIST_CHUNK)), [])
        except BaseError:
            # If it is not this way of asking but the store, the plain listing fails as well, and says why.
            return None
        keys = [meta["path"] for meta in page]
        return keys if all(map(operator.lt, [offset, *keys], keys)) else None

    # -- delete --------------------------------------------------------------------------------------------------

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        return self._delete([check_key(key) for key in keys], _DELETE_BATCHES)

    def _delete(self, keys: Sequence[str], batches: tuple[int, ...]) -> Sequence[Deletion]:
        """Delete in batches; a batch with a failure in it is repeated in smaller ones until each key has an answer.

        Deleting is idempotent, so what the failed batch already removed does not matter.
        """
        size, smaller = batches[0], batches[1:]
        groups = [keys[start : start + size] for start in range(0, len(keys), size)]
        if size == 1:
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(self._delete_one, keys))
        outcomes: list[Deletion] = []
        for group in groups:
            error = self._delete_group(group)
            if error is None:
                outcomes.extend(map(Deletion, group))
            elif isinstance(error, TransientError):
                # The store is not answering: asking again for each single key would only take long.
                outcomes.extend(Deletion(key, error) for key in group)
            else:
                outcomes.extend(self._delete(group, smaller))
        return outcomes

    def _delete_group(self, keys: Sequence[str]) -> CheckpointError | None:
        try:
            with self._errors(keys[0]):
                obstore.delete(self._store, keys)
        except CheckpointError as error:
            return error
        return None

    def _delete_one(self, key: str) -> Deletion:
        error = self._delete_group([key])
        return Deletion(key, None if isinstance(error, BlobNotFoundError) else error)

    # -- client --------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> ObjectStore:
        _fork.note_use()
        if self._handle is None or self._handle[0] != os.getpid():
            self._handle = (os.getpid(), self._connect())
        return self._handle[1]

    def _name(self, key: str) -> str:
        return f"{self._uri}/{key}" if key else self._uri

    @contextmanager
    def _errors(self, key: str, *, conditional: bool = False) -> Iterator[None]:
        try:
            yield
        except (CheckpointError, ConditionFailedError):
            raise
        except (AlreadyExistsError, PreconditionError) as error:
            # The client speaks of a condition for every 409 and 412, also where none was set.
            if not conditional:
                raise translate(error, self._name(key)) from error
            raise ConditionFailedError(str(error).partition("\n")[0]) from error
        except (BaseError, FileNotFoundError, ValueError, NotImplementedError) as error:
            raise translate(error, self._name(key)) from error


def _range_options(start: int, stop: int | None, version: str | None) -> GetOptions:
    options: GetOptions = {}
    if stop is not None:
        options["range"] = (start, stop)
    elif start:
        options["range"] = {"offset": start}
    if version is not None:
        options["if_match"] = version
    return options


def _info(meta: obstore.ObjectMeta) -> BlobInfo:
    return BlobInfo(meta["path"], meta["size"], meta["last_modified"], _version(meta["e_tag"]))


def _version(e_tag: str | None) -> str | None:
    """An entity tag as the store sends it in a header; Azure leaves out the quotes in a listing."""
    return e_tag if e_tag is None or e_tag.endswith('"') else f'"{e_tag}"'
