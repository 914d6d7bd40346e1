"""What must hold inside a manifest. Pure: nothing is read, nothing raises.

The first rules and their messages are the reference's, in its order; after them come the ones it forgot. Every issue
has a code that does not change.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import check_key
from airflow_provider_checkpoint.exceptions import CorruptManifestError, InvalidKeyError
from airflow_provider_checkpoint.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_provider_checkpoint.layouts.sidecar._manifest import CheckpointManifest, ConnectorCheckpoint

#: The newest version this reader knows, and the one it writes.
MANIFEST_VERSION = 1

#: The last millisecond that a date can name: the end of the year 9999.
LAST_TIMESTAMP_MS = 253_402_300_799_999

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_U64 = 2**64 - 1


#: A manifest with a hundred thousand mistakes does not make a report of as many lines, nor one of endless names.
_SHOWN_PER_CODE = 20
_LONGEST_MESSAGE = 500


def manifest_issues(manifest: CheckpointManifest, expected_vnode_count: int | None) -> list[Issue]:
    return _shortened(_all_issues(manifest, expected_vnode_count))


def _all_issues(manifest: CheckpointManifest, expected_vnode_count: int | None) -> list[Issue]:
    return [
        *_identity(manifest),
        *_statuses(manifest),
        *_unregistered("source_offsets", manifest.source_offsets, "source_names", manifest.source_names),
        *_vnodes(manifest.vnode_count, expected_vnode_count),
        *_unregistered("source_watermarks", manifest.source_watermarks, "source_names", manifest.source_names),
        *_unregistered("sink_epochs", manifest.sink_epochs, "sink_names", manifest.sink_names),
        *_order("source_names", manifest.source_names),
        *_order("sink_names", manifest.sink_names),
        *_from_the_future(manifest),
        *_table_store_path(manifest.table_store_checkpoint_path),
        *_checksum(manifest),
        *_operators(manifest),
        *_ranges(manifest),
    ]


def _shortened(issues: list[Issue]) -> list[Issue]:
    seen: Counter[str] = Counter()
    shown = []
    for issue in issues:
        seen[issue.code] += 1
        if seen[issue.code] <= _SHOWN_PER_CODE:
            shown.append(issue.model_copy(update={"message": _brief(issue.message)}))
    more = {issue.code: issue for issue in shown if seen[issue.code] > _SHOWN_PER_CODE}
    return shown + [
        last.model_copy(update={"message": f"{seen[code] - _SHOWN_PER_CODE} more of the kind: {last.message}"})
        for code, last in more.items()
    ]


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."


def is_checksum(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def _identity(manifest: CheckpointManifest) -> Iterator[Issue]:
    if manifest.version == 0:
        yield Issue.warning("version_zero", "manifest version is 0")
    if manifest.version > MANIFEST_VERSION:
        yield Issue.error(
            "version_unknown",
            f"manifest version is {manifest.version}, newer than {MANIFEST_VERSION}, the last one known here",
        )
    if manifest.checkpoint_id == 0:
        yield Issue.error("checkpoint_id_zero", "checkpoint_id is 0")
    if manifest.epoch == 0:
        yield Issue.error("epoch_zero", "epoch is 0")
    if manifest.timestamp_ms == 0:
        yield Issue.warning("timestamp_zero", "timestamp_ms is 0 (missing creation time)")
    if manifest.timestamp_ms > LAST_TIMESTAMP_MS:
        yield Issue.warning("timestamp_absurd", f"timestamp_ms {manifest.timestamp_ms} lies after the year 9999")


def _statuses(manifest: CheckpointManifest) -> Iterator[Issue]:
    if manifest.sink_commit_statuses:
        for name in sorted(manifest.sink_epochs.keys() - manifest.sink_commit_statuses.keys()):
            yield Issue.warning("sink_status_missing", f"sink '{name}' has epoch but no commit status")
    known = set(manifest.sink_names) or manifest.sink_epochs.keys()
    for name in sorted(manifest.sink_commit_statuses.keys() - known):
        yield Issue.warning("sink_unknown", f"sink '{name}' has a commit status but is no sink of this checkpoint")


def _unregistered(field: str, entries: Mapping[str, object], registry: str, names: Iterable[str]) -> Iterator[Issue]:
    registered = set(names)
    # A checkpoint that registered no names at all comes from a writer that did not record them.
    for name in sorted(entries.keys() - registered) if registered else ():
        yield Issue.warning(f"{field}_unregistered", f"{field} contains '{name}' not in {registry}")


def _vnodes(count: int, expected: int | None) -> Iterator[Issue]:
    if count == 0:
        yield Issue.warning("vnode_count_zero", "vnode_count is 0 (missing or legacy checkpoint)")
    elif expected is not None and count != expected:
        yield Issue.error(
            "vnode_count_mismatch", f"vnode_count mismatch: checkpoint has {count}, runtime expects {expected}"
        )


def _order(field: str, names: tuple[str, ...]) -> Iterator[Issue]:
    if list(names) != sorted(names):
        yield Issue.warning(f"{field}_unsorted", f"{field} is not sorted")
    if len(set(names)) != len(names):
        yield Issue.warning(f"{field}_duplicate", f"{field} names something twice")


def _from_the_future(manifest: CheckpointManifest) -> Iterator[Issue]:
    connectors: dict[str, Mapping[str, ConnectorCheckpoint]] = {
        "source_offsets": manifest.source_offsets,
        "table_offsets": manifest.table_offsets,
    }
    for field, entries in connectors.items():
        for name, entry in sorted(entries.items()):
            if entry.epoch > manifest.epoch:
                yield _later(f"{field}_epoch", f"{field} '{name}'", entry.epoch, manifest.epoch)
    for name, epoch in sorted(manifest.sink_epochs.items()):
        if epoch > manifest.epoch:
            yield _later("sink_epochs_epoch", f"sink '{name}'", epoch, manifest.epoch)


def _later(code: str, what: str, epoch: int, manifest_epoch: int) -> Issue:
    return Issue.warning(code, f"{what} is of epoch {epoch}, later than the checkpoint's own {manifest_epoch}")


def _table_store_path(path: str | None) -> Iterator[Issue]:
    # The path is the pipeline's own: it is never followed from here, so an odd one is only worth knowing.
    if path is not None:
        try:
            check_key(path)
        except InvalidKeyError as error:
            yield Issue.warning("table_store_path_unsafe", f"table_store_checkpoint_path: {error.message}")


def _checksum(manifest: CheckpointManifest) -> Iterator[Issue]:
    if manifest.state_checksum is None:
        if manifest.operator_states:
            yield Issue.warning("state_unprotected", "there is state but no state_checksum: damage cannot be seen")
    elif not is_checksum(manifest.state_checksum):
        yield Issue.error("state_checksum_malformed", "state_checksum is not a SHA-256 in lower-case hex")
    elif not manifest.operator_states:
        yield Issue.warning("sidecar_unclaimed", "state_checksum covers a sidecar of which no operator claims a part")


def _operators(manifest: CheckpointManifest) -> Iterator[Issue]:
    for name, operator in sorted(manifest.operator_states.items()):
        if "\0" in name:
            # The checksum separates names from states by NUL: with one inside, two manifests could share a checksum.
            yield Issue.error("operator_name_malformed", f"operator {name!r}: its name holds a NUL character")
        if operator.external and operator.state_b64 is not None:
            yield Issue.warning(
                "operator_ambiguous", f"operator '{name}' has inline state beside the sidecar's: ignored"
            )
        try:
            operator.try_decode()
        except CorruptManifestError as error:
            yield Issue.error("inline_state_corrupt", f"operator '{name}': {error.message}")


def _ranges(manifest: CheckpointManifest) -> Iterator[Issue]:
    """Writers lay the external states end to end, so anything else means that a number was changed."""
    external = [(name, operator) for name, operator in manifest.operator_states.items() if operator.external]
    end, last = 0, ""
    for name, operator in sorted(external, key=lambda entry: (entry[1].external_offset, entry[1].external_end)):
        start, stop = operator.external_offset, operator.external_end
        if stop > _MAX_U64:
            yield Issue.error("range_overflow", f"operator '{name}': the sidecar cannot reach {stop} bytes")
            continue
        if start < end and stop > start:
            yield Issue.error("range_overlap", f"operators '{last}' and '{name}' claim the same part of the sidecar")
        elif start > end:
            yield Issue.warning("range_gap", f"bytes {end} to {start} of the sidecar belong to no operator")
        if stop > end:
            end, last = stop, name
