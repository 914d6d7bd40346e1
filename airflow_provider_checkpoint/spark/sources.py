"""Sources with explicit positions: what was read is decided by the driver and recorded, never guessed by the reader."""

from __future__ import annotations

import heapq
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import ConfigurationError, InputGoneError
from airflow_provider_checkpoint.model import FilePosition, KafkaPartition, KafkaPosition, SourcePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

#: The column in which a file source says where a row came from: a name as in the parts of its slice.
FILE = "__file"
_SCHEME = "^[A-Za-z][A-Za-z0-9+.-]*:/+"
#: So many changed files are named at most.
_NAMED = 10
_PATTERN = re.compile(r"([\\{}\[\]*?])")


@dataclass(frozen=True, slots=True)
class Slice:
    """Input between two positions: what one epoch reads."""

    start: SourcePosition | None
    end: SourcePosition
    parts: tuple[str, ...] = ()
    """For files: their names, in order."""


class Source(ABC):
    """Input that can be read again from any position.

    ``next_slice`` is asked once per epoch. After a restart it must give the same rows for the same start; where an
    epoch ends may differ.
    """

    name: str

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """What identifies it, for the pipeline hash. No secrets, nothing that differs between machines."""

    @abstractmethod
    def next_slice(self, start: SourcePosition | None) -> Slice | None:
        """What to read next, or None if there is nothing new.

        A run that tolerates failures asks again after an error, unless it is one of ours that says a person must act or
        that the call can never succeed.
        """

    @abstractmethod
    def read(self, spark: SparkSession, part: Slice) -> DataFrame:
        """The rows of a slice."""

    def changed_since(self, moment: datetime) -> Sequence[str]:  # noqa: ARG002 - most sources cannot tell
        """Names of input before the start last asked for that was written after a moment, as far as can be told.

        Reading it again would give other rows. Times are no proof, so this is for a warning.
        """
        return ()


class FileSource(Source):
    """Files that land in a folder or in folders below it, whole and for good, in the order of their names.

    A file that turns up later with a name before one already read is an error: name files so that they sort by arrival.
    One that is written again after it was read is told in the log.
    What begins with an underscore or a dot, file or folder, is not there yet.

    :param schema: the columns, as Spark writes schemas.
    :param max_files: at most so many files per epoch.
    """

    def __init__(
        self,
        name: str,
        uri: str,
        *,
        schema: str,
        format: str = "json",  # noqa: A002 - Spark's own word
        suffix: str = "",
        max_files: int = 100,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if max_files < 1:
            raise ConfigurationError("an epoch must read at least one file", subject=str(max_files))
        self.name = name
        self._uri = uri.rstrip("/")
        self._schema = schema
        self._format = format
        self._suffix = suffix
        self._max_files = max_files
        self._options = dict(options or {})
        self._youngest: list[tuple[datetime, str]] = []
        """Of the files before the last start."""

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "files", "name": self.name, "format": self._format, "schema": self._schema}

    def next_slice(self, start: SourcePosition | None) -> Slice | None:
        done = self._position(start)
        listed = open_blobs(self._uri, self._options).list()
        written = {info.key: info.modified for info in listed if self._counts(info.key)}
        names = sorted(written)
        earlier = sum(name <= done.path for name in names) if done.path else 0
        if earlier != done.byte_offset:
            raise InputGoneError(
                f"source {self.name!r} had read {done.byte_offset} files up to {done.path!r}, {earlier} are there",
                subject=self._uri,
                hint="Put them back, or start from a checkpoint whose input is still there. Reading on would lose rows"
                " without a word."
                if earlier < done.byte_offset
                else "Some came late. Give them names after the last one, so that they are read next.",
            )
        times = ((written[name], name) for name in names[:earlier])
        self._youngest = heapq.nlargest(_NAMED, ((time, name) for time, name in times if time is not None))
        new = names[earlier : earlier + self._max_files]
        if not new:
            return None
        return Slice(start, FilePosition(path=new[-1], byte_offset=earlier + len(new)), tuple(new))

    def read(self, spark: SparkSession, part: Slice) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the way Spark users write it

        reader = spark.read.format(self._format).schema(self._schema).option("mode", "FAILFAST")
        # Whatever the session says: a file that cannot be read is not a file without rows, and folders are no columns.
        for option, value in (
            ("ignoreMissingFiles", False),
            ("ignoreCorruptFiles", False),
            ("recursiveFileLookup", True),
        ):
            reader = reader.option(option, value)
        rows = reader.load([_literal(f"{self._uri}/{name}") for name in part.parts])
        # Spark's names are percent-encoded, but a plus is a plus; some begin with file:/ and some with file:///.
        encoded = F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B"))
        path = F.regexp_replace(F.url_decode(encoded), _SCHEME, "")
        start = len(self._root(rows.inputFiles(), part.parts)) + 1
        return rows.withColumn(FILE, F.substring(path, start, 2**31 - 1))

    def changed_since(self, moment: datetime) -> Sequence[str]:
        return sorted(name for time, name in self._youngest if time > moment)

    def _root(self, files: Collection[str], parts: Collection[str]) -> str:
        """What Spark's names of the files have before ours."""
        found = {re.sub(_SCHEME, "", unquote(file)) for file in files}
        for part in parts:
            root = min(found, default="").removesuffix(part)
            if found == {f"{root}{name}" for name in parts}:
                return root
        raise InputGoneError(
            f"source {self.name!r} is to read {len(parts)} files and Spark sees {len(found)}, or others",
            subject=self._uri,
            hint="Were files removed or renamed? Start again: nothing of this epoch is kept.",
        )

    def _counts(self, key: str) -> bool:
        return key.endswith(self._suffix) and not any(part.startswith(("_", ".")) for part in key.split("/"))

    @staticmethod
    def _position(start: SourcePosition | None) -> FilePosition:
        if start is None:
            return FilePosition(path="", byte_offset=0)
        if not isinstance(start, FilePosition):
            raise ConfigurationError(f"a file source cannot start from a position of type {start.type}")
        return start


def _literal(path: str) -> str:
    """A path that Spark takes for itself and not for a pattern."""
    return _PATTERN.sub(r"\\\1", path)


class KafkaSource(Source):
    """A Kafka topic, read in batches between explicit offsets.

    Needs Spark's Kafka connector on the cluster. Which offsets exist is asked of ``end_offsets``, a function the job
    supplies with the Kafka client it has; it answers ``{(topic, partition): next offset}``.

    :param max_offsets: at most so many records per partition and epoch.
    """

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[str, str],
        end_offsets: Callable[[], Mapping[tuple[str, int], int]],
        max_offsets: int = 100_000,
    ) -> None:
        if max_offsets < 1:
            raise ConfigurationError("an epoch must read at least one record", subject=str(max_offsets))
        self.name = name
        self._options = dict(options)
        self._end_offsets = end_offsets
        self._max_offsets = max_offsets

    def describe(self) -> Mapping[str, Any]:
        which = ("subscribe", "subscribePattern", "assign")
        return {
            "kind": "kafka",
            "name": self.name,
            **{key: self._options[key] for key in which if key in self._options},
        }

    def next_slice(self, start: SourcePosition | None) -> Slice | None:
        done = kafka_offsets(start)
        known = dict(sorted(self._end_offsets().items()))
        for part, end in known.items():
            if end < done.get(part, 0):
                raise InputGoneError(
                    f"source {self.name!r} had read up to offset {done[part]}, the partition ends at {end}",
                    subject=f"topic {part[0]!r}, partition {part[1]}",
                    hint="Was the topic made anew, or was another cluster asked? Reading on would lose rows.",
                )
        ends = {part: min(end, done.get(part, 0) + self._max_offsets) for part, end in known.items()}
        if all(end == done.get(part, 0) for part, end in ends.items()):
            return None
        return Slice(start, kafka_position(done | ends))

    def read(self, spark: SparkSession, part: Slice) -> DataFrame:
        ends = kafka_offsets(part.end)
        starts = {each: kafka_offsets(part.start).get(each, 0) for each in ends}
        reader = spark.read.format("kafka").options(**self._options)
        return reader.option("startingOffsets", kafka_json(starts)).option("endingOffsets", kafka_json(ends)).load()


def kafka_offsets(position: SourcePosition | None) -> dict[tuple[str, int], int]:
    """Next offsets by topic and partition."""
    if position is None:
        return {}
    if not isinstance(position, KafkaPosition):
        raise ConfigurationError(f"a Kafka source cannot start from a position of type {position.type}")
    return {(part.topic, part.partition): part.offset for part in position.partitions}


def kafka_position(offsets: Mapping[tuple[str, int], int]) -> KafkaPosition:
    parts = [
        KafkaPartition(topic=topic, partition=partition, offset=offset)
        for (topic, partition), offset in sorted(offsets.items())
    ]
    return KafkaPosition(partitions=tuple(parts))


def kafka_json(offsets: Mapping[tuple[str, int], int]) -> str:
    """Offsets as Spark's Kafka connector takes them."""
    import json

    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
