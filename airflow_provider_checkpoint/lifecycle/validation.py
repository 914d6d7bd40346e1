"""Proving checkpoints: one, all, a sample, or as many as a budget allows, least recently proven first."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict, computed_field

from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    AttentionError,
    CheckpointError,
    ConfigurationError,
    StoreUnavailableError,
    TransientError,
)
from airflow_provider_checkpoint.lifecycle.records import Proof, add_proof, read_ledger
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_checkpoint.layouts._protocol import Check, Layout
    from airflow_provider_checkpoint.model import Artifact, Checkpoint

#: More than any pool has threads.
_WORKERS = 64

#: Issues that say the store could not be asked. They make a checkpoint unproven, not invalid.
UNPROVEN = "not_proven"


class ValidationResult(BaseModel):
    """What is known about one checkpoint after looking at it."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: CheckpointId
    depth: Depth
    issues: list[Issue]
    bytes_read: int = 0

    @computed_field  # type: ignore[prop-decorator] # the way pydantic documents it
    @property
    def valid(self) -> bool:
        return all(issue.severity is not Severity.ERROR for issue in self.issues)

    @property
    def proven(self) -> bool:
        """Whether the store could be asked; if not, ``valid`` is only "not shown to be valid"."""
        return all(issue.code != UNPROVEN for issue in self.issues)

    @property
    def missing(self) -> bool:
        """Whether there is no manifest: never committed, still being written, or removed. Then nothing was proven."""
        return any(issue.code == "manifest_missing" for issue in self.issues)

    @property
    def reason(self) -> str:
        return "; ".join(issue.message for issue in self.issues if issue.severity is Severity.ERROR)


def not_examined(layout: Layout, result: ValidationResult) -> StoreUnavailableError:
    """The error for whoever depends on a result that is not proven."""
    return StoreUnavailableError(
        f"checkpoint {result.checkpoint_id} could not be examined: {result.reason}",
        subject=layout.blobs.uri,
        hint="The store did not answer for all of its parts, or refused them. Nothing is known to be wrong with the"
        " checkpoint. If access was refused, mend the rights; else try again.",
    )


class Progress(Protocol):
    """Who wants to know how far the work is."""

    def start(self, total: int) -> None: ...
    def advance(self, done: int, subject: str) -> None: ...


class NoProgress:
    def start(self, total: int) -> None:
        """Nobody listens."""

    def advance(self, done: int, subject: str) -> None:
        """Nobody listens."""


@dataclass(slots=True)
class Budget:
    """How much a run may spend. Work that has begun is finished; nothing new begins once it is spent."""

    max_bytes: int | None = None
    max_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _spent: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def spend(self, size: int) -> None:
        self._spent += size

    @property
    def room(self) -> int | None:
        """Bytes that may still be read; None if nobody counts them."""
        return None if self.max_bytes is None else max(0, self.max_bytes - self._spent)

    @property
    def left(self) -> bool:
        if self.max_bytes is not None and self._spent >= self.max_bytes:
            return False
        return self.max_seconds is None or self.clock() - self._began < self.max_seconds


def validate(layout: Layout, checkpoint_id: CheckpointId, depth: Depth, *, width: int = 8) -> ValidationResult:
    """Prove one checkpoint. Raises only if its manifest could not be asked for at all."""
    with ThreadPoolExecutor(width) as pool:
        return _Run(layout, depth, pool, NoProgress()).prove(checkpoint_id)


def validate_examined(layout: Layout, checkpoint: Checkpoint, depth: Depth, *, width: int = 8) -> ValidationResult:
    """Prove a checkpoint whose manifest was examined a moment ago and is sound."""
    with ThreadPoolExecutor(width) as pool:
        return _Run(layout, depth, pool, NoProgress()).prove_examined(checkpoint, [])


def validate_many(
    layout: Layout,
    ids: Iterable[CheckpointId],
    depth: Depth,
    *,
    width: int = 8,
    budget: Budget | None = None,
    progress: Progress | None = None,
    record: bool = True,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[ValidationResult]:
    """Prove several checkpoints in the order given, until the budget is spent.

    An artifact that several checkpoints share is read once. What was found out goes into the ledger, unless the store
    could not be asked. A store that does not answer leaves a checkpoint unproven; one that refuses ends the run.
    """
    with ThreadPoolExecutor(width) as pool:
        run = _Run(layout, depth, pool, progress or NoProgress())

        def one_by_one() -> Iterator[list[ValidationResult]]:
            for checkpoint_id in ids:
                if budget is not None and not budget.left:
                    return
                yield [run.prove_if_answered(checkpoint_id)]

        return collect(layout, one_by_one(), budget=budget, record=record, now=now)


def collect(
    layout: Layout,
    batches: Iterable[Sequence[ValidationResult]],
    *,
    budget: Budget | None,
    record: bool,
    now: Callable[[], datetime],
) -> list[ValidationResult]:
    """Take results as they come, count what they cost, and note in the ledger what was found out.

    :param batches: what was proven together; the next begins only when the one before is accounted for.
    """
    results: list[ValidationResult] = []
    for batch in batches:
        for result in batch:
            results.append(result)
            if budget is not None:
                budget.spend(result.bytes_read)
            # A checkpoint that is being written has no manifest yet; a record of that would speak against it for ever.
            if record and result.proven and not result.missing:
                _record(layout, _proof(result, now()))
    return results


def _record(layout: Layout, proof: Proof) -> None:
    try:
        add_proof(layout.blobs, proof)
    except AccessDeniedError as error:
        verdict = "valid" if proof.valid else "invalid"
        raise AccessDeniedError(
            f"checkpoint {proof.checkpoint_id} is {verdict}, but that may not be written down: {error.message}",
            subject=error.subject,
            hint=f"To prove without a record: --no-record. {error.hint or ''}".rstrip(),
        ) from error


def select(
    layout: Layout, depth: Depth, *, named: Sequence[str] = (), size: int | None = None, rolling: bool = False
) -> list[CheckpointId]:
    """Which checkpoints to prove, in order: those named, a sample, the longest unproven first, or all, newest first."""
    if named:
        return [layout.parse_id(word) for word in named]
    candidates = layout.candidates()
    if size is not None:
        return sample(candidates, size)
    if rolling:
        return least_recently_proven(candidates, read_ledger(layout.blobs, layout), depth)
    return candidates[::-1]


def least_recently_proven(
    ids: Sequence[CheckpointId], ledger: dict[CheckpointId, Proof], depth: Depth
) -> list[CheckpointId]:
    """Never proven this deep first, then the longest ago; among equals the newest checkpoint first."""
    never = datetime.min.replace(tzinfo=UTC)

    def last(checkpoint_id: CheckpointId) -> datetime:
        proof = ledger.get(checkpoint_id)
        return proof.proven if proof is not None and proof.depth.includes(depth) else never

    return sorted(sorted(ids, reverse=True), key=last)


def sample(ids: Sequence[CheckpointId], size: int, *, seed: int | None = None) -> list[CheckpointId]:
    """Some checkpoints at random, always with the newest: it is the one a recovery would want."""
    if size >= len(ids):
        return sorted(ids)
    if size < 1:
        raise ConfigurationError(f"a sample of {size} checkpoints proves nothing", hint="Ask for at least one.")
    newest = max(ids)
    others = [checkpoint_id for checkpoint_id in ids if checkpoint_id != newest]
    return sorted([newest, *random.Random(seed).sample(others, size - 1)])  # noqa: S311 - not for secrets


def _proof(result: ValidationResult, now: datetime) -> Proof:
    return Proof(
        checkpoint_id=result.checkpoint_id, depth=result.depth, valid=result.valid, proven=now, issues=result.issues
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What one check found."""

    issues: list[Issue]
    complete: bool
    """Whether it was read to the end: then it counts as read, and holds for every equal check."""


def ask(check: Check) -> Answer:
    """Run a check. What the store does not answer, or cannot be understood, becomes an issue."""
    try:
        return Answer(check.run(), complete=True)
    except (TransientError, AttentionError) as error:
        return Answer([Issue.error(UNPROVEN, f"{check.subject}: {error.message}")], complete=False)
    except CheckpointError as error:
        return Answer([Issue.error("unreadable", str(error))], complete=False)


def not_answered(checkpoint_id: CheckpointId, depth: Depth, error: TransientError) -> ValidationResult:
    """The result for a checkpoint whose manifest the store did not give."""
    unproven = Issue.error(UNPROVEN, f"the manifest could not be read: {error.message}")
    return ValidationResult(checkpoint_id=checkpoint_id, depth=depth, issues=[unproven])


class _Run:
    """One validation run: shares threads and what is already known about artifacts."""

    def __init__(
        self,
        layout: Layout,
        depth: Depth,
        pool: ThreadPoolExecutor,
        progress: Progress,
    ) -> None:
        self._layout = layout
        self._depth = depth
        self._pool = pool
        self._known: dict[tuple[str, tuple[Artifact, ...]], list[Issue]] = {}
        self._lock = threading.Lock()
        self._progress = progress
        self._read = 0

    def prove_if_answered(self, checkpoint_id: CheckpointId) -> ValidationResult:
        try:
            return self.prove(checkpoint_id)
        except TransientError as error:
            return not_answered(checkpoint_id, self._depth, error)

    def prove(self, checkpoint_id: CheckpointId) -> ValidationResult:
        examined = self._layout.examine(checkpoint_id)
        if examined.checkpoint is None:
            return ValidationResult(checkpoint_id=checkpoint_id, depth=self._depth, issues=examined.issues)
        return self.prove_examined(examined.checkpoint, examined.issues)

    def prove_examined(self, checkpoint: Checkpoint, found: list[Issue]) -> ValidationResult:
        issues = list(found)
        self._read = 0
        if self._depth is not Depth.STRUCTURE:
            checks = self._layout.checks(checkpoint, self._depth)
            self._progress.start(sum(max(1, check.cost) for check in checks))
            issues.extend(self._all(checks))
        return ValidationResult(checkpoint_id=checkpoint.id, depth=self._depth, issues=issues, bytes_read=self._read)

    def _all(self, checks: Sequence[Check]) -> list[Issue]:
        """Run checks side by side, few at a time, so that a checkpoint of a million artifacts needs no more memory."""
        waiting = iter(enumerate(checks))
        found: list[tuple[int, list[Issue]]] = []

        def work() -> None:
            # Each thread takes the next by itself, which costs less than to be handed every one.
            for place, check in waiting:
                issues = self._one(check)
                if issues:
                    found.append((place, issues))

        try:
            for worker in [self._pool.submit(work) for _ in checks[:_WORKERS]]:
                worker.result()
        finally:
            # After an error or an interrupt nothing new begins.
            deque(waiting, maxlen=0)
        return [issue for _, issues in sorted(found, key=itemgetter(0)) for issue in issues]

    def _one(self, check: Check) -> list[Issue]:
        with self._lock:
            known = self._known.get((check.subject, check.claims))
        issues = self._ask(check) if known is None else known
        self._progress.advance(max(1, check.cost), check.subject)
        return issues

    def _ask(self, check: Check) -> list[Issue]:
        answer = ask(check)
        if answer.complete:
            with self._lock:
                self._read += check.cost
                if check.claims:
                    self._known[check.subject, check.claims] = answer.issues
        return answer.issues
