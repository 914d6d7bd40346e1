"""What is shown of a pipeline: frozen values, worked out from facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import on_one_line
from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK
from airflow_provider_checkpoint.model import ArtifactKind, Depth
from airflow_provider_checkpoint.reports.positions import stands

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_checkpoint.lifecycle.facts import Known, Survey
    from airflow_provider_checkpoint.lifecycle.pruning import Foreseen
    from airflow_provider_checkpoint.lifecycle.records import Proof
    from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId
    from airflow_provider_checkpoint.reports.gather import Facts


class State(StrEnum):
    """What a checkpoint is worth, as far as is known without looking at its artifacts."""

    VALID = "valid"
    """Shown to be whole: every artifact was there, at least."""
    UNPROVEN = "unproven"
    """Nothing speaks against it, and nobody has looked."""
    INVALID = "invalid"
    ABANDONED = "abandoned"
    """Left behind by a recovery."""
    TRASHED = "trashed"


class Fresh(StrEnum):
    FRESH = "fresh"
    LATE = "late"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Windows:
    """From which age on the newest point of recovery is late, and from which on stale."""

    warn: timedelta = timedelta(hours=1)
    fail: timedelta = timedelta(hours=6)

    def judge(self, age: timedelta | None) -> Fresh:
        if age is None or age > self.fail:
            return Fresh.STALE
        return Fresh.LATE if age > self.warn else Fresh.FRESH


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint, live or in the trash."""

    id: str
    state: State
    at: datetime
    """When it was made; of one in the trash, when it was put there; of an unreadable one, when its elder was made."""
    dated: bool = True
    """Whether ``at`` is when it was made."""
    epoch: int | None = None
    timeline: int | None = None
    abandoned: bool = False
    pins: tuple[str, ...] = ()
    full: int = 0
    """Bytes of whole snapshots it needs."""
    delta: int = 0
    """Bytes of changes on top of them."""
    proof: Proof | None = None
    trouble: str = ""
    """What is wrong with it."""
    foreseen: Foreseen | None = None

    @property
    def size(self) -> int:
        return self.full + self.delta


@dataclass(frozen=True, slots=True)
class Fork:
    """History began anew here: a recovery, or a writer that did not start from the newest checkpoint."""

    timeline: int
    at: datetime
    start: str | None
    """The checkpoint it goes on after; None for a start from nothing."""
    kept: bool
    """Whether that checkpoint is still here."""
    owner: str
    reason: str
    left_behind: int


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a source was read in the newest checkpoint."""

    source: str
    partition: str
    text: str
    offset: int | None
    """None: it is no number."""
    since_previous: int | None


@dataclass(frozen=True, slots=True)
class Watermark:
    value: int
    at: datetime | None
    """The time that it means; None if its unit cannot be told."""
    lag: timedelta | None
    """How far it was behind the clock when the checkpoint was made; None if its unit cannot be told."""


class Kind(StrEnum):
    """What happened, in words; the braces stand for the checkpoint."""

    INVALID = "{} is invalid"
    WENT_BACK = "went back to {}"
    FRESH_START = "started from nothing"


@dataclass(frozen=True, slots=True)
class Incident:
    at: datetime | None
    """None: nobody has dated it; it is still the case."""
    kind: Kind
    point: str | None
    """The checkpoint that it happened to."""
    kept: bool
    """Whether that checkpoint is still here."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A pipeline in one line."""

    fresh: Fresh
    age: timedelta | None
    """Of the newest checkpoint that nothing speaks against; None if there is none."""
    usable: Point | None
    """That one."""
    newest: Point | None
    """On the current history, whatever its state."""
    proven: Point | None
    count: int
    bytes: int
    invalid: int
    incident: Incident | None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """Everything the page of a pipeline shows."""

    uri: str
    layout: str
    now: datetime
    windows: Windows
    summary: Summary
    points: tuple[Point, ...]
    """Live ones, newest first."""
    trash: tuple[Point, ...]
    unreadable_trash: tuple[tuple[str, str], ...]
    """Checkpoints whose entry in the trash cannot be read, and why."""
    forks: tuple[Fork, ...]
    timeline: int
    """The current one."""
    lost_timeline: str
    """Why it cannot be told of some checkpoints whether they were abandoned; empty if it can."""
    offsets: tuple[Offset, ...]
    watermark: Watermark | None


def view(facts: Facts, windows: Windows) -> PipelineView:
    store = facts.store
    points = tuple(reversed(_dated([_point(facts, known) for known in store.known], facts.now)))
    live = [checkpoint for checkpoint in reversed(store.checkpoints) if store.on_branch(checkpoint)]
    forks = tuple(_forks(store))
    return PipelineView(
        uri=facts.uri,
        layout=facts.layout,
        now=facts.now,
        windows=windows,
        summary=_summary(facts, points, forks, windows),
        points=points,
        trash=tuple(_trashed(entry) for entry in _newest_first(store.trash) if entry.purged is None),
        unreadable_trash=tuple(
            (str(entry.checkpoint_id), on_one_line(str(entry.error))) for entry in store.unreadable_trash
        ),
        forks=forks,
        timeline=store.lineage.current,
        lost_timeline="" if store.lost_timeline is None else on_one_line(str(store.lost_timeline)),
        offsets=tuple(_offsets(live)),
        watermark=_watermark(live[0]) if live else None,
    )


# -- checkpoints -------------------------------------------------------------------------------------------------


def _point(facts: Facts, known: Known) -> Point:
    store, checkpoint = facts.store, known.checkpoint
    proof = store.ledger.get(known.id)
    shown = Point(
        id=str(known.id),
        state=_state(store, known),
        at=facts.now,
        dated=False,
        pins=tuple(pin.name for pin in store.pins if pin.checkpoint_id == known.id and pin.holds(facts.now)),
        proof=proof,
        trouble=known.problem or _found(proof),
        foreseen=facts.foreseen.get(known.id),
    )
    if checkpoint is None:
        return shown
    full, delta = _sizes(checkpoint)
    return replace(
        shown,
        at=checkpoint.created,
        dated=True,
        epoch=checkpoint.epoch,
        timeline=checkpoint.timeline,
        abandoned=not store.on_branch(checkpoint),
        full=full,
        delta=delta,
    )


def _state(store: Survey, known: Known) -> State:
    proof = store.ledger.get(known.id)
    if known.checkpoint is None or known.problem or (proof is not None and not proof.valid):
        return State.INVALID
    if not store.on_branch(known.checkpoint):
        return State.ABANDONED
    return State.VALID if proof is not None and proof.depth.includes(Depth.PRESENCE) else State.UNPROVEN


def _found(proof: Proof | None) -> str:
    return "" if proof is None or proof.valid else f"shown by a proof at depth {proof.depth}"


def _sizes(checkpoint: Checkpoint) -> tuple[int, int]:
    delta = sum(each.size or 0 for each in checkpoint.artifacts if each.kind is ArtifactKind.DELTA)
    return checkpoint.size - delta, delta


def _dated(points: Sequence[Point], now: datetime) -> list[Point]:
    """Give those that cannot be read the time of the one before, so that they have a place in the picture."""
    last = next((point.at for point in points if point.dated), now)
    dated = []
    for point in points:
        last = point.at if point.dated else last
        dated.append(point if point.dated else replace(point, at=last))
    return dated


def _newest_first(trash: Iterable[TrashEntry]) -> list[TrashEntry]:
    return sorted(trash, key=lambda entry: entry.trashed, reverse=True)


def _trashed(entry: TrashEntry) -> Point:
    return Point(
        id=str(entry.checkpoint_id),
        state=State.TRASHED,
        at=entry.trashed,
        dated=False,
        full=entry.size,
        trouble="; ".join(entry.reasons),
    )


# -- history -----------------------------------------------------------------------------------------------------


def _forks(store: Survey) -> Iterable[Fork]:
    here = {known.id for known in store.known}
    gone: set[CheckpointId] = set()
    for timeline in store.timelines:
        left = {
            each.id
            for each in store.checkpoints
            if each.timeline == timeline.parent
            and timeline.fork_epoch is not None
            and each.epoch > timeline.fork_epoch
            and each.created <= timeline.created
        } - gone
        gone |= left
        # Every start of a writer opens a timeline; one that goes on where the last one ended is no fork.
        if left or timeline.writer.startswith(RESTORE_MARK):
            start = timeline.fork_checkpoint
            yield Fork(
                timeline=timeline.number,
                at=timeline.created,
                start=None if start is None else str(start),
                kept=start in here,
                owner=timeline.owner,
                reason=timeline.reason,
                left_behind=len(left),
            )


def _offsets(live: Sequence[Checkpoint]) -> Iterable[Offset]:
    if not live:
        return
    newest, previous = live[0], live[1] if len(live) > 1 else None
    for source, position in sorted(newest.sources.items()):
        before = previous.sources.get(source) if previous is not None else None
        then = {} if before is None else {each.partition: each.number for each in stands(before)}
        for each in stands(position):
            earlier = then.get(each.partition)
            since = None if each.number is None or earlier is None else each.number - earlier
            yield Offset(source, each.partition, each.text, each.number, since)


def _watermark(newest: Checkpoint) -> Watermark | None:
    if newest.watermark is None:
        return None
    lag, at = _lag(newest.watermark, newest.created), time_of(newest.watermark, newest.created)
    return Watermark(newest.watermark, at, lag)


#: A watermark is believed to be a time if, in one of these units, it lies in the ten years before the checkpoint.
_PER_SECOND = (1_000, 1, 1_000_000)
_OLDEST = timedelta(days=3653)


def time_of(watermark: int, created: datetime) -> datetime | None:
    """The time that a watermark of a checkpoint means."""
    for unit in _PER_SECOND:
        lag = created.timestamp() - watermark / unit
        if -86_400 <= lag <= _OLDEST.total_seconds():
            return datetime.fromtimestamp(watermark / unit, UTC)
    return None


def _lag(watermark: int, created: datetime) -> timedelta | None:
    at = time_of(watermark, created)
    return None if at is None else max(timedelta(0), created - at)


# -- in one line -------------------------------------------------------------------------------------------------


def _summary(facts: Facts, points: Sequence[Point], forks: Sequence[Fork], windows: Windows) -> Summary:
    # Those whose manifest cannot be read have no timeline, and may well be of the current one.
    current = [point for point in points if not point.abandoned]
    usable = next((point for point in current if point.state in (State.VALID, State.UNPROVEN)), None)
    age = None if usable is None else max(timedelta(0), facts.now - usable.at)
    return Summary(
        fresh=windows.judge(age),
        age=age,
        usable=usable,
        newest=current[0] if current else None,
        proven=next((point for point in current if point.state is State.VALID), None),
        count=len(points),
        bytes=retained_bytes(facts.store.checkpoints),
        invalid=sum(point.state is State.INVALID for point in points),
        incident=_last_incident(points, forks),
    )


def retained_bytes(checkpoints: Iterable[Checkpoint]) -> int:
    """What some checkpoints take up together: what they share counts once."""
    sizes: dict[str, int] = {}
    inline = 0
    for checkpoint in checkpoints:
        sizes |= {each.key: each.size or 0 for each in checkpoint.artifacts}
        inline += checkpoint.inline_bytes
    return inline + sum(sizes.values())


def _last_incident(points: Sequence[Point], forks: Sequence[Fork]) -> Incident | None:
    """The newest of what was found invalid and what was gone back for."""
    found = [
        Incident(point.proof.proven if point.proof is not None else None, Kind.INVALID, point.id, kept=True)
        for point in points
        if point.state is State.INVALID
    ]
    found += [
        Incident(fork.at, Kind.WENT_BACK if fork.start else Kind.FRESH_START, fork.start, fork.kept) for fork in forks
    ]
    # What nobody has dated is still the case, so it counts as the newest.
    latest = datetime.max.replace(tzinfo=UTC)
    return max(found, key=lambda each: each.at or latest, default=None)


def going(points: Iterable[Point]) -> dict[timedelta, list[Point]]:
    """Which checkpoints go within which time, by what the policy says; zero for now."""
    found: dict[timedelta, list[Point]] = {}
    for point in points:
        if point.foreseen is not None and point.foreseen.goes_within is not None:
            found.setdefault(point.foreseen.goes_within, []).append(point)
    return dict(sorted(found.items()))
