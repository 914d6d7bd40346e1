"""The ``sidecar`` layout: a JSON manifest per checkpoint with an integer id, and beside it one file of state.

>>> from airflow_provider_checkpoint.blobs import open_blobs
>>> from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
>>> layout = SidecarLayout(open_blobs("memory://example"), inline_threshold=8)
>>> manifest = layout.new_manifest(layout.next_id(), epoch=1)
>>> saved = layout.save_operator_states(manifest, {"small": b"tiny", "large": b"more than eight"})
>>> layout.load_operator_state(saved, "large")
b'more than eight'
>>> layout.recover_latest_validated().chosen_id
1
"""

from airflow_provider_checkpoint.layouts._sinks import SinkCommitStatus
from airflow_provider_checkpoint.layouts.sidecar._checksum import inline_checksum
from airflow_provider_checkpoint.layouts.sidecar._manifest import (
    DEFAULT_INLINE_THRESHOLD,
    DEFAULT_VNODE_COUNT,
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
)
from airflow_provider_checkpoint.layouts.sidecar._reports import RecoveryReport, ValidationResult
from airflow_provider_checkpoint.layouts.sidecar._rules import MANIFEST_VERSION
from airflow_provider_checkpoint.layouts.sidecar._state import pack_states
from airflow_provider_checkpoint.layouts.sidecar._store import SidecarLayout

__all__ = [
    "DEFAULT_INLINE_THRESHOLD",
    "DEFAULT_VNODE_COUNT",
    "MANIFEST_VERSION",
    "CheckpointManifest",
    "ConnectorCheckpoint",
    "OperatorCheckpoint",
    "RecoveryReport",
    "SidecarLayout",
    "SinkCommitStatus",
    "ValidationResult",
    "inline_checksum",
    "pack_states",
]
