"""Reading state back, verified, and the proof that it can be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptArtifactError, CorruptError
from airflow_provider_checkpoint.layouts._checks import missing
from airflow_provider_checkpoint.layouts._protocol import Check
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.partitioned._chains import Chain, Slot
    from airflow_provider_checkpoint.model import Artifact

Decode: TypeAlias = Callable[[str, int, bytes, Sequence[bytes]], object]
"""Takes operator, partition, snapshot and deltas, and raises CorruptArtifactError if they make no state."""

#: No object is this large; a range that ends beyond 64 bits is not even a question to a store.
_LARGEST = 2**62


def load_chain(blobs: BlobStore, chain: Chain) -> tuple[bytes, list[bytes]]:
    """The snapshot and its deltas; raises CorruptArtifactError if one is missing or not what the manifest says."""
    base, *deltas = (_load(blobs, artifact) for artifact in chain.artifacts)
    return base, deltas


def restore_check(blobs: BlobStore, slot: Slot, chain: Chain, decode: Decode | None) -> Check:
    """The proof that a chain can be restored: every piece loads and verifies, and together they decode."""
    return Check(
        # All keys, because a base is shared: a check with the same subject would be the same proof.
        subject=" + ".join(artifact.key for artifact in chain.artifacts),
        cost=sum(artifact.size or 0 for artifact in chain.artifacts),
        run=lambda: _restore_issues(blobs, slot, chain, decode),
    )


def _restore_issues(blobs: BlobStore, slot: Slot, chain: Chain, decode: Decode | None) -> list[Issue]:
    pieces = [_read(blobs, artifact) for artifact in chain.artifacts]
    issues = [issue for _, issue in pieces if issue is not None]
    if decode is None or issues:
        return issues
    base, *deltas = (data for data, _ in pieces)
    try:
        decode(*slot, base, deltas)
    except CorruptError as error:
        return [Issue.error("state_undecodable", f"operator {slot[0]!r}, partition {slot[1]}: {error.message}")]
    return []


def _load(blobs: BlobStore, artifact: Artifact) -> bytes:
    data, issue = _read(blobs, artifact)
    if issue is not None:
        raise CorruptArtifactError(
            issue.message,
            subject=blobs.uri,
            hint="Validate the checkpoint at depth 'content' and restore from another one.",
        )
    return data


def _read(blobs: BlobStore, artifact: Artifact) -> tuple[bytes, Issue | None]:
    """The bytes of an artifact, and what is wrong with them. Reads no more than the manifest lets expect."""
    try:
        data = blobs.read(artifact.key, length=None if artifact.size is None else min(artifact.size, _LARGEST) + 1)
    except BlobNotFoundError:
        return b"", missing(artifact)
    if artifact.size is not None and len(data) != artifact.size:
        found = f"more than {artifact.size}" if len(data) > artifact.size else f"only {len(data)} of {artifact.size}"
        return data, Issue.error("size_mismatch", f"{artifact.key}: {found} bytes")
    return data, digest_issue(artifact.key, data, artifact.sha256)


def digest_issue(key: str, data: bytes, sha256: str | None) -> Issue | None:
    if sha256 is None or (found := hashlib.sha256(data).hexdigest()) == sha256:
        return None
    return Issue.error("checksum_mismatch", f"{key}: SHA-256 is {found}, the manifest says {sha256}")
