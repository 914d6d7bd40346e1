"""What can be proven of a state file, and by what.

The format has no checksum: a changed bit inside an operator's state decodes as well as the right one. So each file gets
a sibling, ``checkpoint-….ckpt.sha256``, that holds its SHA-256 as 64 hex digits; the file itself stays as the format
has it, and other readers never look at the sibling.

What is promised: with a digest, any change of the state file since it was saved is found. Without one, only a broken
structure is; the checkpoint counts as *unproven*, never as invalid.

So the order of writing is state, then digest: a crash in between leaves a whole checkpoint without proof, and saving it
again adds the digest. The other way round a crash would leave a digest that condemns whatever is later saved under the
same sequence. Removing goes backwards, digest first, for the same reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import sha256_of
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CorruptArtifactError,
)
from airflow_provider_checkpoint.layouts.stream._codec import outline
from airflow_provider_checkpoint.layouts.stream._names import digest_key, state_key
from airflow_provider_checkpoint.layouts.stream._ranged import RangedSource
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.stream._codec import Outline

_DIGEST_SIZE = 64
_DIGEST = re.compile(rb"[0-9a-f]{64}")


def write_digest(blobs: BlobStore, sequence: int, sha256: str) -> None:
    """Record the digest of a state that the caller has just seen in the store with these bytes."""
    key = digest_key(sequence)
    if blobs.create(key, sha256.encode()).created:
        return
    # Another digest stands there. Either it was left behind by a checkpoint that is gone, or, while we were away, our
    # state was removed and another saved under its sequence. The state that is there now tells; the version makes sure
    # that nothing moves between looking and writing.
    try:
        version = blobs.read_versioned(key)[1] if blobs.capabilities.compare_and_swap else None
        there = sha256_of(blobs, state_key(sequence)).sha256
    except BlobNotFoundError:
        return  # The checkpoint was removed while it was being saved: nothing is left to vouch for.
    if there != sha256:
        raise CheckpointConflictError(
            "another state was saved under this sequence in the meantime", subject=f"{blobs.uri}/{state_key(sequence)}"
        )
    blobs.replace(key, sha256.encode(), expected=version)


def read_digest(blobs: BlobStore, sequence: int) -> str | None:
    """The recorded digest; None if there is none, or none that can be read: then the state is unproven."""
    try:
        text = blobs.read(digest_key(sequence), length=_DIGEST_SIZE + 1)
    except BlobNotFoundError:
        return None
    return text.decode() if _DIGEST.fullmatch(text) else None


def digest_issues(blobs: BlobStore, sequence: int, sha256: str) -> list[Issue]:
    """Compare the digest of what was read with the recorded one."""
    key = state_key(sequence)
    recorded = read_digest(blobs, sequence)
    if recorded is None:
        return [Issue.warning("digest_missing", f"{key}: readable, but no digest proves that it is unchanged")]
    if recorded != sha256:
        return [Issue.error("checksum_mismatch", f"{key}: SHA-256 is {sha256}, its digest says {recorded}")]
    return []


def read_outline(blobs: BlobStore, sequence: int, size: int, *, lenient: bool) -> Outline:
    """Names, numbers and lengths of a state of known size, fetching little else.

    Raises BlobNotFoundError, or CorruptArtifactError, also if the file's name and its content disagree.
    """
    key = state_key(sequence)
    found = outline(RangedSource(blobs, key, size), subject=key, lenient=lenient)
    require_sequence(found.sequence, sequence)
    return found


def require_sequence(inside: int, sequence: int) -> None:
    """Raise CorruptArtifactError if a state lies under the name of another."""
    if inside != sequence:
        raise CorruptArtifactError(
            f"the state inside is of sequence {inside}",
            subject=state_key(sequence),
            hint="The file was renamed or overwritten; it is not the checkpoint its name says.",
        )


def content_issues(blobs: BlobStore, sequence: int, *, lenient: bool = False) -> list[Issue]:
    """What a full reading finds wrong. Every byte is read, in constant memory."""
    key = state_key(sequence)
    try:
        info = blobs.stat(key)
        if info is None:
            return [missing(key)]
        read_outline(blobs, sequence, info.size, lenient=lenient)
        found = sha256_of(blobs, key)
    except BlobNotFoundError:
        return [missing(key)]
    except CorruptArtifactError as error:
        return [corrupt(error)]
    return digest_issues(blobs, sequence, found.sha256)


def missing(key: str) -> Issue:
    return Issue.error("artifact_missing", f"{key}: not in the store")


def corrupt(error: CorruptArtifactError) -> Issue:
    return Issue.error("artifact_corrupt", f"{error.subject}: {error.message}")


def remove(blobs: BlobStore, sequences: Iterable[int]) -> list[int]:
    """Remove checkpoints and answer which are gone; raises the first error after having tried all of them."""
    ordered = sorted(sequences)
    # Digests first: a state without one is merely unproven, a digest without a state could condemn a later one.
    digests = blobs.delete([digest_key(sequence) for sequence in ordered])
    bare = [sequence for sequence, outcome in zip(ordered, digests, strict=True) if outcome.deleted]
    states = blobs.delete([state_key(sequence) for sequence in bare])
    for outcome in (*digests, *states):
        if outcome.error is not None:
            raise outcome.error
    return ordered
