"""Local files: atomic, exclusive, durable, and closed towards the outside.

Every object is written to a temporary file in its own folder, synced, then given its name by ``link`` (create) or
``rename`` (replace), then the folder is synced. A crash at any point leaves the old object or the new one, and at worst
a temporary file.

No name leads out of the root: paths are walked folder by folder through descriptors with ``O_NOFOLLOW``, so neither
``..`` nor a symbolic link, not even one swapped in while we look, is ever followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat as stat_module
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from airflow_provider_checkpoint.blobs._body import Body
from airflow_provider_checkpoint.blobs._digest import sha256_of
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
    temporary_key,
)
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobChangedError,
    BlobNotFoundError,
    CheckpointError,
    ConfigurationError,
    InvalidKeyError,
    StoreUnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

_CHUNK = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A folder that is only passed through need not be opened for reading, where the system has a word for that.
_PASSAGE = _FOLDER | getattr(os, "O_PATH", 0)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
#: What opening a folder raises if it is missing, or is a link or a file: in a listing it is empty.
_NO_FOLDER = (FileNotFoundError, NotADirectoryError)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Staged(NamedTuple):
    folder: int
    name: str
    temporary: str
    size: int
    sha256: str


class LocalBlobs(BlobStore):
    """Objects as files below a root folder, which is made on the first write."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(root))
        # Not Path.exists: that raises where a folder above may not be searched. Whoever reads or writes is told that.
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise ConfigurationError(
                "the root is not a folder", subject=str(self._root), hint="Name a folder; it is made if missing."
            )

    @property
    def uri(self) -> str:
        return self._root.as_uri()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            exclusive_create=True,
            compare_and_swap=True,
            atomic_write=True,
            durable=True,
            bulk_delete=False,
            streaming_list=True,
        )

    # -- read ----------------------------------------------------------------------------------------------------

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"".join(bytes(chunk) for chunk in self.stream(key, start=start, length=length))

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        with self._errors(key), self._open_file(key) as fd:
            size = os.fstat(fd).st_size
            stop = size if length is None else min(size, start + length)
            while start < stop:
                chunk = os.pread(fd, min(_CHUNK, stop - start), start)
                if not chunk:
                    raise StoreUnavailableError("the file became shorter while it was read", subject=self._name(key))
                yield chunk
                start += len(chunk)

    def stat(self, key: str) -> BlobInfo | None:
        try:
            with self._errors(key), self._open_file(key) as fd:
                return _info(key, os.fstat(fd))
        except BlobNotFoundError:
            return None

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        with self._errors(key), self._open_file(key) as fd, open(fd, "rb", closefd=False) as file:
            return file.read(), _version(os.fstat(fd))

    # -- create and replace --------------------------------------------------------------------------------------

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        whole = Body(body)
        with whole.own_errors(), self._errors(key), self._staged(check_new_key(key), whole) as staged:
            try:
                # link() fails if the name is taken, whoever races: that is what makes create exclusive.
                os.link(staged.temporary, staged.name, src_dir_fd=staged.folder, dst_dir_fd=staged.folder)
            except FileExistsError:
                return self._conflict(key, staged)
            return Creation(True, staged.size, staged.sha256)

    def _conflict(self, key: str, staged: _Staged) -> Creation:
        size, sha256 = staged.size, staged.sha256
        try:
            theirs = sha256_of(self, key)
            if theirs.sha256 == sha256:
                return Creation(True, size, sha256)
            existing = self.read(key) if theirs.size <= EXISTING_LIMIT else None
        except BlobNotFoundError:
            if _version_at(staged.folder, staged.name) is not None:
                raise _taken(self._name(key)) from None
            # Removed since: the name was taken when we tried, so this create has lost all the same.
            existing = None
        return Creation(False, size, sha256, existing)

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        with (
            self._errors(key),
            self._staged(check_new_key(key), Body(body)) as staged,
            # Everyone who changes a name in this folder takes its lock, so nobody comes between look and rename.
            _locked(staged.folder, required=expected is not None),
        ):
            if expected is not None and _version_at(staged.folder, staged.name) != expected:
                raise BlobChangedError("the object was replaced by another writer", subject=self._name(key))
            try:
                os.rename(staged.temporary, staged.name, src_dir_fd=staged.folder, dst_dir_fd=staged.folder)
            except IsADirectoryError:
                raise _taken(self._name(key)) from None
            return _version_at(staged.folder, staged.name)

    @contextlib.contextmanager
    def _staged(self, key: str, body: Body) -> Iterator[_Staged]:
        """The body in a synced temporary file beside its final name.

        Whatever happens inside, the temporary name is gone afterwards and the folder is synced: so what the caller
        linked or renamed is durable when this returns, also a name that a rival linked a moment ago.
        """
        folder, _, name = key.rpartition("/")
        temporary = temporary_key(name)
        folder_fd, file_fd = self._open_new(folder, temporary)
        try:
            try:
                with open(file_fd, "wb") as file:
                    file.writelines(body)
                    file.flush()
                    os.fsync(file.fileno())
                yield _Staged(folder_fd, name, temporary, body.digest.size, body.digest.sha256)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder_fd)
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)

    def _open_new(self, folder: str, name: str) -> tuple[int, int]:
        """Make the folder and a new file in it.

        A concurrent delete may remove the folder while it is still empty; then it is made again. Once the new file is
        in it, it cannot vanish.
        """
        while True:
            try:
                with self._walk(folder, make=True) as fd:
                    file = os.open(name, _NEW, 0o666, dir_fd=fd)
                    return os.dup(fd), file
            except FileNotFoundError:
                if not self._root.parent.is_dir():
                    raise
            except NotADirectoryError:
                raise _taken(self._name(folder)) from None

    # -- list ----------------------------------------------------------------------------------------------------

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        check_folder(folder)
        for path, entry in self._scan(folder.removesuffix("/")):
            if temporary in (None, is_temporary(entry.name)):
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    # A folder may be read and yet not searched.
                    _raise_for(error, self._name(f"{path}{entry.name}"))
                yield _info(f"{path}{entry.name}", info)

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        check_folder(folder)
        with self._errors(folder), contextlib.suppress(*_NO_FOLDER), self._walk(folder.removesuffix("/")) as fd:
            with os.scandir(fd) as entries:
                names = [each.name for each in entries if each.name >= start and each.is_dir(follow_symlinks=False)]
            # In the order in which object stores give them, so that whoever sorts them has little to do.
            yield from sorted(names)

    def _scan(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every regular file below a folder. One open descriptor per level, so memory does not grow with the count."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._errors(folder))
            try:
                fd = stack.enter_context(self._walk(folder))
            except _NO_FOLDER:
                return
            yield from self._scan_fd(fd, f"{folder}/" if folder else "")

    def _scan_fd(self, fd: int, path: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    try:
                        child = os.open(entry.name, _FOLDER, dir_fd=fd)
                    except _NO_FOLDER:
                        # Removed, or swapped for a link, since the scan saw it.
                        continue
                    except OSError as error:
                        _raise_for(error, self._name(f"{path}{entry.name}"))
                    try:
                        yield from self._scan_fd(child, f"{path}{entry.name}/")
                    finally:
                        os.close(child)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry

    # -- delete --------------------------------------------------------------------------------------------------

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        outcomes: list[Deletion] = []
        checked = [check_key(key) for key in keys]
        for folder, group in groupby(checked, key=lambda key: key.rpartition("/")[0]):
            names = list(group)
            try:
                outcomes.extend(self._delete_in(folder, names))
            except BlobNotFoundError:
                outcomes.extend(Deletion(key) for key in names)
            except CheckpointError as error:
                outcomes.extend(Deletion(key, error) for key in names)
        return outcomes

    def _delete_in(self, folder: str, keys: Sequence[str]) -> Sequence[Deletion]:
        outcomes: list[Deletion] = []
        with self._errors(folder), self._walk(folder) as fd:
            with _locked(fd, required=False):
                for key in keys:
                    try:
                        with self._errors(key):
                            os.unlink(key.rpartition("/")[2], dir_fd=fd)
                        outcomes.append(Deletion(key))
                    except BlobNotFoundError:
                        outcomes.append(Deletion(key))
                    except CheckpointError as error:
                        outcomes.append(Deletion(key, error))
            os.fsync(fd)
        self._drop_empty(folder)
        return outcomes

    def _drop_empty(self, folder: str) -> None:
        """Remove folders that deleting emptied, so that they do not pile up. rmdir refuses one that is not empty."""
        while folder:
            folder, _, name = folder.rpartition("/")
            try:
                with self._walk(folder) as fd:
                    os.rmdir(name, dir_fd=fd)
            except OSError:
                return

    # -- paths ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open_file(self, key: str) -> Iterator[int]:
        fd = self._reach(key)
        try:
            if not stat_module.S_ISREG(os.fstat(fd).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a regular file", key)
            yield fd
        finally:
            os.close(fd)

    def _reach(self, key: str) -> int:
        """A descriptor of a file, reached as in ``_walk``, but without its ceremony: a proof opens very many."""
        *folders, name = check_key(key).split("/")
        fd = os.open(self._root, _PASSAGE & ~os.O_NOFOLLOW)
        try:
            for folder in folders:
                inner = os.open(folder, _PASSAGE, dir_fd=fd)
                os.close(fd)
                fd = inner
            return os.open(name, _FILE, dir_fd=fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _walk(self, folder: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder below the root, reached without following a link."""
        fd = self._open_root(make=make)
        try:
            for name in folder.split("/") if folder else ():
                inner = self._step(fd, name, make=make)
                # Only now: a step that fails must leave the closing to the end, or a number is closed twice that may
                # by then belong to another thread.
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _open_root(self, *, make: bool) -> int:
        # The root itself may be reached through a link: that is the user's own choice of place.
        flags = _FOLDER & ~os.O_NOFOLLOW
        try:
            return os.open(self._root, flags)
        except FileNotFoundError:
            if not make:
                raise
        os.makedirs(self._root, exist_ok=True)
        fd = os.open(self._root, flags)
        _sync_upwards(self._root.parent)
        return fd

    @staticmethod
    def _step(fd: int, name: str, *, make: bool) -> int:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            # Also when the folder was there: its maker may not have come as far as syncing its name.
            os.fsync(fd)
        return os.open(name, _FOLDER, dir_fd=fd)

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except OSError as error:
            _raise_for(error, self._name(key))


def _taken(subject: str) -> InvalidKeyError:
    return InvalidKeyError(
        "the name is taken by something of another kind",
        subject=subject,
        hint="On a disk a name is an object or a folder, not both, and links below the root are never followed.",
    )


def _raise_for(error: OSError, subject: str) -> NoReturn:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            raise BlobNotFoundError("no such object", subject=subject) from error
        case errno.ELOOP | errno.ENXIO:
            raise InvalidKeyError(
                "the path is a symbolic link or not a regular file",
                subject=subject,
                hint="Links below the root are never followed, because they could lead out of it. Use real folders.",
            ) from error
        case errno.EACCES | errno.EPERM | errno.EROFS:
            raise AccessDeniedError(
                f"the operating system refused access ({error.strerror})",
                subject=subject,
                hint=f"This process runs as user {os.geteuid()}. Check owner and mode of the file and of the folders"
                " above it, and whether the disk is mounted read-only.",
            ) from error
        case errno.ENOSPC | errno.EDQUOT:
            raise StoreUnavailableError(
                f"the disk is full ({error.strerror})",
                subject=subject,
                hint="Free room or prune: no object was changed.",
            ) from error
        case errno.ENAMETOOLONG:
            raise InvalidKeyError("the path is too long for this file system", subject=subject) from error
        case _:
            raise StoreUnavailableError(
                f"the file system failed ({error.strerror or error})", subject=subject
            ) from error


@contextlib.contextmanager
def _locked(folder: int, *, required: bool) -> Iterator[None]:
    """Hold the folder's advisory lock. The kernel drops it with the process, so a crash leaves nothing behind."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError as error:
        if required:
            raise UnsupportedError(
                "this file system has no folder locks, so compare-and-swap cannot be promised",
                hint="Keep the store on a local disk, or on an object store.",
            ) from error
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _sync_upwards(folder: Path) -> None:
    with contextlib.suppress(PermissionError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _version(info: os.stat_result) -> str:
    # Every write makes a new file, so inode, size and time together name one version.
    return f"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}"


def _version_at(folder: int, name: str) -> str | None:
    try:
        return _version(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _info(key: str, info: os.stat_result) -> BlobInfo:
    return BlobInfo(key, info.st_size, datetime.fromtimestamp(info.st_mtime, UTC), _version(info))
