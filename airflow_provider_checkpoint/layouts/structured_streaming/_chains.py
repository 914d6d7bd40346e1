"""Which state files a version of a store is loaded from. Pure: from names to names.

A version is loaded from the newest whole snapshot at or below it and every change after that. In checkpoint format 2
each attempt at a version has a unique id; the commit names the one that counts, and each change names those it builds
on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_checkpoint.layouts.structured_streaming._directory import StoreFiles

#: So many missing files are named; after that it is clear enough.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Chain:
    """What one version of one store is loaded from."""

    base: str | None
    """The snapshot; None where every change since the first version is there."""
    changes: tuple[str, ...]
    """Oldest first. Also those that are missing."""
    missing: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.changes if self.base is None else (self.base, *self.changes)

    @property
    def whole(self) -> bool:
        return not self.missing


def plain_chain(files: StoreFiles, version: int, *, rocksdb: bool, below: int | None = None) -> Chain:
    """The chain of a version in checkpoint format 1.

    :param below: take only snapshots of lower versions, as Spark does when it finds that one damaged.
    """
    snapshots = {number: key for (number, unique), key in files.zips.items() if unique is None}
    changes = {number: key for (number, unique), key in files.changelogs.items() if unique is None}
    extension = "changelog"
    if not rocksdb:
        snapshots, changes, extension = files.snapshots, files.deltas, "delta"
    highest = version if below is None else min(version, below - 1)
    base = max((number for number in snapshots if number <= highest), default=0)
    keys: list[str] = []
    missing: list[str] = []
    for number in range(version, base, -1):
        key = changes.get(number)
        if key is None:
            key = f"{files.folder}{number}.{extension}"
            missing.append(key)
        keys.append(key)
        if len(missing) == _NAMED:
            # The number of a batch is whatever a file is called; it must not decide how long this runs.
            break
    return Chain(snapshots.get(base), tuple(reversed(keys)), tuple(reversed(missing)))


def lineage_chain(
    files: StoreFiles,
    version: int,
    unique_id: str,
    lineage: Callable[[str], Sequence[tuple[int, str]]],
    *,
    below: int | None = None,
) -> Chain:
    """The chain of a version in checkpoint format 2.

    :param lineage: what a change log builds on: versions and their unique ids. Raises if it cannot be read.
    :param below: take only snapshots of lower versions.
    """
    ids = {version: unique_id}
    keys: list[str] = []
    number = version
    while number >= 1:
        unique = ids[number]
        base = files.zips.get((number, unique))
        if base is not None and (below is None or number < below):
            return Chain(base, tuple(reversed(keys)))
        change = files.changelogs.get((number, unique))
        if change is None:
            missing = f"{files.folder}{number}_{unique}.changelog"
            return Chain(None, (missing, *reversed(keys)), (missing,))
        keys.append(change)
        if number > 1 and number - 1 not in ids:
            # Older ones do not overrule: each log says what itself builds on.
            ids = dict(lineage(change)) | ids
            if number - 1 not in ids:
                missing = f"{files.folder}{number - 1}_*.zip"
                return Chain(None, tuple(reversed(keys)), (missing,))
        number -= 1
    return Chain(None, tuple(reversed(keys)))


def pick_unique_id(files: StoreFiles, version: int, ids: Sequence[str], place: int) -> str | None:
    """Which of the unique ids of a partition is that of a store: the one it has a file of, else the one in its place.

    :param place: the position of the store among those of its operator.
    """
    for unique in ids:
        if (version, unique) in files.zips or (version, unique) in files.changelogs:
            return unique
    return ids[place] if place < len(ids) else None
