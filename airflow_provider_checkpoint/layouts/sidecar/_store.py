"""The sidecar layout as its pipeline uses it: save, load, record what the sinks did."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts._swap import swap
from airflow_provider_checkpoint.layouts.sidecar import _names as names
from airflow_provider_checkpoint.layouts.sidecar._checksum import (
    Coverage,
    Seal,
    coverage,
    inline_checksum,
    needs_sidecar,
)
from airflow_provider_checkpoint.layouts.sidecar._housekeeping import SidecarHousekeeping
from airflow_provider_checkpoint.layouts.sidecar._listing import list_states, list_trash
from airflow_provider_checkpoint.layouts.sidecar._manifest import (
    DEFAULT_INLINE_THRESHOLD,
    DEFAULT_VNODE_COUNT,
    CheckpointManifest,
    with_sinks,
)
from airflow_provider_checkpoint.layouts.sidecar._pointer import advance_pointer, read_pointer
from airflow_provider_checkpoint.layouts.sidecar._state import pack_states, read_operator, sidecar_size
from airflow_provider_checkpoint.model import Severity, SinkState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.blobs import BlobStore

log = logging.getLogger(__name__)

_SINK_FIELDS = frozenset({"sink_epochs", "sink_commit_statuses"})


class SidecarLayout(SidecarHousekeeping):
    """Manifests with integer ids, and one sidecar per checkpoint for state that is too large for its manifest.

    Writing: state first, then the manifest, which is the commit point, then the pointer. State and manifest are created
    only where nothing is, so of two writers with one id exactly one wins and the other touches nothing of it. Every
    call may be repeated after an error or a crash: the same bytes again are a success. An id is used once; after a
    conflict the writer takes a new one.

    :param blobs: the folder of the pipeline.
    :param vnode_count: the count that manifests must have to be restored here; None accepts any.
    :param max_retained: after each save, prune to this many; 0 leaves pruning to others.
    :param inline_threshold: state of up to this many bytes goes into the manifest.
    :param clock: for the time of new manifests, the age of what may go, and the duration of a recovery.
    """

    def __init__(
        self,
        blobs: BlobStore,
        *,
        vnode_count: int | None = DEFAULT_VNODE_COUNT,
        max_retained: int = 0,
        inline_threshold: int = DEFAULT_INLINE_THRESHOLD,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(blobs, vnode_count=vnode_count, clock=clock)
        if max_retained < 0 or inline_threshold < 0:
            raise ConfigurationError(
                "max_retained and inline_threshold cannot be negative",
                hint="0 stands for: never prune, and all state but the empty one into the sidecar.",
            )
        self._max_retained = max_retained
        self._inline_threshold = inline_threshold

    def with_vnode_count(self, vnode_count: int) -> SidecarLayout:
        """The same store for a pipeline that runs with another number of vnodes."""
        return SidecarLayout(
            self.blobs,
            vnode_count=vnode_count,
            max_retained=self._max_retained,
            inline_threshold=self._inline_threshold,
            clock=self._clock,
        )

    # -- saving --------------------------------------------------------------------------------------------------

    def new_manifest(self, checkpoint_id: int, epoch: int) -> CheckpointManifest:
        """An empty manifest with the store's vnode count, by default 256, and the time of its clock."""
        now = int(self._clock().timestamp() * 1000)
        return CheckpointManifest.new(checkpoint_id, epoch, self.vnode_count, timestamp_ms=now)

    def next_id(self) -> int:
        """An id that was never used: one above every trace of one, be it readable, half written or in the trash."""
        used = {
            0,
            *self.manifests(),
            *(number for number, _ in list_states(self.blobs)),
            *list_trash(self.blobs),
            read_pointer(self.blobs) or 0,
        }
        if max(used) >= names.MAX_ID:
            raise ConfigurationError(
                f"ids are used up: something here bears the id {names.MAX_ID}",
                subject=self.blobs.uri,
                hint="An object was named by mistake. Move it away.",
            )
        return max(used) + 1

    def save(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """Commit a checkpoint whose state, if it refers to a sidecar, is already in the store.

        Raises CheckpointConflictError if a different manifest stands under the id, ConfigurationError if the manifest
        could not be restored: because it breaks a rule, or because its state is not there.
        """
        self._require_restorable(manifest)
        if needs_sidecar(manifest):
            self._require_state(manifest)
        return self._commit(manifest)

    def save_with_state(self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None) -> CheckpointManifest:
        """Commit a checkpoint with its sidecar, whose bytes are streamed; returns the manifest as written.

        The checksum is taken here, whatever the manifest says. Without chunks it is that of the inline state.
        """
        if chunks is None:
            inline = coverage(manifest) is Coverage.INLINE
            return self.save(_stamped(manifest, inline_checksum(manifest.operator_states)) if inline else manifest)
        if coverage(manifest) is Coverage.INLINE:
            raise ConfigurationError(
                f"checkpoint {manifest.checkpoint_id} has a sidecar of which no operator claims a part",
                hint="Give no chunks if all state is inline.",
            )
        self._require_restorable(_stamped(manifest, "0" * 64))
        seal = Seal(manifest)
        self._create_state(manifest.checkpoint_id, seal.over(chunks))
        return self._commit(_stamped(manifest, seal.checksum))

    def save_operator_states(self, manifest: CheckpointManifest, states: Mapping[str, bytes]) -> CheckpointManifest:
        """Commit a checkpoint with the state of its operators, each inline or in the sidecar by its size."""
        entries, chunks = pack_states(states, threshold=self._inline_threshold)
        return self.save_with_state(manifest.changed(operator_states=entries), chunks or None)

    def save_state_data(self, checkpoint_id: int, chunks: Iterable[Buffer]) -> str:
        """Write the sidecar of a checkpoint that is to be saved next; returns its SHA-256.

        Only a manifest that refers to the sidecar, by a range or by its checksum, keeps it from being an orphan.
        """
        return self._create_state(checkpoint_id, chunks)

    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """Record what the sinks did: statuses and epochs of sinks change, nothing else may.

        Never creates a manifest and never moves the pointer. Keys that another writer added survive. A sink that has
        committed stays so: an update made from an older reading raises CheckpointConflictError instead of undoing it.
        Where the store has compare-and-swap, an update in between raises BlobChangedError.
        """
        found = self._load(manifest.checkpoint_id)
        try:
            # Once more, now that its place is known, with the version that the write must find unchanged.
            data, version = self.blobs.read_versioned(found.key)
        except BlobNotFoundError:
            raise _vanished(manifest, found.key) from None
        values = parse_object(data, subject=found.key)
        standing = parse_model(CheckpointManifest, values, subject=found.key)
        if standing.to_json() == manifest.to_json():
            return standing
        _require_only_sinks(standing, manifest, found.key)
        try:
            swap(self.blobs, found.key, with_sinks(values, manifest), seen=version)
        except BlobChangedError:
            if self.blobs.stat(found.key) is None:
                raise _vanished(manifest, found.key) from None
            raise
        return manifest

    def _commit(self, manifest: CheckpointManifest) -> CheckpointManifest:
        number = manifest.checkpoint_id
        key = names.manifest_key(number)
        if not self.blobs.create(key, manifest.to_json()).created:
            raise self._taken(number, key)
        advance_pointer(self.blobs, number, lambda: max(self.manifests(), default=number))
        if self._max_retained:
            self._prune_after(number)
        return manifest

    def _prune_after(self, number: int) -> None:
        try:
            # One listing tells that there is nothing to do, before every manifest is read to find out what.
            if len(self.manifests()) > self._max_retained:
                self.prune(self._max_retained)
        except CheckpointError as error:
            # The checkpoint is committed: that old ones are still there must not look like a failed save.
            log.warning("checkpoint %d is saved, but pruning failed: %s", number, error)

    def _create_state(self, number: int, chunks: Iterable[Buffer]) -> str:
        self._require_unused(number)
        key, manifest = names.state_key(number), names.manifest_key(number)
        if self.blobs.stat(manifest) is not None and self.blobs.stat(key) is None:
            # Committed without a sidecar: one that appears now would be taken for its own.
            raise self._taken(number, manifest)
        made = self.blobs.create(key, chunks)
        if made.created:
            return made.sha256
        if self.blobs.stat(manifest) is not None:
            raise self._taken(number, manifest)
        raise CheckpointConflictError(
            f"other state lies under id {number}, of a save that is under way or has died",
            subject=f"{self.blobs.uri}/{key}",
            hint="Save under a new id, from next_id(): ids are never reused. The leftover is removed as an orphan.",
        )

    def _taken(self, number: int, key: str) -> CheckpointConflictError:
        return CheckpointConflictError(
            f"another checkpoint stands under id {number}",
            subject=f"{self.blobs.uri}/{key}",
            hint="A second writer is at work here, or an old one came back. Nothing of it was touched. If this writer"
            " is the rightful one, save under a new id, from next_id().",
        )

    def _require_unused(self, number: int) -> None:
        """No manifest of the legacy layout or with an unusual name has the id: ours would shadow it."""
        unusual = self._unusual_names(number)
        if unusual:
            raise self._taken(number, unusual[0])

    def _require_restorable(self, manifest: CheckpointManifest) -> None:
        issues = manifest.validate(self._vnode_count)
        errors = [issue.message for issue in issues if issue.severity is Severity.ERROR]
        if errors:
            raise ConfigurationError(
                f"checkpoint {manifest.checkpoint_id} could not be restored, so it is not saved: {'; '.join(errors)}",
                subject=self.blobs.uri,
                hint="Correct the manifest, or open the store with the pipeline's vnode_count.",
            )
        self._require_unused(manifest.checkpoint_id)

    def _require_state(self, manifest: CheckpointManifest) -> None:
        key = names.state_key(manifest.checkpoint_id)
        size = sidecar_size(self.blobs, key)
        needed = max((operator.external_end for operator in manifest.operator_states.values()), default=0)
        if size is None or size < needed:
            found = "is not in the store" if size is None else f"has only {size} of {needed} bytes"
            raise ConfigurationError(
                f"checkpoint {manifest.checkpoint_id} refers to state that {found}",
                subject=f"{self.blobs.uri}/{key}",
                hint="Use save_with_state, or write the state first with save_state_data.",
            )

    # -- loading -------------------------------------------------------------------------------------------------

    def load_latest(self) -> CheckpointManifest | None:
        """The manifest the pointer names; None only if the store holds none at all.

        After a crash between manifest and pointer that is the one before the newest; recovery goes by the listing.
        If the pointer is missing or unreadable, or names something that is, it is the highest readable manifest, and
        those passed over are logged. If manifests are there and none is readable, CorruptManifestError names the
        highest: that is not a store to start afresh in.
        """
        pointed = read_pointer(self.blobs)
        if pointed is not None:
            try:
                return self._load(pointed).manifest
            except (CheckpointNotFoundError, CorruptManifestError) as error:
                log.warning("the pointer names checkpoint %d, which cannot be loaded: %s", pointed, error)
        unreadable: CorruptManifestError | None = None
        for number in reversed(self.manifests()):
            try:
                return self._load(number).manifest
            except CheckpointNotFoundError:
                continue
            except CorruptManifestError as error:
                log.warning("checkpoint %d is passed over: %s", number, error)
                unreadable = unreadable or error
        if unreadable is not None:
            raise unreadable
        return None

    def load_by_id(self, checkpoint_id: int) -> CheckpointManifest | None:
        """The manifest of a checkpoint, or None if there is none; raises CorruptManifestError."""
        try:
            return self._load(checkpoint_id).manifest
        except CheckpointNotFoundError:
            return None

    def load_state_data(self, checkpoint_id: int) -> bytes | None:
        """The whole sidecar of a checkpoint, or None if there is none; for large ones see ``load_operator_state``."""
        try:
            return self.blobs.read(self._state_key(checkpoint_id))
        except BlobNotFoundError:
            return None

    def load_operator_state(self, manifest: CheckpointManifest, name: str) -> bytes | None:
        """State of one operator, of which only its own range of the sidecar is read; None if it has none.

        Raises CorruptError if the state is missing, cut or not decodable. Whether it is what was written is told by
        ``validate_checkpoint``, which reads all of it.
        """
        return read_operator(self.blobs, manifest, name, self._state_key(manifest.checkpoint_id))

    def list_ids(self) -> Sequence[int]:
        """Ids of all checkpoints, ascending; unreadable ones too."""
        return list(self.manifests())

    def list(self) -> Sequence[tuple[int, int]]:
        """Id and epoch of all readable checkpoints, ids ascending. Reads every manifest."""
        found = []
        for number in self.manifests():
            try:
                found.append((number, self._load(number).manifest.epoch))
            except (CheckpointNotFoundError, CorruptManifestError) as error:
                log.warning("checkpoint %d is left out: %s", number, error)
        return found

    def _state_key(self, number: int) -> str:
        """Where the sidecar lies: beside the manifest that counts."""
        unusual = self._unusual_names(number)
        if not unusual or self.blobs.stat(names.manifest_key(number)) is not None:
            return names.state_key(number)
        return names.state_beside(unusual[0])


def _stamped(manifest: CheckpointManifest, checksum: str) -> CheckpointManifest:
    return manifest.changed(state_checksum=checksum)


def _vanished(manifest: CheckpointManifest, key: str) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        f"checkpoint {manifest.checkpoint_id} was removed while it was being updated",
        subject=key,
        hint="It was pruned. Nothing was written.",
    )


def _require_only_sinks(standing: CheckpointManifest, wanted: CheckpointManifest, key: str) -> None:
    """Raise CheckpointConflictError if an update would change more than what the sinks have done since."""
    fields = CheckpointManifest.model_fields.keys() - _SINK_FIELDS
    differing = sorted(field for field in fields if getattr(standing, field) != getattr(wanted, field))
    undone = sorted(
        name
        for name, status in standing.sink_commit_statuses.items()
        if status.state is SinkState.COMMITTED and wanted.sink_commit_statuses.get(name) != status
    )
    if differing:
        problem = f"an update may change only what the sinks did, not {', '.join(differing)}"
    elif undone:
        problem = f"sinks have committed since this was read: {', '.join(undone)}"
    else:
        return
    raise CheckpointConflictError(
        f"checkpoint {wanted.checkpoint_id}: {problem}",
        subject=key,
        hint="Load the manifest again and change that one. A new checkpoint needs a new id.",
    )
