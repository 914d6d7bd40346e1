"""Our verdict on damaged directories against what Spark makes of them.

::

    python -m tests.integration.spark_native.damage                      everything, as a Markdown table
    python -m tests.integration.spark_native.damage --kinds hdfs join    some kinds of directories
    python -m tests.integration.spark_native.damage --matching SST       some damages

Two questions are asked of us: whether the newest committed batch is valid at depth ``content``, and whether
``diagnose`` finds anything that keeps the query from going on. A directory is accepted if both answers are good.

Exits with 1 if we accepted what Spark refuses or restarts wrongly, or refused a healthy directory.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming._proofs import DOUBT
from tests.integration.spark_native.corpus import Corpus, make
from tests.integration.spark_native.damages import DAMAGES, Damage
from tests.integration.spark_native.directory import Directory
from tests.integration.spark_native.queries import QUERIES
from tests.integration.spark_native.running import make_session
from tests.integration.spark_native.verdict import Verdict, seal_newest, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HEALTHY = Damage("healthy", lambda _: None)
RIGHT, WRONG = "right", "wrong output"


class Comparison(StrEnum):
    AGREE = "agree"
    STRICTER = "stricter"
    """We refuse what Spark restarts rightly."""
    UNPROVEN = "unproven"
    """We said that a part could not be proven, since its codec has no checksum; Spark restarts wrongly, in silence."""
    WEAKER = "weaker"
    """We accept what Spark refuses, or restarts wrongly."""


@dataclass(frozen=True)
class Row:
    """One damage to one directory."""

    damage: str
    kind: str
    ours: Verdict
    spark: str
    """:data:`RIGHT`, :data:`WRONG`, or the name of Spark's error."""

    @property
    def comparison(self) -> Comparison:
        right = self.spark == RIGHT
        if self.ours.accepted == right:
            return Comparison.AGREE
        if not self.ours.accepted:
            return Comparison.STRICTER
        told = self.spark == WRONG and DOUBT in self.ours.warnings
        return Comparison.UNPROVEN if told else Comparison.WEAKER

    def __str__(self) -> str:
        batch = ", ".join(self.ours.errors) or "valid"
        if self.ours.warnings:
            batch += f" ({', '.join(self.ours.warnings)})"
        directory = ", ".join(self.ours.blocking) or "can go on"
        return f"| {self.damage} | {self.kind} | {batch} | {directory} | {self.spark} | {self.comparison} |"


def cases(corpus: Corpus, kinds: Iterable[str], damages: Iterable[Damage]) -> Iterator[tuple[Damage, str]]:
    """What can be done to which directory, healthy ones first."""
    kinds = list(kinds)
    for damage in (HEALTHY, *damages):
        for kind in kinds:
            if damage is HEALTHY or damage.can_happen(kind, Directory(corpus.directory(kind))):
                yield damage, kind


def attempt(corpus: Corpus, damage: Damage, kind: str) -> Row:
    """Damage a copy, judge it, and let Spark restart on it."""
    directory = corpus.copy(kind, sums=damage.sums)
    if damage.sealed:
        seal_newest(directory)
    damage.apply(Directory(directory))
    ours = verdict(directory)
    outcome = corpus.run(kind, directory)
    spark = outcome.error or (RIGHT if corpus.right(kind, outcome) else WRONG)
    # Spark may still be writing a snapshot there in the background.
    shutil.rmtree(directory.parent, ignore_errors=True)
    return Row(damage.name, kind, ours, spark)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    damages = [damage for damage in DAMAGES if options.matching in damage.name]
    rows = []
    with tempfile.TemporaryDirectory(prefix="damage-", ignore_cleanup_errors=True) as folder:
        corpus = make(make_session(), Path(folder), options.kinds)
        print("| damage | directory | newest batch | diagnosis | Spark's restart | comparison |")
        print("|---|---|---|---|---|---|")
        for damage, kind in cases(corpus, options.kinds, damages):
            rows.append(attempt(corpus, damage, kind))
            print(rows[-1], flush=True)
        corpus.spark.stop()
    counts = Counter(row.comparison for row in rows)
    print(f"\n{len(rows)} cases: " + ", ".join(f"{counts[each]} {each}" for each in Comparison))
    alarms = [row for row in rows if row.damage == HEALTHY.name and not row.ours.accepted]
    return 1 if counts[Comparison.WEAKER] or alarms else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.spark_native.damage", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="kind")
    parser.add_argument("--matching", default="", help="only damages whose name holds this")
    return parser


if __name__ == "__main__":
    sys.exit(main())
