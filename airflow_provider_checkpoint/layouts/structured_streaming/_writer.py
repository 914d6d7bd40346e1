"""Which Spark wrote a directory, going by the settings that it fixes in the offset log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_STREAMING = "spark.sql.streaming."
#: Newest first: a setting that this version was the first to write down, and the versions it may be.
_SIGNS = (
    (f"{_STREAMING}statefulOperator.alwaysNullableOutput.enabled", (4, 3), "4.3 or later"),
    ("spark.sql.dropDuplicates.deterministicKeyOrder.enabled", (4, 3), "4.3 or later"),
    (f"{_STREAMING}stateStore.rocksdb.mergeOperatorVersion", (4, 2), "4.2"),
    (f"{_STREAMING}queryEvolution.enableSourceEvolution", (4, 2), "4.2"),
    (f"{_STREAMING}stateStore.encodingFormat", (4, 1), "4.0 or 4.1"),
    (f"{_STREAMING}stateStore.compression.codec", (3, 5), "3.x"),
)


@dataclass(frozen=True, slots=True)
class Writer:
    """The version of Spark that planned a batch."""

    newest: tuple[int, int] | None
    """The newest version it may be; None if nothing tells."""
    text: str

    @property
    def repairs_snapshots(self) -> bool:
        """Whether it may pass over a damaged snapshot and replay the changes before it, as 4.1 and later do."""
        return self.newest is None or self.newest >= (4, 1)


def writer_of(conf: Mapping[str, str]) -> Writer:
    for setting, newest, text in _SIGNS:
        if setting in conf:
            return Writer(newest, text)
    return Writer(None, "unknown")
