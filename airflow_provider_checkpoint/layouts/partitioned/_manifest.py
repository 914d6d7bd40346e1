"""The manifest of the partitioned layout: version 2 of the reference, byte for byte, and a few keys of our own.

Our keys stand after the reference's and are written only when they say something, so a manifest without them is exactly
what the reference would have written, and a reader of the reference ignores them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
)
from pydantic_core import PydanticSerializationError, to_json

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._fields import I64, U16, U32, U64, ByName, Names, Text
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts._positions import from_offsets, to_offsets
from airflow_provider_checkpoint.layouts._sinks import SinkCommitStatus
from airflow_provider_checkpoint.layouts.partitioned._paths import is_id
from airflow_provider_checkpoint.model import CheckpointId, SourcePosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_checkpoint.model import SinkStatus

MANIFEST_VERSION = 2


def _uuid7_only(checkpoint_id: CheckpointId) -> CheckpointId:
    if not isinstance(checkpoint_id.value, str) or not is_id(checkpoint_id.value):
        raise ValueError("not a lower-case UUID of version 7")
    return checkpoint_id


Id: TypeAlias = Annotated[CheckpointId, AfterValidator(_uuid7_only)]


# -- the manifest ------------------------------------------------------------------------------------------------


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class PartitionEntry(_Entry):
    """One artifact: a snapshot or a delta of one operator partition."""

    partition_id: U32
    is_delta: bool
    path: Text
    """Relative to the store in what we write; see ``locate`` for what we read."""
    size_bytes: U64
    sha256: Text | None = None


class OperatorEntry(_Entry):
    """The artifacts that make up an operator's state: per partition a snapshot, then its deltas in order."""

    partitions: Annotated[tuple[PartitionEntry, ...], Strict(False)]
    total_bytes: U64 = 0

    @classmethod
    def of(cls, partitions: Iterable[PartitionEntry]) -> OperatorEntry:
        """An entry with its total filled in."""
        listed = tuple(partitions)
        return cls(partitions=listed, total_bytes=sum(partition.size_bytes for partition in listed))


def operators_of(saved: Iterable[tuple[str, PartitionEntry]]) -> dict[str, OperatorEntry]:
    """What a manifest says of its operators: per partition, in order, the snapshot, then the deltas as given."""
    listed: defaultdict[str, list[PartitionEntry]] = defaultdict(list)
    for operator, partition in saved:
        listed[operator].append(partition)
    return {
        operator: OperatorEntry.of(sorted(partitions, key=lambda each: (each.partition_id, each.is_delta)))
        for operator, partitions in listed.items()
    }


class SourceEntry(_Entry):
    """Where a source stood."""

    source_type: Text
    offsets: ByName[Text]
    epoch: U64

    @classmethod
    def of(cls, position: SourcePosition, epoch: int) -> SourceEntry:
        source_type, offsets = to_offsets(position)
        return cls(source_type=source_type, offsets=offsets, epoch=epoch)

    @property
    def position(self) -> SourcePosition:
        return from_offsets(self.source_type, self.offsets)


class CheckpointManifestV2(_Entry):
    """A point-in-time snapshot of a pipeline: which artifacts hold its state, and where its sources stood."""

    version: U32 = MANIFEST_VERSION
    checkpoint_id: Id
    epoch: U64
    timestamp_ms: U64
    operators: ByName[OperatorEntry] = Field(default_factory=dict)
    source_offsets: ByName[SourceEntry] = Field(default_factory=dict)
    parent_id: Id | None = None
    """For people: the manifest itself lists everything a restore needs."""
    watermark: I64 | None = None
    total_size_bytes: U64 = 0

    # Ours, from here on: see OPTIONAL_KEYS.
    timeline: Annotated[U64, Field(ge=1)] | None = None
    sink_epochs: ByName[U64] = Field(default_factory=dict)
    sink_commit_statuses: ByName[SinkCommitStatus] = Field(default_factory=dict)
    source_names: Names = ()
    sink_names: Names = ()
    pipeline_hash: U64 | None = None
    vnode_count: U16 | None = None
    source_watermarks: ByName[I64] = Field(default_factory=dict)
    event_count: U64 | None = None
    savepoint: bool = False
    writer: Text | None = None
    """A mark no other writer has, so that two manifests for one id cannot be equal by accident."""

    @model_serializer(mode="wrap")
    def _without_unset_keys(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        return {key: value for key, value in values.items() if key not in OPTIONAL_KEYS or _says_something(value)}


_KEYS = tuple(CheckpointManifestV2.model_fields)

#: Keys the reference does not know.
OPTIONAL_KEYS = frozenset(_KEYS[_KEYS.index("timeline") :])


def _says_something(value: object) -> bool:
    """Whether a key must be written: 0 is said, None and False and what is empty are not."""
    return value is not None and value is not False and value not in ((), [], {})


# -- bytes -------------------------------------------------------------------------------------------------------


def encode_manifest(manifest: CheckpointManifestV2) -> bytes:
    return _dump(manifest.model_dump(mode="json"))


def decode_manifest(data: bytes, *, subject: str) -> CheckpointManifestV2:
    """Read a manifest of any version; raises CorruptManifestError. Unknown keys are ignored."""
    return manifest_from(parse_object(data, subject=subject), subject=subject)


def manifest_from(values: dict[str, Any], *, subject: str) -> CheckpointManifestV2:
    """The same, of parsed JSON."""
    if "version" not in values:
        # Only the constructor has a default: a file that does not say what it is may be anything.
        raise CorruptManifestError("field version: missing", subject=subject)
    return parse_model(CheckpointManifestV2, values, subject=subject)


def with_sinks(
    values: dict[str, Any], statuses: Mapping[str, SinkStatus], epochs: Mapping[str, int], *, subject: str
) -> bytes | None:
    """The same manifest with some sinks' statuses and epochs changed, and nothing else; None if nothing changes.

    Works on parsed JSON and not on the model, so keys that a newer writer added survive.
    """
    before = manifest_from(values, subject=subject)
    sinks = {
        "sink_epochs": before.sink_epochs | dict(epochs),
        "sink_commit_statuses": before.sink_commit_statuses | dict(statuses),
    }
    after = manifest_from(values | sinks, subject=subject)
    if after == before:
        return None
    changed = values | after.model_dump(mode="json", include=set(sinks))
    known = {key: changed.pop(key) for key in _KEYS if key in changed}
    try:
        return _dump(known | changed)
    except PydanticSerializationError:
        # All else that it does not write was refused when the manifest was read.
        raise CorruptManifestError("nested too deeply", subject=subject) from None


def _dump(values: dict[str, Any]) -> bytes:
    # What json.dumps writes with an indent it writes in Python, ten times as slowly.
    return to_json(values, indent=2)
