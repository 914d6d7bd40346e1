"""``state_checksum``: one SHA-256 over all state of a checkpoint, in the manifest and beside it.

What it is taken over depends on where the state lies:

- only in the sidecar: the sidecar's bytes;
- only in the manifest: ``name NUL base64 NUL`` of each inline operator, names sorted by their bytes;
- in both: the hex digest of the second, then the sidecar's bytes. Writers up to 0.22 took the sidecar's bytes alone,
  which is accepted with a warning, because then the inline state is not protected.

Sidecars are streamed, never held.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, ConfigurationError
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.sidecar._manifest import CheckpointManifest, OperatorCheckpoint


class Coverage(Enum):
    """Where the state of a checkpoint lies, as its manifest tells."""

    SIDECAR = "state.bin"
    INLINE = "inline state"
    MIXED = "mixed state"


def coverage(manifest: CheckpointManifest) -> Coverage:
    """Without operators only a sidecar can be meant: the whole of it is the pipeline's own business."""
    kinds = {operator.external for operator in manifest.operator_states.values()}
    if kinds == {True, False}:
        return Coverage.MIXED
    return Coverage.INLINE if kinds == {False} else Coverage.SIDECAR


def needs_sidecar(manifest: CheckpointManifest) -> bool:
    """Whether the manifest refers to a sidecar: by a range, or by a checksum that can be of nothing else."""
    if not manifest.operator_states:
        return manifest.state_checksum is not None
    return coverage(manifest) is not Coverage.INLINE


def inline_checksum(operators: Mapping[str, OperatorCheckpoint]) -> str:
    digest = hashlib.sha256()
    for name, operator in sorted(operators.items(), key=lambda entry: entry[0].encode()):
        if not operator.external:
            digest.update(f"{name}\0{operator.state_b64 or ''}\0".encode())
    return digest.hexdigest()


class Seal:
    """Takes the checksum of a sidecar while its bytes go by on their way to the store."""

    def __init__(self, manifest: CheckpointManifest) -> None:
        self._digest = hashlib.sha256()
        if coverage(manifest) is Coverage.MIXED:
            self._digest.update(inline_checksum(manifest.operator_states).encode())
        self._size = 0
        self._needed = max((operator.external_end for operator in manifest.operator_states.values()), default=0)

    def over(self, chunks: Iterable[Buffer]) -> Iterator[Buffer]:
        """The chunks unchanged. Raises at their end if they are fewer bytes than the operators claim.

        The store asks for the end before it lets the object appear, so a sidecar that is too short never does.
        """
        for chunk in chunks:
            self._digest.update(chunk)
            self._size += memoryview(chunk).nbytes
            yield chunk
        if self._size < self._needed:
            raise ConfigurationError(
                f"the state given is {self._size} bytes, but operators claim ranges up to {self._needed}",
                hint="Hand over the external state of all operators, in the order of their offsets.",
            )

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()


def checksum_issues(blobs: BlobStore, manifest: CheckpointManifest, key: str) -> list[Issue]:
    """Compare the state with its checksum; ``key`` is where the sidecar lies, if there is one."""
    expected = manifest.state_checksum
    if expected is None:
        return []
    where = coverage(manifest)
    inline = inline_checksum(manifest.operator_states)
    if where is Coverage.INLINE:
        return [] if inline == expected else [_mismatch(where, expected, inline)]
    plain, mixed = hashlib.sha256(), hashlib.sha256(inline.encode())
    try:
        for chunk in blobs.stream(key):
            plain.update(chunk)
            if where is Coverage.MIXED:
                mixed.update(chunk)
    except BlobNotFoundError:
        return [Issue.error("artifact_missing", f"{key}: state.bin referenced by checksum but not found")]
    right = mixed if where is Coverage.MIXED else plain
    if right.hexdigest() == expected:
        return []
    if plain.hexdigest() == expected:
        return [Issue.warning("inline_state_unprotected", "state_checksum is of an older kind: it spares inline state")]
    return [_mismatch(where, expected, right.hexdigest())]


def _mismatch(where: Coverage, expected: str, found: str) -> Issue:
    return Issue.error("checksum_mismatch", f"{where.value} checksum mismatch: expected {expected}, got {found}")
