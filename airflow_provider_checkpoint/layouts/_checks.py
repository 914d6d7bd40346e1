"""Proofs that every layout shares: an artifact is there, has its size, has its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import sha256_of
from airflow_provider_checkpoint.exceptions import BlobNotFoundError
from airflow_provider_checkpoint.layouts._protocol import Check
from airflow_provider_checkpoint.model import Depth, Issue

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import Artifact


def artifact_check(blobs: BlobStore, artifact: Artifact, depth: Depth) -> Check:
    """Presence and size; from depth ``content`` on, the digest, which is streamed and not held."""
    if depth.includes(Depth.CONTENT) and artifact.sha256 is not None:
        return Check(artifact.key, artifact.size or 0, lambda: digest_issues(blobs, artifact), (artifact,))
    return Check(artifact.key, 0, lambda: presence_issues(blobs, artifact), (artifact,))


def presence_issues(blobs: BlobStore, artifact: Artifact) -> list[Issue]:
    info = blobs.stat(artifact.key)
    if info is None:
        return [missing(artifact)]
    return _size_issues(artifact, info.size)


def digest_issues(blobs: BlobStore, artifact: Artifact) -> list[Issue]:
    try:
        found = sha256_of(blobs, artifact.key)
    except BlobNotFoundError:
        return [missing(artifact)]
    issues = _size_issues(artifact, found.size)
    if not issues and found.sha256 != artifact.sha256:
        issues.append(
            Issue.error(
                "checksum_mismatch",
                f"{artifact.key}: SHA-256 is {found.sha256}, the manifest says {artifact.sha256}",
            )
        )
    return issues


def missing(artifact: Artifact) -> Issue:
    return Issue.error("artifact_missing", f"{artifact.key}: not in the store")


def _size_issues(artifact: Artifact, size: int) -> list[Issue]:
    if artifact.size is None or artifact.size == size:
        return []
    return [Issue.error("size_mismatch", f"{artifact.key}: {size} bytes, the manifest says {artifact.size}")]
