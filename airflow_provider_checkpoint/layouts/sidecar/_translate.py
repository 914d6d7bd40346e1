"""A manifest in the vocabulary that all layouts share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts._positions import from_offsets
from airflow_provider_checkpoint.layouts._sinks import join_sinks
from airflow_provider_checkpoint.layouts.sidecar._checksum import Coverage, coverage, needs_sidecar
from airflow_provider_checkpoint.layouts.sidecar._rules import LAST_TIMESTAMP_MS, is_checksum
from airflow_provider_checkpoint.model import (
    FIRST_TIMELINE,
    Artifact,
    Checkpoint,
    CheckpointId,
    SourcePosition,
)

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.sidecar._manifest import CheckpointManifest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_checkpoint(manifest: CheckpointManifest, state_key: str) -> Checkpoint:
    return Checkpoint(
        id=CheckpointId(manifest.checkpoint_id),
        epoch=manifest.epoch,
        created=created_at(manifest.timestamp_ms),
        timeline=FIRST_TIMELINE if manifest.timeline is None else manifest.timeline,
        artifacts=(_sidecar(manifest, state_key),) if needs_sidecar(manifest) else (),
        inline_bytes=sum(operator.inline_size for operator in manifest.operator_states.values()),
        sources=_sources(manifest),
        sinks=join_sinks(manifest.sink_commit_statuses, manifest.sink_epochs),
        watermark=manifest.watermark,
        pipeline_hash=manifest.pipeline_hash,
        vnode_count=manifest.vnode_count or None,
        source_names=manifest.source_names,
        sink_names=manifest.sink_names,
    )


def created_at(timestamp_ms: int) -> datetime:
    """The time of creation in UTC; what lies after the last year there is counts as its end."""
    return _EPOCH + timedelta(milliseconds=min(timestamp_ms, LAST_TIMESTAMP_MS))


def _sidecar(manifest: CheckpointManifest, key: str) -> Artifact:
    """The sidecar as the manifest knows it: as long as its operators claim, with a digest if nothing else is in it."""
    ends = [operator.external_end for operator in manifest.operator_states.values() if operator.external]
    checksum = manifest.state_checksum
    plain = checksum is not None and coverage(manifest) is Coverage.SIDECAR and is_checksum(checksum)
    return Artifact(key, size=max(ends, default=None), sha256=checksum if plain else None)


def _sources(manifest: CheckpointManifest) -> dict[str, SourcePosition]:
    return {
        name: from_offsets(source.connector_type, source.offsets)
        for name, source in sorted(manifest.source_offsets.items())
    }
