"""Names of the partitioned layout: every path is built here, and every path that was read is judged here.

::

    _latest                                             the id of the newest checkpoint, 36 characters
    {id}/manifest.json                                  makes the checkpoint exist
    {id}/operators/{operator}/partition-{n}.snap        whole state of one operator partition
    {id}/operators/{operator}/partition-{n}.delta       changes on top of such a snapshot
    {id}/offsets/{source}.json                          in the reference's documentation; nobody writes it
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_checkpoint.blobs import check_key
from airflow_provider_checkpoint.exceptions import ConfigurationError, CorruptManifestError, InvalidKeyError
from airflow_provider_checkpoint.model import ArtifactKind, CheckpointId

if TYPE_CHECKING:
    from uuid import UUID

LATEST = "_latest"
TRASH = "trash"
ID_LENGTH = 36
HIGHEST_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
MAX_PARTITION = 2**32 - 1

_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_ID_ONLY = re.compile(_ID)
_MANIFEST = re.compile(rf"(?P<id>{_ID})/manifest\.json")
_OFFSETS = re.compile(rf"(?P<id>{_ID})/offsets/[^/]+\.json")
_ARTIFACT = re.compile(
    rf"(?P<id>{_ID})/operators/(?P<folder>.+)/partition-(?P<partition>0|[1-9][0-9]{{0,9}})\.(?P<kind>snap|delta)"
)
_FOREIGN_PREFIX = re.compile(rf"(?:.*?/)??(?={_ID}/operators/)")
_OUTER_DOTS = re.compile(r"^\.+|\.+$")

_ENDINGS = {ArtifactKind.SNAPSHOT: "snap", ArtifactKind.DELTA: "delta"}
_KINDS = {ending: kind for kind, ending in _ENDINGS.items()}

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_LONGEST_FOLDER = 180


@dataclass(frozen=True, slots=True)
class ArtifactName:
    """What an artifact's key says about it."""

    key: str
    checkpoint_id: CheckpointId
    """In whose folder it lies; a shared artifact bears its maker's id."""
    folder: str
    partition: int
    kind: ArtifactKind

    def is_of(self, operator: str) -> bool:
        """Whether the folder is one that we, or the reference (bare or percent-encoded), would use for an operator."""
        if operator in (self.folder, unquote(self.folder)):
            return True
        return operator != "" and self.folder == operator_folder(operator)


# -- ids ---------------------------------------------------------------------------------------------------------


def is_id(text: str) -> bool:
    return _ID_ONLY.fullmatch(text) is not None


def parse_id(text: str) -> CheckpointId:
    """The id a text is; raises ConfigurationError unless it is a UUIDv7 in the one spelling that is used in names."""
    if not is_id(text):
        raise ConfigurationError(
            "not the id of a checkpoint in the partitioned layout",
            subject=repr(text),
            hint="Ids are lower-case UUIDs of version 7, such as 0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b.",
        )
    return CheckpointId(text)


def id_from_uuid(uuid: UUID) -> CheckpointId:
    return parse_id(str(uuid))


def id_folder(checkpoint_id: CheckpointId) -> str:
    """The folder of a checkpoint. Everything below it belongs to that id."""
    return str(parse_id(str(checkpoint_id)))


# -- writing names -----------------------------------------------------------------------------------------------


def manifest_key(checkpoint_id: CheckpointId) -> str:
    return f"{id_folder(checkpoint_id)}/manifest.json"


def artifact_key(checkpoint_id: CheckpointId, operator: str, partition: int, kind: ArtifactKind) -> str:
    if not 0 <= partition <= MAX_PARTITION:
        raise InvalidKeyError(
            "partition number is not an unsigned 32-bit number", subject=str(partition), hint="Partitions count from 0."
        )
    return f"{id_folder(checkpoint_id)}{_below_id(operator, partition, kind)}"


def _below_id(operator: str, partition: int, kind: ArtifactKind) -> str:
    return f"/operators/{operator_folder(operator)}/partition-{partition}.{_ENDINGS[kind]}"


@lru_cache(maxsize=1024)
def operator_folder(name: str) -> str:
    """The folder of an operator: one path segment, different for different names, whatever they hold.

    Letters, digits, ``_``, ``-`` and inner dots stand for themselves; everything else is percent-encoded, so ``a/b``
    and ``a%2Fb`` differ and no name leads anywhere else. A name too long for a segment keeps its beginning and ends in
    its digest after a ``~``, which no encoded name holds.
    """
    if not name:
        raise InvalidKeyError("operator name is empty", subject=repr(name), hint="Give every operator a name.")
    try:
        encoded = "".join(_encoded(character) for character in name)
    except UnicodeEncodeError:
        raise InvalidKeyError(
            "operator name is not valid Unicode", subject=repr(name), hint="Give the operator a plain name."
        ) from None
    encoded = _OUTER_DOTS.sub(lambda dots: "%2E" * len(dots[0]), encoded)
    if len(encoded) <= _LONGEST_FOLDER:
        return encoded
    return f"{encoded[:100]}~{hashlib.sha256(name.encode()).hexdigest()}"


def _encoded(character: str) -> str:
    return character if character in _PLAIN else "".join(f"%{byte:02X}" for byte in character.encode())


# -- reading names -----------------------------------------------------------------------------------------------


def manifest_owner(key: str) -> CheckpointId | None:
    match = _MANIFEST.fullmatch(key)
    return None if match is None else CheckpointId(match["id"])


def offsets_owner(key: str) -> CheckpointId | None:
    match = _OFFSETS.fullmatch(key)
    return None if match is None else CheckpointId(match["id"])


def parse_artifact_key(key: str) -> ArtifactName | None:
    """What a key, relative to the store, says; None if it is not the name of an artifact."""
    match = _ARTIFACT.fullmatch(key)
    if match is None or int(match["partition"]) > MAX_PARTITION:
        return None
    return ArtifactName(
        key=key,
        checkpoint_id=CheckpointId(match["id"]),
        folder=match["folder"],
        partition=int(match["partition"]),
        kind=_KINDS[match["kind"]],
    )


def is_ours(path: str, operator: str, partition: int, kind: ArtifactKind) -> bool:
    """Whether a path names this artifact in the one spelling that we write. Nearly all do, and to ask costs little."""
    return path[ID_LENGTH:] == _below_id(operator, partition, kind) and is_id(path[:ID_LENGTH])


def locate(path: str, checkpoint_id: CheckpointId | None) -> ArtifactName:
    """The artifact a manifest means by a path; raises CorruptManifestError if it means none of this store.

    Three spellings are known: relative to the store (ours), relative to the checkpoint's folder (documented by the
    reference), and relative to whatever held the reference's store (written by the reference), where everything before
    the id is dropped. Without ``checkpoint_id`` the second has no meaning.
    """
    try:
        check_key(path)
    except InvalidKeyError as error:
        raise CorruptManifestError(f"path of an artifact: {error.message}", subject=error.subject) from None
    if path.startswith("operators/") and checkpoint_id is not None:
        path = f"{checkpoint_id}/{path}"
    prefix = _FOREIGN_PREFIX.match(path)
    name = None if prefix is None else parse_artifact_key(path[prefix.end() :])
    if name is None:
        raise CorruptManifestError(
            "path does not name an artifact of this layout",
            subject=repr(path),
            hint="Artifacts are named {id}/operators/{operator}/partition-{n}.snap or .delta.",
        )
    return name
