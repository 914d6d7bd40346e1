"""What the decoders answer with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import Issue

Lineage: TypeAlias = tuple[tuple[int, str], ...]
"""Version and unique id of the files a changelog builds on, in the order in which it names them: oldest first."""


@dataclass(frozen=True, slots=True)
class SstRef:
    """A large file of a RocksDB snapshot: what RocksDB calls it, what it is called in the store, how large it is."""

    local_name: str
    dfs_name: str
    """A bare name, never a path; the file lies in ``SSTs/`` or ``logs/`` beside the zip."""
    size: int


@dataclass(frozen=True, slots=True)
class ZipMetadata:
    """The member ``metadata`` of a RocksDB zip."""

    ssts: tuple[SstRef, ...] = ()
    logs: tuple[SstRef, ...] = ()
    num_keys: int | None = None
    """None where Spark did not count them (it writes -1)."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What reading one file told."""

    issues: tuple[Issue, ...] = ()
    unproven: tuple[str, ...] = ()
    """What could not be proven, in words: a helper is not installed, or the format has no checksum there."""
    lineage: Lineage = ()
    ssts: tuple[SstRef, ...] = ()
    logs: tuple[SstRef, ...] = ()
    num_keys: int | None = None
    records: int | None = None
    origin: tuple[int, int] | None = None
    """Of a table: the mark of the session of RocksDB that made it, and its number there."""


@dataclass(slots=True)
class Doubts:
    """Collects what could not be proven while a file is read; each statement once."""

    statements: list[str] = field(default_factory=list)

    def add(self, statement: str) -> None:
        if statement not in self.statements:
            self.statements.append(statement)
