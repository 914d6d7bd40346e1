"""The picture of a pipeline's history as SVG: checkpoints along time, a lane per branch, and what they weigh.

States differ in shape as well as in colour. Checkpoints that would lie on top of each other are drawn as one mark with
their number, so that the picture of thousands is as large as that of fifty.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import counted, moment_text
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.reports.markup import Html, Node, join, tag
from airflow_provider_checkpoint.reports.views import Fork, Point, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WIDTH, LEFT, RIGHT = 960, 96, 20
#: Places side by side: many as long as each checkpoint can have its own, else fewer, with room for numbers.
FINE, COARSE = 56, 32
TOP, LANE, BARS = 34, 40, 76
_FIRST, _LAST = LEFT + 12, WIDTH - RIGHT - 12
_MAX_LANES = 5
_MAX_FORKS = 12
#: Times are what manifests say, up to the ends of the calendar.
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_ROOM = timedelta(minutes=1)
_MAIN, _TRASH = "history", "trash"
#: What is shown of a mark that stands for several, the worst first.
_WORST = (State.INVALID, State.UNPROVEN, State.VALID, State.ABANDONED, State.TRASHED)


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time lies."""

    first: datetime
    last: datetime
    columns: int

    @classmethod
    def over(cls, points: Sequence[Point]) -> Scale:
        moments = [point.at for point in points]
        first, last = min(moments), max(moments)
        if first == last:
            # A single moment has a place too: in the middle.
            first, last = first - min(_ROOM, first - _EARLIEST), last + min(_ROOM, _LATEST - last)
        return cls(first, last, FINE if len(points) <= FINE else COARSE)

    def share(self, moment: datetime) -> float:
        return min(1.0, max(0.0, (moment - self.first) / (self.last - self.first)))

    def x(self, moment: datetime) -> float:
        return _FIRST + self.share(moment) * (_LAST - _FIRST)

    def column(self, moment: datetime) -> int:
        return min(self.columns - 1, int(self.share(moment) * self.columns))

    def place(self, points: Sequence[Point]) -> float:
        """Where a mark for some checkpoints of one column stands: a single one where it belongs, unless it is tight."""
        if len(points) == 1 and self.columns == FINE:
            return self.x(points[0].at)
        return _FIRST + (self.column(points[0].at) + 0.5) * (_LAST - _FIRST) / self.columns


@dataclass(frozen=True, slots=True)
class Mark:
    """Checkpoints of one lane that share a place."""

    lane: int
    points: tuple[Point, ...]
    x: float

    @property
    def state(self) -> State:
        states = {point.state for point in self.points}
        return next(state for state in _WORST if state in states)

    @property
    def pinned(self) -> bool:
        return any(point.pins for point in self.points)


def picture(
    points: Sequence[Point],
    trash: Sequence[Point],
    forks: Sequence[Fork],
    *,
    link: Callable[[Sequence[Point]], str | None],
) -> Html:
    """The picture.

    :param points: live checkpoints, newest first.
    :param link: where a mark leads; None for nowhere.
    """
    shown = [*points, *trash]
    if not shown:
        return tag("p", "Nothing to draw: no checkpoints.", class_="quiet")
    scale = Scale.over(shown)
    lanes = _lanes(points, trash, scale)
    marks = [mark for number, (_, members) in enumerate(lanes) for mark in _marks(number, members, scale)]
    height = TOP + LANE * len(lanes) + BARS + 34
    return tag(
        "svg",
        tag("title", "Checkpoints along time"),
        tag("desc", _in_words(points, trash, forks)),
        _hatching(),
        _axis(scale, height),
        [_lane(number, name, members, scale) for number, (name, members) in enumerate(lanes)],
        _branches(lanes, scale),
        _forks(forks, scale, TOP + LANE * len(lanes)),
        [_mark(mark, link) for mark in marks],
        _bars(points, scale, TOP + LANE * len(lanes) + 8),
        viewBox=f"0 0 {WIDTH} {height}",
        # Not an image: what is inside one is hidden from screen readers, and these are links.
        role="group",
        aria_label=_in_words(points, trash, forks),
        class_="picture",
    )


def legend() -> Html:
    """What the shapes mean."""
    states: list[Node] = [
        tag("li", _key(_shape(state, 9, 9)), f" {state}") for state in (State.VALID, State.UNPROVEN, State.INVALID)
    ]
    states += [
        tag("li", _key(_shape(State.VALID, 9, 9), _pin_ring(9, 9)), " pinned"),
        tag("li", _key(_shape(State.ABANDONED, 9, 9)), " abandoned"),
        tag("li", _key(_shape(State.TRASHED, 9, 9)), " in the trash"),
        tag("li", _key(tag("rect", x=3, y=3, width=12, height=12, class_="full")), " full"),
        tag("li", _key(tag("rect", x=3, y=3, width=12, height=12, class_="delta")), " delta"),
    ]
    return tag("ul", states, class_="legend", aria_label="Legend")


def _key(*shapes: Html) -> Html:
    return tag("svg", *shapes, viewBox="0 0 18 18", width=18, height=18, aria_hidden="true")


def _in_words(points: Sequence[Point], trash: Sequence[Point], forks: Sequence[Fork]) -> str:
    told = _counts(points) or "none"
    return f"{counted(len(points), 'checkpoint')} ({told}); {len(trash):,} in the trash; {counted(len(forks), 'fork')}"


def _counts(points: Sequence[Point]) -> str:
    counts = [(state, sum(point.state is state for point in points)) for state in _WORST]
    return ", ".join(f"{number:,} {state}" for state, number in counts if number)


# -- lanes -------------------------------------------------------------------------------------------------------


def _lanes(points: Sequence[Point], trash: Sequence[Point], scale: Scale) -> list[tuple[str, list[Point]]]:
    """The current history, then what was left behind, side branches that do not overlap in one lane, then the trash."""
    lanes = [(_MAIN, [point for point in points if not point.abandoned])]
    branches: dict[int | None, list[Point]] = {}
    for point in points:
        if point.abandoned:
            branches.setdefault(point.timeline, []).append(point)
    ends: list[int] = []
    side: list[list[Point]] = []
    for branch in sorted(branches.values(), key=lambda each: min(point.at for point in each)):
        first, last = (scale.column(edge(point.at for point in branch)) for edge in (min, max))
        free = next((number for number, end in enumerate(ends) if end < first - 1), None)
        if free is None and len(side) == _MAX_LANES:
            free = _MAX_LANES - 1
        if free is None:
            side.append(list(branch))
            ends.append(last)
        else:
            side[free] += branch
            ends[free] = max(ends[free], last)
    lanes += [("left behind", lane) for lane in side]
    return [*lanes, (_TRASH, list(trash))] if trash else lanes


def _y(lane: int) -> float:
    return TOP + LANE * lane + LANE / 2


def _lane(number: int, name: str, members: Sequence[Point], scale: Scale) -> Html:
    label = tag("text", name, x=LEFT - 8, y=_y(number) + 4, class_="label end")
    if name != _MAIN or not members:
        return label
    places = [scale.x(point.at) for point in members]
    return join(label, tag("line", x1=min(places), x2=max(places), y1=_y(number), y2=_y(number), class_="track"))


def _branches(lanes: Sequence[tuple[str, list[Point]]], scale: Scale) -> Iterator[Html]:
    """A curve from the history to each branch that left it, and along the branch."""
    main = lanes[0][1]
    for number, (name, members) in enumerate(lanes):
        if name in (_MAIN, _TRASH):
            continue
        for timeline in sorted({point.timeline or 0 for point in members}):
            branch = [point for point in members if (point.timeline or 0) == timeline]
            first, last = (scale.x(edge(point.at for point in branch)) for edge in (min, max))
            elder = min(point.epoch or 0 for point in branch)
            before = [scale.x(point.at) for point in main if (point.epoch or 0) < elder]
            start = min(max(before, default=first), first)
            y = _y(number)
            bend = f"M{start:.1f} {_y(0):.1f} C{start + 10:.1f} {y:.1f} {start + 4:.1f} {y:.1f} {first:.1f} {y:.1f}"
            yield tag("path", d=f"{bend} L{last:.1f} {y:.1f}", class_="track left")


def _forks(forks: Sequence[Fork], scale: Scale, bottom: float) -> Iterator[Html]:
    for fork in forks[-_MAX_FORKS:]:
        if fork.at < scale.first or fork.at - scale.last > (scale.last - scale.first) / 10:
            continue
        x = scale.x(fork.at)
        story = f"timeline {fork.timeline} opened {moment_text(fork.at)} after {fork.start or 'nothing'}: {fork.reason}"
        yield tag(
            "g",
            tag("title", story),
            tag("line", x1=x, x2=x, y1=TOP - 12, y2=bottom, class_="fork"),
            tag("text", f"t{fork.timeline}", x=x, y=TOP - 16, class_="label middle"),
        )


# -- marks -------------------------------------------------------------------------------------------------------


def _marks(lane: int, members: Sequence[Point], scale: Scale) -> Iterator[Mark]:
    columns: dict[int, list[Point]] = {}
    for point in sorted(members, key=lambda each: each.at):
        columns.setdefault(scale.column(point.at), []).append(point)
    for together in columns.values():
        yield Mark(lane, tuple(together), scale.place(together))


def _mark(mark: Mark, link: Callable[[Sequence[Point]], str | None]) -> Html:
    y = _y(mark.lane)
    drawn = join(
        tag("title", _story(mark.points)),
        # Larger than what is seen, for fingers.
        tag("circle", cx=mark.x, cy=y, r=11, class_="touch"),
        _group(mark, y) if len(mark.points) > 1 else _shape(mark.state, mark.x, y),
        _pin_ring(mark.x, y) if mark.pinned and len(mark.points) == 1 else None,
    )
    href = link(mark.points)
    return tag("g", drawn) if href is None else tag("a", drawn, href=href, aria_label=_story(mark.points))


def _story(points: Sequence[Point]) -> str:
    if len(points) > 1:
        span = f"{moment_text(points[0].at)} to {moment_text(points[-1].at)}"
        return f"{counted(len(points), 'checkpoint')}: {_counts(points)}; {span}"
    point = points[0]
    pinned = f", pinned as {', '.join(point.pins)}" if point.pins else ""
    epoch = "" if point.epoch is None else f", epoch {point.epoch}"
    return f"{point.id}: {point.state}{pinned}{epoch}, {moment_text(point.at)}, {format_size(point.size)}"


def _group(mark: Mark, y: float) -> Html:
    number = len(mark.points)
    width = 16 if number < 10 else 22 if number < 1000 else 25
    # Above the number, side by side, so that it can be read.
    both = mark.pinned and mark.state is State.INVALID
    invalid, pinned = (mark.x - 7, mark.x + 7) if both else (mark.x, mark.x)
    return join(
        tag("rect", x=mark.x - width / 2, y=y - 8, width=width, height=16, rx=4, class_=f"group {mark.state}"),
        tag("text", number, x=mark.x, y=y + 4, class_=f"count middle {mark.state}"),
        _shape(State.INVALID, invalid, y - 14, small=True) if mark.state is State.INVALID else None,
        _pin_ring(pinned, y - 15, 4.5) if mark.pinned else None,
    )


def _shape(state: State, x: float, y: float, *, small: bool = False) -> Html:
    size = 3.5 if small else 5.5
    match state:
        case State.VALID:
            return tag("circle", cx=x, cy=y, r=size, class_="mark valid")
        case State.UNPROVEN:
            return tag("circle", cx=x, cy=y, r=size - 0.75, class_="mark unproven")
        case State.INVALID:
            cross = f"M{x - size:.1f} {y - size:.1f} l{2 * size} {2 * size} m0 {-2 * size} l{-2 * size} {2 * size}"
            return tag("path", d=cross, class_="mark invalid")
        case State.ABANDONED:
            down = f"M{x - size:.1f} {y - size + 1:.1f} h{2 * size} l{-size} {2 * size - 1} z"
            return tag("path", d=down, class_="mark abandoned")
        case State.TRASHED:
            return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_="mark trashed")


def _pin_ring(x: float, y: float, half: float = 8.5) -> Html:
    return tag("path", d=f"M{x:.1f} {y - half:.1f} l{half} {half} l-{half} {half} l-{half} -{half} z", class_="pin")


# -- sizes and time ----------------------------------------------------------------------------------------------


def _bars(points: Sequence[Point], scale: Scale, top: float) -> Iterator[Html]:
    """What the newest checkpoint of each column needs to be restored: whole snapshots, and changes on top."""
    columns: dict[int, Point] = {}
    for point in sorted((each for each in points if each.dated and not each.abandoned), key=lambda each: each.at):
        columns[scale.column(point.at)] = point
    largest = max((point.size for point in columns.values()), default=0)
    yield tag("text", "size", x=LEFT - 8, y=top + BARS / 2, class_="label end")
    if not largest:
        return
    yield tag("text", format_size(largest), x=LEFT - 8, y=top + 10, class_="label end")
    width = 12.0
    for point in columns.values():
        x = scale.place([point]) - width / 2
        full, delta = (BARS * part / largest for part in (point.full, point.delta))
        story = tag(
            "title",
            f"{point.id}: full {format_size(point.full)}, delta {format_size(point.delta)}, of {moment_text(point.at)}",
        )
        yield tag(
            "g",
            story,
            tag("rect", x=x, y=top + BARS - full, width=width, height=max(full, 0.5), class_="full"),
            tag("rect", x=x, y=top + BARS - full - delta, width=width, height=delta, class_="delta") if delta else None,
        )


def _hatching() -> Html:
    stroke = tag("path", d="M0 6 L6 0", class_="hatch")
    pattern = tag("pattern", stroke, id="hatching", width=6, height=6, patternUnits="userSpaceOnUse")
    return tag("defs", pattern)


def _axis(scale: Scale, height: float) -> Iterator[Html]:
    base = height - 20
    yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="axis")
    yield tag("text", "UTC", x=LEFT - 8, y=height - 5, class_="label end")
    shape = _shape_of_time(scale.last - scale.first)
    for step in range(5):
        moment = scale.first + (scale.last - scale.first) * step / 4
        x = scale.x(moment)
        side = "middle" if 0 < step < 4 else "" if step == 0 else "end"
        text = moment.astimezone(UTC).strftime(shape)
        yield tag("line", x1=x, x2=x, y1=TOP - 8, y2=base, class_="grid")
        yield tag("text", text, x=x, y=height - 5, class_=f"label {side}".strip())


def _shape_of_time(length: timedelta) -> str:
    """How times are written such that five of them along this length differ."""
    if length > timedelta(days=5):
        return "%Y-%m-%d"
    return "%m-%d %H:%M" if length > timedelta(minutes=10) else "%m-%d %H:%M:%S"
