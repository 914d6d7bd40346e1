"""``show``: everything about one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.facts import Entry, entries, proof_document, sink_documents
from airflow_provider_checkpoint.cli.text import ago, counted, iso, moment_text
from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError
from airflow_provider_checkpoint.layouts._positions import to_offsets
from airflow_provider_checkpoint.lifecycle.facts import Survey, bases_of, decided, survey
from airflow_provider_checkpoint.lifecycle.records import read_proof
from airflow_provider_checkpoint.lifecycle.spans import format_size

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.records import Proof
    from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
    from airflow_provider_checkpoint.model import Artifact, Checkpoint, CheckpointId

_ARTIFACTS = (
    Column("ARTIFACT"),
    Column("KIND"),
    Column("OPERATOR", optional=True),
    Column("PARTITION", right=True, optional=True),
    Column("SIZE", right=True, whole=True),
)
_SOURCES = (Column("SOURCE"), Column("TYPE"), Column("POSITION"))
_SINKS = (Column("SINK"), Column("STATE"), Column("EPOCH", right=True, optional=True), Column("WHY", optional=True))
_ISSUES = 5


@dataclass(frozen=True, slots=True)
class About:
    """Everything about one checkpoint."""

    entry: Entry
    manifest: list[str]
    proof: Proof | None
    pointed_at: bool
    """Whether the pointer names it."""
    decided: bool
    """Whether its commit was decided."""
    needs: list[CheckpointId]
    """Checkpoints whose artifacts it needs."""
    needed_by: list[CheckpointId]
    """Checkpoints that need its artifacts."""


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    wanted = layout.parse_id(arguments.id)
    store = survey(layout)
    entry = next((entry for entry in entries(store, console.now) if entry.id == wanted), None)
    if entry is None:
        return _trashed(layout, store, wanted, console)
    about = About(
        entry=entry,
        manifest=layout.manifest_keys(wanted),
        # The listing of the ledger tells the verdict; what was found is read for this one only.
        proof=entry.proof and (read_proof(layout.blobs, wanted) or entry.proof),
        pointed_at=layout.read_pointer() == wanted,
        decided=entry.checkpoint is not None and decided(layout.blobs, entry.checkpoint),
        needs=[] if entry.checkpoint is None else sorted(bases_of(layout, entry.checkpoint)),
        needed_by=[other.id for other in store.checkpoints if wanted in bases_of(layout, other)],
    )
    if console.json:
        console.document({"uri": layout.blobs.uri, "layout": layout.name} | _document(about))
    else:
        _show(about, arguments.artifacts, console)
    return exits.FINDINGS if entry.problem else exits.FINE


# -- in the trash ------------------------------------------------------------------------------------------------


def _trashed(layout: Layout, store: Survey, wanted: CheckpointId, console: Console) -> int:
    trashed = next((one for one in store.trash if one.checkpoint_id == wanted and one.purged is None), None)
    if trashed is None:
        for unreadable in store.unreadable_trash:
            if unreadable.checkpoint_id == wanted:
                raise unreadable.error
        raise CheckpointNotFoundError(f"there is no checkpoint {wanted}", subject=layout.blobs.uri, hint=_nearby(store))
    if console.json:
        console.document({"uri": layout.blobs.uri, "layout": layout.name, "trash": trashed.model_dump(mode="json")})
    else:
        _show_trashed(trashed, console)
    return exits.FINE


def _nearby(store: Survey) -> str:
    if not store.known:
        return "The store holds none."
    return f"The store holds {len(store.known)}, from {store.known[0].id} to {store.known[-1].id}; list shows them."


def _show_trashed(trashed: TrashEntry, console: Console) -> None:
    console.line(f"Checkpoint {trashed.checkpoint_id} is in the trash", "bold")
    console.pairs(
        (
            ("since", f"{moment_text(trashed.trashed)} ({ago(trashed.trashed, console.now)})"),
            ("by", trashed.by),
            ("why", list(trashed.reasons)),
            ("size", format_size(trashed.size)),
            ("manifest", list(trashed.keys)),
        )
    )
    console.note(f"undelete {trashed.checkpoint_id} brings it back.")


# -- for programs ------------------------------------------------------------------------------------------------


def _document(about: About) -> dict[str, Any]:
    entry = about.entry
    proof = proof_document(about.proof)
    if proof is not None and about.proof is not None:
        proof["issues"] = [issue.model_dump(mode="json") for issue in about.proof.issues]
    document: dict[str, Any] = {
        "checkpoint_id": entry.id.value,
        "problem": entry.problem or None,
        "manifest": about.manifest,
        "pins": list(entry.pins),
        "proven": proof,
        "pointer": about.pointed_at,
        "needs": [one.value for one in about.needs],
        "needed_by": [one.value for one in about.needed_by],
    }
    if entry.checkpoint is not None:
        document |= _manifest_document(entry.checkpoint)
        document |= {"abandoned": entry.abandoned, "commit_decided": about.decided}
    return document


def _manifest_document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "epoch": checkpoint.epoch,
        "created": iso(checkpoint.created),
        "timeline": checkpoint.timeline,
        "parent": None if checkpoint.parent is None else checkpoint.parent.value,
        "bytes": checkpoint.size,
        "inline_bytes": checkpoint.inline_bytes,
        "watermark": checkpoint.watermark,
        "event_count": checkpoint.event_count,
        "pipeline_hash": checkpoint.pipeline_hash,
        "vnode_count": checkpoint.vnode_count,
        "savepoint": checkpoint.savepoint,
        "source_names": list(checkpoint.source_names),
        "sink_names": list(checkpoint.sink_names),
        "sources": {name: position.model_dump(mode="json") for name, position in sorted(checkpoint.sources.items())},
        "sinks": sink_documents(checkpoint),
        "artifacts": [
            {
                "path": artifact.key,
                "kind": artifact.kind.value,
                "operator": artifact.operator,
                "partition": artifact.partition,
                "bytes": artifact.size,
                "sha256": artifact.sha256,
            }
            for artifact in checkpoint.artifacts
        ],
    }


# -- for people --------------------------------------------------------------------------------------------------


def _show(about: About, limit: int, console: Console) -> None:
    entry, checkpoint = about.entry, about.entry.checkpoint
    console.line(f"Checkpoint {entry.id}", "bold")
    if entry.problem:
        console.line(f"Its manifest is unfit: {entry.problem}", "red")
    console.pairs([*_from_manifest(about, console.now), *_from_records(about, console.now)])
    if checkpoint is None:
        return
    if checkpoint.sources:
        console.heading("Sources")
        console.table(_SOURCES, [_source(name, checkpoint) for name in sorted(checkpoint.sources)])
    if checkpoint.sinks:
        console.heading("Sinks")
        console.table(_SINKS, [_sink(name, checkpoint) for name in sorted(checkpoint.sinks)])
    if checkpoint.artifacts:
        console.heading(counted(len(checkpoint.artifacts), "artifact").capitalize())
        console.table(_ARTIFACTS, [_artifact(artifact) for artifact in checkpoint.artifacts[:limit]])
        if len(checkpoint.artifacts) > limit:
            console.line(f"... and {len(checkpoint.artifacts) - limit:,} more (--artifacts)")


def _from_manifest(about: About, now: datetime) -> Iterator[tuple[str, str]]:
    checkpoint = about.entry.checkpoint
    if checkpoint is None:
        return
    yield "epoch", str(checkpoint.epoch)
    yield "made", f"{moment_text(checkpoint.created)} ({ago(checkpoint.created, now)})"
    yield "timeline", f"{checkpoint.timeline} (abandoned)" if about.entry.abandoned else str(checkpoint.timeline)
    yield "size", f"{format_size(checkpoint.size)} ({checkpoint.size:,} bytes, {checkpoint.inline_bytes:,} inline)"
    yield "savepoint", "yes: never removed automatically" if checkpoint.savepoint else ""
    yield "parent", _if_known(checkpoint.parent)
    yield "watermark", _if_known(checkpoint.watermark)
    yield "events", _if_known(checkpoint.event_count)
    yield "pipeline hash", _if_known(checkpoint.pipeline_hash)
    yield "vnodes", _if_known(checkpoint.vnode_count)
    yield "commit", "decided" if about.decided else ""


def _from_records(about: About, now: datetime) -> Iterator[tuple[str, str | Sequence[str]]]:
    yield "pins", list(about.entry.pins)
    yield "proven", _proven(about.proof, now)
    yield "pointer", "the pointer names it" if about.pointed_at else ""
    yield "needs", [str(one) for one in about.needs]
    yield "needed by", [str(one) for one in about.needed_by]
    yield "manifest", about.manifest


def _if_known(value: object) -> str:
    return "" if value is None else str(value)


def _proven(proof: Proof | None, now: datetime) -> list[str]:
    if proof is None:
        return ["never"]
    verdict = "valid" if proof.valid else "INVALID"
    found = [f"{issue.code}: {issue.message}" for issue in proof.issues[:_ISSUES]]
    more = [f"... and {len(proof.issues) - _ISSUES:,} more"] if len(proof.issues) > _ISSUES else []
    return [f"{verdict} at depth {proof.depth}, {ago(proof.proven, now)}", *found, *more]


def _source(name: str, checkpoint: Checkpoint) -> Row:
    kind, offsets = to_offsets(checkpoint.sources[name])
    return Row((name, kind, [f"{part} = {value}" for part, value in offsets.items()]))


def _sink(name: str, checkpoint: Checkpoint) -> Row:
    status = checkpoint.sinks[name]
    return Row((name, status.state.value, "" if status.epoch is None else str(status.epoch), status.message or ""))


def _artifact(artifact: Artifact) -> Row:
    return Row(
        (
            artifact.key,
            artifact.kind.value,
            artifact.operator or "",
            "" if artifact.partition is None else str(artifact.partition),
            "" if artifact.size is None else format_size(artifact.size),
        )
    )
