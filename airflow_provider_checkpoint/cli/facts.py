"""What ``list``, ``show`` and ``timeline`` tell of a checkpoint, gathered from a survey of the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli.text import iso
from airflow_provider_checkpoint.model import SinkState

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.lifecycle.facts import Survey
    from airflow_provider_checkpoint.lifecycle.records import Proof
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint and what the records beside it say."""

    id: CheckpointId
    checkpoint: Checkpoint | None
    problem: str
    """Why its manifest is unfit; empty if it is sound."""
    pins: tuple[str, ...]
    proof: Proof | None
    abandoned: bool

    @property
    def invalid(self) -> bool:
        return bool(self.problem) or (self.proof is not None and not self.proof.valid)


def entries(store: Survey, now: datetime) -> list[Entry]:
    """Every checkpoint, newest first."""
    return [
        Entry(
            id=known.id,
            checkpoint=known.checkpoint,
            problem=known.problem,
            pins=tuple(pin.name for pin in store.pins if pin.checkpoint_id == known.id and pin.holds(now)),
            proof=store.ledger.get(known.id),
            abandoned=known.checkpoint is not None and not store.on_branch(known.checkpoint),
        )
        for known in reversed(store.known)
    ]


def sink_summary(checkpoint: Checkpoint) -> str:
    """``2 committed``, or the states that need a look."""
    states = Counter(status.state for status in checkpoint.sinks.values())
    if set(states) == {SinkState.COMMITTED}:
        return f"{states[SinkState.COMMITTED]} committed"
    wanting = (SinkState.FAILED, SinkState.PENDING)
    return ", ".join(f"{states[state]} {state.upper()}" for state in wanting if states[state])


def sink_documents(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        name: {"state": status.state.value, "epoch": status.epoch, "message": status.message}
        for name, status in sorted(checkpoint.sinks.items())
    }


def proof_document(proof: Proof | None) -> dict[str, Any] | None:
    if proof is None:
        return None
    return {"depth": proof.depth.value, "valid": proof.valid, "at": iso(proof.proven)}
