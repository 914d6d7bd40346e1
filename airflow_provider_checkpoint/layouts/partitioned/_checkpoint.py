"""From a manifest to the vocabulary all layouts share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._sinks import join_sinks
from airflow_provider_checkpoint.layouts.partitioned._paths import is_ours, locate
from airflow_provider_checkpoint.layouts.partitioned._rules import LAST_TIMESTAMP_MS
from airflow_provider_checkpoint.model import FIRST_TIMELINE, Artifact, ArtifactKind, Checkpoint

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.partitioned._manifest import CheckpointManifestV2, PartitionEntry
    from airflow_provider_checkpoint.model import CheckpointId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_checkpoint(manifest: CheckpointManifestV2) -> Checkpoint:
    """What a manifest says; raises CorruptManifestError if it contradicts itself."""
    return Checkpoint(
        id=manifest.checkpoint_id,
        epoch=manifest.epoch,
        # What lies after the last year there is counts as its end; a rule warns.
        created=_EPOCH + timedelta(milliseconds=min(manifest.timestamp_ms, LAST_TIMESTAMP_MS)),
        timeline=manifest.timeline or FIRST_TIMELINE,
        parent=manifest.parent_id,
        artifacts=artifacts_of(manifest),
        sources={name: entry.position for name, entry in manifest.source_offsets.items()},
        sinks=join_sinks(manifest.sink_commit_statuses, manifest.sink_epochs),
        watermark=manifest.watermark,
        event_count=manifest.event_count,
        pipeline_hash=manifest.pipeline_hash,
        vnode_count=manifest.vnode_count or None,
        source_names=manifest.source_names,
        sink_names=manifest.sink_names,
        savepoint=manifest.savepoint,
    )


def artifacts_of(manifest: CheckpointManifestV2) -> tuple[Artifact, ...]:
    """Every artifact the manifest lists, in its order; raises CorruptManifestError for a path that names none."""
    return tuple(
        artifact_of(operator, partition, manifest.checkpoint_id)
        for operator, entry in manifest.operators.items()
        for partition in entry.partitions
    )


def artifact_of(operator: str, entry: PartitionEntry, checkpoint_id: CheckpointId) -> Artifact:
    """One of them."""
    kind = ArtifactKind.DELTA if entry.is_delta else ArtifactKind.SNAPSHOT
    key = entry.path
    if not operator or not is_ours(key, operator, entry.partition_id, kind):
        name = locate(entry.path, checkpoint_id)
        if (name.partition, name.kind) != (entry.partition_id, kind) or not name.is_of(operator):
            raise CorruptManifestError(
                f"the {kind} of operator {operator!r}, partition {entry.partition_id}, is said to be that of another",
                subject=entry.path,
            )
        key = name.key
    return Artifact(key, kind, operator, entry.partition_id, entry.size_bytes, entry.sha256)
