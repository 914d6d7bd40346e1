"""Which artifacts make up the state of one operator partition, and in which order they are applied.

A manifest lists all of them itself: one snapshot, then deltas in the order in which they are applied. They may lie in
the folders of older checkpoints, but nothing is looked up there: a chain never leads through another manifest.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts.partitioned._checkpoint import artifact_of, artifacts_of
from airflow_provider_checkpoint.model import Artifact, ArtifactKind, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_checkpoint.layouts.partitioned._manifest import CheckpointManifestV2
    from airflow_provider_checkpoint.model import CheckpointId

Slot: TypeAlias = tuple[str, int]
"""Operator and partition."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of one operator partition."""

    base: Artifact
    deltas: tuple[Artifact, ...] = ()

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """In the order in which they are applied."""
        return (self.base, *self.deltas)


def resolve(manifest: CheckpointManifestV2) -> dict[Slot, Chain]:
    """Every chain of a manifest; raises CorruptManifestError if one of them is broken."""
    return _whole(artifacts_of(manifest), manifest.checkpoint_id)


def resolve_one(manifest: CheckpointManifestV2, operator: str, partition: int) -> Chain | None:
    """The chain of one operator partition, without a look at the others; None if the manifest lists nothing for it."""
    entry = manifest.operators.get(operator)
    listed = [] if entry is None else [each for each in entry.partitions if each.partition_id == partition]
    artifacts = [artifact_of(operator, each, manifest.checkpoint_id) for each in listed]
    return _whole(artifacts, manifest.checkpoint_id).get((operator, partition))


def _whole(artifacts: Iterable[Artifact], checkpoint_id: CheckpointId) -> dict[Slot, Chain]:
    chains, issues = find_chains(artifacts)
    errors = [issue.message for issue in issues if issue.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise CorruptManifestError(f"{errors[0]}{more}", subject=str(checkpoint_id))
    return chains


def find_chains(artifacts: Iterable[Artifact]) -> tuple[dict[Slot, Chain], list[Issue]]:
    """The whole chains among some artifacts, and what is wrong with the others."""
    listed: defaultdict[Slot, list[Artifact]] = defaultdict(list)
    for artifact in artifacts:
        listed[artifact.operator or "", artifact.partition or 0].append(artifact)
    chains = {}
    issues = []
    for slot, pieces in listed.items():
        if len(pieces) == 1 and pieces[0].kind is ArtifactKind.SNAPSHOT:
            # Most are like this, and a manifest may list very many.
            chains[slot] = Chain(pieces[0])
            continue
        problems = _problems(slot, pieces)
        issues += problems
        if not any(issue.severity is Severity.ERROR for issue in problems):
            # As the reference does: the snapshot first, wherever it is listed.
            base, *deltas = sorted(pieces, key=lambda piece: piece.kind is ArtifactKind.DELTA)
            chains[slot] = Chain(base, tuple(deltas))
    return chains, issues


def _problems(slot: Slot, pieces: list[Artifact]) -> list[Issue]:
    where = f"operator {slot[0]!r}, partition {slot[1]}"
    bases = sum(piece.kind is ArtifactKind.SNAPSHOT for piece in pieces)
    issues = []
    if bases == 0:
        issues.append(Issue.error("chain_without_base", f"{where}: deltas without the snapshot they change"))
    elif bases > 1:
        issues.append(
            Issue.error("chain_with_several_bases", f"{where}: {bases} snapshots, of which one must be wrong")
        )
    elif pieces[0].kind is ArtifactKind.DELTA:
        issues.append(Issue.warning("chain_unsorted", f"{where}: a delta is listed before its snapshot"))
    if len({piece.key for piece in pieces}) < len(pieces):
        issues.append(Issue.error("chain_repeats", f"{where}: an artifact is listed twice and would be applied twice"))
    return issues
