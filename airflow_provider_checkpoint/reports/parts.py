"""Pieces that the pages share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_provider_checkpoint.cli.text import ago, moment_text, short_span
from airflow_provider_checkpoint.reports.markup import Html, Node, address, tag
from airflow_provider_checkpoint.reports.views import Fresh, Incident, Point, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from airflow_provider_checkpoint.reports.views import Summary

#: A sign beside each word, for whoever cannot tell the colours apart.
_SIGNS: dict[str, str] = {
    Fresh.FRESH: "\N{CHECK MARK}",
    Fresh.LATE: "\N{BLACK UP-POINTING TRIANGLE}",
    Fresh.STALE: "\N{MULTIPLICATION X}",
    State.VALID: "\N{BLACK CIRCLE}",
    State.UNPROVEN: "\N{WHITE CIRCLE}",
    State.INVALID: "\N{MULTIPLICATION X}",
    State.ABANDONED: "\N{BLACK DOWN-POINTING TRIANGLE}",
    State.TRASHED: "\N{WHITE SQUARE}",
}
#: Ids are long and alike at the front; this much of both ends tells them apart.
_ENDS = 8


class Links(Protocol):
    """Where things are found from a page; None for nowhere."""

    def pipeline(self, *, page: int = 1, window: tuple[datetime, datetime] | None = None) -> str | None: ...
    def checkpoint(self, checkpoint_id: str) -> str | None: ...
    def overview(self) -> str | None: ...


class SiteLinks:
    """Links between the pages in Airflow. All relative, so that they work below any path."""

    def __init__(self, base: str, connection: str, pipeline: str | None) -> None:
        self._base = base
        self._connection = connection
        self._pipeline = pipeline or None

    def pipeline(self, *, page: int = 1, window: tuple[datetime, datetime] | None = None) -> str:
        first, last = (None, None) if window is None else (moment.isoformat() for moment in window)
        number = None if page == 1 else page
        # "from" is a word of Python.
        query = {"pipeline": self._pipeline, "page": number, "from": first, "to": last}
        return address("store", self._connection, base=self._base, **query)

    def checkpoint(self, checkpoint_id: str) -> str:
        query = {"pipeline": self._pipeline, "id": checkpoint_id}
        return address("store", self._connection, "checkpoint", base=self._base, **query)

    def action(self, name: str) -> str:
        return address("store", self._connection, name, base=self._base)

    def overview(self) -> str:
        return self._base or "./"


class FileLinks:
    """Links within one file: to the row of a checkpoint."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._rows = {each: f"#c{number}" for number, each in enumerate(ids)}

    def pipeline(self, *, page: int = 1, window: tuple[datetime, datetime] | None = None) -> None:
        """A file has one page."""

    def checkpoint(self, checkpoint_id: str) -> str | None:
        return self._rows.get(checkpoint_id)

    def overview(self) -> None:
        """A file has no other."""


# -- words -------------------------------------------------------------------------------------------------------


def badge(word: Fresh | State, told: str = "", *, title: str | None = None) -> Html:
    sign = tag("span", _SIGNS[word], aria_hidden="true")
    return tag("span", sign, f" {told or word}", class_=f"badge {word}", title=title)


def freshness(found: Summary) -> Html:
    """Whether a pipeline can be recovered, and how old the point is."""
    if found.usable is None or found.age is None:
        return badge(found.fresh, "no recovery point")
    title = f"can go back to {moment_text(found.usable.at)}"
    return badge(found.fresh, f"{found.fresh}, {span(found.age)} old", title=title)


def is_long(identifier: str) -> bool:
    return len(identifier) > 2 * _ENDS + 4


def short(identifier: str) -> Node:
    """An id that fits a narrow column; the whole one shows on hovering."""
    if not is_long(identifier):
        return tag("code", identifier)
    return tag("code", f"{identifier[:_ENDS]}\N{HORIZONTAL ELLIPSIS}{identifier[-_ENDS:]}", title=identifier)


def link_to(point: Point | None, links: Links) -> Node:
    if point is None:
        return "none"
    return anchor(links.checkpoint(point.id), short(point.id))


def told(incident: Incident | None, links: Links, now: datetime) -> Node:
    """What happened last, and when."""
    if incident is None:
        return "none"
    point: Node = None
    if incident.point is not None:
        point = anchor(links.checkpoint(incident.point) if incident.kept else None, short(incident.point))
    before, _, after = incident.kind.partition("{}")
    return [before, point, f"{after} ", None if incident.at is None else when(incident.at, now)]


def anchor(href: str | None, *children: Node, **attributes: str | bool | None) -> Html:
    return tag("span", *children) if href is None else tag("a", *children, href=href, **attributes)


def when(moment: datetime, now: datetime) -> Html:
    return tag("time", ago(moment, now), datetime=moment.isoformat(), title=moment_text(moment))


def span(length: timedelta) -> str:
    return short_span(length.total_seconds())


def watermark_text(value: int, at: datetime | None) -> str:
    """As a time too, if it is one."""
    return str(value) if at is None else f"{moment_text(at)} ({value})"


# -- blocks ------------------------------------------------------------------------------------------------------


def table(titles: Sequence[str], rows: Iterable[Sequence[Node] | Html], caption: str, *, name: str = "") -> Html:
    """A table that becomes a list of cards in a narrow window. ``name`` is a class to find it by."""
    head = tag("thead", tag("tr", [tag("th", title, scope="col") for title in titles]))
    body = tag("tbody", [each if isinstance(each, Html) else row(titles, each) for each in rows])
    return tag("table", tag("caption", caption), head, body, class_=f"cards {name}".strip())


def row(titles: Sequence[str], cells: Sequence[Node], **attributes: str | None) -> Html:
    return tag(
        "tr",
        # What a cell holds stays together when it becomes a line of a card.
        [
            tag("td", tag("span", cell) if isinstance(cell, list) else cell, data_label=title)
            for title, cell in zip(titles, cells, strict=True)
        ],
        **attributes,
    )


def facts(*pairs: tuple[str, Node] | None) -> Html:
    """Names and values."""
    known = [pair for pair in pairs if pair is not None]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in known], class_="facts")


def section(title: str, *children: Node, name: str, folded: bool | None = None) -> Html:
    """A part of a page. ``folded``: whether it can be opened and closed, and how it is at first."""
    if folded is None:
        return tag("section", tag("h2", title), *children, id=name)
    return tag("details", tag("summary", tag("h2", title)), *children, id=name, open=not folded)


def and_more(number: int) -> Html | None:
    """Below a table that does not show all."""
    return tag("p", f"and {number:,} more", class_="quiet") if number > 0 else None


def alarm(*children: Node) -> Html:
    return tag("p", *children, class_="alarm", role="alert")
