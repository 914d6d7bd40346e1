"""The checkpoints of one stream as a layout."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptArtifactError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._checks import artifact_check
from airflow_provider_checkpoint.layouts._protocol import (
    HOUSEKEEPING,
    NOT_THERE,
    Check,
    Examination,
    Layout,
    Named,
    Role,
)
from airflow_provider_checkpoint.layouts.stream._codec import MAX_U64
from airflow_provider_checkpoint.layouts.stream._names import digest_key, parse_key, parse_state_key, state_key
from airflow_provider_checkpoint.layouts.stream._proof import (
    content_issues,
    corrupt,
    digest_issues,
    missing,
    read_outline,
    require_sequence,
)
from airflow_provider_checkpoint.layouts.stream._state import CheckpointState
from airflow_provider_checkpoint.model import (
    Artifact,
    Checkpoint,
    CheckpointId,
    Depth,
    GenericPosition,
    Issue,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobInfo, BlobStore


class StreamLayout(Layout):
    """One binary file per checkpoint: ``checkpoint-{sequence:020}.ckpt``, manifest and artifact at once.

    The id of a checkpoint is the sequence of the last event in it. There is no pointer: the newest is the highest
    sequence. The format holds no time of creation, so it is the time at which the store says the file was written.

    :param blobs: the folder of the stream.
    :param lenient: accept what the reference implementation accepts, such as a file cut inside its number of sources.
    :param clock: the age of a file whose store does not tell it; now, so that no rule takes it for old.
    """

    name: ClassVar[str] = "stream"

    def __init__(
        self,
        blobs: BlobStore,
        *,
        lenient: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(blobs)
        self._lenient = lenient
        self._clock = clock

    # -- finding -------------------------------------------------------------------------------------------------

    def parse_id(self, text: str) -> CheckpointId:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_U64):
            raise ConfigurationError(
                "not the id of a checkpoint of a stream",
                subject=repr(text),
                hint=f"An id is the sequence number of its last event, from 0 to {MAX_U64}.",
            )
        return CheckpointId(int(text))

    def candidates(self) -> list[CheckpointId]:
        return [CheckpointId(sequence) for sequence in self.files()]

    def files(self) -> dict[int, BlobInfo]:
        """The files that bear a checkpoint's name, by sequence, lowest first."""
        named = ((parse_state_key(info.key), info) for info in self.blobs.list())
        return dict(sorted((sequence, info) for sequence, info in named if sequence is not None))

    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        try:
            return self._load(self._sequence(checkpoint_id))
        except CorruptArtifactError as error:
            raise CorruptManifestError(error.message, subject=error.subject, hint=error.hint) from error

    def read_pointer(self) -> None:
        """None: there is no pointer."""

    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        """Nothing to do: without a pointer the newest checkpoint is always the highest sequence."""

    def created_at(self, info: BlobInfo) -> datetime:
        return info.modified or self._clock()

    # -- restoring -----------------------------------------------------------------------------------------------

    def restore(self, stream_id: str, sequence: int) -> CheckpointState:
        """Read a checkpoint whole, and prove it if its digest is there.

        Raises CheckpointNotFoundError, or CorruptArtifactError.
        """
        state, sha256 = self._read(stream_id, sequence)
        for issue in digest_issues(self.blobs, sequence, sha256):
            if issue.severity is Severity.ERROR:
                raise CorruptArtifactError(issue.message, subject=self.blobs.uri)
        return state

    def _read(self, stream_id: str, sequence: int) -> tuple[CheckpointState, str]:
        """A state and the digest of its bytes."""
        key = state_key(sequence)
        info = self._stat(sequence)
        try:
            data = self.blobs.read(key)
        except BlobNotFoundError:
            raise self._not_found(sequence) from None
        state = CheckpointState.decode(
            stream_id, data, created_at=self.created_at(info), lenient=self._lenient, subject=key
        )
        require_sequence(state.id.sequence, sequence)
        return state, hashlib.sha256(data).hexdigest()

    # -- proving -------------------------------------------------------------------------------------------------

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        try:
            return Examination(self.load(checkpoint_id), [])
        except CheckpointNotFoundError as error:
            return Examination(None, [Issue.error("manifest_missing", error.message)])
        except CorruptManifestError as error:
            return Examination(None, [Issue.error("manifest_corrupt", f"{error.subject}: {error.message}")])

    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        sequence = self._sequence(checkpoint.id)
        state = checkpoint.artifacts[0]
        cost = state.size or 0
        if depth is Depth.RESTORE:
            return [Check(state.key, cost, lambda: self._restore_issues(sequence))]
        if depth is Depth.CONTENT:
            return [Check(state.key, cost, lambda: content_issues(self.blobs, sequence, lenient=self._lenient))]
        if depth is Depth.PRESENCE:
            return [artifact_check(self.blobs, state, depth)]
        return []

    def _restore_issues(self, sequence: int) -> list[Issue]:
        """What ``content`` would find, by doing what a restore does: the whole state in memory."""
        try:
            _, sha256 = self._read("", sequence)
        except CheckpointNotFoundError:
            return [missing(state_key(sequence))]
        except CorruptArtifactError as error:
            return [corrupt(error)]
        return digest_issues(self.blobs, sequence, sha256)

    # -- removing ------------------------------------------------------------------------------------------------

    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        return [state_key(self._sequence(checkpoint_id))]

    def named(self, key: str) -> Named:
        folder, slash, _ = key.partition("/")
        if slash:
            return Named(Role.HOUSEKEEPING if folder in HOUSEKEEPING else Role.UNKNOWN)
        match parse_key(key):
            case (sequence, ""):
                return Named(Role.MANIFEST, CheckpointId(sequence))
            case (sequence, _):
                # A digest, or the temporary file that the reference implementation leaves when it dies while writing.
                return Named(Role.ARTIFACT, CheckpointId(sequence))
            case _:
                return Named(Role.UNKNOWN)

    # -- reading -------------------------------------------------------------------------------------------------

    def _load(self, sequence: int) -> Checkpoint:
        info = self._stat(sequence)
        try:
            outline = read_outline(self.blobs, sequence, info.size, lenient=self._lenient)
        except BlobNotFoundError:
            raise self._not_found(sequence) from None
        return Checkpoint(
            id=CheckpointId(sequence),
            epoch=sequence,
            created=self.created_at(info),
            artifacts=(Artifact(info.key, size=info.size), *self._digest_artifact(sequence)),
            sources={
                source: GenericPosition(connector_type=self.name, offsets={"offset": str(offset)})
                for source, offset in sorted(outline.source_offsets.items())
            },
            source_names=tuple(sorted(outline.source_offsets)),
            watermark=outline.watermark_ns,
            event_count=outline.event_count,
        )

    def _stat(self, sequence: int) -> BlobInfo:
        info = self.blobs.stat(state_key(sequence))
        if info is None:
            raise self._not_found(sequence)
        return info

    def _digest_artifact(self, sequence: int) -> list[Artifact]:
        """The digest, if there is one: a checkpoint names what belongs to it, lest a sweep take it for an orphan."""
        info = self.blobs.stat(digest_key(sequence))
        return [] if info is None else [Artifact(info.key, size=info.size)]

    def _sequence(self, checkpoint_id: CheckpointId) -> int:
        value = checkpoint_id.value
        if not isinstance(value, int) or not 0 <= value <= MAX_U64:
            raise self._not_found(value)
        return value

    def _not_found(self, sequence: int | str) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"no checkpoint {sequence}",
            subject=self.blobs.uri,
            hint=NOT_THERE,
        )
