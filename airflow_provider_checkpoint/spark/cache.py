"""A place on the worker's own disk for artifacts it has just written or read.

State is read from the store once and then mapped from here, so an epoch costs what it changes. Files are named by their
digest and checked when they arrive, so a file that is there is the right one, whoever put it there: tasks of several
jobs may share the folder. Losing it, or having no room for it, costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from airflow_provider_checkpoint.exceptions import CheckpointError, CorruptArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 20 * 1024**3


class ArtifactCache:
    """Artifacts on local disk, the least recently used removed first.

    :param folder: by default a folder of the user's in the temporary directory, which on a Spark worker is local disk.
    """

    def __init__(self, folder: str | None = None, *, limit: int = DEFAULT_LIMIT) -> None:
        self._folder = Path(folder or Path(tempfile.gettempdir()) / f"checkpoint-artifacts-{os.getuid()}")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            # Somebody else's folder under our name: what is in it cannot be trusted.
            self._folder = Path(tempfile.mkdtemp(prefix="checkpoint-artifacts-"))
        self._limit = limit

    def load(self, blobs: BlobStore, key: str, sha256: str, size: int) -> pa.Buffer:
        """The bytes of an artifact, mapped from disk; fetched and verified first if they are not there.

        Where the disk is of no use (full, or another task made room by removing this very file), they come straight
        from the store into memory.
        """
        path = self._path(sha256)
        try:
            if not _has_size(path, size):
                self._fetch(blobs, key, sha256, path)
            # The time of last use decides who goes first; a reader that holds the file open does not mind its removal.
            os.utime(path)
            return pa.memory_map(str(path)).read_buffer()
        except CheckpointError:
            raise
        except OSError as error:
            log.warning("artifact %s is read without the cache: %s", key, error)
            data = b"".join(blobs.stream(key))
            _require_digest(hashlib.sha256(data).hexdigest(), sha256, f"{blobs.uri}/{key}")
            return pa.py_buffer(data)

    def keep(self, sha256: str, data: pa.Buffer) -> None:
        """Remember an artifact that was just written, if there is room."""
        try:
            with self._new(self._path(sha256)) as file:
                file.write(data)
            self._trim()
        except OSError as error:
            # The artifact is in the store; whoever needs it fetches it from there.
            log.warning("artifact %s is not kept: %s", sha256, error)

    def _fetch(self, blobs: BlobStore, key: str, sha256: str, path: Path) -> None:
        digest = hashlib.sha256()
        with self._new(path) as file:
            for chunk in blobs.stream(key):
                digest.update(chunk)
                file.write(chunk)
            _require_digest(digest.hexdigest(), sha256, f"{blobs.uri}/{key}")
        self._trim()

    @contextlib.contextmanager
    def _new(self, path: Path) -> Iterator[IO[bytes]]:
        """A file that appears under its name only when it is complete."""
        temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _trim(self) -> None:
        entries = []
        with os.scandir(self._folder) as found:
            for entry in found:
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat()
                    entries.append((info.st_mtime_ns, info.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._limit:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.arrow"


def _require_digest(found: str, wanted: str, subject: str) -> None:
    if found != wanted:
        raise CorruptArtifactError(
            f"SHA-256 is {found}, the manifest says {wanted}",
            subject=subject,
            hint="Restart from an older checkpoint: `checkpoints recover` names the newest good one.",
        )


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False
