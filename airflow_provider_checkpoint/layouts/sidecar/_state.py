"""Operator state: split between manifest and sidecar when written, found again when read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    ConfigurationError,
    CorruptArtifactError,
    CorruptError,
)
from airflow_provider_checkpoint.layouts.sidecar._manifest import OperatorCheckpoint
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.sidecar._manifest import CheckpointManifest
    from airflow_provider_checkpoint.model import Artifact


def pack_states(states: Mapping[str, bytes], *, threshold: int) -> tuple[dict[str, OperatorCheckpoint], list[bytes]]:
    """Entries for a manifest, and the chunks of its sidecar: states above the threshold, end to end, sorted by name."""
    entries: dict[str, OperatorCheckpoint] = {}
    chunks: list[bytes] = []
    offset = 0
    for name, state in sorted(states.items()):
        entries[name], chunk = OperatorCheckpoint.from_bytes(state, threshold=threshold, offset=offset)
        if chunk is not None:
            chunks.append(chunk)
            offset += len(chunk)
    return entries, chunks


def read_operator(blobs: BlobStore, manifest: CheckpointManifest, name: str, key: str) -> bytes | None:
    """State of one operator, of which only its own range of the sidecar is read; None if it has none.

    Raises CorruptError if the state is missing, cut or not decodable: an operator must never start empty instead.
    """
    operator = manifest.operator_states.get(name)
    if operator is None:
        raise ConfigurationError(
            f"checkpoint {manifest.checkpoint_id} has no operator {name!r}",
            hint=f"Its operators: {', '.join(sorted(manifest.operator_states)[:20]) or 'none'}.",
        )
    if not operator.external:
        return operator.try_decode()
    return b"".join(bytes(chunk) for chunk in _stream_external(blobs, key, operator, sidecar_size(blobs, key)))


def sidecar_size(blobs: BlobStore, key: str) -> int | None:
    info = blobs.stat(key)
    return None if info is None else info.size


def _stream_external(blobs: BlobStore, key: str, operator: OperatorCheckpoint, size: int | None) -> Iterator[Buffer]:
    """An operator's range of a sidecar of known size, whole or CorruptArtifactError."""
    # Checked before anything is read: a range from a damaged manifest may be larger than any memory.
    if size is None or operator.external_end > size:
        raise _cut(key, operator, size)
    if operator.external_length == 0:
        return
    left = operator.external_length
    try:
        for chunk in blobs.stream(key, start=operator.external_offset, length=left):
            left -= memoryview(chunk).nbytes
            yield chunk
    except BlobNotFoundError:
        raise _cut(key, operator, None) from None
    if left:
        raise _cut(key, operator, operator.external_end - left)


def _cut(key: str, operator: OperatorCheckpoint, size: int | None) -> CorruptArtifactError:
    found = "is not in the store" if size is None else f"has {size} bytes"
    return CorruptArtifactError(
        f"state lies in bytes {operator.external_offset} to {operator.external_end} of the sidecar, which {found}",
        subject=key,
        hint="Validate the checkpoint, and restore from an older one if its state is gone.",
    )


# -- proofs ------------------------------------------------------------------------------------------------------


def presence_issues(blobs: BlobStore, artifact: Artifact) -> list[Issue]:
    """The sidecar is there and reaches as far as the operators claim."""
    info = blobs.stat(artifact.key)
    if info is None:
        return [Issue.error("artifact_missing", f"{artifact.key}: state.bin referenced but not found")]
    if artifact.size is None or info.size == artifact.size:
        return []
    if info.size < artifact.size:
        message = f"{artifact.key}: {info.size} bytes, but operators claim ranges up to {artifact.size}"
        return [Issue.error("size_mismatch", message)]
    message = f"bytes {artifact.size} to {info.size} of the sidecar belong to no operator"
    return [Issue.warning("range_gap", message)]


def restore_issues(blobs: BlobStore, manifest: CheckpointManifest, key: str) -> list[Issue]:
    """Take out every operator's state as a restore would, without holding it."""
    external = any(operator.external for operator in manifest.operator_states.values())
    size = sidecar_size(blobs, key) if external else None
    issues = []
    for name, operator in sorted(manifest.operator_states.items()):
        try:
            if operator.external:
                for _ in _stream_external(blobs, key, operator, size):
                    pass
            else:
                operator.try_decode()
        except CorruptError as error:
            issues.append(Issue.error("restore_failed", f"operator '{name}': {error.message}"))
    return issues
