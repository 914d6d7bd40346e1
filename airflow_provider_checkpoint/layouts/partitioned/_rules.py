"""What can be wrong with a manifest that can be read. Pure: looks at nothing but the manifest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.partitioned._manifest import MANIFEST_VERSION
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_checkpoint.layouts.partitioned._manifest import CheckpointManifestV2
    from airflow_provider_checkpoint.model import CheckpointId


#: The last millisecond that a date can name: the end of the year 9999.
LAST_TIMESTAMP_MS = 253_402_300_799_999

_SHA256 = re.compile(r"[0-9a-f]{64}")


def identity_issues(manifest: CheckpointManifestV2, checkpoint_id: CheckpointId) -> list[Issue]:
    """Reasons not to believe anything else the manifest says."""
    issues = []
    if manifest.version > MANIFEST_VERSION:
        issues.append(
            Issue.error(
                "version_unknown",
                f"manifest version is {manifest.version}, newer than {MANIFEST_VERSION}, the last one known here",
            )
        )
    elif manifest.version < MANIFEST_VERSION:
        issues.append(Issue.error("version_unknown", f"manifest version is {manifest.version}, not {MANIFEST_VERSION}"))
    if manifest.checkpoint_id != checkpoint_id:
        issues.append(
            Issue.error("id_mismatch", f"the manifest of checkpoint {checkpoint_id} says {manifest.checkpoint_id}")
        )
    return issues


def rule_issues(manifest: CheckpointManifestV2, *, expected_vnodes: int | None = None) -> list[Issue]:
    """Numbers, sums, names and sinks. Paths and chains are judged where they are resolved."""
    return [
        *_number_issues(manifest),
        *_sum_issues(manifest),
        *_vnode_issues(manifest, expected_vnodes),
        *_digest_issues(manifest),
        *_name_issues(manifest),
    ]


def _number_issues(manifest: CheckpointManifestV2) -> Iterator[Issue]:
    if manifest.epoch == 0:
        yield Issue.error("epoch_zero", "epoch is 0")
    if manifest.timestamp_ms == 0:
        yield Issue.warning("timestamp_zero", "timestamp_ms is 0 (missing creation time)")
    if manifest.timestamp_ms > LAST_TIMESTAMP_MS:
        yield Issue.warning("timestamp_absurd", f"timestamp_ms {manifest.timestamp_ms} lies after the year 9999")
    if manifest.parent_id is not None and manifest.parent_id >= manifest.checkpoint_id:
        yield Issue.warning("parent_not_older", f"parent {manifest.parent_id} is not older than the checkpoint")


def _sum_issues(manifest: CheckpointManifestV2) -> Iterator[Issue]:
    """A list that lost an entry no longer adds up. 0 means that the writer did not add up."""
    total = 0
    for operator, entry in manifest.operators.items():
        found = sum(partition.size_bytes for partition in entry.partitions)
        total += found
        if entry.total_bytes not in (0, found):
            yield Issue.error(
                "total_bytes_mismatch",
                f"operator {operator!r}: partitions add up to {found} bytes, total_bytes says {entry.total_bytes}",
            )
    if manifest.total_size_bytes not in (0, total):
        yield Issue.warning(
            "total_size_mismatch",
            f"operators add up to {total} bytes, total_size_bytes says {manifest.total_size_bytes}",
        )


def _vnode_issues(manifest: CheckpointManifestV2, expected: int | None) -> Iterator[Issue]:
    count = manifest.vnode_count
    if count is None:
        return
    if count == 0:
        yield Issue.warning("vnode_count_zero", "vnode_count is 0 (missing)")
        return
    if expected is not None and count != expected:
        yield Issue.error(
            "vnode_count_mismatch", f"vnode_count mismatch: checkpoint has {count}, runtime expects {expected}"
        )
    for operator, entry in manifest.operators.items():
        highest = max((partition.partition_id for partition in entry.partitions), default=0)
        if highest >= count:
            yield Issue.error(
                "partition_out_of_range", f"operator {operator!r}: partition {highest}, but vnode_count is {count}"
            )


def _digest_issues(manifest: CheckpointManifestV2) -> Iterator[Issue]:
    digests = [partition.sha256 for entry in manifest.operators.values() for partition in entry.partitions]
    missing = digests.count(None)
    if missing:
        yield Issue.warning("digest_missing", f"{missing} artifacts have no SHA-256: their content cannot be proven")
    malformed = sum(digest is not None and _SHA256.fullmatch(digest) is None for digest in digests)
    if malformed:
        yield Issue.error("digest_malformed", f"{malformed} artifacts have a SHA-256 that is not lower-case hex")


def _name_issues(manifest: CheckpointManifestV2) -> Iterator[Issue]:
    yield from _order("source_names", manifest.source_names)
    yield from _order("sink_names", manifest.sink_names)
    yield from _unregistered("source_offsets", manifest.source_offsets, "source_names", manifest.source_names)
    yield from _unregistered("source_watermarks", manifest.source_watermarks, "source_names", manifest.source_names)
    yield from _unregistered("sink_epochs", manifest.sink_epochs, "sink_names", manifest.sink_names)
    yield from _unregistered("sink_commit_statuses", manifest.sink_commit_statuses, "sink_names", manifest.sink_names)
    if manifest.sink_commit_statuses:
        for name in sorted(manifest.sink_epochs.keys() - manifest.sink_commit_statuses.keys()):
            yield Issue.warning("sink_status_missing", f"sink '{name}' has epoch but no commit status")


def _order(field: str, names: tuple[str, ...]) -> Iterator[Issue]:
    if list(names) != sorted(names):
        yield Issue.warning(f"{field}_unsorted", f"{field} is not sorted")
    if len(set(names)) != len(names):
        yield Issue.warning(f"{field}_duplicate", f"{field} names something twice")


def _unregistered(field: str, entries: Mapping[str, object], registry: str, names: tuple[str, ...]) -> Iterator[Issue]:
    # A checkpoint that registered no names at all comes from a writer that did not record them.
    for name in sorted(entries.keys() - set(names)) if names else ():
        yield Issue.warning(f"{field}_unregistered", f"{field} contains '{name}' not in {registry}")
