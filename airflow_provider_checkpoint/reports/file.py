"""The page of a pipeline as one file, for incidents and the artifacts of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import moment_text
from airflow_provider_checkpoint.reports.markup import document, tag
from airflow_provider_checkpoint.reports.parts import FileLinks
from airflow_provider_checkpoint.reports.pipeline import Shown, pipeline_page
from airflow_provider_checkpoint.reports.views import Windows, view

if TYPE_CHECKING:
    from airflow_provider_checkpoint.reports.gather import Facts


def report(facts: Facts, *, title: str, windows: Windows) -> str:
    """The whole page, with everything it needs inside. It shows all checkpoints and can do nothing."""
    shown = view(facts, windows)
    links = FileLinks([point.id for point in shown.points])
    told = f"{facts.uri}, layout {facts.layout}, as of {moment_text(facts.now)}"
    body = pipeline_page(shown, facts, links, Shown(page=None))
    return document(
        f"{title}: checkpoints", tag("h1", title), tag("p", told, class_="quiet"), *body, scripted=False, policy=True
    )
