"""Any fsspec filesystem: HDFS, SFTP, or one that the user hands over.

fsspec has no one spelling of "put if absent" that is exclusive everywhere, so each protocol has its own safe one here.
A protocol without an entry promises little, and says so in its capabilities.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs._body import Body
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
from airflow_provider_checkpoint.blobs._settle import Backoff, ConditionFailedError, settle_create
from airflow_provider_checkpoint.blobs._shown import first_line
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobNotFoundError,
    CheckpointError,
    ContainerNotFoundError,
    ForkedProcessError,
    InvalidKeyError,
    StoreUnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fsspec import AbstractFileSystem
    from typing_extensions import Buffer

_CHUNK = 1024 * 1024
_memory_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a protocol writes."""

    create: Callable[[AbstractFileSystem, str, bytes], None] | None
    """Put if absent, exclusively; raises FileExistsError or a condition error. None: the protocol has no such thing."""
    replace: Callable[[AbstractFileSystem, str, bytes], None]
    atomic_write: bool
    durable: bool = True
    shared_files: bool = False
    """Everyone who opens a file gets the same one, position included, so it must be read in one go."""


class FsspecBlobs(BlobStore):
    """Objects as files of an fsspec filesystem below a path."""

    def __init__(self, fs: AbstractFileSystem, path: str, *, backoff: Backoff = Backoff()) -> None:  # noqa: B008 - frozen
        self._fs = fs
        # As the filesystem itself will name it in listings: without protocol, absolute where it has such a thing.
        self._path = str(fs._strip_protocol(path)).rstrip("/")  # noqa: SLF001 - its documented way to do so
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        self._protocol = protocol
        self._spelling = _SPELLINGS.get(protocol, _UNKNOWN)
        self._backoff = backoff

    @property
    def uri(self) -> str:
        return f"{self._protocol}://{self._path}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exclusive_create=self._spelling.create is not None,
            compare_and_swap=False,
            atomic_write=self._spelling.atomic_write,
            durable=self._spelling.durable,
            bulk_delete=False,
            streaming_list=False,
        )

    # -- read ----------------------------------------------------------------------------------------------------

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"".join(bytes(chunk) for chunk in self.stream(key, start=start, length=length))

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        info = self._require(key)
        left = max(0, info.size - start if length is None else min(length, info.size - start))
        if self._spelling.shared_files:
            with self._errors(key):
                yield self._fs.cat_file(self._full(key), start=start, end=start + left)
            return
        with self._errors(key), self._fs.open(self._full(key), "rb") as file:
            if left:
                file.seek(start)
            while left:
                chunk = file.read(min(_CHUNK, left))
                if not chunk:
                    raise StoreUnavailableError(f"the store sent {left} bytes too few", subject=self._name(key))
                left -= len(chunk)
                yield chunk

    def stat(self, key: str) -> BlobInfo | None:
        full = self._full(key)
        try:
            with self._errors(key):
                # Some filesystems answer from a listing they keep; what others wrote since would be missing there.
                self._fs.invalidate_cache(full.rpartition("/")[0])
                info = self._fs.info(full)
        except BlobNotFoundError:
            return None
        return _info(key, info) if info["type"] == "file" else None

    def _require(self, key: str) -> BlobInfo:
        info = self.stat(key)
        if info is None:
            raise BlobNotFoundError("no such object", subject=self._name(key))
        return info

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        return self.read(key), None

    # -- create and replace --------------------------------------------------------------------------------------

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        full = self._full(check_new_key(key))
        # fsspec commits half a stream when its writer raises, so a streamed body is held until it is whole.
        data = b"".join(Body(body))
        exclusive = self._spelling.create
        if exclusive is None:
            return self._create_unfenced(key, data)

        def put() -> None:
            with self._errors(key, conditional=True):
                exclusive(self._fs, full, data)

        return settle_create(self, key, data, put, self._backoff)

    def _create_unfenced(self, key: str, data: bytes) -> Creation:
        """Look, then write: all that such a protocol has. Two writers at once can both win."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.stat(key) is not None:
            existing = self.read(key)
            return Creation(existing == data, len(data), sha256, None if existing == data else existing)
        self.replace(key, data)
        return Creation(True, len(data), sha256)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        full = self._full(check_new_key(key))
        if expected is not None:
            raise UnsupportedError(
                "this filesystem has no compare-and-swap",
                subject=self._name(key),
                hint="Object stores have it with client='obstore', and so have local folders.",
            )
        with self._errors(key):
            self._spelling.replace(self._fs, full, b"".join(Body(body)))
        return None

    # -- list ----------------------------------------------------------------------------------------------------

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        check_folder(folder)
        pending = [folder.removesuffix("/")]
        while pending:
            for info in self._ls(pending.pop()):
                key = self._key(info["name"])
                if info["type"] == "directory":
                    pending.append(key)
                elif info["type"] == "file" and temporary in (None, is_temporary(key)):
                    yield _info(key, info)

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        check_folder(folder)
        found = self._ls(folder.removesuffix("/"))
        names = [self._key(info["name"]).rpartition("/")[2] for info in found if info["type"] == "directory"]
        yield from names_from(start, names)

    def _ls(self, folder: str) -> Sequence[dict[str, Any]]:
        path = f"{self._path}/{folder}" if folder else self._path
        try:
            with self._errors(folder):
                self._fs.invalidate_cache(path)
                found: list[dict[str, Any]] = self._fs.ls(path, detail=True)
        except BlobNotFoundError:
            return []
        # Object stores list an empty marker under the folder's own name.
        return [info for info in found if info["name"].strip("/") != path.strip("/")]

    # -- delete --------------------------------------------------------------------------------------------------

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        return [self._delete_one(key) for key in [check_key(key) for key in keys]]

    def _delete_one(self, key: str) -> Deletion:
        full = self._full(key)
        try:
            with self._errors(key):
                self._fs.rm_file(full)
        except BlobNotFoundError:
            return Deletion(key)
        except CheckpointError as error:
            return Deletion(key, error)
        return Deletion(key)

    # -- names and errors ----------------------------------------------------------------------------------------

    def _full(self, key: str) -> str:
        if self._spelling is _S3 and "?versionId=" in key:
            raise InvalidKeyError(
                "s3fs takes '?versionId=' in a name for the version of another object",
                subject=repr(key),
                hint="Choose another name, or open the store with client='obstore'.",
            )
        return f"{self._path}/{check_key(key)}"

    def _key(self, name: str) -> str:
        return name.strip("/").removeprefix(self._path.strip("/")).strip("/")

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    @contextlib.contextmanager
    def _errors(self, key: str, *, conditional: bool = False) -> Iterator[None]:
        try:
            yield
        except (CheckpointError, ConditionFailedError):
            raise
        except FileExistsError as error:
            if conditional:
                raise ConditionFailedError(str(error)) from error
            raise InvalidKeyError(
                "the name is taken by something of another kind",
                subject=self._name(key),
                hint="On most filesystems a name is an object or a folder, not both.",
            ) from error
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            if _code(error) == "NoSuchBucket" or "bucket does not exist" in str(error):
                raise ContainerNotFoundError(
                    "the bucket does not exist",
                    subject=self._name(key),
                    hint="Create it, or correct the name in the address; buckets are never made for you.",
                ) from error
            raise BlobNotFoundError("no such object", subject=self._name(key)) from error
        except PermissionError as error:
            raise AccessDeniedError(
                "the filesystem refused access", subject=self._name(key), hint=first_line(error)
            ) from error
        except Exception as error:
            if isinstance(error, RuntimeError) and "fork-safe" in str(error):
                raise ForkedProcessError(
                    "this filesystem was opened in the process from which this one was forked",
                    subject=self.uri,
                    hint="Open the store in the child itself.",
                ) from error
            # Filesystems raise whatever their client library raises; every such fault is one we may try again.
            if conditional and _condition_failed(error):
                raise ConditionFailedError(str(error)) from error
            raise StoreUnavailableError(
                f"the filesystem failed ({type(error).__name__})", subject=self._name(key), hint=first_line(error)
            ) from error


def _condition_failed(error: Exception) -> bool:
    """s3fs reports a lost condition as a plain OSError unless the server adds a non-standard element."""
    return _code(error) in {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}


def _code(error: Exception) -> str | None:
    """What the server called the error, where the filesystem keeps the server's answer."""
    response = getattr(error.__cause__, "response", None) or {}
    code: str | None = response.get("Error", {}).get("Code")
    return code


# -- how each protocol writes ------------------------------------------------------------------------------------


def _make_parent(fs: AbstractFileSystem, path: str) -> None:
    with contextlib.suppress(FileExistsError):
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)


@contextlib.contextmanager
def _staged_local(fs: AbstractFileSystem, path: str, body: bytes) -> Iterator[str]:
    _make_parent(fs, path)
    temporary = temporary_key(path)
    try:
        with open(temporary, "xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _create_local(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    with _staged_local(fs, path, body) as temporary:
        os.link(temporary, path)


def _replace_local(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    with _staged_local(fs, path, body) as temporary:
        os.replace(temporary, path)


def _create_memory(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    _make_parent(fs, path)
    with _memory_lock:
        if fs.exists(path):
            raise FileExistsError(path)
        fs.pipe_file(path, body)


def _replace_memory(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    _make_parent(fs, path)
    with _memory_lock:
        fs.pipe_file(path, body)


def _create_by_pipe(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    """One conditional PUT. s3fs takes a multipart upload above this size, which not every server keeps exclusive."""
    if len(body) >= 50 * 1024 * 1024:
        raise UnsupportedError(
            "objects of 50 MiB and more cannot be created exclusively through fsspec",
            subject=path,
            hint="Open the store with client='obstore', or use smaller partitions.",
        )
    fs.pipe_file(path, body, mode="create")


def _create_gcs(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    with fs.open(path, "xb") as file:
        file.write(body)


def _replace_by_pipe(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    fs.pipe_file(path, body)


def _replace_by_move(fs: AbstractFileSystem, path: str, body: bytes) -> None:
    _make_parent(fs, path)
    temporary = temporary_key(path)
    try:
        fs.pipe_file(temporary, body)
        fs.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(temporary)
        raise


_LOCAL = _Spelling(_create_local, _replace_local, atomic_write=True, durable=False)
_S3 = _Spelling(_create_by_pipe, _replace_by_pipe, atomic_write=True)
_GCS = _Spelling(_create_gcs, _replace_by_pipe, atomic_write=True)
_AZURE = _Spelling(_create_by_pipe, _replace_by_pipe, atomic_write=True)
_MEMORY = _Spelling(_create_memory, _replace_memory, atomic_write=True, durable=False, shared_files=True)
_UNKNOWN = _Spelling(None, _replace_by_move, atomic_write=False, durable=False)
_SPELLINGS = {
    "file": _LOCAL,
    "local": _LOCAL,
    "memory": _MEMORY,
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": _AZURE,
    "az": _AZURE,
    "abfss": _AZURE,
}


def _info(key: str, info: dict[str, Any]) -> BlobInfo:
    return BlobInfo(key, int(info["size"] or 0), _modified(info), None)


def _modified(info: dict[str, Any]) -> datetime | None:
    """The time of the last write, under whichever name the filesystem gives it."""
    for name in ("LastModified", "last_modified", "updated", "mtime", "modified", "modificationTime", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(value)
    return None
