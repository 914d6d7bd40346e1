"""A Python data source as a user writes it, for tests that read one."""

# ruff: noqa: N802 - methods of a Python data source have the names Spark gave them

from __future__ import annotations

import os

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from airflow_provider_checkpoint.spark.offset_source import DataSourceReader, OffsetSource


def letters(*, old_form: bool = False) -> type[DataSource]:
    """Rows i, letter i % 3, and who read it; two partitions per slice; a limit of rows in the options.

    Defined inside a function, as in a job's own file: Spark ships such classes by value.
    """

    class Part(InputPartition):
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

    class Reader(DataSourceStreamReader):
        def __init__(self, options) -> None:
            self._rows, self._limit = int(options["rows"]), int(options.get("perEpoch", 1000))

        def initialOffset(self):
            return {"part": {"next": 0, "closed": False}}

        def latestOffset(self, start, limit):
            return {"part": {"next": min(self._rows, start["part"]["next"] + self._limit), "closed": False}}

        def partitions(self, start, end):
            first, last = start["part"]["next"], end["part"]["next"]
            middle = (first + last) // 2
            return [Part(first, middle), Part(middle, last)]

        def read(self, partition):
            for number in range(partition.start, partition.end):
                yield number, "abc"[number % 3], os.getpid()

        def commit(self, end) -> None:
            raise AssertionError("a restart may go back behind this")

    class OldReader(Reader):
        def latestOffset(self):
            return {"part": {"next": self._rows, "closed": False}}

    class Letters(DataSource):
        @classmethod
        def name(cls) -> str:
            return "letters"

        def schema(self) -> str:
            return "i long, letter string, pid long"

        def streamReader(self, schema):
            return (OldReader if old_form else Reader)(self.options)

    return Letters


def source_of(rows: int, per_epoch: int = 1000, **more) -> OffsetSource:
    options = {"rows": str(rows), "perEpoch": str(per_epoch)}
    return OffsetSource("letters", DataSourceReader(letters(**more), options))
