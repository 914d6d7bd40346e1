"""The page of one checkpoint: what it is, what is known of it, and what can be done with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli.text import counted, moment_text
from airflow_provider_checkpoint.lifecycle.records import Proof, read_proof
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.model import Depth, Severity
from airflow_provider_checkpoint.reports.markup import Html, Node, tag
from airflow_provider_checkpoint.reports.parts import (
    SiteLinks,
    alarm,
    anchor,
    and_more,
    badge,
    facts,
    section,
    short,
    table,
    watermark_text,
    when,
)
from airflow_provider_checkpoint.reports.positions import Stand, stands
from airflow_provider_checkpoint.reports.views import PipelineView, Point, State, time_of

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import Checkpoint
    from airflow_provider_checkpoint.reports.gather import Facts

_ARTIFACTS = 50
_POSITIONS = 100
_ISSUES = 50


@dataclass(frozen=True, slots=True)
class Detail:
    """One checkpoint, as far as it can be told."""

    point: Point
    checkpoint: Checkpoint | None
    proof: Proof | None
    """With what was found."""
    now: datetime
    layout: str = ""
    parent_kept: bool = False
    """Whether the one that it goes on after is still here."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a recovery is started from here."""

    dag_id: str
    api: str
    """Airflow's own address for starting it, relative to the page."""
    then: str
    """Where its run is seen, relative to the page; the run's id is added."""
    refusal: str = ""
    """Why it cannot be started from here, if so."""
    note: str = ""
    restart_dags: tuple[str, ...] = ()
    """DAGs that write this pipeline."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What whoever looks may do."""

    may_change: bool
    recovery: Recovery
    connection: str
    pipeline: str | None


def find(view: PipelineView, facts_of: Facts, layout: Layout, checkpoint_id: str) -> Detail | None:
    """A checkpoint by its id; reads what was found when it was proven. None if there is none, or only in the trash."""
    point = next((each for each in view.points if each.id == checkpoint_id), None)
    if point is None:
        return None
    known = next(each for each in facts_of.store.known if str(each.id) == checkpoint_id)
    parent = None if known.checkpoint is None else known.checkpoint.parent
    kept = any(each.id == parent for each in facts_of.store.known)
    return Detail(point, known.checkpoint, read_proof(layout.blobs, known.id), view.now, layout.name, kept)


def checkpoint_page(detail: Detail, links: SiteLinks, actions: Actions) -> list[Html | None]:
    """The body of the page."""
    return [
        alarm(f"This checkpoint is invalid: {_worst(detail)}") if detail.point.state is State.INVALID else None,
        _about(detail, links),
        _findings(detail.proof),
        _recover(detail, actions),
        _validate(detail.point, links, actions),
        _pin(detail.point, links, actions),
        *([] if detail.checkpoint is None else _content(detail.checkpoint)),
    ]


def _worst(detail: Detail) -> str:
    found = [] if detail.proof is None else [each for each in detail.proof.issues if each.severity is Severity.ERROR]
    return found[0].message if found else detail.point.trouble


def _about(detail: Detail, links: SiteLinks) -> Html:
    point, checkpoint, now = detail.point, detail.checkpoint, detail.now
    proven: Node = "never"
    if point.proof is not None:
        proven = [
            f"{'valid' if point.proof.valid else 'invalid'} at depth {point.proof.depth}, ",
            when(point.proof.proven, now),
        ]
    stays = point.foreseen
    return facts(
        ("State", [badge(point.state), f", pinned as {', '.join(point.pins)}" if point.pins else ""]),
        ("Made", [f"{moment_text(point.at)}, ", when(point.at, now)]) if point.dated else None,
        ("Epoch", point.epoch) if point.epoch is not None else None,
        ("Timeline", f"{point.timeline}{' (left behind)' if point.abandoned else ''}") if point.timeline else None,
        ("Goes on after", _parent(detail, str(checkpoint.parent), links))
        if checkpoint is not None and checkpoint.parent is not None
        else None,
        ("Size", f"{format_size(point.size)}: full {format_size(point.full)}, delta {format_size(point.delta)}"),
        ("Proven", proven),
        ("Watermark", _watermark(checkpoint, checkpoint.watermark))
        if checkpoint is not None and checkpoint.watermark is not None
        else None,
        ("Retention", "; ".join(stays.now.reasons)) if stays is not None else None,
    )


def _parent(detail: Detail, parent: str, links: SiteLinks) -> Html:
    return anchor(links.checkpoint(parent) if detail.parent_kept else None, short(parent))


def _watermark(checkpoint: Checkpoint, value: int) -> str:
    return watermark_text(value, time_of(value, checkpoint.created))


def _findings(proof: Proof | None) -> Html | None:
    if proof is None or not proof.issues:
        return None
    rows: list[list[Node]] = [[each.severity, each.code, each.message] for each in proof.issues[:_ISSUES]]
    return section("Found by the last proof", table(("Severity", "Code", "What"), rows, "Findings"), name="findings")


# -- actions -----------------------------------------------------------------------------------------------------


#: Spark's own directories are gone back in by a copy; the others by a new timeline in place.
_COPIED = "structured_streaming"


def _recover(detail: Detail, actions: Actions) -> Html:
    point, recovery = detail.point, actions.recovery
    if point.state is State.INVALID:
        refusal = "An invalid checkpoint is no point to go back to. Choose an older one."
    else:
        refusal = recovery.refusal
    if refusal:
        return section("Start recovery from here", tag("p", refusal, class_="quiet"), name="recover")
    form = tag(
        "form",
        tag("p", f"Starts a run of {recovery.dag_id}, which proves this checkpoint and asks before anything changes."),
        tag("p", recovery.note, class_="trouble") if recovery.note else None,
        _field("Reason", tag("input", name="reason", type="text", required=True, maxlength=500)),
        _field(
            "Restart DAG",
            tag(
                "input",
                name="restart_dag",
                type="text",
                list="writers",
                value=next(iter(recovery.restart_dags), ""),
                maxlength=250,
            ),
            "Started afterwards. Empty: go back, but start nothing.",
        ),
        tag("datalist", [tag("option", value=each) for each in recovery.restart_dags], id="writers"),
        _field(
            "Parameters of the restart", tag("textarea", "{}", name="restart_conf", rows=3, spellcheck="false"), "JSON"
        ),
        _copies() if detail.layout == _COPIED else None,
        _check("approval", "Ask a person before anything changes", checked=True),
        _check("dry_run", "Dry run: only choose and explain", checked=False),
        _send("Start recovery from here"),
        data_act="recover",
        data_api=recovery.api,
        data_then=recovery.then,
        data_pipeline=actions.pipeline or "",
        data_connection=actions.connection,
        data_checkpoint=point.id,
    )
    return section("Start recovery from here", form, name="recover", folded=True)


def _copies() -> list[Html]:
    return [
        _field(
            "Copy to",
            tag("input", name="copy_to", type="text", required=True, maxlength=250),
            "The name of a new pipeline in the same store, for the copy that ends with this batch.",
        ),
        _field(
            "File sink",
            tag("input", name="file_sink", type="text", maxlength=1000),
            "The output of the query's file sink, which goes back as well. Empty: it has none.",
        ),
    ]


def _validate(point: Point, links: SiteLinks, actions: Actions) -> Html:
    if not actions.may_change:
        return _not_allowed("Validate now", actions, "validate")
    options = [tag("option", each.value, value=each.value, selected=each is Depth.CONTENT) for each in Depth]
    form = tag(
        "form",
        _field("Depth", tag("select", options, name="depth"), "restore decodes the state as a restart would."),
        _send("Validate now"),
        data_act="post",
        data_post=links.action("validate"),
        data_pipeline=actions.pipeline or "",
        data_checkpoint=point.id,
    )
    return section("Validate now", form, name="validate", folded=True)


def _pin(point: Point, links: SiteLinks, actions: Actions) -> Html:
    if not actions.may_change:
        return _not_allowed("Pin", actions, "pin")
    form = tag(
        "form",
        _field("Name", tag("input", name="name", type="text", required=True, maxlength=100)),
        _field("Reason", tag("input", name="reason", type="text", required=True, maxlength=500)),
        _field("Expires after", tag("input", name="expires", type="text", maxlength=20), "Such as 90d. Empty: never."),
        _send("Pin"),
        data_act="post",
        data_post=links.action("pin"),
        data_pipeline=actions.pipeline or "",
        data_checkpoint=point.id,
    )
    return section("Pin", form, name="pin", folded=True)


def _not_allowed(title: str, actions: Actions, name: str) -> Html:
    why = f"You need the right to edit the connection {actions.connection}."
    return section(title, tag("p", why, class_="quiet"), name=name)


def _field(label: str, control: Html, hint: str = "") -> Html:
    return tag("label", tag("span", label), control, tag("small", hint) if hint else None)


def _check(name: str, label: str, *, checked: bool) -> Html:
    return tag("label", tag("input", type="checkbox", name=name, checked=checked), f" {label}", class_="check")


def _send(label: str) -> Html:
    return tag("p", tag("button", label, type="submit"), " ", tag("output", "", role="status"))


# -- content -----------------------------------------------------------------------------------------------------


def _content(checkpoint: Checkpoint) -> list[Html | None]:
    return [_sources(checkpoint), _sinks(checkpoint), _artifacts(checkpoint)]


def _sources(checkpoint: Checkpoint) -> Html | None:
    rows: list[list[Node]] = [
        [name, position.type, each.partition, each.text]
        for name, position in sorted(checkpoint.sources.items())
        for each in (stands(position) or [Stand("", "", None)])
    ]
    if not rows:
        return None
    listed = table(("Source", "Kind", "Partition", "Offset"), rows[:_POSITIONS], "Where the sources stood")
    return section("Sources", listed, and_more(len(rows) - _POSITIONS), name="sources")


def _sinks(checkpoint: Checkpoint) -> Html | None:
    rows: list[list[Node]] = [
        [name, status.state, "" if status.epoch is None else str(status.epoch), status.message or ""]
        for name, status in sorted(checkpoint.sinks.items())
    ]
    if not rows:
        return None
    return section("Sinks", table(("Sink", "State", "Epoch", "Message"), rows, "What the sinks did"), name="sinks")


def _artifacts(checkpoint: Checkpoint) -> Html:
    rows: list[list[Node]] = [
        [tag("code", each.key), each.kind, "" if each.size is None else format_size(each.size), each.operator or ""]
        for each in checkpoint.artifacts[:_ARTIFACTS]
    ]
    total = counted(len(checkpoint.artifacts), "artifact")
    caption = total if len(checkpoint.artifacts) <= _ARTIFACTS else f"{_ARTIFACTS} of {total}"
    listed = table(("Artifact", "Kind", "Size", "Operator"), rows, caption)
    return section(f"Artifacts ({len(checkpoint.artifacts):,})", listed, name="artifacts", folded=True)
