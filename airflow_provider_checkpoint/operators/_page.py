"""A recovery explained on a page, as Markdown: what a person needs to see before saying yes.

Names in a store are hostile input: every one is escaped, so that none can become a link, a picture or a table of its
own.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import ago, clean, counted, moment_text
from airflow_provider_checkpoint.lifecycle.spans import format_span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.lifecycle.plans import Distance, RecoveryPlan, RestorePlan

_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@])")
# Airflow's pages make links of plain text that looks like one, after escapes have been resolved. Behind these places
# goes a mark that joins words and is not seen.
_LINK = re.compile(r"(https?:(?=//)|www(?=\.)|@)", re.IGNORECASE)
_JOINER = "\N{WORD JOINER}"
_SHOWN = 10
_LONGEST = 300


def escaped(text: str) -> str:
    """Text that means itself in Markdown."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return _MARKUP.sub(r"\\\1", _LINK.sub(rf"\1{_JOINER}", clean(short)))


def page(
    plan: RecoveryPlan, restore: RestorePlan, others: Sequence[RecoveryPlan], *, pipeline: str, now: datetime
) -> str:
    """Everything about a choice: the point, what is done again, what happens to the sinks, what was passed over."""
    parts = [
        *_point(plan, pipeline, now),
        *_again(plan.distance),
        *_sinks(plan),
        *_left_behind(restore),
        *_passed_over(plan),
        *_others(others, now),
        *(f"**Warning:** {escaped(warning)}" for warning in plan.warnings),
    ]
    return "\n\n".join(parts)


def _point(plan: RecoveryPlan, pipeline: str, now: datetime) -> Iterator[str]:
    if plan.chosen is None:
        yield f"Pipeline **{escaped(pipeline)}** would start **from nothing**: no checkpoint fits. All state is lost."
        return
    yield f"Pipeline **{escaped(pipeline)}** would go back to checkpoint **{escaped(str(plan.chosen))}**."
    made = "" if plan.created is None else f"{moment_text(plan.created)} ({ago(plan.created, now)})"
    yield _table(
        ("", ""),
        [
            ("Made", made),
            ("Epoch, timeline", f"{plan.epoch}, {plan.timeline}"),
            ("Proven", f"to depth {plan.depth}, just now"),
            ("Rollback distance", _distance(plan)),
            ("Store", plan.uri),
        ],
    )


def _distance(plan: RecoveryPlan) -> str:
    distance = plan.distance
    if distance is None or not distance.checkpoints:
        return "none: it is the newest"
    told = [
        format_span(timedelta(seconds=distance.seconds)),
        counted(distance.epochs, "epoch"),
        counted(distance.checkpoints, "checkpoint"),
    ]
    if distance.events is not None:
        told.append(counted(distance.events, "event"))
    return f"{', '.join(told)} behind {plan.head}"


def _again(distance: Distance | None) -> Iterator[str]:
    if distance is None or not distance.sources:
        return
    rows = [
        (source, partition, f"{amount:,}")
        for source, partitions in distance.sources.items()
        for partition, amount in partitions.items()
    ]
    yield "### Read again"
    yield _table(("Source", "Partition", "Amount"), rows)


def _sinks(plan: RecoveryPlan) -> Iterator[str]:
    yield "### Sinks"
    if not plan.sinks:
        yield "Nothing to roll back."
        return
    rows = [
        (action.sink, action.action.replace("_", " "), _some(str(epoch) for epoch in action.epochs))
        for action in plan.sinks
    ]
    yield _table(("Sink", "Action", "Epochs"), rows)


def _left_behind(restore: RestorePlan) -> Iterator[str]:
    if restore.abandons:
        number = counted(len(restore.abandons), "checkpoint")
        yield f"Left behind on an abandoned branch: {number} ({escaped(_some(map(str, restore.abandons)))})."


def _passed_over(plan: RecoveryPlan) -> Iterator[str]:
    if not plan.skipped:
        return
    yield "### Passed over"
    yield _table(("Checkpoint", "Why"), [(str(one.checkpoint_id), one.reason) for one in plan.skipped[:_SHOWN]])
    if len(plan.skipped) > _SHOWN:
        yield f"and {len(plan.skipped) - _SHOWN:,} more; the log of the task before has all."


def _others(others: Sequence[RecoveryPlan], now: datetime) -> Iterator[str]:
    if not others:
        return
    yield "### Other points that can be restored"
    rows = [
        (str(plan.chosen), "" if plan.created is None else ago(plan.created, now), str(plan.epoch), _distance(plan))
        for plan in others
    ]
    yield _table(("Checkpoint", "Made", "Epoch", "Rollback distance"), rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    lines += [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _some(words: Iterable[str]) -> str:
    found = list(words)
    more = f", ... ({len(found)} in all)" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
