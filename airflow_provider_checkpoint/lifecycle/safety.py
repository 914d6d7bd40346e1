"""All safety numbers in one place.

Nothing in this package removes data on the strength of a number that is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

#: No option, preset or caller can make the orphan search look at anything younger than this: a writer uploads artifacts
#: before it creates the manifest that names them, and until then they look like orphans.
ORPHAN_AGE_FLOOR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Safety:
    """How careful removal is. The defaults suit a pipeline that commits at least once an hour."""

    orphan_age: timedelta = timedelta(hours=24)
    """An object that no manifest names is an orphan only if it is older than this."""

    uncommitted_age: timedelta = timedelta(hours=24)
    """An artifact above the newest committed id may belong to a checkpoint being written: it must be at least so old,
    however short ``orphan_age`` is."""

    undo_window: timedelta = timedelta(hours=24)
    """For so long after a prune the checkpoint can be undeleted, and its artifacts stay."""

    commit_grace: timedelta = timedelta(hours=1)
    """A checkpoint whose sinks are pending may still be committing for so long; it is not judged before."""

    clock_skew: timedelta = timedelta(minutes=5)
    """If the store's clock and ours differ by more, ages mean nothing and nothing is removed by age."""

    plan_age: timedelta = timedelta(hours=24)
    """A plan older than this is not applied: too much may have changed since somebody looked at it."""

    max_orphan_share: float = 0.5
    """More than this share of all artifacts being orphans is more likely a mistake than litter: ask first."""

    few_orphans: int = 10
    """So few may go without asking, whatever their share: in a small store every one is a large share."""

    max_orphan_bytes: int | None = None
    """Likewise for their bytes, if set."""

    max_orphan_items: int = 100_000
    """At most so many objects in one plan, so that a plan fits into memory and a log; the next run goes on."""

    def effective_orphan_age(self) -> timedelta:
        return max(self.orphan_age, ORPHAN_AGE_FLOOR)


SAFE = Safety()
