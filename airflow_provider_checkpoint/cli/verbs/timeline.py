"""``timeline``: the branches of history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.text import moment_text, some_ids
from airflow_provider_checkpoint.lifecycle.facts import Survey, survey
from airflow_provider_checkpoint.model import FIRST_TIMELINE, Timeline

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import CheckpointId

_COLUMNS = (
    Column("TIMELINE", whole=True),
    Column("STATE"),
    Column("FORKS AFTER"),
    Column("CHECKPOINTS"),
    Column("ABANDONED", optional=True),
    Column("OPENED", optional=True),
    Column("BY, WHY", optional=True),
)
#: No timeline is moved further to the right than so many levels, lest nothing else fits.
_LEVELS = 6


def run(layout: Layout, _arguments: Namespace, console: Console) -> int:
    store = survey(layout)
    branches = branches_of(store)
    if console.json:
        console.document(
            {
                "uri": layout.blobs.uri,
                "layout": layout.name,
                "current": store.lineage.current,
                "timelines": [_document(branch) for branch in branches],
            }
        )
    else:
        console.table(_COLUMNS, [_row(branch) for branch in branches])
    if store.lost_timeline is not None:
        console.complain(store.lost_timeline)
    return exits.FINE


# -- branches ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Branch:
    """A timeline, where it stands in the tree, and its checkpoints."""

    number: int
    level: int
    record: Timeline | None
    """None for the first timeline of a store whose writers knew of none."""
    current: bool
    on_history: bool
    """Whether a part of it belongs to the history that the current timeline continues."""
    last_epoch: int | None
    """Up to where it belongs to that history; None for no limit."""
    checkpoints: tuple[CheckpointId, ...]
    abandoned: tuple[CheckpointId, ...]


def branches_of(store: Survey) -> list[Branch]:
    """Every timeline below the one it forks from, in the order of their numbers."""
    records = {timeline.number: timeline for timeline in store.timelines}
    parents = {number: record.parent for number, record in records.items()}
    for number in (*(checkpoint.timeline for checkpoint in store.checkpoints), *parents.values()):
        if number is not None:
            parents.setdefault(number, None)
    if not parents:
        parents[FIRST_TIMELINE] = None
    forked = {checkpoint.timeline for checkpoint in store.checkpoints if not store.on_branch(checkpoint)}
    return [_branch(store, number, level, records.get(number)) for number, level in _in_order(parents, forked)]


def _in_order(parents: dict[int, int | None], forked: set[int]) -> Iterator[tuple[int, int]]:
    """Numbers with their level in the tree, children right below their parent.

    Every restart opens a timeline, so most of them only go on where the last one ended. A level deeper is only what
    leaves something behind. No recursion: a chain may be long.
    """
    children: dict[int | None, list[int]] = {}
    for number, parent in sorted(parents.items(), reverse=True):
        children.setdefault(parent, []).append(number)
    # Records that name each other as parents hang on no root; they are told all the same.
    waiting = [(number, 0) for number in (*sorted(parents, reverse=True), *children.get(None, []))]
    seen: set[int] = set()
    while waiting:
        number, level = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        yield number, level
        below = children.get(number, [])
        deeper = level + 1 if len(below) > 1 or number in forked else level
        waiting.extend((child, deeper) for child in below)


def _branch(store: Survey, number: int, level: int, record: Timeline | None) -> Branch:
    mine = [checkpoint for checkpoint in store.checkpoints if checkpoint.timeline == number]
    return Branch(
        number=number,
        level=level,
        record=record,
        current=number == store.lineage.current,
        on_history=number in store.lineage.reach,
        last_epoch=store.lineage.reach.get(number),
        checkpoints=tuple(checkpoint.id for checkpoint in mine if store.on_branch(checkpoint)),
        abandoned=tuple(checkpoint.id for checkpoint in mine if not store.on_branch(checkpoint)),
    )


def _document(branch: Branch) -> dict[str, Any]:
    record = branch.record
    return {
        "number": branch.number,
        "current": branch.current,
        "on_history": branch.on_history,
        "last_epoch": branch.last_epoch,
        "checkpoints": [checkpoint_id.value for checkpoint_id in branch.checkpoints],
        "abandoned": [checkpoint_id.value for checkpoint_id in branch.abandoned],
        "record": None if record is None else record.model_dump(mode="json"),
    }


def _row(branch: Branch) -> Row:
    record = branch.record
    name = f"{'   ' * min(branch.level - 1, _LEVELS)}└─ {branch.number}" if branch.level else str(branch.number)
    if branch.current:
        state = "current"
    elif branch.on_history:
        state = f"counts up to epoch {branch.last_epoch}"
    else:
        state = "abandoned"
    told = "" if record is None else ": ".join(part for part in (record.owner, record.reason) if part)
    return Row(
        (
            name,
            state,
            "" if record is None else _origin(record),
            some_ids(branch.checkpoints),
            some_ids(branch.abandoned) if branch.abandoned else "",
            "" if record is None else moment_text(record.created),
            told,
        ),
        "bold" if branch.current else "" if branch.on_history else "dim",
    )


def _origin(record: Timeline) -> str:
    if record.fork_checkpoint is None:
        return "fresh start"
    return f"{record.fork_checkpoint} (timeline {record.parent}, epoch {record.fork_epoch})"
