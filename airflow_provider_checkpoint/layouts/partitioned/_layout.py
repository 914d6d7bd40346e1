"""Partitioned checkpoints on a store: what the Spark runtime writes, executors in parallel and the driver last."""

from __future__ import annotations

import threading
from itertools import islice, takewhile
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    CorruptArtifactError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._checks import artifact_check
from airflow_provider_checkpoint.layouts._json import MAX_MANIFEST_BYTES, parse_object, read_object
from airflow_provider_checkpoint.layouts._protocol import (
    HOUSEKEEPING,
    NOT_THERE,
    Check,
    Examination,
    Layout,
    Named,
    Role,
)
from airflow_provider_checkpoint.layouts._swap import swap, swapping
from airflow_provider_checkpoint.layouts._uuid7 import Uuid7, uuid7
from airflow_provider_checkpoint.layouts.partitioned import _paths, _pointer
from airflow_provider_checkpoint.layouts.partitioned._chains import Chain, Slot, find_chains, resolve, resolve_one
from airflow_provider_checkpoint.layouts.partitioned._checkpoint import as_checkpoint
from airflow_provider_checkpoint.layouts.partitioned._manifest import (
    CheckpointManifestV2,
    PartitionEntry,
    encode_manifest,
    manifest_from,
    with_sinks,
)
from airflow_provider_checkpoint.layouts.partitioned._removal import remove_checkpoint
from airflow_provider_checkpoint.layouts.partitioned._rules import identity_issues, rule_issues
from airflow_provider_checkpoint.layouts.partitioned._saving import PartitionData, save_side_by_side
from airflow_provider_checkpoint.layouts.partitioned._state import Decode, digest_issue, load_chain, restore_check
from airflow_provider_checkpoint.model import ArtifactKind, Checkpoint, CheckpointId, Depth, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import SinkStatus


class PartitionedLayout(Layout):
    """Checkpoints as folders named by UUIDv7, with one artifact per operator partition.

    The order of a commit is artifacts, manifest, pointer. The manifest is the commit point: created only if absent, so
    of two writers that share an id one is turned away. Every step may be repeated.

    :param vnode_count: what the runtime uses; a checkpoint with another count gets a warning.
    :param decode: tries to make state of a snapshot and its deltas; used by proofs at depth ``restore``.
    """

    name: ClassVar[str] = "partitioned"

    def __init__(
        self,
        blobs: BlobStore,
        *,
        vnode_count: int | None = None,
        decode: Decode | None = None,
        ids: Uuid7 = uuid7,
    ) -> None:
        super().__init__(blobs)
        self._vnode_count = vnode_count
        self._decode = decode
        self._ids = ids
        self._given: tuple[CheckpointId, ...] = ()
        self._giving = threading.Lock()

    # -- finding -------------------------------------------------------------------------------------------------

    def parse_id(self, text: str) -> CheckpointId:
        return _paths.parse_id(text)

    def next_id(self) -> CheckpointId:
        """A new id, greater than every id in the store and every one given out here, wherever the clock stands.

        Ids in the trash count: a checkpoint that comes back from there must not be newer than what was written since.
        """
        with self._giving:
            known = [*islice(self.newest_first(), 1), *self._given]
            known += self._ids_in(_paths.TRASH, max(known, default=None))
            highest = max(known, default=None)
            new = _paths.id_from_uuid(self._ids.fresh())
            if highest is not None and new <= highest:
                new = _paths.id_from_uuid(self._ids.following(UUID(str(highest))))
            self._given = (new,)
            return new

    def candidates(self) -> list[CheckpointId]:
        return self._ids_in("")

    def newest_first(self) -> Iterator[CheckpointId]:
        """See ``Layout``. The answer is the same whatever the pointer says: it only tells how far to list at first."""
        try:
            hint = self.read_pointer()
        except CheckpointError:
            # The listing will tell whether it is the store.
            hint = None
        if hint is not None:
            yield from reversed(self._ids_in("", hint))
        yield from (each for each in reversed(self.candidates()) if hint is None or each < hint)

    def trashed(self) -> dict[CheckpointId, PartitionedLayout]:
        """Checkpoints that were pruned and may come back, each as a store that holds nothing but its manifest."""
        folders = {each: f"{_paths.TRASH}/{each}/kept" for each in self._ids_in(_paths.TRASH)}
        return {each: PartitionedLayout(self.blobs.at(folder)) for each, folder in folders.items()}

    def _ids_in(self, folder: str, start: CheckpointId | None = None) -> list[CheckpointId]:
        names = self.blobs.folders(folder, start="" if start is None else str(start))
        if start is not None:
            # What comes behind the last possible id need not be listed. It may be much.
            names = takewhile(lambda name: name <= _paths.HIGHEST_ID, names)
        return sorted(CheckpointId(name) for name in names if _paths.is_id(name))

    def list_checkpoints(self) -> list[CheckpointId]:
        """Ids of the committed checkpoints, oldest first. Asks for each manifest, and reads none."""
        return [each for each in self.candidates() if self.blobs.stat(_paths.manifest_key(each)) is not None]

    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        return as_checkpoint(self.load_manifest(checkpoint_id))

    # -- manifests -----------------------------------------------------------------------------------------------

    def save_manifest(self, manifest: CheckpointManifestV2) -> None:
        """Commit a checkpoint. Its artifacts must be there: nothing but the manifest makes it visible.

        The same manifest again is a success; another one under the same id is a CheckpointConflictError. A manifest
        that ``examine`` would find unfit is refused with CorruptManifestError before anything is written.
        """
        checkpoint_id = manifest.checkpoint_id
        key = _paths.manifest_key(checkpoint_id)
        body = encode_manifest(manifest)
        unfit = [issue.message for issue in self._examined(manifest, checkpoint_id).issues if _is_error(issue)]
        if len(body) > MAX_MANIFEST_BYTES:
            unfit.append(f"the manifest would be larger than {MAX_MANIFEST_BYTES} bytes")
        if unfit:
            raise CorruptManifestError(
                f"a checkpoint that could not be restored is not committed: {'; '.join(unfit)}",
                subject=key,
                hint="Nothing was written. Correct the manifest; its artifacts may stay.",
            )
        if not self.blobs.create(key, body).created:
            raise CheckpointConflictError(
                f"checkpoint {checkpoint_id} was committed with another content",
                subject=f"{self.blobs.uri}/{key}",
                hint="Another writer used this id, or sink statuses were recorded since. Take a new one: next_id().",
            )

    def load_manifest(self, checkpoint_id: CheckpointId) -> CheckpointManifestV2:
        """Read a manifest; raises CheckpointNotFoundError, or CorruptManifestError, also for an unknown version."""
        return self._trusted(self._read_manifest(checkpoint_id), checkpoint_id)

    def update_statuses(
        self, checkpoint_id: CheckpointId, statuses: Mapping[str, SinkStatus], epochs: Mapping[str, int] | None = None
    ) -> None:
        """Record what became of some sinks. Other sinks, and everything else in the manifest, stay as they are."""
        key = _paths.manifest_key(checkpoint_id)

        def attempt() -> None:
            try:
                data, version = self.blobs.read_versioned(key)
            except BlobNotFoundError:
                raise self._not_found(checkpoint_id) from None
            values = parse_object(data, subject=key)
            self._trusted(manifest_from(values, subject=key), checkpoint_id)
            body = with_sinks(values, statuses, epochs or {}, subject=key)
            if body is not None:
                swap(self.blobs, key, body, seen=version)

        swapping(attempt)

    def _read_manifest(self, checkpoint_id: CheckpointId) -> CheckpointManifestV2:
        key = _paths.manifest_key(checkpoint_id)
        try:
            values: dict[str, Any] = read_object(self.blobs, key)
        except BlobNotFoundError:
            raise self._not_found(checkpoint_id) from None
        return manifest_from(values, subject=key)

    def _trusted(self, manifest: CheckpointManifestV2, checkpoint_id: CheckpointId) -> CheckpointManifestV2:
        doubts = identity_issues(manifest, checkpoint_id)
        if doubts:
            raise CorruptManifestError(
                doubts[0].message,
                subject=_paths.manifest_key(checkpoint_id),
                hint="It was written by another version of the format, or copied from another checkpoint.",
            )
        return manifest

    def _not_found(self, checkpoint_id: CheckpointId) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"checkpoint {checkpoint_id} has no manifest",
            subject=self.blobs.uri,
            hint=NOT_THERE,
        )

    # -- artifacts -----------------------------------------------------------------------------------------------

    def save_snapshot(
        self, checkpoint_id: CheckpointId, operator: str, partition: int, data: bytes | Iterable[Buffer]
    ) -> str:
        """Write the whole state of an operator partition and return its SHA-256. See ``save_artifact``."""
        return self.save_artifact(checkpoint_id, PartitionData(operator, partition, data)).sha256 or ""

    def save_delta(
        self, checkpoint_id: CheckpointId, operator: str, partition: int, data: bytes | Iterable[Buffer]
    ) -> str:
        """Write changes on top of an operator partition's snapshot and return their SHA-256. See ``save_artifact``."""
        return self.save_artifact(checkpoint_id, PartitionData(operator, partition, data, is_delta=True)).sha256 or ""

    def save_artifact(self, checkpoint_id: CheckpointId, item: PartitionData) -> PartitionEntry:
        """Write one artifact and return the entry a manifest needs.

        Created only if absent: a task that Spark runs twice may write the same bytes twice, other bytes are a
        CheckpointConflictError and change nothing.
        """
        kind = ArtifactKind.DELTA if item.is_delta else ArtifactKind.SNAPSHOT
        key = _paths.artifact_key(checkpoint_id, item.operator, item.partition, kind)
        # These two are iterables as well, but of numbers.
        body = bytes(item.data) if isinstance(item.data, (bytearray, memoryview)) else item.data
        creation = self.blobs.create(key, body)
        if not creation.created:
            raise CheckpointConflictError(
                "an artifact with other bytes was written under this name",
                subject=f"{self.blobs.uri}/{key}",
                hint="Two writers share an id, or the state differs between two runs of a task. Take a new id.",
            )
        return PartitionEntry(
            partition_id=item.partition,
            is_delta=item.is_delta,
            path=key,
            size_bytes=creation.size,
            sha256=creation.sha256,
        )

    def save_partitions(
        self, checkpoint_id: CheckpointId, items: Iterable[PartitionData], max_concurrent: int = 4
    ) -> list[tuple[str, PartitionEntry]]:
        """Write many artifacts, some at a time. Operator and entry of each, in order, ready for ``operators_of``.

        After the first failure nothing new begins, and a note on the error says what had been written.
        """
        return save_side_by_side(lambda item: self.save_artifact(checkpoint_id, item), items, max_concurrent)

    def load_artifact(self, path: str, sha256: str | None = None) -> bytes:
        """Read an artifact by its path below the store; with a digest, CorruptArtifactError if it does not match."""
        name = _paths.locate(path, None)
        data = self.blobs.read(name.key)
        issue = digest_issue(name.key, data, sha256)
        if issue is not None:
            raise CorruptArtifactError(issue.message, subject=self.blobs.uri)
        return data

    def resolve(self, manifest: CheckpointManifestV2) -> dict[Slot, Chain]:
        """Snapshot and deltas of every operator partition; raises CorruptManifestError if a chain is broken."""
        return resolve(manifest)

    def load_state(self, manifest: CheckpointManifestV2, operator: str, partition: int) -> tuple[bytes, list[bytes]]:
        """The snapshot and the deltas, in order, of one operator partition, verified."""
        chain = resolve_one(manifest, operator, partition)
        if chain is None:
            raise BlobNotFoundError(
                f"checkpoint {manifest.checkpoint_id} holds no state of operator {operator!r}, partition {partition}",
                hint=f"It holds state of: {', '.join(map(repr, manifest.operators)) or 'no operator'}.",
            )
        return load_chain(self.blobs, chain)

    # -- the pointer ---------------------------------------------------------------------------------------------

    def read_pointer(self) -> CheckpointId | None:
        return _pointer.read_pointer(self.blobs)

    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        _pointer.move_pointer(self.blobs, checkpoint_id)

    def read_latest(self) -> CheckpointId | None:
        """The reference's name for ``read_pointer``."""
        return self.read_pointer()

    def update_latest(self, checkpoint_id: CheckpointId) -> None:
        """Let the pointer name a checkpoint unless it names a newer one."""
        _pointer.advance_pointer(self.blobs, checkpoint_id)

    # -- proving -------------------------------------------------------------------------------------------------

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        try:
            manifest = self._read_manifest(checkpoint_id)
        except CheckpointNotFoundError as error:
            return Examination(None, [Issue.error("manifest_missing", error.message)])
        except CorruptManifestError as error:
            return Examination(None, [_corrupt(error)])
        return self._examined(manifest, checkpoint_id)

    def _examined(self, manifest: CheckpointManifestV2, checkpoint_id: CheckpointId) -> Examination:
        doubts = identity_issues(manifest, checkpoint_id)
        if doubts:
            return Examination(None, doubts)
        issues = rule_issues(manifest, expected_vnodes=self._vnode_count)
        try:
            checkpoint = as_checkpoint(manifest)
        except CorruptManifestError as error:
            return Examination(None, [*issues, _corrupt(error)])
        return Examination(checkpoint, [*issues, *find_chains(checkpoint.artifacts)[1]])

    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        if depth is Depth.STRUCTURE:
            return []
        if depth is not Depth.RESTORE:
            return [artifact_check(self.blobs, artifact, depth) for artifact in checkpoint.artifacts]
        chains, issues = find_chains(checkpoint.artifacts)
        checks = [restore_check(self.blobs, slot, chain, self._decode) for slot, chain in chains.items()]
        broken = [issue for issue in issues if _is_error(issue)]
        return checks if not broken else [*checks, Check(_paths.manifest_key(checkpoint.id), 0, lambda: broken)]

    # -- removing ------------------------------------------------------------------------------------------------

    def delete_checkpoint(self, checkpoint_id: CheckpointId) -> None:
        """Remove a checkpoint and all its artifacts, for good; one that is gone already is a success.

        Raises CheckpointInUseError, and removes nothing, while another checkpoint needs artifacts of this one.
        """
        remove_checkpoint(self, checkpoint_id)

    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        return [_paths.manifest_key(checkpoint_id)]

    def named(self, key: str) -> Named:
        folder, slash, _ = key.partition("/")
        if slash and folder in HOUSEKEEPING:
            return Named(Role.HOUSEKEEPING)
        if key == _paths.LATEST:
            return Named(Role.POINTER)
        if (owner := _paths.manifest_owner(key)) is not None:
            return Named(Role.MANIFEST, owner)
        if (artifact := _paths.parse_artifact_key(key)) is not None:
            return Named(Role.ARTIFACT, artifact.checkpoint_id)
        if (owner := _paths.offsets_owner(key)) is not None:
            return Named(Role.ARTIFACT, owner)
        return Named(Role.UNKNOWN)


def _is_error(issue: Issue) -> bool:
    return issue.severity is Severity.ERROR


def _corrupt(error: CorruptManifestError) -> Issue:
    return Issue.error(
        "manifest_corrupt", error.message if error.subject is None else f"{error.subject}: {error.message}"
    )
