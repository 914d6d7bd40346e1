"""Seals: a SHA-256 of every file that a batch needs, taken while it is known to be good.

Spark's own checksums find a file that was cut or flipped. They cannot find one that is whole and wrong, such as an
older copy put back by hand. A seal does, and makes later proofs cheap: a digest instead of decoding.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.blobs import sha256_of
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptArtifactError,
    CorruptError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._fields import U64
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts.structured_streaming._names import guarded_by, seal_key, seal_number
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small
from airflow_provider_checkpoint.model import Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
    from airflow_provider_checkpoint.model import Artifact, CheckpointId

_LIMIT = 256 * 1024 * 1024
_SHOWN = 5


class SealedFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: Annotated[str, Field(min_length=1)]
    size: U64
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Seal(BaseModel):
    """The inventory of one batch."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    version: Literal[1] = 1
    batch: Annotated[int, Field(ge=0)]
    query_id: str
    sealed: Annotated[AwareDatetime, Field(strict=False)]
    files: Annotated[tuple[SealedFile, ...], Field(strict=False)]
    """By key, in order. Checksums that lie beside files are not among them: Spark does without."""

    def canonical(self) -> bytes:
        """The same inventory always as the same bytes."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digests(self) -> dict[str, SealedFile]:
        return {file.key: file for file in self.files}


def read_seal(blobs: BlobStore, batch: int) -> Seal:
    """Raises BlobNotFoundError or CorruptManifestError."""
    key = seal_key(batch)
    seal = parse_model(Seal, parse_object(read_small(blobs, key, limit=_LIMIT), subject=key), subject=key)
    if seal.batch != batch:
        raise CorruptManifestError(f"speaks of batch {seal.batch}", subject=key)
    return seal


def newest_seal(blobs: BlobStore, batches: Iterable[int]) -> Seal | None:
    """The seal of the highest batch that can be read."""
    for batch in sorted(batches, reverse=True):
        try:
            return read_seal(blobs, batch)
        except (BlobNotFoundError, CorruptError):
            continue
    return None


def with_digests(artifacts: Iterable[Artifact], seal: Seal | None) -> list[Artifact]:
    """Artifacts with the sizes and digests that a seal has of them."""
    digests = {} if seal is None else seal.digests
    return [
        replace(each, size=digests[each.key].size, sha256=digests[each.key].sha256) if each.key in digests else each
        for each in artifacts
    ]


def lost_operators(seal: Seal | None, artifacts: Iterable[Artifact]) -> list[Issue]:
    """Operators that had state when the batch was sealed and of which nothing is left.

    Without a seal, a query whose state was removed looks like one that never had any. Single files are another matter:
    Spark may since have made a snapshot that takes their place.
    """
    found = {operator for artifact in artifacts if (operator := _operator(artifact.key)) is not None}
    sealed = {} if seal is None else seal.digests
    lost = {operator for key in sealed if (operator := _operator(key)) is not None} - found
    return [
        Issue.error("state_missing", f"{operator}: not in the store, although it was when the batch was sealed")
        for operator in sorted(lost)
    ]


def _operator(key: str) -> str | None:
    folder, _, rest = key.partition("/")
    return f"{folder}/{rest.partition('/')[0]}" if folder == "state" else None


def seal(
    layout: StructuredStreamingLayout,
    checkpoint_id: CheckpointId,
    *,
    width: int = 8,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Seal:
    """Take the inventory of a batch that is proven good, and keep it for good.

    Sealing again compares: while the files are the same, the standing seal is the answer. A file that has changed since
    raises CheckpointConflictError. A batch that does not validate is not sealed: CorruptArtifactError.
    """
    batch = layout.batch_of(checkpoint_id)
    standing = _standing(layout.blobs, batch)
    if standing is None:
        _require_valid(layout, checkpoint_id, width)
    taken = _inventory(layout, checkpoint_id, batch, width, clock())
    # Exactly one of two that seal at once wins; the other compares with what stands there.
    if standing is None and layout.blobs.create(seal_key(batch), taken.canonical()).created:
        return taken
    standing = standing or read_seal(layout.blobs, batch)
    _require_same(standing, taken, layout.blobs.uri)
    return standing


def _standing(blobs: BlobStore, batch: int) -> Seal | None:
    try:
        return read_seal(blobs, batch)
    except BlobNotFoundError:
        return None


def _inventory(
    layout: StructuredStreamingLayout, checkpoint_id: CheckpointId, batch: int, width: int, now: datetime
) -> Seal:
    checkpoint = layout.load(checkpoint_id)
    ahead = layout.keys_ahead(checkpoint)
    keys = {artifact.key for artifact in checkpoint.artifacts} | set(layout.manifest_keys(checkpoint_id))
    needed = sorted(key for key in keys if key not in ahead and guarded_by(key) is None and seal_number(key) is None)
    with ThreadPoolExecutor(width) as pool:
        digests = list(pool.map(lambda key: sha256_of(layout.blobs, key), needed))
    files = (
        SealedFile(key=key, size=digest.size, sha256=digest.sha256) for key, digest in zip(needed, digests, strict=True)
    )
    return Seal(batch=batch, query_id=layout.query_id(), sealed=now, files=tuple(files))


def _require_valid(layout: StructuredStreamingLayout, checkpoint_id: CheckpointId, width: int) -> None:
    issues = layout.prove(checkpoint_id, width=width)
    if any(issue.code == "manifest_missing" for issue in issues):
        raise CheckpointNotFoundError(
            f"no committed batch {checkpoint_id}", subject=layout.blobs.uri, hint="List what is there."
        )
    errors = [issue.message for issue in issues if issue.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise CorruptArtifactError(
            f"batch {checkpoint_id} is not whole, so it cannot be sealed: {errors[0]}{more}",
            subject=layout.blobs.uri,
            hint="diagnose tells what is wrong and which batches are good.",
        )


def _require_same(standing: Seal, taken: Seal, uri: str) -> None:
    """Raise if a file that is in both inventories differs.

    The sets may differ: Spark writes snapshots of past versions later, and then a batch needs other files than before.
    """
    known = standing.digests
    changed = [file.key for file in taken.files if file.key in known and known[file.key] != file]
    if standing.query_id != taken.query_id:
        changed.insert(0, f"metadata (query {standing.query_id} then, {taken.query_id} now)")
    if changed:
        shown = ", ".join(changed[:_SHOWN]) + (f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else "")
        raise CheckpointConflictError(
            f"files of batch {standing.batch} have changed since it was sealed: {shown}",
            subject=uri,
            hint="Somebody replaced them, or the batch was run again. Go back to a batch whose seal holds; a seal is"
            f" never renewed, remove {seal_key(standing.batch)} beside the directory if the change was meant.",
        )
