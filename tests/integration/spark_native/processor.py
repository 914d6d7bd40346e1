"""A transformWithState query: a count per key in a value state, and the last values in a list state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


class Counter(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n LONG")
        self._values = handle.getListState("values", "value LONG")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        seen = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            for value in frame["value"]:
                self._values.appendValue((int(value),))
                seen += 1
        self._count.update((seen,))
        total = sum(value[0] for value in self._values.get())
        yield pd.DataFrame({"key": [key[0]], "n": [seen], "total": [total]})

    def close(self) -> None:
        """Nothing is held."""


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Counter(),
        outputStructType="key STRING, n LONG, total LONG",
        outputMode="Update",
        timeMode="None",
    )
