"""Each damage at least once on a real directory; the whole table is printed by the module ``damage``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_native.damage import RIGHT, Comparison, Row, attempt, cases
from tests.integration.spark_native.damages import DAMAGES
from tests.integration.spark_native.queries import QUERIES
from tests.integration.spark_native.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.spark_native.corpus import Corpus
    from tests.integration.spark_native.damages import Damage

# One session of Spark and one set of directories serve all of them, so they run in one process.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("native")]

#: Python workers make these slow: they are used where nothing else will do.
SLOW = ("process", "process_format2")


def chosen(corpus: Corpus) -> Iterator[tuple[Damage, str]]:
    """Each damage once, on the kind of directory that was used least."""
    used: Counter[str] = Counter(dict.fromkeys(SLOW, 1000))
    for damage in DAMAGES:
        fitting = [kind for one, kind in cases(corpus, QUERIES, [damage]) if one is damage]
        assert fitting, f"no directory for: {damage.name}"
        kind = min(fitting, key=lambda kind: (used[kind], kind))
        used[kind] += 1
        yield damage, kind


def test_healthy_directories_are_valid_and_what_spark_cannot_restart_rightly_is_not(corpus):
    for kind in QUERIES:
        for sums in (False, True):
            found = verdict(corpus.copy(kind, sums=sums))
            assert found.accepted, f"a healthy directory of kind {kind} was refused: {found}"
    rows = [attempt(corpus, damage, kind) for damage, kind in chosen(corpus)]
    assert [str(row) for row in rows if row.comparison is Comparison.WEAKER] == []
    assert _refused(rows) > len(rows) / 3


def _refused(rows: list[Row]) -> int:
    """How many damages kept Spark from going on: a table without any would prove nothing."""
    return sum(row.spark != RIGHT for row in rows)
