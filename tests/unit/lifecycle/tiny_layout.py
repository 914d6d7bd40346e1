"""The smallest checkpoint format that has everything the lifecycle asks about.

::

    checkpoints/000007/manifest.json     makes checkpoint 7 exist
    checkpoints/000007/counts            an artifact; others may name it as well
    latest                               the pointer: the number of a checkpoint

Writing goes through :meth:`TinyLayout.write_artifact` and :meth:`TinyLayout.commit`, each one call to the store, so
that a test can fail or stop them one by one. :func:`checkpoint` makes the value to commit.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from airflow_provider_checkpoint.blobs import check_key
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
    InvalidKeyError,
)
from airflow_provider_checkpoint.layouts._checks import artifact_check
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.layouts._protocol import HOUSEKEEPING, Check, Examination, Layout, Named, Role
from airflow_provider_checkpoint.model import (
    FIRST_TIMELINE,
    Artifact,
    ArtifactKind,
    Checkpoint,
    CheckpointId,
    Depth,
    Issue,
    SinkState,
    SinkStatus,
    SourcePosition,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
"""When checkpoint 0 would have been made; checkpoint N is made N minutes later."""

POINTER = "latest"
_NAME = re.compile(r"checkpoints/([0-9]{6,})/(.+)")


def checkpoint(number: int, **facts: Any) -> Checkpoint:
    """Checkpoint ``number`` of epoch ``number``, made ``number`` minutes after :data:`START`, unless told otherwise."""
    usual = Checkpoint(id=CheckpointId(number), epoch=number, created=START + timedelta(minutes=number))
    return replace(usual, **facts)


def sinks(state: SinkState, *names: str) -> dict[str, SinkStatus]:
    """All the named sinks in one state."""
    return {name: SinkStatus(state) for name in names}


# -- names -------------------------------------------------------------------------------------------------------


def artifact_key(number: int, name: str) -> str:
    return f"checkpoints/{number:06d}/{name}"


def manifest_key(number: int) -> str:
    return artifact_key(number, "manifest.json")


# -- the manifest ------------------------------------------------------------------------------------------------


class _ArtifactEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    kind: ArtifactKind = ArtifactKind.SNAPSHOT
    operator: str | None = None
    partition: int | None = None
    size: int | None = None
    sha256: str | None = None


class _SinkEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    state: SinkState
    epoch: int | None = None
    message: str | None = None


class _Manifest(BaseModel):
    """A checkpoint, field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: CheckpointId
    epoch: int
    created: AwareDatetime
    timeline: int = FIRST_TIMELINE
    parent: CheckpointId | None = None
    artifacts: tuple[_ArtifactEntry, ...] = ()
    inline_bytes: int = 0
    sources: dict[str, SourcePosition] = {}
    sinks: dict[str, _SinkEntry] = {}
    watermark: int | None = None
    event_count: int | None = None
    pipeline_hash: int | None = None
    vnode_count: int | None = None
    source_names: tuple[str, ...] = ()
    sink_names: tuple[str, ...] = ()
    savepoint: bool = False

    def checkpoint(self) -> Checkpoint:
        values = {field.name: getattr(self, field.name) for field in fields(Checkpoint)}
        values["artifacts"] = tuple(Artifact(**dict(entry)) for entry in self.artifacts)
        values["sinks"] = {name: SinkStatus(**dict(entry)) for name, entry in self.sinks.items()}
        return Checkpoint(**values)


def encode(value: Checkpoint) -> bytes:
    """The bytes of a manifest."""
    return _Manifest.model_validate(value, from_attributes=True).model_dump_json(indent=2).encode()


# -- the layout --------------------------------------------------------------------------------------------------


class TinyLayout(Layout):
    name: ClassVar[str] = "tiny"

    # -- writing -------------------------------------------------------------------------------------------------

    def write_artifact(self, number: int, name: str, data: bytes = b"state", **facts: Any) -> Artifact:
        """Store an artifact in the folder of checkpoint ``number``, and say what a manifest should say of it."""
        key = artifact_key(number, name)
        if not self.blobs.create(key, data).created:
            raise CheckpointConflictError("another artifact stands there", subject=key)
        return Artifact(key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), **facts)

    def commit(self, value: Checkpoint) -> Checkpoint:
        """Create the manifest."""
        key = manifest_key(_number(value.id))
        if not self.blobs.create(key, encode(value)).created:
            raise CheckpointConflictError("another checkpoint has this id", subject=key)
        return value

    def recommit(self, value: Checkpoint) -> Checkpoint:
        """Write the manifest again, as one does when the sinks have committed."""
        self.blobs.replace(manifest_key(_number(value.id)), encode(value))
        return value

    def save(self, number: int, *, data: bytes | None = None, **facts: Any) -> Checkpoint:
        """A whole checkpoint with one artifact of its own, and the pointer on it."""
        own = self.write_artifact(number, "state", f"state {number}".encode() if data is None else data)
        shared = facts.pop("artifacts", ())
        committed = self.commit(checkpoint(number, artifacts=(own, *shared), **facts))
        self.move_pointer(committed.id)
        return committed

    # -- finding -------------------------------------------------------------------------------------------------

    def parse_id(self, text: str) -> CheckpointId:
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            raise ConfigurationError("not the id of a tiny checkpoint", subject=repr(text), hint="Ids are numbers.")
        return CheckpointId(int(text))

    def candidates(self) -> list[CheckpointId]:
        names = (_NAME.fullmatch(info.key) for info in self.blobs.list("checkpoints"))
        return [CheckpointId(number) for number in sorted({int(match[1]) for match in names if match})]

    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        key = manifest_key(_number(checkpoint_id))
        try:
            manifest = parse_model(_Manifest, read_object(self.blobs, key), subject=key)
        except BlobNotFoundError:
            raise CheckpointNotFoundError(f"no checkpoint {checkpoint_id}", subject=self.blobs.uri) from None
        if manifest.id != checkpoint_id:
            raise CorruptManifestError(f"says it is checkpoint {manifest.id}", subject=key)
        for artifact in manifest.artifacts:
            _require_safe(artifact.key, key)
        return manifest.checkpoint()

    def read_pointer(self) -> CheckpointId | None:
        try:
            return self.parse_id(self.blobs.read(POINTER, length=21).decode("ascii", "replace"))
        except (BlobNotFoundError, ConfigurationError):
            return None

    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        self.blobs.replace(POINTER, str(checkpoint_id).encode())

    # -- proving -------------------------------------------------------------------------------------------------

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        try:
            found = self.load(checkpoint_id)
        except CheckpointNotFoundError as error:
            return Examination(None, [Issue.error("manifest_missing", error.message)])
        except CorruptManifestError as error:
            return Examination(None, [Issue.error("manifest_corrupt", f"{error.subject}: {error.message}")])
        issues = [Issue.error("epoch_negative", f"epoch {found.epoch} is negative")] if found.epoch < 0 else []
        if not found.artifacts:
            issues.append(Issue.warning("no_artifacts", "names no artifact"))
        return Examination(found, issues)

    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        if depth is Depth.STRUCTURE:
            return []
        checks = [artifact_check(self.blobs, artifact, depth) for artifact in checkpoint.artifacts]
        if depth is Depth.RESTORE:
            checks.extend(
                Check(f"decode {artifact.key}", artifact.size or 0, self._decoding(artifact))
                for artifact in checkpoint.artifacts
            )
        return checks

    def _decoding(self, artifact: Artifact) -> Callable[[], list[Issue]]:
        """State is text in UTF-8: a digest may be right and the state still be none."""

        def decode() -> list[Issue]:
            try:
                self.blobs.read(artifact.key).decode()
            except BlobNotFoundError:
                return []  # The check of its presence says so already.
            except UnicodeDecodeError:
                return [Issue.error("state_undecodable", f"{artifact.key}: not UTF-8")]
            return []

        return decode

    # -- removing ------------------------------------------------------------------------------------------------

    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        return [manifest_key(_number(checkpoint_id))]

    def named(self, key: str) -> Named:
        folder, slash, _ = key.partition("/")
        if slash and folder in HOUSEKEEPING:
            return Named(Role.HOUSEKEEPING)
        if key == POINTER:
            return Named(Role.POINTER)
        match = _NAME.fullmatch(key)
        if match is None:
            return Named(Role.UNKNOWN)
        return Named(Role.MANIFEST if match[2] == "manifest.json" else Role.ARTIFACT, CheckpointId(int(match[1])))


def tiny(blobs: BlobStore, *numbers: int) -> TinyLayout:
    """A layout with some whole checkpoints in it."""
    layout = TinyLayout(blobs)
    for number in numbers:
        layout.save(number)
    return layout


def _number(checkpoint_id: CheckpointId) -> int:
    if not isinstance(checkpoint_id.value, int):
        raise CheckpointNotFoundError(f"no checkpoint {checkpoint_id}: ids are numbers")
    return checkpoint_id.value


def _require_safe(key: str, subject: str) -> None:
    try:
        check_key(key)
    except InvalidKeyError as error:
        raise CorruptManifestError(f"names an artifact outside the store ({error.message})", subject=subject) from None
