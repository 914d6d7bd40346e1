"""Real directories of every kind, and what a restart on each of them must put out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from tests.integration.spark_native.queries import QUERIES, land
from tests.integration.spark_native.running import JVM_DIED, Outcome, revive, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Input that is there when the directories are made, and input that arrives before a restart.
BEFORE, AFTER = 5, 1


@dataclass
class Corpus:
    """Healthy directories. Only copies of them are touched."""

    root: Path
    spark: SparkSession
    truth: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """The output of every batch, by kind of directory, of a history without any damage."""
    restart: dict[str, set[int]] = field(default_factory=dict)
    """The batches that a restart of a healthy directory runs."""

    _copies: Iterator[int] = field(default_factory=count)

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    def directory(self, name: str) -> Path:
        return self.root / "made" / name / "checkpoint"

    def copy(self, name: str, *, sums: bool = False) -> Path:
        """A copy of a directory and of its output, as it would lie in an object store; ``sums`` keeps Hadoop's.

        Each has a place of its own: Spark keeps state in memory for a while, by the address of its directory.
        """
        target = self.root / "copies" / f"{next(self._copies):05}"
        shutil.copytree(
            self.directory(name).parent,
            target,
            ignore=None if sums else shutil.ignore_patterns(".*.crc"),
            copy_function=shutil.copyfile,
        )
        # transformWithState writes down where its schemas are; a copy that still named the old place would use it.
        for path in (target / "checkpoint").glob("state/*/_metadata/v2/[0-9]*"):
            text = path.read_text()
            path.write_text(text.replace(str(self.directory(name)), str(target / "checkpoint")))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        return target / "checkpoint"

    def run(self, name: str, directory: Path) -> Outcome:
        outcome = run(self.spark, QUERIES[name], self.landing, directory, directory.parent / "output")
        if outcome.error == JVM_DIED:
            self.spark = revive()
        return outcome

    def right(self, name: str, outcome: Outcome) -> bool:
        """Whether a restart ended well and put out what it should, batch by batch, and no batch too few."""
        truth = self.truth[name]
        same = all(truth.get(batch) == rows for batch, rows in outcome.batches.items())
        return outcome.error is None and same and self.restart[name] <= set(outcome.batches)


def make(spark: SparkSession, root: Path, names: Iterable[str]) -> Corpus:
    """Make one directory of each kind, let new input arrive, and learn from a copy what a restart puts out."""
    corpus = Corpus(root, spark)
    names = list(names)
    land(corpus.landing, 0, BEFORE)
    for name in names:
        corpus.truth[name] = _sound(name, corpus.run(name, corpus.directory(name)))
    land(corpus.landing, BEFORE, AFTER)
    for name in names:
        outcome = corpus.run(name, corpus.copy(name))
        corpus.truth[name] |= _sound(name, outcome)
        corpus.restart[name] = set(outcome.batches)
    return corpus


def _sound(name: str, outcome: Outcome) -> dict[int, list[str]]:
    assert outcome.error is None, f"{name}: {outcome.error} {outcome.message}"
    assert outcome.batches, f"{name}: no batch ran"
    return outcome.batches
