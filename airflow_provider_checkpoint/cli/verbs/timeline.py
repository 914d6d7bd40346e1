"""``timeline``: the branches of history; with ``--fork`` a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import moment_text
from airflow_provider_checkpoint.exceptions import ConfigurationError, CorruptError
from airflow_provider_checkpoint.lifecycle.facts import Survey, survey
from airflow_provider_checkpoint.lifecycle.records import AuditRun
from airflow_provider_checkpoint.lifecycle.timelines import lineage, open_timeline
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import FIRST_TIMELINE, Depth, Timeline

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId

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


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    if arguments.fork is not None:
        return _fork(layout, arguments, console)
    if arguments.yes:
        raise ConfigurationError("--yes without --fork", hint="Say after which checkpoint: --fork ID.")
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
            _some(branch.checkpoints),
            _some(branch.abandoned) if branch.abandoned else "",
            "" if record is None else moment_text(record.created),
            told,
        ),
        "bold" if branch.current else "" if branch.on_history else "dim",
    )


def _origin(record: Timeline) -> str:
    if record.fork_checkpoint is None:
        return "fresh start"
    return f"{record.fork_checkpoint} (timeline {record.parent}, epoch {record.fork_epoch})"


def _some(ids: Sequence[CheckpointId]) -> str:
    if not ids:
        return "none"
    return str(ids[0]) if len(ids) == 1 else f"{len(ids)}: {ids[0]} to {ids[-1]}"


# -- a new one ---------------------------------------------------------------------------------------------------


def _fork(layout: Layout, arguments: Namespace, console: Console) -> int:
    if arguments.yes and arguments.dry_run:
        raise ConfigurationError("--yes and --dry-run contradict each other", hint="Leave one of them out.")
    start = layout.load(layout.parse_id(arguments.fork))
    _require_sound(layout, start, Depth(arguments.depth or "content"))
    store = survey(layout)
    leaving = _left_behind(store, start, console.now)
    opened = _open(layout, start, arguments, console) if arguments.yes else None
    if console.json:
        console.document(
            {
                "uri": layout.blobs.uri,
                "layout": layout.name,
                "fork_checkpoint": start.id.value,
                "fork_epoch": start.epoch,
                "abandons": [checkpoint_id.value for checkpoint_id in leaving],
                "applied": opened is not None,
                "timeline": None if opened is None else opened.model_dump(mode="json"),
            }
        )
    elif opened is None:
        console.line(f"A new timeline would go on after checkpoint {start.id} (epoch {start.epoch}).", "bold")
        console.line(f"Every running writer would be refused. Checkpoints left behind: {_some(leaving)}.")
        console.line("Nothing was changed: this is a dry run. Add --yes to do it.")
    else:
        console.line(f"Timeline {opened.number} goes on after checkpoint {start.id} (epoch {start.epoch}).", "bold")
        console.line(f"Writers of earlier timelines are refused. Checkpoints left behind: {_some(leaving)}.")
    return exits.FINE


def _left_behind(store: Survey, start: Checkpoint, now: datetime) -> list[CheckpointId]:
    """Checkpoints of the present history that are none of the one that would go on after ``start``."""
    new = Timeline(
        number=store.lineage.current + 1, parent=start.timeline, fork_epoch=start.epoch, created=now, writer="nobody"
    )
    after = lineage([*store.timelines, new])
    return [one.id for one in store.checkpoints if store.on_branch(one) and not after.contains(one.timeline, one.epoch)]


def _require_sound(layout: Layout, start: Checkpoint, depth: Depth) -> None:
    """A timeline that begins at a broken checkpoint would leave nothing to restart from."""
    result = validate(layout, start.id, depth)
    if not result.valid:
        raise CorruptError(
            f"checkpoint {start.id} cannot be proven: {result.reason}",
            subject=layout.blobs.uri,
            hint="recover tells which checkpoint can.",
        )


def _open(layout: Layout, start: Checkpoint, arguments: Namespace, console: Console) -> Timeline:
    by = who(arguments)
    run = AuditRun(layout.blobs, "timeline", by=by, now=console.now)
    run.started(console.now, {"fork_checkpoint": start.id.value, "reason": arguments.reason})
    holder = open_timeline(
        layout.blobs,
        start=start,
        has_checkpoints=True,
        writer=f"command-{uuid4().hex}",
        now=console.now,
        owner=by,
        reason=arguments.reason,
    )
    # Only a hint, but one that readers of other programs follow.
    layout.move_pointer(start.id)
    run.finished(console.now, {"timeline": holder.timeline.number})
    return holder.timeline
