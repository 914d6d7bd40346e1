"""Layout ``stream``: one binary file per checkpoint and stream, as the crates oxigdal and oxigeo write them.

>>> from datetime import UTC, datetime
>>> from airflow_provider_checkpoint.blobs import MemoryBlobs
>>> store = StreamStore(MemoryBlobs(), max_per_stream=3)
>>> state = CheckpointState(StreamCheckpointId("orders", 42, datetime.now(UTC)), event_count=42)
>>> state.set_operator_state("window", b"...")
>>> state.set_source_offset("orders-0", 8192)
>>> store.save(state).size
69
>>> store.latest("orders").state.source_offsets
{'orders-0': 8192}

The encoded form is byte for byte the reference's, with names sorted. It has no checksum: what stands in for one, and
what that proves, is told in :mod:`._proof`.
"""

from airflow_provider_checkpoint.layouts.stream._layout import StreamLayout
from airflow_provider_checkpoint.layouts.stream._manager import CheckpointManager
from airflow_provider_checkpoint.layouts.stream._names import stream_folder, stream_name
from airflow_provider_checkpoint.layouts.stream._state import CheckpointState, StreamCheckpointId
from airflow_provider_checkpoint.layouts.stream._store import Latest, Newest, Saved, Skipped, StreamStore

__all__ = [
    "CheckpointManager",
    "CheckpointState",
    "Latest",
    "Newest",
    "Saved",
    "Skipped",
    "StreamCheckpointId",
    "StreamLayout",
    "StreamStore",
    "stream_folder",
    "stream_name",
]
