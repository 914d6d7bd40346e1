"""The page of one pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import counted, moment_text
from airflow_provider_checkpoint.cli.verbs.audit import outcome
from airflow_provider_checkpoint.lifecycle.retention import RULES
from airflow_provider_checkpoint.lifecycle.spans import format_size, format_span
from airflow_provider_checkpoint.reports.markup import Html, Node, join, tag
from airflow_provider_checkpoint.reports.parts import (
    Links,
    alarm,
    anchor,
    and_more,
    badge,
    facts,
    freshness,
    link_to,
    row,
    section,
    short,
    table,
    told,
    watermark_text,
    when,
)
from airflow_provider_checkpoint.reports.picture import legend, picture
from airflow_provider_checkpoint.reports.views import PipelineView, Point, State, going

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
    from airflow_provider_checkpoint.reports.gather import AuditedRun, Facts

#: Checkpoints on one page of the table.
PAGE = 50
#: Checkpoints that the preview of retention names.
_PREVIEWED = 100
#: How far ahead of ours the clock of a writer may be.
_SKEW = timedelta(minutes=5)
_POINTS = ("Checkpoint", "State", "Epoch", "Made", "Timeline", "Full", "Delta", "Proven", "Pins", "Retention")


@dataclass(frozen=True, slots=True)
class Shown:
    """Which part of a pipeline a page shows."""

    page: int | None = 1
    """None: all, as in a file."""
    window: tuple[datetime, datetime] | None = None
    """Only what was made between these times."""

    def of(self, points: Sequence[Point]) -> list[Point]:
        if self.window is None:
            return list(points)
        first, last = self.window
        return [point for point in points if first <= point.at <= last]


def pipeline_page(view: PipelineView, gathered: Facts, links: Links, shown: Shown) -> list[Html | None]:
    """The body of the page."""
    points, trash = shown.of(view.points), shown.of(view.trash)
    return [
        join(_alarms(view, links)),
        _tiles(view, links),
        section("History", _window(shown, links), _drawn(view, points, trash, links), name="history"),
        _points(view, points, links, shown),
        _sources(view),
        _retention(view, gathered.policy, links),
        _trash(view),
        _forks(view, links),
        _audit(gathered.audit, view.now),
    ]


# -- at a glance -------------------------------------------------------------------------------------------------


def _alarms(view: PipelineView, links: Links) -> list[Html]:
    found, newest = [], view.summary.newest
    if view.lost_timeline:
        found.append(alarm(f"Some checkpoints shown as abandoned may not be: {view.lost_timeline}"))
    if newest is not None and newest.state is State.INVALID:
        found.append(alarm("The newest checkpoint ", link_to(newest, links), f" is invalid: {newest.trouble}"))
    if view.summary.age is None:
        found.append(alarm("No checkpoint here can be restored, as far as is known."))
    usable = view.summary.usable
    if usable is not None and usable.at - view.now > _SKEW:
        made = f" was made {moment_text(usable.at)}, in the future: a clock is wrong, and freshness cannot be told."
        found.append(alarm("Checkpoint ", link_to(usable, links), made))
    return found


def _tiles(view: PipelineView, links: Links) -> Html:
    summary, now = view.summary, view.now
    proven: Node = "none"
    if summary.proven is not None:
        proven = [link_to(summary.proven, links), " ", when(summary.proven.at, now)]
    allowed = f"late after {format_span(view.windows.warn)}, stale after {format_span(view.windows.fail)}"
    if summary.usable is not None:
        proved = "" if summary.usable.state is State.VALID else ", unproven"
        allowed = f"can go back to {moment_text(summary.usable.at)}{proved}; {allowed}"
    invalid = f"{summary.invalid:,} invalid" if summary.invalid else "none known to be invalid"
    if view.trash:
        invalid += f"; {len(view.trash):,} in the trash, {format_size(sum(each.size for each in view.trash))}"
    return tag(
        "div",
        _tile("Freshness", freshness(summary), allowed),
        _tile("Newest proven", proven, "all its artifacts were seen" if summary.proven else "validate one to be sure"),
        _tile("Kept", f"{counted(summary.count, 'checkpoint')}, {format_size(summary.bytes)}", invalid),
        _tile("Last incident", told(summary.incident, links, now), f"current timeline: {view.timeline}"),
        class_="tiles",
    )


def _tile(name: str, value: Node, more: str) -> Html:
    return tag("div", tag("h3", name), tag("p", value, class_="value"), tag("p", more, class_="quiet"), class_="tile")


# -- history -----------------------------------------------------------------------------------------------------


def _window(shown: Shown, links: Links) -> Node:
    if shown.window is None:
        return None
    first, last = (moment_text(moment) for moment in shown.window)
    return tag("p", f"{first} to {last}. ", anchor(links.pipeline(), "Show all"), class_="quiet")


def _drawn(view: PipelineView, points: Sequence[Point], trash: Sequence[Point], links: Links) -> Html:
    def link(together: Sequence[Point]) -> str | None:
        if together[0].state is State.TRASHED:
            return None
        moments = [point.at for point in together]
        if len(together) == 1 or min(moments) == max(moments):
            return links.checkpoint(together[-1].id)
        return links.pipeline(window=(min(moments), max(moments)))

    drawn = picture(points, trash, view.forks, link=link)
    if not points and not trash:
        return drawn
    # It scrolls sideways in a narrow window, and whatever scrolls must be reachable by keyboard.
    return join(
        tag("div", drawn, class_="wide", tabindex=0, role="group", aria_label="Picture of the history"), legend()
    )


def _points(view: PipelineView, points: Sequence[Point], links: Links, shown: Shown) -> Html:
    if not points:
        return section("Checkpoints", tag("p", "No checkpoints.", class_="quiet"), name="checkpoints")
    pages = 1 if shown.page is None else -(-len(points) // PAGE)
    page = min(shown.page or 1, pages)
    part = points if shown.page is None else points[(page - 1) * PAGE : page * PAGE]
    first = (page - 1) * PAGE
    caption = f"{first + 1:,} to {first + len(part):,} of {counted(len(points), 'checkpoint')}, newest first"
    rows = [_point(point, view.now, links) for point in part]
    return section(
        "Checkpoints",
        table(_POINTS, rows, caption, name="points"),
        _pager(page, pages, links, shown) if pages > 1 else None,
        name="checkpoints",
    )


def _point(point: Point, now: datetime, links: Links) -> Html:
    href = links.checkpoint(point.id)
    # In a file, the row is what the picture leads to.
    anchored = href.removeprefix("#") if href is not None and href.startswith("#") else None
    name = short(point.id) if anchored else anchor(href, short(point.id))
    return row(
        _POINTS,
        [
            name,
            [badge(point.state), tag("span", f" {point.trouble}", class_="trouble") if point.trouble else None],
            "" if point.epoch is None else str(point.epoch),
            when(point.at, now) if point.dated else "unknown",
            "" if point.timeline is None else f"{point.timeline}{' abandoned' if point.abandoned else ''}",
            format_size(point.full),
            format_size(point.delta),
            "never" if point.proof is None else [f"{point.proof.depth} ", when(point.proof.proven, now)],
            ", ".join(point.pins),
            _verdict(point),
        ],
        id=anchored,
    )


def _verdict(point: Point) -> Node:
    if point.foreseen is None:
        return ""
    return tag("span", _goes(point.foreseen.goes_within), title="; ".join(point.foreseen.now.reasons))


def _goes(within: timedelta | None) -> str:
    if within is None:
        return "stays"
    return "goes now" if not within else f"goes within {format_span(within)}"


def _pager(page: int, pages: int, links: Links, shown: Shown) -> Html:
    near = sorted({1, pages, *range(max(1, page - 2), min(pages, page + 2) + 1)})
    items: list[Node] = []
    for before, each in zip([0, *near], near, strict=False):
        if each > before + 1:
            items.append(tag("li", "\N{HORIZONTAL ELLIPSIS}"))
        here = "page" if each == page else None
        items.append(tag("li", anchor(links.pipeline(page=each, window=shown.window), each, aria_current=here)))
    return tag("nav", tag("ul", items), class_="pager", aria_label="Pages of checkpoints")


# -- the rest ----------------------------------------------------------------------------------------------------


def _sources(view: PipelineView) -> Html:
    parts: list[Node] = []
    if view.watermark is not None:
        lag = "its unit is not known" if view.watermark.lag is None else format_span(view.watermark.lag)
        value = watermark_text(view.watermark.value, view.watermark.at)
        parts.append(facts(("Watermark", value), ("Lag when the checkpoint was made", lag)))
    if view.offsets:
        rows: list[list[Node]] = [
            [
                each.source,
                each.partition,
                each.text,
                "" if each.since_previous is None else f"{each.since_previous:+,}",
            ]
            for each in view.offsets[:_PREVIEWED]
        ]
        titles = ("Source", "Partition", "Offset", "Since the one before")
        parts.append(table(titles, rows, "Positions in the newest readable checkpoint"))
        parts.append(and_more(len(view.offsets) - _PREVIEWED))
    return section("Sources", parts or tag("p", "No positions are recorded.", class_="quiet"), name="sources")


def _retention(view: PipelineView, policy: RetentionPolicy, links: Links) -> Html:
    rules = ", ".join(
        f"{name}={getattr(policy, name)}" for name in (*RULES, "min_age") if getattr(policy, name) is not None
    )
    what = tag("p", f"What a prune by {rules} would take, if no checkpoint were added.", class_="quiet")
    found = going(view.points)
    if not found:
        return section("Retention", what, tag("p", "Nothing goes in the next 30 days."), name="retention")
    counts = facts(*((_goes(within), _together(points)) for within, points in found.items()))
    flat = [(within, point) for within, points in found.items() for point in points]
    rows: list[list[Node]] = [
        [link_to(point, links), _goes(within), format_size(point.size), point.foreseen.why if point.foreseen else ""]
        for within, point in flat[:_PREVIEWED]
    ]
    titles = ("Checkpoint", "When", "Size", "Why")
    listed = tag(
        "details",
        tag("summary", "Which, and why"),
        table(titles, rows, "What goes, and why"),
        and_more(len(flat) - _PREVIEWED),
    )
    return section("Retention", what, counts, listed, name="retention")


def _together(points: Sequence[Point]) -> str:
    return counted(len(points), "checkpoint")


def _trash(view: PipelineView) -> Html | None:
    unreadable = view.unreadable_trash
    if not view.trash and not unreadable:
        return None
    rows: list[list[Node]] = [
        [short(point.id), when(point.at, view.now), format_size(point.size), point.trouble]
        for point in view.trash[:_PREVIEWED]
    ]
    listed = table(("Checkpoint", "Since", "Size", "Why"), rows, "Can be undeleted until a sweep") if rows else None
    more = and_more(len(view.trash) - _PREVIEWED)
    alarms = [alarm(f"{name}: {problem}") for name, problem in unreadable[:_PREVIEWED]]
    if unreadable:
        alarms.append(tag("p", "Nothing is swept, and no orphan removed, until this is mended.", class_="quiet"))
    title = f"Trash ({len(view.trash) + len(unreadable):,})"
    return section(title, *alarms, listed, more, name="trash", folded=not unreadable)


def _forks(view: PipelineView, links: Links) -> Html | None:
    if not view.forks:
        return None
    rows: list[list[Node]] = [
        [
            str(fork.timeline),
            when(fork.at, view.now),
            "nothing"
            if fork.start is None
            else anchor(links.checkpoint(fork.start) if fork.kept else None, short(fork.start)),
            counted(fork.left_behind, "checkpoint"),
            fork.owner,
            fork.reason,
        ]
        for fork in reversed(view.forks)
    ]
    titles = ("Timeline", "Opened", "Goes on after", "Left behind", "By", "Reason")
    return section("Recoveries", table(titles, rows, "When history went back", name="forks"), name="recoveries")


def _audit(audit: Sequence[AuditedRun], now: datetime) -> Html:
    if not audit:
        return section("Audit trail", tag("p", "Nothing was changed here.", class_="quiet"), name="audit")
    rows: list[list[Node]] = [
        [when(run.started.at, now), run.started.verb, run.started.by, _outcome(run), tag("code", run.started.run)]
        for run in audit
    ]
    listed = table(("Started", "Verb", "By", "Outcome", "Run"), rows, "Who changed what, newest first")
    return section("Audit trail", listed, name="audit")


def _outcome(run: AuditedRun) -> str:
    if run.finished is None:
        return "no end is recorded: interrupted, or still running"
    return outcome(run.finished.details)
