"""Streams that become artifacts: written piece by piece, there as a whole or not at all.

``BlobStore.create`` pulls its body, a stream is pushed into, so something must stand between them. Here it is a spool:
in memory up to a limit, then a nameless file on the local disk. The other way, a second thread that creates while the
first one writes, with a bounded queue between them, would save that disk, and was not taken because:

- nobody waits for anybody, so nothing can hang: not a creating thread whose writer died, nor a writer whose store did;
- until ``close`` the store hears nothing, so what fails or is aborted while state is being produced leaves no trace;
- the bytes are still there when the store's answer is lost, so ``close`` can simply be called again;
- most partitions of a keyed state fit into the memory part, and then no disk is involved.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO, TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    ConfigurationError,
    SnapshotCancelledError,
    StoreUnavailableError,
    UnsupportedError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
    from airflow_provider_checkpoint.model import CheckpointId

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ArtifactStreams:
    """Opens streams into the folders of checkpoints."""

    layout: PartitionedLayout
    in_memory: int = 8 * _CHUNK
    """Bytes of one stream that are kept in memory; more go to the disk."""
    scratch: str | None = None
    """The folder on the local disk for them; by default the system's temporary folder."""

    def __post_init__(self) -> None:
        if self.in_memory < 1:
            # To the spool, 0 would mean: everything.
            raise ConfigurationError("in_memory must be at least 1", subject=str(self.in_memory))

    def open(
        self, checkpoint_id: CheckpointId, operator: str, partition: int, *, is_delta: bool = False
    ) -> ArtifactStream:
        """A stream for the state of one operator partition, or a delta of it. The store hears nothing of it yet."""

        def save(pieces: Iterator[bytes]) -> PartitionEntry:
            return self.layout.save_artifact(checkpoint_id, PartitionData(operator, partition, pieces, is_delta))

        kind = "delta" if is_delta else "snapshot"
        return ArtifactStream(
            f"{kind} of operator {operator!r}, partition {partition}, checkpoint {checkpoint_id}",
            save,
            tempfile.SpooledTemporaryFile(self.in_memory, dir=self.scratch),
        )


class _State(Enum):
    OPEN = auto()
    SEALED = auto()
    """All bytes are there; whether the store has them is not known yet."""
    CLOSED = auto()
    ABORTED = auto()


class ArtifactStream:
    """One artifact in the making. Written and closed by one thread; any thread may abort it."""

    def __init__(self, description: str, save: Callable[[Iterator[bytes]], PartitionEntry], spool: IO[bytes]) -> None:
        self.description = description
        self._save = save
        self._spool = spool
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._state = _State.OPEN
        self._size = 0
        self._entry: PartitionEntry | None = None

    def write(self, data: Buffer) -> None:
        """Append bytes. Raises SnapshotCancelledError if the stream was aborted; a write that fails aborts it."""
        with self._lock:
            if self._state is not _State.OPEN:
                raise self._refusal()
            try:
                with self._scratch_errors():
                    self._spool.write(data)
            except BaseException:
                # Part of the piece may be in the spool. What follows it must not make an artifact of that.
                self._discard()
                raise
            self._size += memoryview(data).nbytes

    def close(self) -> PartitionEntry:
        """Create the artifact and return the entry a manifest needs.

        If this raises, the artifact is not there, unless the store's answer was lost (OutcomeUnknownError); then, and
        after any other TransientError, it may be called again. After a success it gives the same answer again.
        """
        with self._closing:
            with self._lock:
                if self._entry is not None:
                    return self._entry
                if self._state is _State.ABORTED:
                    raise self._refusal()
                self._state = _State.SEALED
            entry = self._save(self._pieces())
            with self._lock:
                # An abort that came after the last piece came too late: the artifact is there, as if closed before it.
                self._entry = entry
                self._state = _State.CLOSED
                self._spool.close()
        return entry

    def abort(self) -> None:
        """Give up. No effect on a stream that is closed.

        A ``close`` under way fails at its next piece, and then no artifact appears. A request that the store is already
        working on is waited for, not left alone: else an artifact might appear after everyone was told there is none.
        """
        with self._lock:
            if self._state is not _State.CLOSED:
                self._discard()

    def _discard(self) -> None:
        self._state = _State.ABORTED
        # Closing writes out what is buffered, in vain on a full disk. The descriptor is closed all the same.
        with suppress(OSError):
            self._spool.close()

    def _pieces(self) -> Iterator[bytes]:
        start = 0
        while start < self._size:
            piece = self._read(start)
            start += len(piece)
            yield piece
        # Once more after the last piece: here an abort is heard for the last time.
        self._read(start)

    def _read(self, start: int) -> bytes:
        with self._lock, self._scratch_errors():
            if self._state is _State.ABORTED:
                raise self._refusal()
            self._spool.seek(start)
            piece = self._spool.read(_CHUNK)
            if not piece and start < self._size:
                raise OSError(f"{self._size - start} bytes are missing from the spool")
            return piece

    @contextmanager
    def _scratch_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailableError(
                f"the scratch folder failed ({error.strerror or error})",
                subject=self.description,
                hint="Large partitions pass through the local disk: free room, or give `scratch` another folder.",
            ) from error

    def _refusal(self) -> CheckpointError:
        if self._state is _State.ABORTED:
            return SnapshotCancelledError("the stream was aborted", subject=self.description)
        return UnsupportedError("a stream that is closed takes no more bytes", subject=self.description)
