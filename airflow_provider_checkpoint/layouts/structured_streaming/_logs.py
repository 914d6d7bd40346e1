"""The two logs of a query: ``offsets/N``, written before batch N runs, and ``commits/N``, written when it is done."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._fields import I64, Text
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts.structured_streaming._names import is_query_id, is_source, is_unique_id
from airflow_provider_checkpoint.layouts.structured_streaming._text import lines_of, parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSETS_VERSION = 2
COMMITS_VERSION = 3

#: More partitions than any query has; the conf is text that anybody may have edited.
MAX_PARTITIONS = 1_000_000

#: Since this version a commit names its sinks, and Spark does not read one that does not.
_SINKS_VERSION = 3
_SINKS = "sinkMetadataMap"

_VOID = "-"
PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"


class _Line(BaseModel):
    # Later versions of Spark add fields; those we know must have their type.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _OffsetsMetadata(_Line):
    batchWatermarkMs: I64 = 0  # noqa: N815 - Spark's own name
    batchTimestampMs: I64 = 0  # noqa: N815 - Spark's own name
    conf: dict[Text, Text] = Field(default_factory=dict)


_OperatorId: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class _CommitMetadata(_Line):
    nextBatchWatermarkMs: I64 = 0  # noqa: N815 - Spark's own name
    stateUniqueIds: dict[_OperatorId, list[list[str]]] | None = None  # noqa: N815 - Spark's own name


class _QueryMetadata(_Line):
    id: str


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """Where one source stands after a batch, as it wrote it down: usually JSON. None before it has read anything."""

    source: str
    """Its place in the plan (``0``, ``1``...), or since log version 2 its name; also the name of its folder."""
    text: str | None

    def value(self) -> Any:
        """The position as parsed JSON, or the text itself where a source does not write JSON."""
        if self.text is None:
            return None
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return self.text


@dataclass(frozen=True, slots=True)
class Offsets:
    """One entry of the log ``offsets``."""

    version: int
    sources: tuple[OffsetLine, ...]
    timestamp_ms: int = 0
    watermark_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    described: bool = True
    """Whether there is anything in the second line, be it ``{}``: Spark does not go on from a batch without it."""

    @property
    def partitions(self) -> int | None:
        """The number of partitions of every operator with state; None if the entry does not tell."""
        text = self.conf.get(PARTITIONS, "")
        if not (text.isascii() and text.isdigit() and len(text) <= 7):
            return None
        return int(text) if 1 <= int(text) <= MAX_PARTITIONS else None

    @property
    def rocksdb(self) -> bool | None:
        """Whether state lies in RocksDB; None if the entry does not tell."""
        provider = self.conf.get(_PROVIDER)
        return None if provider is None else "RocksDB" in provider

    @property
    def codec(self) -> str | None:
        return self.conf.get(_CODEC)


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log ``commits``."""

    version: int
    watermark_ms: int = 0
    unique_ids: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Per operator and partition, the unique ids of its stores: which attempt at the version counts (format 2)."""


def parse_offsets(data: bytes, *, subject: str) -> Offsets:
    """Read an entry of ``offsets``; raises CorruptManifestError."""
    lines = lines_of(data, subject=subject)
    version = parse_version(lines[0], OFFSETS_VERSION, subject=subject)
    if len(lines) < 2:
        raise CorruptManifestError("the file ends after its version", subject=subject)
    if len(lines) < 3:
        raise CorruptManifestError("the file ends before the position of any source", subject=subject)
    # Spark 2 wrote an empty second line.
    values = parse_object(lines[1].encode(), subject=subject) if lines[1].strip() else {}
    metadata = parse_model(_OffsetsMetadata, values, subject=subject)
    return Offsets(
        version=version,
        sources=_sources(lines[2:], version, subject),
        timestamp_ms=metadata.batchTimestampMs,
        watermark_ms=metadata.batchWatermarkMs,
        conf=metadata.conf,
        described=bool(lines[1].strip()),
    )


def _sources(lines: list[str], version: int, subject: str) -> tuple[OffsetLine, ...]:
    found: dict[str, OffsetLine] = {}
    for place, line in enumerate(lines):
        name, text = (str(place), line) if version == 1 else _named(line, subject)
        if name in found:
            raise CorruptManifestError(f"the source {name[:100]!r} appears twice", subject=subject)
        if text[:1] in ("{", "[", '"'):
            _require_json(text, name, subject)
        elif not text:
            raise CorruptManifestError(f"the position of source {name[:100]!r} is empty", subject=subject)
        found[name] = OffsetLine(name, None if text == _VOID else text)
    return tuple(found.values())


def _named(line: str, subject: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon or not is_source(name):
        raise CorruptManifestError(f"a line that names no source: {line[:40]!r}", subject=subject)
    return name, text


def _require_json(text: str, name: str, subject: str) -> None:
    try:
        # Half a character, which no file can hold, is an error of encoding, and that is a ValueError as well.
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise CorruptManifestError(
            f"the position of source {name[:100]!r} is cut or damaged", subject=subject
        ) from None


def parse_commit(data: bytes, *, subject: str) -> Commit:
    """Read an entry of ``commits``; raises CorruptManifestError. Like Spark, takes a version line alone as whole."""
    lines = lines_of(data, subject=subject)
    version = parse_version(lines[0], COMMITS_VERSION, subject=subject)
    values = parse_object(lines[1].encode(), subject=subject) if len(lines) > 1 else {}
    metadata = parse_model(_CommitMetadata, values, subject=subject)
    if version >= _SINKS_VERSION and _SINKS not in values:
        raise CorruptManifestError(f"field {_SINKS}: missing, although the log has version v{version}", subject=subject)
    ids = metadata.stateUniqueIds or {}
    if not all(is_unique_id(each) for parts in ids.values() for part in parts for each in part):
        raise CorruptManifestError("field stateUniqueIds: holds what is no unique id", subject=subject)
    return Commit(
        version=version,
        watermark_ms=metadata.nextBatchWatermarkMs,
        unique_ids={int(operator): tuple(map(tuple, parts)) for operator, parts in ids.items()},
    )


def parse_query_id(data: bytes, *, subject: str) -> str:
    """The id of the query in the file ``metadata``; raises CorruptManifestError."""
    query_id = parse_model(_QueryMetadata, parse_object(data, subject=subject), subject=subject).id
    if not is_query_id(query_id):
        raise CorruptManifestError(f"field id: {query_id[:40]!r} is no UUID", subject=subject)
    return query_id
