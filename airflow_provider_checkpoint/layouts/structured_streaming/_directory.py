"""A checkpoint directory as one listing shows it: which files are there, sorted by what they are. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming import _names as names
from airflow_provider_checkpoint.layouts.structured_streaming._names import COMMITS, METADATA, OFFSETS, OperatorName

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobInfo

#: Of a log as long as its numbers let one expect, asynchronous progress leaves out at least this share.
_SPARSE_SHARE = 0.2


@dataclass(slots=True)
class StoreFiles:
    """The state files of one store in one partition, by version and, in checkpoint format 2, unique id."""

    folder: str
    deltas: dict[int, str] = field(default_factory=dict)
    snapshots: dict[int, str] = field(default_factory=dict)
    changelogs: dict[tuple[int, str | None], str] = field(default_factory=dict)
    zips: dict[tuple[int, str | None], str] = field(default_factory=dict)

    @property
    def is_rocksdb(self) -> bool:
        return bool(self.changelogs or self.zips)

    @property
    def versions(self) -> set[int]:
        return {*self.deltas, *self.snapshots, *(version for version, _ in (*self.changelogs, *self.zips))}


@dataclass(slots=True)
class Directory:
    """Everything in a directory, found in one pass over its listing."""

    files: dict[str, BlobInfo] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    sources: dict[str, dict[int, str]] = field(default_factory=dict)
    stores: dict[int, dict[tuple[int, str], StoreFiles]] = field(default_factory=dict)
    """Per operator: partition and name of the store."""
    operators: dict[int, dict[str, OperatorName]] = field(default_factory=dict)
    """Per operator: the files that describe it and its stores."""
    checksums: set[str] = field(default_factory=set)
    """Files that hold the checksum of another."""
    seals: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, listing: Iterable[BlobInfo], seals: Iterable[int] = ()) -> Directory:
        directory = cls(seals=set(seals))
        for info in listing:
            directory.files[info.key] = info
            if info.key.endswith(".crc"):
                directory.checksums.add(info.key)
            else:
                directory._sort_in(info.key)
        directory.offsets.sort()
        directory.commits.sort()
        return directory

    def _sort_in(self, key: str) -> None:
        if (number := names.log_number(key, OFFSETS)) is not None:
            self.offsets.append(number)
        elif (number := names.log_number(key, COMMITS)) is not None:
            self.commits.append(number)
        elif (source := names.source_name(key)) is not None:
            entries = self.sources.setdefault(source.source, {})
            if source.compact or source.number not in entries:
                entries[source.number] = key
        elif (state := names.state_name(key)) is not None:
            self._sort_in_state(key, state)
        elif (operator := names.operator_name(key)) is not None:
            self.operators.setdefault(operator.operator, {})[key] = operator

    def _sort_in_state(self, key: str, name: names.StateName) -> None:
        stores = self.stores.setdefault(name.operator, {})
        files = stores.setdefault((name.partition, name.store), StoreFiles(name.folder))
        if name.extension == "delta" and name.unique_id is None:
            files.deltas[name.version] = key
        elif name.extension == "snapshot" and name.unique_id is None:
            files.snapshots[name.version] = key
        elif name.extension == "changelog":
            files.changelogs[name.version, name.unique_id] = key
        elif name.extension == "zip":
            files.zips[name.version, name.unique_id] = key

    # -- the logs ------------------------------------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """Whether the logs look as asynchronous progress tracking leaves them: the same numbers left out of both.

        It is only for queries without state. A log that merely lost an entry is told apart by how few are left out: one
        alone is taken for lost.
        """
        if self.stores or not self.offsets or not self.commits:
            return False
        expected = self.offsets[-1] - self.offsets[0] + 1
        left_out = expected - len(self.offsets)
        same = set(self.offsets) - {self.offsets[-1]} <= set(self.commits) <= set(self.offsets)
        return same and left_out > 1 and left_out >= _SPARSE_SHARE * expected

    def previous(self, batch: int) -> int | None:
        """The batch whose offsets Spark reads along with those of ``batch``; None if there is none to read."""
        if batch == 0:
            return None
        if self.is_sparse:
            return max((number for number in self.offsets if number < batch), default=None)
        return batch - 1

    @property
    def retired(self) -> int | None:
        """A batch that Spark's own clean-up has reached: its commit still stands, but no offsets before its own.

        Every directory that has lived for longer than ``minBatchesToRetain`` batches has one at its lower end.
        """
        if len(self.commits) < 2 or not self.offsets or self.is_sparse:
            return None
        lowest = self.commits[0]
        return lowest if 0 < lowest <= self.offsets[0] else None

    @property
    def planned(self) -> list[int]:
        """Batches that were planned and not committed. Spark runs the last of them again, exactly as planned."""
        last = self.commits[-1] if self.commits else -1
        return [number for number in self.offsets if number > last]

    # -- life ----------------------------------------------------------------------------------------------------

    def newest_change(self) -> tuple[str, datetime] | None:
        """The file that the query wrote last, and when; None if the store tells no times.

        Of the commits only the last counts: an older one may have come back from the trash.
        """
        last = f"{COMMITS}/{self.commits[-1]}" if self.commits else None
        times = [
            (info.modified, key)
            for key, info in self.files.items()
            if info.modified is not None
            and (key in (last, METADATA) or key.startswith((f"{OFFSETS}/", "sources/", "state/")))
        ]
        if not times:
            return None
        moment, key = max(times)
        return key, moment
