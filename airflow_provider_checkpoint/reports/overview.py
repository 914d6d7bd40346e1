"""The page of all pipelines: can each be recovered, to when, and what does it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.reports.markup import Html, Node, tag
from airflow_provider_checkpoint.reports.parts import (
    SiteLinks,
    alarm,
    anchor,
    freshness,
    link_to,
    table,
    told,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.reports.views import Summary

_TITLES = ("Pipeline", "Freshness", "Newest proven", "Kept", "Last incident")


@dataclass(frozen=True, slots=True)
class PipelineRow:
    pipeline: str | None
    """None: the store itself is one."""
    summary: Summary | None
    trouble: str = ""
    """Why there is no summary."""


@dataclass(frozen=True, slots=True)
class StoreRows:
    """The pipelines of one connection."""

    connection: str
    uri: str
    rows: tuple[PipelineRow, ...] = ()
    trouble: str = ""
    """Why there are none."""
    slow: bool = False
    """Whether an answer may still come."""


def overview(stores: Sequence[StoreRows], *, now: datetime, base: str = "", nothing: str) -> list[Html]:
    """The body of the page. ``nothing``: what to say if there is no store."""
    if not stores:
        return [tag("p", nothing, class_="quiet")]
    return [_store(store, now, base) for store in stores]


def _store(store: StoreRows, now: datetime, base: str) -> Html:
    body: Node = None
    if store.trouble:
        body = alarm(store.trouble)
    elif not store.rows:
        body = tag("p", "No pipelines yet.", class_="quiet")
    else:
        rows = [_row(each, SiteLinks(base, store.connection, each.pipeline), now) for each in store.rows]
        body = table(_TITLES, rows, counted(len(rows), "pipeline"), name="pipelines")
    title = tag("h2", tag("code", store.connection))
    return tag("section", title, tag("p", store.uri, class_="quiet") if store.uri else None, body)


def _row(each: PipelineRow, links: SiteLinks, now: datetime) -> list[Node] | Html:
    name = anchor(links.pipeline(), each.pipeline or "(the store itself)", class_="strong")
    found = each.summary
    if found is None:
        wrong = tag("td", each.trouble, class_="trouble", colspan=len(_TITLES) - 1, data_label="Trouble")
        return tag("tr", tag("td", name, data_label=_TITLES[0]), wrong)
    proven: Node = "none"
    if found.proven is not None:
        proven = [link_to(found.proven, links), " ", when(found.proven.at, now)]
    return [
        name,
        freshness(found),
        proven,
        kept(found),
        told(found.incident, links, now),
    ]


def kept(found: Summary) -> str:
    return f"{counted(found.count, 'checkpoint')}, {format_size(found.bytes)}"
