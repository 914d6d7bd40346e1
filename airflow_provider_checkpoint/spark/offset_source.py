"""Input behind explicit offsets: a reader of the user's, or a Python data source written for Structured Streaming.

Offsets are what Spark says they are: names with whole numbers, texts, truth values, or more such names. They are kept
in checkpoints as JSON, value by value, and come back exactly as they were. What a checkpoint says is checked on its way
back: a damaged or foreign position is an error, never another place in the input.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, cast

from airflow_provider_checkpoint.exceptions import ConfigurationError, CorruptManifestError
from airflow_provider_checkpoint.model import GenericPosition, SourcePosition
from airflow_provider_checkpoint.spark.sources import Slice, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

Offsets: TypeAlias = Mapping[str, Union[int, str, bool, "Offsets"]]

CONNECTOR = "python"
# Far more than any source needs; a manifest that says more is not one of ours.
_MAX_TEXT = 64 * 1024
_MAX_DEPTH = 8


class OffsetReader(Protocol):
    """What the user writes: input that can be read again between any two offsets, for as long as checkpoints last."""

    def initial(self) -> Offsets:
        """Where a fresh start begins."""

    def latest(self, start: Offsets) -> Offsets:
        """How far the next epoch may read: to the end of what is there, or less, so that epochs stay small.

        ``start`` itself if there is nothing new.
        """

    def read(self, spark: SparkSession, start: Offsets, end: Offsets) -> DataFrame:
        """The rows from ``start``, included, to ``end``, excluded: the same rows whenever it is asked."""


class OffsetSource(Source):
    """Input read through an :class:`OffsetReader`."""

    def __init__(self, name: str, reader: OffsetReader) -> None:
        self.name = name
        self._reader = reader

    def describe(self) -> Mapping[str, Any]:
        return {"kind": CONNECTOR, "name": self.name}

    def next_slice(self, start: SourcePosition | None) -> Slice | None:
        # Written down at once: a reader whose beginning moves must not be asked for it a second time.
        begin = to_position(self._reader.initial()) if start is None else start
        end = to_position(self._reader.latest(to_offsets(begin)))
        return None if end == begin else Slice(begin, end)

    def read(self, spark: SparkSession, part: Slice) -> DataFrame:
        if part.start is None:
            raise ConfigurationError("a slice of offsets has a start", subject=self.name)
        return self._reader.read(spark, to_offsets(part.start), to_offsets(part.end))


# -- positions ---------------------------------------------------------------------------------------------------


def to_position(offsets: Offsets) -> GenericPosition:
    """Offsets as a checkpoint keeps them. Raises ConfigurationError for what would not come back as it was."""
    _check(offsets, ConfigurationError)
    texts = {name: json.dumps(value, sort_keys=True, separators=(",", ":")) for name, value in offsets.items()}
    if any(len(text) > _MAX_TEXT for text in texts.values()):
        raise ConfigurationError(f"an offset takes more than {_MAX_TEXT} characters")
    return GenericPosition(connector_type=CONNECTOR, offsets=texts)


def to_offsets(position: SourcePosition) -> Offsets:
    """The offsets a checkpoint kept."""
    if not isinstance(position, GenericPosition) or position.connector_type != CONNECTOR:
        kind = position.connector_type if isinstance(position, GenericPosition) else position.type
        raise ConfigurationError(f"a source with offsets cannot start from a position of type {kind}")
    offsets = {name: _parse(name, text) for name, text in position.offsets.items()}
    _check(offsets, CorruptManifestError)
    return offsets


def _parse(name: str, text: str) -> Any:
    try:
        if len(text) <= _MAX_TEXT:
            return json.loads(text)
    except (ValueError, RecursionError):
        pass
    raise CorruptManifestError(f"offset {name!r} is no JSON value", subject=text[:80])


def _check(value: object, error: type[ConfigurationError | CorruptManifestError], depth: int = 0) -> None:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH and all(isinstance(name, str) for name in value):
        for inner in value.values():
            _check(inner, error, depth + 1)
    elif depth == 0 or not isinstance(value, int | str):
        raise error(
            "offsets must be names with whole numbers, texts, truth values or more such names", subject=repr(value)[:80]
        )


# -- Python data sources -----------------------------------------------------------------------------------------


class DataSourceReader:
    """Reads a Python data source in batches: its ``streamReader`` plans on the driver, executors read the partitions.

    The data source is never told that rows are done with (``commit``): a restart may go back behind them.

    :param kind: the class, as given to ``spark.dataSource.register``.
    :param options: its options.
    :param schema: the columns, if the data source does not know them.
    """

    def __init__(self, kind: type[DataSource], options: Mapping[str, str] | None = None, schema: str = "") -> None:
        self._kind = kind
        self._options = dict(options or {})
        self._schema = schema
        self._stream: DataSourceStreamReader | None = None

    def initial(self) -> Offsets:
        return self._planner().initialOffset()

    def latest(self, start: Offsets) -> Offsets:
        planner = self._planner()
        # Before Spark 4.2 it took no arguments, and such data sources still run.
        if inspect.signature(planner.latestOffset).parameters:
            return planner.latestOffset(dict(start), planner.getDefaultReadLimit())
        return planner.latestOffset()  # type: ignore[call-arg]  # the older form

    def read(self, spark: SparkSession, start: Offsets, end: Offsets) -> DataFrame:
        between = _between(self._kind)
        spark.dataSource.register(between)
        reader = spark.read.format(between.name()).options(**self._options)
        if self._schema:
            reader = reader.schema(self._schema)
        return reader.option(_START, json.dumps(start)).option(_END, json.dumps(end)).load()

    def _planner(self) -> DataSourceStreamReader:
        if self._stream is None:
            from pyspark.sql.datasource import CaseInsensitiveDict
            from pyspark.sql.types import StructType

            source = self._kind(CaseInsensitiveDict(self._options))
            schema = self._schema or source.schema()
            columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
            self._stream = source.streamReader(cast(StructType, columns))
        return self._stream


_START = "checkpoint.start"
_END = "checkpoint.end"


def _between(kind: type[DataSource]) -> type[DataSource]:
    """The same data source, read as a batch between the offsets in its options.

    Made here and not at the top, so that Spark ships it by value along with a class of the job's own file.
    """
    from pyspark.sql import datasource

    class Reader(datasource.DataSourceReader):
        def __init__(self, stream: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]) -> None:
            self._stream = stream
            self._start = start
            self._end = end

        def partitions(self) -> Any:
            return self._stream.partitions(self._start, self._end)

        def read(self, partition: Any) -> Any:
            return self._stream.read(partition)

    class Between(kind):  # type: ignore[valid-type, misc]  # a base class known only now
        @classmethod
        def name(cls) -> str:
            return f"{kind.name()}_between"

        def reader(self, schema: Any) -> datasource.DataSourceReader:
            start, end = json.loads(self.options[_START]), json.loads(self.options[_END])
            return Reader(self.streamReader(schema), start, end)

    return Between
