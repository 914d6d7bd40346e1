"""Two transformWithState queries.

One has a count per key in a value state, and the last values in a list state; the other has values that run out, and
timers.
"""

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


class Reminder(StatefulProcessor):
    """Counts in a value that lasts, marks a key in one that is gone by the next batch, and has a timer for that batch.

    So the output is the same whenever it runs.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n LONG", ttlDurationMs=24 * 3600 * 1000)
        self._mark = handle.getValueState("mark", "n LONG", ttlDurationMs=1)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        seen = self._seen() + sum(len(frame) for frame in rows)
        marked = self._mark.exists()
        self._count.update((seen,))
        self._mark.update((seen,))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield self._told(key, "rows", marked=marked)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        # A key that has rows in this batch was marked before its timers are looked at.
        yield self._told(key, "timer", marked=self._mark.exists())

    def _seen(self) -> int:
        return self._count.get()[0] if self._count.exists() else 0

    def _told(self, key: Any, what: str, *, marked: bool) -> pd.DataFrame:
        return pd.DataFrame({"key": [key[0]], "what": [what], "n": [self._seen()], "marked": [marked]})

    def close(self) -> None:
        """Nothing is held."""


def reminded(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Reminder(),
        outputStructType="key STRING, what STRING, n LONG, marked BOOLEAN",
        outputMode="Update",
        timeMode="ProcessingTime",
    )
