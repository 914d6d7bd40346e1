"""Finding, reading and proving checkpoints of the sidecar layout. Nothing here writes, but for the pointer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.layouts._protocol import NOT_THERE, Check, Examination, Layout, Named
from airflow_provider_checkpoint.layouts.sidecar import _names as names
from airflow_provider_checkpoint.layouts.sidecar._checksum import checksum_issues
from airflow_provider_checkpoint.layouts.sidecar._listing import list_manifests
from airflow_provider_checkpoint.layouts.sidecar._manifest import DEFAULT_VNODE_COUNT, CheckpointManifest
from airflow_provider_checkpoint.layouts.sidecar._pointer import move_pointer, read_legacy_pointer, read_pointer
from airflow_provider_checkpoint.layouts.sidecar._rules import MANIFEST_VERSION
from airflow_provider_checkpoint.layouts.sidecar._state import presence_issues, restore_issues
from airflow_provider_checkpoint.layouts.sidecar._translate import to_checkpoint
from airflow_provider_checkpoint.model import Checkpoint, CheckpointId, Depth, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from airflow_provider_checkpoint.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest and where it lies."""

    key: str
    manifest: CheckpointManifest

    @property
    def state_key(self) -> str:
        return names.state_beside(self.key)


class SidecarReader(Layout):
    """The questions every layout answers, for this one."""

    name: ClassVar[str] = "sidecar"

    def __init__(self, blobs: BlobStore, *, vnode_count: int | None) -> None:
        super().__init__(blobs)
        if vnode_count is not None and not 1 <= vnode_count < 2**16:
            raise ConfigurationError(
                "vnode_count is not from 1 to 65535", subject=str(vnode_count), hint="The usual count is 256."
            )
        self._vnode_count = vnode_count
        self._unusual: dict[int, list[str]] | None = None
        """Manifests with other names than the one we would write, as of the last listing; None before the first.

        Only a hint where to look: what it names is read before it is believed."""

    @property
    def vnode_count(self) -> int:
        """The count that manifests written here have, and that those read here must have if one was given."""
        return DEFAULT_VNODE_COUNT if self._vnode_count is None else self._vnode_count

    # -- finding -------------------------------------------------------------------------------------------------

    def parse_id(self, text: str) -> CheckpointId:
        number = names.parse_number(text)
        if number is None:
            raise ConfigurationError(
                "not the id of a checkpoint in the sidecar layout",
                subject=repr(text),
                hint=f"Ids are whole numbers up to {names.MAX_ID}, such as 42 or 000042.",
            )
        return CheckpointId(number)

    def candidates(self) -> list[CheckpointId]:
        return [CheckpointId(number) for number in self.manifests()]

    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        found = self._load(_number(checkpoint_id))
        return to_checkpoint(found.manifest, found.state_key)

    def read_pointer(self) -> CheckpointId | None:
        number = read_pointer(self.blobs)
        if number is None and self.blobs.stat(names.POINTER) is None:
            number = read_legacy_pointer(self.blobs)
        return None if number is None else CheckpointId(number)

    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        move_pointer(self.blobs, _number(checkpoint_id))

    # -- proving -------------------------------------------------------------------------------------------------

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        try:
            found = self._read(_number(checkpoint_id))
        except CheckpointNotFoundError:
            return Examination(None, [_missing(checkpoint_id)])
        except CorruptManifestError as error:
            return Examination(None, [_corrupt(error)])
        issues = found.manifest.validate(self._vnode_count)
        if found.manifest.version > MANIFEST_VERSION:
            # Whatever it means, it is not what these keys meant in the version we know.
            return Examination(None, issues)
        return Examination(to_checkpoint(found.manifest, found.state_key), issues)

    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        if depth is Depth.STRUCTURE or (depth is Depth.PRESENCE and not checkpoint.artifacts):
            return []
        subject = checkpoint.artifacts[0].key if checkpoint.artifacts else names.manifest_key(_number(checkpoint.id))
        # A restore reads the state twice: once to prove it, once operator by operator.
        passes = {Depth.PRESENCE: 0, Depth.CONTENT: 1, Depth.RESTORE: 2}[depth]
        return [Check(subject, passes * checkpoint.size, lambda: self._prove(checkpoint, depth))]

    def _prove(self, checkpoint: Checkpoint, depth: Depth) -> list[Issue]:
        """Is the sidecar there, is all state as it was written, does every state come out: up to the first failure."""
        issues = [issue for artifact in checkpoint.artifacts for issue in presence_issues(self.blobs, artifact)]
        if depth.includes(Depth.CONTENT) and not has_errors(issues):
            try:
                # Read again, because the shared vocabulary has no room for the parts.
                found = self._load(_number(checkpoint.id))
            except CheckpointNotFoundError:
                return [_missing(checkpoint.id)]
            except CorruptManifestError as error:
                return [_corrupt(error)]
            issues += checksum_issues(self.blobs, found.manifest, found.state_key)
            if depth.includes(Depth.RESTORE) and not has_errors(issues):
                issues += restore_issues(self.blobs, found.manifest, found.state_key)
        return issues

    # -- removing ------------------------------------------------------------------------------------------------

    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        """Every manifest that claims the id. The one that counts goes last, so no other comes to light in between."""
        number = _number(checkpoint_id)
        places = [names.manifest_key(number), *self._unusual_names(number)]
        return [key for key in reversed(places) if self.blobs.stat(key) is not None]

    def named(self, key: str) -> Named:
        return names.named(key)

    # -- reading -------------------------------------------------------------------------------------------------

    def manifests(self) -> dict[int, list[str]]:
        """The manifests of every id, as of now, the one that counts first."""
        listed = list_manifests(self.blobs)
        self._unusual = {
            number: unusual
            for number, keys in listed.items()
            if (unusual := [key for key in keys if key != names.manifest_key(number)])
        }
        return listed

    def _unusual_names(self, number: int) -> list[str]:
        if self._unusual is None:
            self.manifests()
        return (self._unusual or {}).get(number, [])

    def _places(self, number: int) -> Iterator[str]:
        """Where manifests of an id may lie, in order of precedence.

        The store is listed only if the usual name and the ones seen before are not what the caller was looking for.
        """
        usual = names.manifest_key(number)
        yield usual
        seen = [] if self._unusual is None else self._unusual.get(number, [])
        yield from seen
        self.manifests()
        yield from (key for key in self._unusual_names(number) if key not in seen)

    def _read(self, number: int) -> Found:
        """The manifest that counts under an id; raises CheckpointNotFoundError or CorruptManifestError."""
        for key in self._places(number):
            try:
                return Found(key, _identified(read_object(self.blobs, key), key, number))
            except BlobNotFoundError:
                continue
        raise CheckpointNotFoundError(
            f"no checkpoint {number}",
            subject=self.blobs.uri,
            hint=NOT_THERE,
        )

    def _load(self, number: int) -> Found:
        """Like ``_read``, for callers that act on what the manifest says: a newer version is refused."""
        found = self._read(number)
        if found.manifest.version > MANIFEST_VERSION:
            raise CorruptManifestError(
                f"manifest version {found.manifest.version} is newer than {MANIFEST_VERSION}, the last one known here",
                subject=found.key,
                hint="A newer program wrote it. Upgrade this one to read it.",
            )
        return found


def _identified(values: dict[str, Any], key: str, number: int) -> CheckpointManifest:
    """The manifest, if it is the one its name says; else whoever restores it restores something else."""
    manifest = parse_model(CheckpointManifest, values, subject=key)
    if manifest.checkpoint_id != number:
        raise CorruptManifestError(
            f"the manifest inside is of checkpoint {manifest.checkpoint_id}",
            subject=key,
            hint="The object was renamed or overwritten; it is not the checkpoint its name says.",
        )
    return manifest


def has_errors(issues: Iterable[Issue]) -> bool:
    return any(issue.severity is Severity.ERROR for issue in issues)


def _number(checkpoint_id: CheckpointId) -> int:
    value = checkpoint_id.value
    if not isinstance(value, int) or not 0 <= value <= names.MAX_ID:
        raise CheckpointNotFoundError(f"no checkpoint {value}", hint="Ids of the sidecar layout are whole numbers.")
    return value


def _missing(checkpoint_id: CheckpointId) -> Issue:
    return Issue.error("manifest_missing", f"manifest not found for checkpoint {checkpoint_id}")


def _corrupt(error: CorruptManifestError) -> Issue:
    return Issue.error("manifest_corrupt", f"corrupt manifest: {error.subject}: {error.message}")
