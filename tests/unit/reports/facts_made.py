"""Facts of stores that never were, for pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_checkpoint.lifecycle.facts import Known, Survey
from airflow_provider_checkpoint.lifecycle.pruning import Foreseen
from airflow_provider_checkpoint.lifecycle.records import AuditRecord, Proof
from airflow_provider_checkpoint.lifecycle.retention import Verdict
from airflow_provider_checkpoint.lifecycle.timelines import lineage
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
from airflow_provider_checkpoint.model import (
    Artifact,
    ArtifactKind,
    Checkpoint,
    CheckpointId,
    Depth,
    GenericPosition,
    Issue,
    Pin,
    SinkState,
    SinkStatus,
    Timeline,
)
from airflow_provider_checkpoint.reports.gather import USUAL_POLICY, AuditedRun, Facts

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def checkpoint(number: int, *, hours: float, **values: Any) -> Checkpoint:
    given = {
        "epoch": number,
        "created": NOW - timedelta(hours=hours),
        "artifacts": (
            Artifact(f"{number}/a.snap", size=1000),
            Artifact(f"{number}/b.delta", ArtifactKind.DELTA, size=200),
        ),
        "sources": {"orders": GenericPosition(offsets={"p0": str(number * 100)})},
        "watermark": int((NOW - timedelta(hours=hours, minutes=5)).timestamp() * 1000),
    }
    return Checkpoint(CheckpointId(number), **{**given, **values})


def facts(
    checkpoints: list[Checkpoint],
    *,
    invalid: tuple[int, ...] = (),
    proven: tuple[int, ...] = (),
    pins: tuple[Pin, ...] = (),
    timelines: tuple[Timeline, ...] = (),
    broken: tuple[int | str, ...] = (),
    trash: tuple[TrashEntry, ...] = (),
    foreseen: dict[CheckpointId, Foreseen] | None = None,
    audit: tuple[AuditedRun, ...] = (),
    uri: str = "memory://store",
) -> Facts:
    known = [Known(each.id, each) for each in checkpoints]
    known += [Known(CheckpointId(each), None, "unreadable") for each in broken]
    ledger = {CheckpointId(each): proof(each, valid=True) for each in proven}
    ledger |= {CheckpointId(each): proof(each, valid=False) for each in invalid}
    store = Survey(
        known=tuple(sorted(known, key=lambda each: each.id)),
        pins=pins,
        timelines=timelines,
        lineage=lineage(timelines),
        ledger=ledger,
        trash=trash,
    )
    return Facts(uri, "made", NOW, store, USUAL_POLICY, foreseen or {}, audit)


def proof(number: int | str, *, valid: bool, depth: Depth = Depth.PRESENCE, issue: str = "") -> Proof:
    return Proof(
        checkpoint_id=CheckpointId(number),
        depth=depth,
        valid=valid,
        proven=NOW - timedelta(minutes=30),
        issues=[Issue.error("code", issue)] if issue else [],
    )


def pin(name: str, number: int | str) -> Pin:
    return Pin(name=name, checkpoint_id=CheckpointId(number), owner="ada", reason="audit", created=NOW)


def fork(number: int, parent: int, start: int, *, minutes: int = 10, **words: str) -> Timeline:
    return Timeline(
        number=number,
        parent=parent,
        fork_checkpoint=CheckpointId(start),
        fork_epoch=start,
        created=NOW - timedelta(minutes=minutes),
        writer=words.pop("writer", f"restore-{number}"),
        **words,
    )


def hostile_facts(text: str) -> Facts:
    """Everything that a store can name is named so."""
    checkpoint_id = CheckpointId(text)
    made = Checkpoint(
        checkpoint_id,
        epoch=3,
        created=NOW - timedelta(hours=1),
        parent=CheckpointId(text),
        artifacts=(Artifact(text, size=10, operator=text),),
        sources={text: GenericPosition(connector_type=text, offsets={text: "7"})},
        sinks={text: SinkStatus(SinkState.FAILED, 3, text)},
        watermark=12,
    )
    record = AuditRecord(run=text, verb=text, phase="started", at=NOW, by=text, details={})
    done = record.model_copy(update={"phase": "finished", "details": {"timeline": text, "done": text}})
    timelines = (
        Timeline(number=1, created=NOW - timedelta(hours=2), writer=text),
        Timeline(
            number=2,
            parent=1,
            fork_checkpoint=checkpoint_id,
            fork_epoch=3,
            created=NOW,
            writer=f"restore-{text}",
            owner=text,
            reason=text,
        ),
    )
    entry = TrashEntry(
        checkpoint_id=CheckpointId(text + "t"), trashed=NOW, by=text, run=text, reasons=(text,), keys=(), artifacts=()
    )
    store = Survey(
        known=(Known(CheckpointId(" " + text), None, text), Known(checkpoint_id, made)),
        pins=(Pin(name=text, checkpoint_id=checkpoint_id, owner=text, reason=text, created=NOW),),
        timelines=timelines,
        lineage=lineage(timelines),
        ledger={checkpoint_id: proof(text, valid=False, issue=text)},
        trash=(entry,),
    )
    verdict = Foreseen(Verdict(checkpoint_id, keep=False, reasons=(text,)), timedelta(0), text)
    audit = (AuditedRun(record, done), AuditedRun(record, None))
    return Facts(text, text, NOW, store, USUAL_POLICY, {checkpoint_id: verdict}, audit)
