"""The vocabulary: what a checkpoint is, whatever wrote it.

Every layout turns its files into these values, so that validation, retention, orphan search and recovery are written
once. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import total_ordering
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pydantic import GetCoreSchemaHandler

FIRST_TIMELINE = 1


@total_ordering
@dataclass(frozen=True, slots=True)
class CheckpointId:
    """The name of one checkpoint, as its layout writes it: a number, or a UUIDv7 as text.

    Ids of one layout sort in the order in which they were given out; among all ids, numbers come before text. In JSON
    an id is its bare value.
    """

    value: int | str

    def __str__(self) -> str:
        return str(self.value)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, CheckpointId):
            return NotImplemented
        if isinstance(self.value, int) and isinstance(other.value, int):
            return self.value < other.value
        return (isinstance(self.value, str), str(self.value)) < (isinstance(other.value, str), str(other.value))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        bare = core_schema.union_schema([core_schema.int_schema(strict=True), core_schema.str_schema(strict=True)])
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(cls, bare),
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), core_schema.no_info_after_validator_function(cls, bare)]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda checkpoint_id: checkpoint_id.value),
        )


# -- where the sources stood -------------------------------------------------------------------------------------


class _Position(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KafkaPartition(_Position):
    topic: str
    partition: int
    offset: int


class KafkaPosition(_Position):
    """The next offset to read, per partition."""

    type: Literal["kafka"] = "kafka"
    group_id: str | None = None
    partitions: tuple[KafkaPartition, ...] = ()


class PostgresCdcPosition(_Position):
    """Log sequence numbers as Postgres writes them, ``0/1234ABCD``."""

    type: Literal["postgres_cdc"] = "postgres_cdc"
    confirmed_flush_lsn: str
    write_lsn: str | None = None
    slot_name: str | None = None


class MysqlCdcPosition(_Position):
    type: Literal["mysql_cdc"] = "mysql_cdc"
    gtid_set: str | None = None
    binlog_file: str | None = None
    binlog_position: int | None = None


class FilePosition(_Position):
    type: Literal["file"] = "file"
    path: str
    byte_offset: int


class GenericPosition(_Position):
    """A connector this package knows nothing about: names and values as it wrote them."""

    type: Literal["generic"] = "generic"
    connector_type: str = ""
    offsets: dict[str, str] = Field(default_factory=dict)


SourcePosition: TypeAlias = Annotated[
    KafkaPosition | PostgresCdcPosition | MysqlCdcPosition | FilePosition | GenericPosition,
    Field(discriminator="type"),
]


# -- what the sinks did ------------------------------------------------------------------------------------------


class SinkState(StrEnum):
    PENDING = "pending"
    """Prepared; whether it was published is not recorded. A commit decision marker tells what was meant to happen."""
    COMMITTED = "committed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    state: SinkState
    epoch: int | None = None
    message: str | None = None
    """Why it failed."""


# -- the checkpoint ----------------------------------------------------------------------------------------------


class ArtifactKind(StrEnum):
    SNAPSHOT = "snapshot"
    """Whole state of one operator partition, or of everything."""
    DELTA = "delta"
    """Changes on top of the snapshot of the same operator and partition."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One object that holds state. Several checkpoints may name the same one."""

    key: str
    """Where it is, relative to the store."""
    kind: ArtifactKind = ArtifactKind.SNAPSHOT
    operator: str | None = None
    partition: int | None = None
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A consistent point of a pipeline: where its sources stood, what its state was, what its sinks had published."""

    id: CheckpointId
    epoch: int
    created: datetime
    timeline: int = FIRST_TIMELINE
    parent: CheckpointId | None = None
    artifacts: tuple[Artifact, ...] = ()
    inline_bytes: int = 0
    """State that lies in the manifest itself."""
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)
    watermark: int | None = None
    """Event time up to which input is complete, in the unit the pipeline uses."""
    event_count: int | None = None
    pipeline_hash: int | None = None
    vnode_count: int | None = None
    source_names: tuple[str, ...] = ()
    sink_names: tuple[str, ...] = ()
    savepoint: bool = False
    """Taken by a person: self-contained and never removed automatically."""

    @property
    def size(self) -> int:
        """Bytes of state it needs to be restored, shared artifacts included."""
        return self.inline_bytes + sum(artifact.size or 0 for artifact in self.artifacts)


# -- records kept beside the checkpoints -------------------------------------------------------------------------


class Pin(BaseModel):
    """A promise that a checkpoint stays."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    checkpoint_id: CheckpointId
    owner: str
    reason: str
    created: AwareDatetime
    expires: AwareDatetime | None = None

    def holds(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires


class Timeline(BaseModel):
    """One run of history. Each writer opens its own, forking from the checkpoint it starts from."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    parent: int | None = None
    """The timeline it forks from; None for a fresh start."""
    fork_checkpoint: CheckpointId | None = None
    """The last checkpoint of the past that belongs to this history; None for a fresh start."""
    fork_epoch: int | None = None
    created: AwareDatetime
    writer: str
    """A mark no other writer has."""
    owner: str = ""
    """Who asked."""
    reason: str = ""


# -- findings ----------------------------------------------------------------------------------------------------


class Depth(StrEnum):
    """How far a proof goes. Each depth includes the ones before it."""

    STRUCTURE = "structure"
    PRESENCE = "presence"
    CONTENT = "content"
    RESTORE = "restore"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, other: Depth) -> bool:
        return self.rank >= other.rank


_RANKS = {depth: rank for rank, depth in enumerate(Depth)}


class Severity(StrEnum):
    WARNING = "warning"
    """Worth knowing; the checkpoint can be restored."""
    ERROR = "error"
    """The checkpoint cannot be trusted."""


class Issue(BaseModel):
    """One thing found wrong with a checkpoint."""

    model_config = ConfigDict(frozen=True)

    severity: Severity
    code: str
    """A short stable name for programs, such as ``artifact_missing``."""
    message: str

    @classmethod
    def error(cls, code: str, message: str) -> Issue:
        return cls(severity=Severity.ERROR, code=code, message=message)

    @classmethod
    def warning(cls, code: str, message: str) -> Issue:
        return cls(severity=Severity.WARNING, code=code, message=message)
