"""Whole pages: a title, the way back, and a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import moment_text
from airflow_provider_checkpoint.reports.checkpoint import Actions, Detail, checkpoint_page
from airflow_provider_checkpoint.reports.markup import Node, document, tag
from airflow_provider_checkpoint.reports.overview import StoreRows, overview
from airflow_provider_checkpoint.reports.parts import SiteLinks, alarm, anchor, is_long, short
from airflow_provider_checkpoint.reports.pipeline import Shown, pipeline_page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.plugins.rights import Used
    from airflow_provider_checkpoint.plugins.stores import Looked

#: Seconds after which a page that waits for a store asks again.
AGAIN = 2


def pipelines(stores: Sequence[StoreRows], *, now: datetime) -> str:
    nothing = (
        "There is no checkpoint store that you may read. Add a connection of type Checkpoint Store under Admin,"
        " Connections, or ask for the right to read one."
    )
    slow = any(store.slow for store in stores)
    body = overview(stores, now=now, nothing=nothing)
    return document("Checkpoints", tag("h1", "Checkpoints"), *body, scripted=True, refresh=AGAIN if slow else None)


def pipeline(looked: Looked, *, base: str, connection: str, name: str | None, shown: Shown) -> str:
    links = SiteLinks(base, connection, name)
    title = name or connection
    facts = looked.facts
    told = f"{facts.uri}, layout {facts.layout}, as of {moment_text(facts.now)}"
    return document(
        f"{title}: checkpoints",
        _crumbs(anchor(links.overview(), "Checkpoints"), tag("code", connection)),
        tag("h1", title),
        tag("p", told, class_="quiet"),
        *pipeline_page(looked.view, facts, links, shown),
        scripted=True,
    )


def checkpoint(detail: Detail, actions: Actions, *, base: str) -> str:
    links = SiteLinks(base, actions.connection, actions.pipeline)
    name = actions.pipeline or actions.connection
    return document(
        f"{detail.point.id}: checkpoint of {name}",
        _crumbs(
            anchor(links.overview(), "Checkpoints"), tag("code", actions.connection), anchor(links.pipeline(), name)
        ),
        tag("h1", "Checkpoint ", short(detail.point.id)),
        tag("p", tag("code", detail.point.id), class_="quiet") if is_long(detail.point.id) else None,
        *checkpoint_page(detail, links, actions),
        scripted=True,
    )


def of_tasks(stores: Sequence[StoreRows], used: Sequence[Used], what: str, *, now: datetime, base: str) -> str:
    """The tab of a DAG or a run."""
    unknown = any(each.connection is None for each in used)
    note = tag("p", "Which pipelines other tasks work on is told by each run; see the tab of a run.", class_="quiet")
    nothing = f"No task of this {what} names a checkpoint store."
    body = [] if unknown and not stores else overview(stores, now=now, base=base, nothing=nothing)
    again = AGAIN if any(store.slow for store in stores) else None
    return document(f"Checkpoints of this {what}", *body, note if unknown else None, scripted=True, refresh=again)


def trouble(title: str, message: str, *, hint: str | None = None, again: bool = False, base: str = "") -> str:
    """Something stands in the way of the page that was asked for."""
    more: list[Node] = []
    if hint:
        more.append(tag("p", hint))
    if again:
        more.append(tag("p", "The question stands; this page looks again by itself.", class_="quiet"))
    back = _crumbs(anchor(base or "./", "Checkpoints"))
    return document(
        title, back, tag("h1", title), alarm(message), more, scripted=True, refresh=AGAIN if again else None
    )


def _crumbs(*parts: Node) -> Node:
    joined: list[Node] = []
    for part in parts:
        joined += [" / ", part] if joined else [part]
    return tag("nav", joined, class_="crumbs", aria_label="Where this is")
