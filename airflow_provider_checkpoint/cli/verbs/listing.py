"""``list``: the checkpoints of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.facts import Entry, entries, proof_document, sink_documents, sink_summary
from airflow_provider_checkpoint.cli.text import age, ago, counted, iso, moment_text
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, UnreadableEntry

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import Checkpoint

_COLUMNS = (
    Column("ID", whole=True),
    Column("EPOCH", right=True, whole=True),
    Column("AGE", right=True, whole=True),
    Column("SIZE", right=True, whole=True),
    Column("TIMELINE"),
    Column("PROVEN"),
    Column("SINKS", optional=True),
    Column("PINS", optional=True),
)
_TRASH = (
    Column("IN THE TRASH", whole=True),
    Column("SINCE", right=True, whole=True),
    Column("SIZE", right=True, whole=True),
    Column("BY"),
    Column("WHY"),
)


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    store = survey(layout)
    found = entries(store, console.now)
    trash = [entry for entry in store.trash if entry.purged is None] if arguments.trash else None
    if console.json:
        document: dict[str, Any] = {
            "uri": layout.blobs.uri,
            "layout": layout.name,
            "timeline": store.lineage.current,
            "checkpoints": [_document(entry, console.now) for entry in found],
        }
        if trash is not None:
            document["trash"] = [*map(_trash_document, trash), *map(_trash_document, store.unreadable_trash)]
        console.document(document)
    else:
        _show(found, console)
        if trash is not None:
            _show_trash(trash, store.unreadable_trash, console)
    if store.lost_timeline is not None:
        console.complain(store.lost_timeline)
    return exits.FINE


# -- for programs ------------------------------------------------------------------------------------------------


def _document(entry: Entry, now: datetime) -> dict[str, Any]:
    """The same keys for every checkpoint; what an unreadable manifest does not tell is null."""
    checkpoint = entry.checkpoint
    known = {} if checkpoint is None else _known(checkpoint, now)
    return {
        "checkpoint_id": entry.id.value,
        "problem": entry.problem or None,
        **{key: known.get(key) for key in _KNOWN},
        "abandoned": entry.abandoned,
        "pins": list(entry.pins),
        "proven": proof_document(entry.proof),
    }


def _trash_document(entry: TrashEntry | UnreadableEntry) -> dict[str, Any]:
    """The same keys for every entry; what an unreadable one does not tell is null."""
    if isinstance(entry, TrashEntry):
        return entry.model_dump(mode="json", exclude={"purged"}) | {"problem": None}
    names = [name for name in TrashEntry.model_fields if name != "purged"]
    return dict.fromkeys(names) | {"checkpoint_id": entry.checkpoint_id.value, "problem": entry.error.message}


_KNOWN = ("epoch", "created", "age_seconds", "bytes", "artifacts", "timeline", "savepoint", "sinks")


def _known(checkpoint: Checkpoint, now: datetime) -> dict[str, Any]:
    return {
        "epoch": checkpoint.epoch,
        "created": iso(checkpoint.created),
        "age_seconds": (now - checkpoint.created).total_seconds(),
        "bytes": checkpoint.size,
        "artifacts": len(checkpoint.artifacts),
        "timeline": checkpoint.timeline,
        "savepoint": checkpoint.savepoint,
        "sinks": sink_documents(checkpoint),
    }


# -- for people --------------------------------------------------------------------------------------------------


def _show(found: Sequence[Entry], console: Console) -> None:
    if not found:
        console.line("No checkpoints.")
        return
    console.table(_COLUMNS, [_row(entry, console.now) for entry in found])
    unreadable = [entry for entry in found if entry.problem]
    if unreadable:
        console.line()
        for entry in unreadable:
            console.line(f"{entry.id}: {entry.problem}", "red")


def _row(entry: Entry, now: datetime) -> Row:
    checkpoint = entry.checkpoint
    proven = _proven(entry, now)
    pins = ", ".join(entry.pins)
    if checkpoint is None:
        return Row((str(entry.id), "", "", "", "", proven, "", pins), "red")
    timeline = f"{checkpoint.timeline} abandoned" if entry.abandoned else str(checkpoint.timeline)
    cells = (
        str(entry.id),
        str(checkpoint.epoch),
        age(checkpoint.created, now),
        format_size(checkpoint.size),
        timeline,
        proven,
        sink_summary(checkpoint),
        pins,
    )
    return Row(cells, "red" if entry.invalid else "dim" if entry.abandoned else "")


def _proven(entry: Entry, now: datetime) -> str:
    if entry.checkpoint is None:
        return "UNREADABLE"
    if entry.problem:
        return "INVALID manifest"
    if entry.proof is None:
        return "never"
    verdict = entry.proof.depth if entry.proof.valid else "INVALID"
    return f"{verdict} {ago(entry.proof.proven, now)}"


def _show_trash(trash: Sequence[TrashEntry], unreadable: Sequence[UnreadableEntry], console: Console) -> None:
    console.line()
    if not trash and not unreadable:
        console.line("The trash is empty.")
        return
    rows = [
        Row(
            (
                str(entry.checkpoint_id),
                moment_text(entry.trashed),
                format_size(entry.size),
                entry.by,
                "; ".join(entry.reasons),
            )
        )
        for entry in trash
    ]
    rows += [Row((str(entry.checkpoint_id), "", "", "", "UNREADABLE"), "red") for entry in unreadable]
    console.table(_TRASH, rows)
    console.note(f"{counted(len(trash), 'checkpoint')} can be undeleted until a sweep.")
    for entry in unreadable:
        console.complain(entry.error)
