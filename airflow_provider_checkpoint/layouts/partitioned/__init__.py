"""The partitioned layout: checkpoints named by UUIDv7, one artifact per operator partition, snapshots and deltas.

>>> from airflow_provider_checkpoint.blobs import MemoryBlobs
>>> from airflow_provider_checkpoint.layouts.partitioned import (
...     CheckpointManifestV2, PartitionData, PartitionedLayout, operators_of)
>>> layout = PartitionedLayout(MemoryBlobs())
>>> new = layout.next_id()
>>> saved = layout.save_partitions(new, [PartitionData("window", n, b"state") for n in range(2)])
>>> layout.save_manifest(CheckpointManifestV2(
...     checkpoint_id=new, epoch=1, timestamp_ms=1_700_000_000_000, operators=operators_of(saved)))
>>> layout.update_latest(new)
>>> layout.load_state(layout.load_manifest(layout.read_latest()), "window", 1)
(b'state', [])
"""

from airflow_provider_checkpoint.layouts.partitioned._chains import Chain, Slot, resolve
from airflow_provider_checkpoint.layouts.partitioned._layout import PartitionedLayout
from airflow_provider_checkpoint.layouts.partitioned._manifest import (
    CheckpointManifestV2,
    OperatorEntry,
    PartitionEntry,
    SourceEntry,
    decode_manifest,
    encode_manifest,
    operators_of,
)
from airflow_provider_checkpoint.layouts.partitioned._paths import operator_folder
from airflow_provider_checkpoint.layouts.partitioned._saving import PartitionData, save_side_by_side
from airflow_provider_checkpoint.layouts.partitioned._state import Decode

__all__ = [
    "Chain",
    "CheckpointManifestV2",
    "Decode",
    "OperatorEntry",
    "PartitionData",
    "PartitionEntry",
    "PartitionedLayout",
    "Slot",
    "SourceEntry",
    "decode_manifest",
    "encode_manifest",
    "operator_folder",
    "operators_of",
    "resolve",
    "save_side_by_side",
]
