"""Artifact streams: there as a whole or not at all, in constant memory, whoever aborts them when."""

from __future__ import annotations

import errno
import hashlib
import io
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    ConfigurationError,
    InvalidKeyError,
    OutcomeUnknownError,
    SnapshotCancelledError,
    StoreUnavailableError,
    UnsupportedError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout
from airflow_provider_checkpoint.writing.streams import ArtifactStream, ArtifactStreams
from tests.unit.writing.scenes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore, Creation

MEGABYTE = 1024 * 1024

CHECKPOINT = PartitionedLayout(MemoryBlobs()).next_id()


@pytest.fixture(params=["memory", "local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path / "store")


def open_stream(blobs: BlobStore, **options: object) -> ArtifactStream:
    """A stream for always the same artifact."""
    return ArtifactStreams(PartitionedLayout(blobs), **options).open(CHECKPOINT, "window", 3)


def objects(blobs: BlobStore) -> list[str]:
    """Everything in the store, half-written objects too."""
    return [info.key for info in blobs.list(temporary=None)]


class PausingBlobs(WrapperBlobs):
    """A store that stops for a while: before it takes a body, after the first piece of it, or after the last."""

    def __init__(self, inner: BlobStore, where: str) -> None:
        super().__init__(inner)
        self._where = where
        self.paused = threading.Event()
        self.go_on = threading.Event()

    def create(self, key: str, body: bytes | Iterable[bytes]) -> Creation:
        return self._inner.create(key, self._halting(iter(body)))

    def _halting(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        if self._where == "before":
            self._pause()
        for number, piece in enumerate(pieces):
            yield piece
            if self._where == "first" and number == 0:
                self._pause()
        if self._where == "last":
            self._pause()

    def _pause(self) -> None:
        self.paused.set()
        assert self.go_on.wait(PATIENCE)


# -- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, MEGABYTE, 3 * MEGABYTE + 1])
@pytest.mark.parametrize("is_delta", [False, True])
def test_what_is_written_becomes_an_artifact_with_its_entry(blobs: BlobStore, size: int, is_delta: bool) -> None:
    layout = PartitionedLayout(blobs)
    checkpoint_id = layout.next_id()
    data = bytes(number % 251 for number in range(size))
    stream = ArtifactStreams(layout, in_memory=1000).open(checkpoint_id, "a/b", 7, is_delta=is_delta)
    for start in range(0, size, 70_001):
        stream.write(data[start : start + 70_001])
    assert objects(blobs) == []
    entry = stream.close()
    assert (entry.partition_id, entry.is_delta, entry.size_bytes) == (7, is_delta, size)
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert blobs.read(entry.path) == data
    assert objects(blobs) == [entry.path]
    assert entry == layout.save_artifact(checkpoint_id, PartitionData("a/b", 7, data, is_delta))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(data).cast("H")])
def test_any_kind_of_buffer_is_taken(blobs: BlobStore, kind: Callable[[bytes], object]) -> None:
    stream = open_stream(blobs)
    stream.write(kind(b"four"))
    stream.write(b"!")
    assert blobs.read(stream.close().path) == b"four!"


def test_a_buffer_of_larger_items_is_counted_in_bytes(blobs: BlobStore) -> None:
    stream = open_stream(blobs)
    stream.write(memoryview(bytes(3 * MEGABYTE)).cast("Q"))
    assert stream.close().size_bytes == 3 * MEGABYTE


def test_a_buffer_may_be_filled_again_once_it_was_written(blobs: BlobStore) -> None:
    stream = open_stream(blobs)
    buffer = bytearray(b"one")
    stream.write(buffer)
    buffer[:] = b"two"
    stream.write(buffer)
    assert blobs.read(stream.close().path) == b"onetwo"


def test_closing_again_gives_the_same_answer(blobs: BlobStore) -> None:
    stream = open_stream(blobs)
    stream.write(b"state")
    assert stream.close() == stream.close()


def test_two_attempts_with_the_same_bytes_both_succeed_and_with_other_bytes_the_second_fails(blobs: BlobStore) -> None:
    first, second, third = (open_stream(blobs) for _ in range(3))
    for stream, data in ((first, b"state"), (second, b"state"), (third, b"other")):
        stream.write(data)
    entry = first.close()
    assert second.close() == entry
    with pytest.raises(CheckpointConflictError):
        third.close()
    third.abort()
    assert blobs.read(entry.path) == b"state"
    assert objects(blobs) == [entry.path]


def test_a_closed_stream_takes_no_more(blobs: BlobStore) -> None:
    stream = open_stream(blobs)
    stream.close()
    with pytest.raises(UnsupportedError, match="closed"):
        stream.write(b"more")
    assert blobs.read(stream.close().path) == b""


def test_an_operator_without_a_name_is_refused(blobs: BlobStore) -> None:
    stream = ArtifactStreams(PartitionedLayout(blobs)).open(CHECKPOINT, "", 0)
    with pytest.raises(InvalidKeyError):
        stream.close()
    stream.abort()
    assert objects(blobs) == []


def test_a_spool_without_memory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="in_memory"):
        ArtifactStreams(PartitionedLayout(MemoryBlobs()), in_memory=0)


def test_memory_stays_constant_and_the_scratch_folder_empty_however_large_the_state(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    piece = bytes(range(256)) * 1024
    tracemalloc.start()
    try:
        stream = open_stream(LocalBlobs(tmp_path / "store"), in_memory=MEGABYTE, scratch=str(scratch))
        for _ in range(256):
            stream.write(piece)
        entry = stream.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert entry.size_bytes == 64 * MEGABYTE
    assert peak < 8 * MEGABYTE
    assert list(scratch.iterdir()) == []


# -- aborting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 10, 2 * MEGABYTE])
def test_an_aborted_stream_leaves_nothing_and_takes_nothing(blobs: BlobStore, size: int) -> None:
    stream = open_stream(blobs, in_memory=1000)
    stream.write(bytes(size))
    stream.abort()
    stream.abort()
    for act in (stream.close, lambda: stream.write(b"more")):
        with pytest.raises(SnapshotCancelledError, match="aborted"):
            act()
    assert objects(blobs) == []
    assert stream._spool.closed


def test_aborting_a_closed_stream_changes_nothing(blobs: BlobStore) -> None:
    stream = open_stream(blobs)
    stream.write(b"state")
    entry = stream.close()
    stream.abort()
    assert stream.close() == entry
    assert blobs.read(entry.path) == b"state"
    with pytest.raises(UnsupportedError, match="closed"):
        stream.write(b"more")


@pytest.mark.parametrize(("where", "size"), [("before", 0), ("before", 10), ("first", 10), ("first", 2 * MEGABYTE)])
def test_aborted_while_the_store_takes_it_no_artifact_appears(blobs: BlobStore, where: str, size: int) -> None:
    pausing = PausingBlobs(blobs, where)
    stream = open_stream(pausing, in_memory=1000)
    stream.write(bytes(size))
    errors: list[BaseException] = []

    def close() -> None:
        try:
            stream.close()
        except SnapshotCancelledError as error:
            errors.append(error)

    thread = threading.Thread(target=close)
    thread.start()
    assert pausing.paused.wait(PATIENCE)
    stream.abort()
    pausing.go_on.set()
    thread.join(PATIENCE)
    assert len(errors) == 1
    assert objects(blobs) == []
    assert stream._spool.closed


def test_aborted_when_the_store_has_every_byte_the_close_is_the_winner(blobs: BlobStore) -> None:
    pausing = PausingBlobs(blobs, "last")
    stream = open_stream(pausing)
    stream.write(b"state")
    thread = threading.Thread(target=stream.close)
    thread.start()
    assert pausing.paused.wait(PATIENCE)
    stream.abort()
    pausing.go_on.set()
    thread.join(PATIENCE)
    assert blobs.read(stream.close().path) == b"state"
    assert stream._spool.closed


def test_two_threads_that_close_get_one_artifact_and_the_same_answer(blobs: BlobStore) -> None:
    pausing = PausingBlobs(blobs, "before")
    counting = FaultyBlobs(pausing)
    stream = open_stream(counting)
    stream.write(b"state")
    entries: list[object] = []
    threads = [threading.Thread(target=lambda: entries.append(stream.close())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert pausing.paused.wait(PATIENCE)
    pausing.go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert entries == [stream.close()] * 2
    assert counting.calls["create"] == 1


# -- a store that fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        (Fault.FAIL, StoreUnavailableError, False),
        (Fault.TIMEOUT, OutcomeUnknownError, False),
        (Fault.LOST_ANSWER, OutcomeUnknownError, True),
        (Fault.CRASH_BEFORE, SimulatedCrash, False),
        (Fault.CRASH_AFTER, SimulatedCrash, True),
    ],
)
def test_after_a_failure_the_artifact_is_whole_or_absent_and_the_step_can_be_repeated(
    blobs: BlobStore, fault: Fault, error: type[BaseException], there: bool
) -> None:
    faulty = FaultyBlobs(blobs)
    faulty.inject(fault, verb="create")
    stream = open_stream(faulty)
    stream.write(b"state")
    with pytest.raises(error):
        stream.close()
    assert [blobs.read(key) for key in objects(blobs)] == ([b"state"] if there else [])
    if error is SimulatedCrash:
        # Another process, another stream, the same bytes.
        stream.abort()
        stream = open_stream(blobs)
        stream.write(b"state")
    assert blobs.read(stream.close().path) == b"state"


def test_a_stream_whose_store_failed_can_be_aborted(blobs: BlobStore) -> None:
    faulty = FaultyBlobs(blobs)
    faulty.inject(Fault.FAIL, verb="create")
    stream = open_stream(faulty)
    with pytest.raises(StoreUnavailableError):
        stream.close()
    with pytest.raises(UnsupportedError):
        stream.write(b"a stream that was to be closed is complete")
    stream.abort()
    with pytest.raises(SnapshotCancelledError):
        stream.close()
    assert objects(blobs) == []


# -- a local disk that fails -------------------------------------------------------------------------------------


def test_a_missing_scratch_folder_is_named_and_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    stream = open_stream(blobs, in_memory=10, scratch=str(tmp_path / "missing"))
    stream.write(b"fits")
    with pytest.raises(StoreUnavailableError, match=r"No such file[^$]*HINT: Large partitions pass through the local"):
        stream.write(b"does not fit any more")
    with pytest.raises(SnapshotCancelledError):
        stream.close()
    assert objects(blobs) == []


class FullDisk(io.BytesIO):
    """A file of which one write fails after half of its bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: bytes) -> int:
        if self.tell() + len(data) > self._room:
            super().write(data[: self._room - self.tell()])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)

    def close(self) -> None:
        super().close()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_writer_that_goes_on_after_a_failed_write_gets_no_artifact_with_a_hole() -> None:
    saved: list[bytes] = []
    stream = ArtifactStream("test", lambda pieces: saved.append(b"".join(pieces)), FullDisk(10))
    stream.write(b"12345")
    with pytest.raises(StoreUnavailableError, match="No space left"):
        stream.write(b"6789012")
    for act in (lambda: stream.write(b"3"), stream.close):
        with pytest.raises(SnapshotCancelledError):
            act()
    stream.abort()
    assert saved == []


def test_a_spool_that_lost_bytes_is_no_artifact() -> None:
    spool = io.BytesIO()
    saved: list[bytes] = []
    stream = ArtifactStream("test", lambda pieces: saved.append(b"".join(pieces)), spool)
    stream.write(b"0123456789")
    spool.truncate(7)
    with pytest.raises(StoreUnavailableError, match="3 bytes are missing"):
        stream.close()
    assert saved == []
