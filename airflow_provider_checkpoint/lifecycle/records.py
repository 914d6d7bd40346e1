"""What the lifecycle writes down beside the checkpoints: pins, the ledger of proofs, the audit trail.

The trash is in ``trash``, timelines are in ``timelines``. All records are small, created and never edited, so no two
writers can disturb each other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue, Pin, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout

_RECORD_LIMIT = 16 * 1024 * 1024
_STAMP = "%Y%m%dT%H%M%S.%fZ"


def stamp(moment: datetime) -> str:
    """A time as part of an object name; sorts as text."""
    return moment.astimezone(UTC).strftime(_STAMP)


def parse_stamp(text: str) -> datetime:
    return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)


# -- pins --------------------------------------------------------------------------------------------------------


def pin_key(name: str) -> str:
    if not name or len(quote(name, safe="")) > 150:
        raise ConfigurationError(
            "a pin needs a name of 1 to 150 characters", subject=repr(name), hint="For example: before-migration."
        )
    # A name of dots only would be a folder of its own.
    return f"pins/{quote(name, safe='').replace('.', '%2E')}.json"


def read_pins(blobs: BlobStore) -> list[Pin]:
    """All pins, expired ones too, by name. An unreadable pin stops the caller: it may protect anything."""
    pins = []
    for info in blobs.list("pins"):
        if info.key.endswith(".json"):
            try:
                pins.append(parse_model(Pin, read_object(blobs, info.key, limit=_RECORD_LIMIT), subject=info.key))
            except BlobNotFoundError:
                continue
    return sorted(pins, key=lambda pin: pin.name)


def add_pin(blobs: BlobStore, pin: Pin) -> None:
    """Set a pin. The same name on another checkpoint is a conflict: a pin is a promise and does not move by itself."""
    key = pin_key(pin.name)
    outcome = blobs.create(key, pin.model_dump_json(indent=2).encode())
    if outcome.created:
        return
    existing = parse_model(Pin, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
    if existing.checkpoint_id != pin.checkpoint_id:
        raise CheckpointConflictError(
            f"the pin {pin.name!r} is on checkpoint {existing.checkpoint_id}",
            subject=blobs.uri,
            hint=f"Remove it first (unpin {pin.name}), or choose another name.",
        )


def remove_pin(blobs: BlobStore, name: str) -> Pin:
    """Remove a pin and return it."""
    key = pin_key(name)
    try:
        pin = parse_model(Pin, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
    except BlobNotFoundError:
        names = ", ".join(pin.name for pin in read_pins(blobs)) or "none"
        raise CheckpointNotFoundError(
            f"no pin named {name!r}", subject=blobs.uri, hint=f"Pins here: {names}."
        ) from None
    outcome = blobs.delete([key])[0]
    if outcome.error is not None:
        raise outcome.error
    return pin


# -- the ledger of proofs ----------------------------------------------------------------------------------------


class Proof(BaseModel):
    """What a validation found out about one checkpoint, and when."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint_id: CheckpointId
    depth: Depth
    valid: bool
    proven: AwareDatetime
    issues: list[Issue] = []


#: The name tells everything but the issues, so that one listing is the whole ledger.
_PROOF = re.compile(r"ledger/([^/]+)/(\d{8}T\d{6}\.\d{6}Z)-(structure|presence|content|restore)-(valid|invalid)\.json")


def read_ledger(blobs: BlobStore, layout: Layout) -> dict[CheckpointId, Proof]:
    """The latest proof per checkpoint, without its issues: one listing, no reads."""
    ledger: dict[CheckpointId, Proof] = {}
    for info in blobs.list("ledger"):
        match = _PROOF.fullmatch(info.key)
        if match is None:
            continue
        try:
            checkpoint_id = layout.parse_id(unquote(match[1]))
        except ConfigurationError:
            continue
        proof = Proof(
            checkpoint_id=checkpoint_id,
            depth=Depth(match[3]),
            valid=match[4] == "valid",
            proven=parse_stamp(match[2]),
        )
        if checkpoint_id not in ledger or proof.proven > ledger[checkpoint_id].proven:
            ledger[checkpoint_id] = proof
    return ledger


def add_proof(blobs: BlobStore, proof: Proof) -> None:
    """Record a proof, then drop older ones of the same checkpoint."""
    folder = f"ledger/{quote(str(proof.checkpoint_id), safe='')}"
    verdict = "valid" if proof.valid else "invalid"
    key = f"{folder}/{stamp(proof.proven)}-{proof.depth}-{verdict}.json"
    blobs.create(key, proof.model_dump_json(indent=2).encode())
    # Safe to remove: a newer proof of the same checkpoint stands. Failures are harmless, the newest counts.
    older = [info.key for info in blobs.list(folder) if info.key < key and _PROOF.fullmatch(info.key)]
    if older:
        blobs.delete(older)


def ledger_keys(blobs: BlobStore, checkpoint_id: CheckpointId) -> list[str]:
    return [info.key for info in blobs.list(f"ledger/{quote(str(checkpoint_id), safe='')}")]


def proof_of(checkpoint_id: CheckpointId, depth: Depth, issues: list[Issue], now: datetime) -> Proof:
    valid = all(issue.severity is not Severity.ERROR for issue in issues)
    return Proof(checkpoint_id=checkpoint_id, depth=depth, valid=valid, proven=now, issues=issues)


# -- the audit trail ---------------------------------------------------------------------------------------------


class AuditRecord(BaseModel):
    """One run that changed something. ``started`` without ``finished`` means that the run was interrupted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str
    verb: str
    phase: Literal["started", "finished"]
    at: AwareDatetime
    by: str
    details: dict[str, Any]


class AuditRun:
    """Writes the two records of a run: what it is about to do, before it does it, and what became of it."""

    def __init__(self, blobs: BlobStore, verb: str, *, by: str, now: datetime) -> None:
        self._blobs = blobs
        self._verb = verb
        self._by = by
        self._started = stamp(now)
        self.run = uuid4().hex[:12]

    def started(self, now: datetime, details: dict[str, Any]) -> None:
        self._write("started", now, details)

    def finished(self, now: datetime, details: dict[str, Any]) -> None:
        self._write("finished", now, details)

    def _write(self, phase: Literal["started", "finished"], now: datetime, details: dict[str, Any]) -> None:
        record = AuditRecord(run=self.run, verb=self._verb, phase=phase, at=now, by=self._by, details=details)
        # Two letters so that "started" sorts before "finished" within one run.
        order = "a" if phase == "started" else "b"
        key = f"audit/{self._started}-{self.run}-{self._verb}-{order}-{phase}.json"
        self._blobs.create(key, record.model_dump_json(indent=2).encode())


def read_audit(blobs: BlobStore, *, limit: int | None = None) -> Iterator[AuditRecord]:
    """Audit records, newest first. Unreadable ones are passed over: the trail informs, it decides nothing."""
    keys = sorted((info.key for info in blobs.list("audit") if info.key.endswith(".json")), reverse=True)
    for key in keys[:limit]:
        try:
            yield parse_model(AuditRecord, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
        except (BlobNotFoundError, CorruptManifestError):
            continue
