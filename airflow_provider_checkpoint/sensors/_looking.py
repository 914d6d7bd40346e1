"""What the sensors look for, apart from how they wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError, NoRecoveryPointError
from airflow_provider_checkpoint.lifecycle.facts import look_at
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.lifecycle.timelines import History
from airflow_provider_checkpoint.lifecycle.validation import validate_examined
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId

FRESH = "fresh"
LATE = "late"
STALE = "stale"


def newest_committed(
    layout: Layout,
    *,
    min_epoch: int | None = None,
    min_timeline: int | None = None,
    after: datetime | None = None,
    depth: Depth = Depth.STRUCTURE,
) -> Checkpoint | None:
    """The newest checkpoint of the current history that fits and is proven so far; None if there is none."""
    history = History(layout.blobs)
    for checkpoint_id in layout.newest_first():
        known = look_at(layout, checkpoint_id)
        if known is None or known.checkpoint is None or known.problem:
            continue
        checkpoint = known.checkpoint
        if not history.contains(checkpoint.timeline, checkpoint.epoch):
            continue
        fits = (
            (min_epoch is None or checkpoint.epoch >= min_epoch)
            and (min_timeline is None or checkpoint.timeline >= min_timeline)
            and (after is None or checkpoint.created > after)
        )
        if not fits:
            # Those before it are of earlier epochs and times.
            return None
        if depth is Depth.STRUCTURE or validate_examined(layout, checkpoint, depth).valid:
            return checkpoint
    return None


def committed_since(layout: Layout, last: CheckpointId | None) -> list[Checkpoint]:
    """Checkpoints of the current history that came after one, oldest first. None: all of them.

    Ids are given out in order and never again, so that one that is gone, or was left behind by a recovery, still tells
    what is newer.
    """
    history = History(layout.blobs)
    newer = takewhile(lambda each: last is None or each > last, layout.newest_first())
    found = (look_at(layout, checkpoint_id) for checkpoint_id in reversed([*newer]))
    return [
        known.checkpoint
        for known in found
        if known is not None
        and known.checkpoint is not None
        and not known.problem
        and history.contains(known.checkpoint.timeline, known.checkpoint.epoch)
    ]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the newest point of recovery is."""

    state: str
    checkpoint_id: str
    age: timedelta | None
    """None if nothing can be restored at all."""
    words: str

    def answer(self, uri: str, pipeline: str | None) -> dict[str, str]:
        return {
            "state": self.state,
            "checkpoint_id": self.checkpoint_id,
            "age_seconds": "" if self.age is None else f"{self.age.total_seconds():.0f}",
            "message": self.words,
            "uri": uri,
            "pipeline": pipeline or "",
        }


def freshness(
    layout: Layout, *, warn_after: timedelta, fail_after: timedelta, depth: Depth, now: datetime | None = None
) -> Freshness:
    """Whether the newest checkpoint that can be restored is fresh, late or too old. None at all is too old."""
    if fail_after < warn_after:
        raise ConfigurationError(
            f"fail_after ({format_span(fail_after)}) comes before warn_after ({format_span(warn_after)})"
        )
    now = now or datetime.now(UTC)
    try:
        plan = choose(layout, Wish(depth=depth), now=now)
    except NoRecoveryPointError as error:
        return Freshness(STALE, "", None, error.message)
    assert plan.created is not None, "a fresh start was not asked for"
    age = now - plan.created
    state = FRESH if age <= warn_after else LATE if age <= fail_after else STALE
    words = f"the newest checkpoint that can be restored, {plan.chosen}, is {format_span(age)} old"
    if state is not FRESH:
        limit = warn_after if state is LATE else fail_after
        words += f"; allowed are {format_span(limit)}"
    return Freshness(state, str(plan.chosen), age, words)
