"""Any bytes, given to the readers of the stream layout."""

from __future__ import annotations

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptArtifactError
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamLayout, stream_folder, stream_name
from airflow_provider_checkpoint.layouts.stream._names import state_key
from airflow_provider_checkpoint.model import CheckpointId, Depth, Severity


def fuzz_one(data: bytes) -> None:
    """Bytes are a state or a typed error; a state says the same after another round; every reader agrees."""
    strict, lenient = _decoded(data, lenient=False), _decoded(data, lenient=True)
    if strict is not None:
        assert lenient is not None
        assert lenient.encode() == strict.encode()
        assert len(strict.encode()) == len(data)
        assert b"".join(strict.iter_encode()) == strict.encode()
        again = _decoded(strict.encode(), lenient=False)
        assert again is not None
        assert again.encode() == strict.encode()
    _look_at_file(data, readable=strict is not None)
    _look_at_name(data)


def _decoded(data: bytes, *, lenient: bool) -> CheckpointState | None:
    try:
        return CheckpointState.decode("s", data, lenient=lenient)
    except CorruptArtifactError:
        return None


def _look_at_file(data: bytes, *, readable: bool) -> None:
    """What is read here and there in a file is what is read whole."""
    sequence = int.from_bytes(data[:8], "little")
    blobs = MemoryBlobs()
    blobs.create(state_key(sequence), data)
    layout = StreamLayout(blobs)
    checkpoint = layout.examine(CheckpointId(sequence)).checkpoint
    assert (checkpoint is not None) == readable
    if checkpoint is not None:
        for check in layout.checks(checkpoint, Depth.RESTORE) + layout.checks(checkpoint, Depth.CONTENT):
            assert all(issue.severity is Severity.WARNING for issue in check.run())


def _look_at_name(data: bytes) -> None:
    folder = data.decode("latin-1")
    name = stream_name(folder)
    assert name is None or stream_folder(name) == folder
