"""What the lifecycle writes down beside the checkpoints: pins, the ledger of proofs, the audit trail.

The trash is in ``trash``, timelines are in ``timelines``. All records are small, created and never edited, so no two
writers can disturb each other; only a pin may be prolonged, by compare-and-swap.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue, Pin, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout

_RECORD_LIMIT = 16 * 1024 * 1024
_NAME_LIMIT = 150
_STAMP = "%Y%m%dT%H%M%S.%fZ"


def stamp(moment: datetime) -> str:
    """A time as part of an object name; sorts as text."""
    return moment.astimezone(UTC).strftime(_STAMP)


def parse_stamp(text: str) -> datetime:
    return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)


# -- pins --------------------------------------------------------------------------------------------------------


def pin_key(name: str) -> str:
    try:
        # A name of dots only would be a folder of its own.
        quoted = quote(name, safe="").replace(".", "%2E")
    except UnicodeEncodeError:
        quoted = ""
    if not 1 <= len(quoted) <= _NAME_LIMIT:
        raise ConfigurationError(
            f"a pin needs a name of 1 to {_NAME_LIMIT} plain characters (others count three or more)",
            subject=repr(name),
            hint="For example: before-migration.",
        )
    return f"pins/{quoted}.json"


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
    """Set a pin. Afterwards one of this name holds the checkpoint for at least as long as asked.

    The same name on another checkpoint is a conflict: a pin is a promise and does not move by itself.
    """
    key = pin_key(pin.name)
    while not blobs.create(key, pin.model_dump_json(indent=2).encode()).created:
        standing = blobs.stat(key)
        if standing is None:
            continue  # Removed since.
        existing = parse_model(Pin, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
        if existing.checkpoint_id != pin.checkpoint_id:
            raise CheckpointConflictError(
                f"the pin {pin.name!r} is on checkpoint {existing.checkpoint_id}",
                subject=blobs.uri,
                hint=f"Remove it first (unpin {pin.name}), or choose another name.",
            )
        if existing.expires is None or (pin.expires is not None and pin.expires <= existing.expires):
            return
        longer = existing.model_copy(update={"expires": pin.expires})
        version = standing.version if blobs.capabilities.compare_and_swap else None
        with suppress(BlobChangedError):
            blobs.replace(key, longer.model_dump_json(indent=2).encode(), expected=version)
            return


def find_pin(blobs: BlobStore, name: str) -> Pin:
    """The pin of a name; raises CheckpointNotFoundError, which tells the names there are."""
    key = pin_key(name)
    try:
        return parse_model(Pin, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
    except BlobNotFoundError:
        names = ", ".join(pin.name for pin in read_pins(blobs)) or "none"
        raise CheckpointNotFoundError(
            f"no pin named {name!r}", subject=blobs.uri, hint=f"Pins here: {names}."
        ) from None


def remove_pin(blobs: BlobStore, name: str) -> Pin:
    """Remove a pin and return it."""
    pin = find_pin(blobs, name)
    outcome = blobs.delete([pin_key(name)])[0]
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

    def replaces(self, earlier: Proof) -> bool:
        """Whether an earlier proof no longer counts: a shallow look undoes a deep one only if it found errors."""
        return self.depth.includes(earlier.depth) or not self.valid


#: The name tells everything but the issues, so that one listing is the whole ledger.
_PROOF = re.compile(
    r"ledger/([^/]+)/([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(structure|presence|content|restore)-(valid|invalid)\.json"
)


def read_ledger(blobs: BlobStore, layout: Layout) -> dict[CheckpointId, Proof]:
    """The proof that counts per checkpoint, without its issues: one listing, no reads."""
    found: dict[CheckpointId, list[Proof]] = {}
    for info in blobs.list("ledger"):
        proof = _proof_named(info.key, layout.parse_id)
        if proof is not None:
            found.setdefault(proof.checkpoint_id, []).append(proof)
    return {checkpoint_id: _that_counts(proofs) for checkpoint_id, proofs in found.items()}


def read_proof(blobs: BlobStore, checkpoint_id: CheckpointId) -> Proof | None:
    """The proof of one checkpoint that counts, with what was found; None if there is none that can be read."""
    proofs = _proofs_of(blobs, checkpoint_id)
    if not proofs:
        return None
    key = _proof_key(_that_counts(proofs))
    try:
        return parse_model(Proof, read_object(blobs, key, limit=_RECORD_LIMIT), subject=key)
    except (BlobNotFoundError, CorruptManifestError):
        return None


def add_proof(blobs: BlobStore, proof: Proof) -> None:
    """Record a proof, then drop those of the same checkpoint that it replaces."""
    blobs.create(_proof_key(proof), proof.model_dump_json(indent=2).encode())
    earlier = [each for each in _proofs_of(blobs, proof.checkpoint_id) if _order(each) < _order(proof)]
    # Safe to remove: they no longer count. Failures are harmless for the same reason.
    replaced = [_proof_key(each) for each in earlier if proof.replaces(each)]
    if replaced:
        blobs.delete(replaced)


def _proof_key(proof: Proof) -> str:
    verdict = "valid" if proof.valid else "invalid"
    return f"{_ledger_folder(proof.checkpoint_id)}/{stamp(proof.proven)}-{proof.depth}-{verdict}.json"


def _proof_named(key: str, parse_id: Callable[[str], CheckpointId]) -> Proof | None:
    """What the name of a record says, all but the issues; None if it is not a name that we would give."""
    match = _PROOF.fullmatch(key)
    if match is None:
        return None
    try:
        checkpoint_id, proven = parse_id(unquote(match[1])), parse_stamp(match[2])
    except (ConfigurationError, ValueError):
        return None  # No such id, or no such day.
    return Proof(checkpoint_id=checkpoint_id, depth=Depth(match[3]), valid=match[4] == "valid", proven=proven)


def _proofs_of(blobs: BlobStore, checkpoint_id: CheckpointId) -> list[Proof]:
    named = (_proof_named(key, lambda _: checkpoint_id) for key in ledger_keys(blobs, checkpoint_id))
    return [proof for proof in named if proof is not None]


def _that_counts(proofs: Iterable[Proof]) -> Proof:
    counts, *later = sorted(proofs, key=_order)
    for proof in later:
        counts = proof if proof.replaces(counts) else counts
    return counts


def _order(proof: Proof) -> tuple[datetime, int, bool]:
    return proof.proven, proof.depth.rank, not proof.valid


def _ledger_folder(checkpoint_id: CheckpointId) -> str:
    return f"ledger/{quote(str(checkpoint_id), safe='')}"


def ledger_keys(blobs: BlobStore, checkpoint_id: CheckpointId) -> list[str]:
    return [info.key for info in blobs.list(_ledger_folder(checkpoint_id))]


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
