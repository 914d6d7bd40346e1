"""Applying plans: the only place that removes anything.

Each plan is checked against the store once more before it is carried out, each object is answered for, and each run
that changes something leaves two audit records: one before, one after. Every step may be repeated after a crash.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs import probe
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptManifestError,
    NoEvidenceError,
    NoRecoveryPointError,
    UnsupportedError,
)
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.lifecycle import records, trash
from airflow_provider_checkpoint.lifecycle.facts import bases_of, survey
from airflow_provider_checkpoint.lifecycle.orphans import gather_evidence, judge
from airflow_provider_checkpoint.lifecycle.plans import (
    OrphanDecision,
    OrphanPlan,
    Outcome,
    PathItem,
    PruneItem,
    PrunePlan,
    Report,
    SweepPlan,
)
from airflow_provider_checkpoint.lifecycle.pruning import (
    artifacts_to_sweep,
    manifest_digest,
    needed_artifacts,
    require_readable,
)
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import CheckpointId, Pin

_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class _Mark:
    """A checkpoint that nobody can undelete any more."""

    entry: trash.TrashEntry
    ours: bool
    """Set by this run, and not by one that died."""


class Executor:
    """Applies plans to one store.

    :param by: who does this, for the audit trail.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        by: str,
        safety: Safety = SAFE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._layout = layout
        self._blobs = layout.blobs
        self._by = by
        self._safety = safety
        self._clock = clock

    # -- prune ---------------------------------------------------------------------------------------------------

    def prune(self, plan: PrunePlan) -> Report:
        """Move checkpoints to the trash."""
        self._check_fresh(plan)
        if not plan.removed:
            return Report(verb="prune", run="", outcomes=())
        newest = self._newest_restorable(plan)
        held = self._held_since(plan) | {newest: "the one to go back to"}
        details = plan.model_dump(mode="json", exclude={"items"})
        run = self._begin("prune", {"plan": details, "items": _ids(plan.removed)})
        self._repoint(plan, newest)
        outcomes = [self._trash(item, held, run.run) for item in reversed(plan.removed)]
        outcomes = self._put_back_what_is_held(plan, outcomes)
        freed = {outcome.subject for outcome in outcomes if outcome.done}
        size = sum(item.bytes for item in plan.removed if str(item.checkpoint_id) in freed)
        return self._end(run, "prune", outcomes, size)

    def _newest_restorable(self, plan: PrunePlan) -> CheckpointId:
        """The one to go back to, as things are now: it stays, whatever the plan says."""
        going = {item.checkpoint_id for item in plan.removed}
        if plan.newest_restorable is None or plan.newest_restorable in going:
            raise NoEvidenceError("the plan names no checkpoint that would be left to restore", subject=plan.uri)
        ledger = records.read_ledger(self._blobs, self._layout)
        broken = frozenset(checkpoint_id for checkpoint_id, proof in ledger.items() if not proof.valid)
        try:
            chosen = choose(self._layout, Wish(depth=plan.depth, skip=broken), now=self._clock()).chosen
        except NoRecoveryPointError as error:
            raise ConfirmationNeededError(
                "since the plan was made, the checkpoint to keep for a recovery has gone or is no longer whole",
                subject=plan.uri,
                hint="Make a new plan. While nothing here can be restored, nothing goes.",
            ) from error
        assert chosen is not None, "a fresh start was not asked for"
        return chosen

    def _held_since(self, plan: PrunePlan) -> dict[CheckpointId, str]:
        """What must stay because of something that happened after the plan was made."""
        now = self._clock()
        held = {
            pin.checkpoint_id: f"pinned as {pin.name!r}" for pin in records.read_pins(self._blobs) if pin.holds(now)
        }
        timelines = read_timelines(self._blobs)
        if timelines and timelines[-1].fork_checkpoint is not None:
            held[timelines[-1].fork_checkpoint] = "the current timeline starts from it"
        planned = {item.checkpoint_id for item in plan.items}
        new = [checkpoint_id for checkpoint_id in self._layout.candidates() if checkpoint_id not in planned]
        for checkpoint_id in [*new, *held]:
            held = self._bases(checkpoint_id) | held
        return held

    def _bases(self, checkpoint_id: CheckpointId) -> dict[CheckpointId, str]:
        try:
            checkpoint = self._layout.load(checkpoint_id)
        except CheckpointNotFoundError:
            return {}
        return dict.fromkeys(bases_of(self._layout, checkpoint), f"base of {checkpoint_id}")

    def _repoint(self, plan: PrunePlan, newest: CheckpointId) -> None:
        """Move the pointer off a checkpoint before it goes, so that it never names one that is gone."""
        if self._layout.read_pointer() in {item.checkpoint_id for item in plan.removed}:
            self._layout.move_pointer(newest)

    def _put_back_what_is_held(self, plan: PrunePlan, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Undo what somebody came to need while it went.

        The race this defends against: a pin is set, or a timeline forks, after we had looked and before the manifest
        was gone. Whoever does so looks afterwards whether the checkpoint is still there; we look afterwards whether
        somebody wants it. At least one of the two sees the other.
        """
        held = {str(checkpoint_id): reason for checkpoint_id, reason in self._held_since(plan).items()}
        return [
            self._put_back(outcome, held[outcome.subject]) if outcome.done and outcome.subject in held else outcome
            for outcome in outcomes
        ]

    def _put_back(self, outcome: Outcome, reason: str) -> Outcome:
        with suppress(CheckpointNotFoundError):  # Somebody else has put it back already.
            trash.undelete(self._blobs, self._layout.parse_id(outcome.subject))
        return Outcome(subject=outcome.subject, done=False, message=f"kept: {reason}")

    def _trash(self, item: PruneItem, held: dict[CheckpointId, str], run: str) -> Outcome:
        subject = str(item.checkpoint_id)
        if item.checkpoint_id in held:
            return Outcome(subject=subject, done=False, message=f"kept: {held[item.checkpoint_id]}")
        if not self._are_manifests(item.keys, item.checkpoint_id):
            return Outcome(subject=subject, done=False, message="kept: the plan names what is not its manifest")
        try:
            present = manifest_digest(self._layout, item.keys)
            if present is None:
                return Outcome(subject=subject, done=True, message="was gone already")
            if present != item.manifest_sha256:
                return Outcome(subject=subject, done=False, message="kept: its manifest has changed since")
            trash.put_into_trash(
                self._blobs,
                trash.TrashEntry(
                    checkpoint_id=item.checkpoint_id,
                    trashed=self._clock(),
                    by=self._by,
                    run=run,
                    reasons=item.reasons,
                    keys=item.keys,
                    artifacts=item.artifacts,
                    size=item.bytes,
                ),
            )
        except CheckpointError as error:
            return Outcome(subject=subject, done=False, message=str(error))
        return Outcome(subject=subject, done=True, message="in the trash")

    def _are_manifests(self, keys: Iterable[str], checkpoint_id: CheckpointId) -> bool:
        """Plans and entries come from files: what they call a manifest must at least have the name of one."""
        return all(self._layout.named(key) == Named(Role.MANIFEST, checkpoint_id) for key in keys)

    def undelete(self, checkpoint_id: CheckpointId) -> Report:
        """Put a checkpoint back from the trash."""
        # First: a run that has nothing to do leaves no record.
        entry = trash.require_entry(self._blobs, checkpoint_id)
        if not self._are_manifests(entry.keys, checkpoint_id):
            raise CorruptManifestError(
                f"the entry of checkpoint {checkpoint_id} names objects that are not its manifest",
                subject=trash.entry_key(checkpoint_id),
                hint="It was not written by a prune. Nothing was put back.",
            )
        run = self._begin("undelete", {"checkpoint_id": checkpoint_id.value})
        entry = trash.undelete(self._blobs, checkpoint_id)
        done = Outcome(subject=str(checkpoint_id), done=True, message=f"back, {len(entry.artifacts)} artifacts")
        return self._end(run, "undelete", [done], 0)

    # -- sweep ---------------------------------------------------------------------------------------------------

    def sweep(self, plan: SweepPlan) -> Report:
        """Remove for good what only checkpoints with a passed undo window had named."""
        self._check_fresh(plan)
        if not plan.expired:
            return Report(verb="sweep", run="", outcomes=())
        self._check_clock(required=False)
        run = self._begin("sweep", {"checkpoints": [checkpoint_id.value for checkpoint_id in plan.expired]})
        marked = [mark for mark in (self._mark_purging(each, plan, run.run) for each in plan.expired) if mark]
        try:
            # Only now that undelete is shut out: what is needed by anything else, read afresh.
            store = survey(self._layout)
            require_readable(store)
        except CheckpointError:
            # Those that we marked have lost nothing yet, so they can still be undeleted.
            self._blobs.delete([trash.purging_key(mark.entry.checkpoint_id) for mark in marked if mark.ours])
            raise
        going = [mark.entry for mark in marked]
        needed = needed_artifacts(store, without={entry.checkpoint_id for entry in going})
        ids = [known.id for known in store.known] + [entry.checkpoint_id for entry in (*store.trash, *going)]
        outcomes: list[Outcome] = []
        size = 0
        for entry in going:
            # Safe to remove: no live manifest and none in the trash names them, and nobody can put this one back.
            done = self._delete(artifacts_to_sweep(self._layout, entry, needed))
            outcomes.extend(done)
            if all(outcome.done for outcome in done):
                outcomes.extend(self._forget(entry, keep_trace=entry.checkpoint_id == max(ids)))
                size += entry.size
        return self._end(run, "sweep", outcomes, size)

    def _mark_purging(self, checkpoint_id: CheckpointId, plan: SweepPlan, run: str) -> _Mark | None:
        """Shut undelete out; None if the checkpoint is not one to remove, or no longer."""
        key = trash.purging_key(checkpoint_id)
        # The mark tells our own from one of a sweep that died, which may have removed something.
        ours = self._blobs.create(key, f"{self._by}, run {run}\n".encode()).created
        entry = self._expired(checkpoint_id, plan)
        if entry is None:
            if ours:
                self._blobs.delete([key])
            return None
        return _Mark(entry, ours)

    def _expired(self, checkpoint_id: CheckpointId, plan: SweepPlan) -> trash.TrashEntry | None:
        """The entry of a checkpoint whose undo window has passed and that nobody has put back.

        The manifest is looked at before the entry: a prune writes the entry first, so whoever no longer finds the
        manifest finds the entry of the prune that took it.
        """
        entry = trash.read_entry(self._blobs, checkpoint_id)
        if entry is None or any(self._blobs.stat(manifest) is not None for manifest in entry.keys):
            return None
        entry = trash.read_entry(self._blobs, checkpoint_id)
        if entry is None or entry.purged is not None:
            return None
        return entry if trash.trashed_at(self._blobs, entry) <= plan.undo_window_end else None

    def _forget(self, entry: trash.TrashEntry, *, keep_trace: bool) -> list[Outcome]:
        """Remove an entry whose artifacts are gone; the entry itself last, so that an interrupted sweep is resumed."""
        checkpoint_id = entry.checkpoint_id
        last = [trash.purging_key(checkpoint_id), trash.entry_key(checkpoint_id)]
        rest = [info.key for info in self._blobs.list(trash.folder_of(checkpoint_id)) if info.key not in last]
        outcomes = self._delete(rest + records.ledger_keys(self._blobs, checkpoint_id))
        # One after the other: an undelete relies on the order.
        for key in last[:1] if keep_trace else last:
            if all(outcome.done for outcome in outcomes):
                outcomes += self._delete([key])
        if keep_trace and all(outcome.done for outcome in outcomes):
            # The highest id there ever was leaves a trace, so that no writer is given it again.
            trash.leave_trace(self._blobs, entry, self._clock())
        return outcomes

    # -- orphans -------------------------------------------------------------------------------------------------

    def remove_orphans(self, plan: OrphanPlan, *, confirmed: bool = False) -> Report:
        """Delete orphans that are still orphans."""
        self._check_fresh(plan)
        if not plan.deletions:
            return Report(verb="orphans", run="", outcomes=())
        if plan.question and not confirmed:
            raise ConfirmationNeededError(
                plan.question, subject=plan.uri, hint="Look at the plan; if it is right, confirm it or raise the cap."
            )
        self._check_clock(required=True)
        run = self._begin("orphans", {"objects": len(plan.deletions), "bytes": plan.bytes})
        kept, doomed = self._judge_again(plan)
        self._keep_highest_id([item.path for item in doomed], run.run)
        # Safe to remove: old enough, unchanged since, and no manifest names them, live or in the trash.
        deleted = self._delete([item.path for item in doomed])
        gone = {outcome.subject for outcome in deleted if outcome.done}
        size = sum(item.bytes for item in doomed if item.path in gone)
        return self._end(run, "orphans", kept + deleted, size)

    def _judge_again(self, plan: OrphanPlan) -> tuple[list[Outcome], list[PathItem]]:
        """What became of the objects of a plan that are no orphans any more, and those that still are.

        As in the search: the objects first, the manifests after.
        """
        planned = {item.path for item in plan.deletions}
        present = {info.key: info for info in self._blobs.list(temporary=None) if info.key in planned}
        evidence = gather_evidence(self._layout)
        now = self._clock()
        kept: list[Outcome] = []
        doomed: list[PathItem] = []
        for item in plan.deletions:
            info = present.get(item.path)
            if info is None:
                kept.append(Outcome(subject=item.path, done=True, message="was gone already"))
            elif info.version != item.version:
                kept.append(Outcome(subject=item.path, done=False, message="kept: written again since"))
            else:
                named = self._layout.named(item.path)
                decision, reason = judge(named, info.modified, item.path, evidence, now=now, safety=self._safety)
                if decision is OrphanDecision.DELETE:
                    doomed.append(item)
                else:
                    kept.append(Outcome(subject=item.path, done=False, message=f"kept: {reason}"))
        return kept, doomed

    def _keep_highest_id(self, doomed: Sequence[str], run: str) -> None:
        """Leave a trace of an id whose last sign goes, if none is higher: a writer would be given it again."""
        owners = {named.checkpoint_id for key in doomed if (named := self._layout.named(key)).checkpoint_id is not None}
        if not owners:
            return
        highest = max(owners)
        others = [*self._layout.candidates(), *trash.trashed_ids(self._layout)]
        if any(other >= highest for other in others if other not in owners):
            return
        entry = trash.TrashEntry(
            checkpoint_id=highest,
            trashed=self._clock(),
            by=self._by,
            run=run,
            reasons=("never committed",),
            keys=(),
            artifacts=(),
        )
        trash.leave_trace(self._blobs, entry, self._clock())

    # -- pins ----------------------------------------------------------------------------------------------------

    def pin(self, pin: Pin) -> None:
        """Pin a checkpoint that exists."""
        # First: a name that cannot be kept, or a checkpoint that is not there, leaves no record.
        records.pin_key(pin.name)
        self._layout.load(pin.checkpoint_id)
        run = self._begin("pin", pin.model_dump(mode="json"))
        records.add_pin(self._blobs, pin)
        try:
            # Once more, now that every prune sees the pin: one that had looked before may have taken the checkpoint.
            self._layout.load(pin.checkpoint_id)
        except CheckpointNotFoundError as error:
            raise CheckpointNotFoundError(
                f"checkpoint {pin.checkpoint_id} was pruned while it was being pinned",
                subject=self._blobs.uri,
                hint=f"The pin {pin.name!r} keeps it in the trash: undelete {pin.checkpoint_id}, or remove the pin.",
            ) from error
        self._end(run, "pin", [Outcome(subject=str(pin.checkpoint_id), done=True)], 0)

    def unpin(self, name: str) -> Pin:
        pin = records.find_pin(self._blobs, name)
        run = self._begin("unpin", pin.model_dump(mode="json"))
        records.remove_pin(self._blobs, name)
        self._end(run, "unpin", [Outcome(subject=str(pin.checkpoint_id), done=True)], 0)
        return pin

    # -- shared --------------------------------------------------------------------------------------------------

    def _check_fresh(self, plan: PrunePlan | SweepPlan | OrphanPlan) -> None:
        if (plan.uri, plan.layout) != (self._blobs.uri, self._layout.name):
            raise ConfirmationNeededError(
                f"the plan was made for {plan.uri} ({plan.layout})",
                subject=f"{self._blobs.uri} ({self._layout.name})",
                hint="Apply a plan to the store it was made for.",
            )
        age = self._clock() - plan.made
        if age < -self._safety.clock_skew:
            raise NoEvidenceError(
                f"the plan was made {format_span(-age)} from now",
                subject=plan.uri,
                hint="A clock was wrong then or is wrong now, so the ages in the plan mean nothing. Make a new one.",
            )
        if age > self._safety.plan_age:
            raise ConfirmationNeededError(
                f"the plan is {format_span(age)} old", subject=plan.uri, hint="Make a new one: much may have changed."
            )

    def _check_clock(self, *, required: bool) -> None:
        """Ages are compared with our clock, but the store's clock wrote the times.

        :param required: there is no other clock to go by than the store's.
        """
        skew = probe(self._blobs, clock=self._clock).clock_skew
        if skew is None:
            if not required:
                return
            raise UnsupportedError(
                "the store does not tell when objects were written, so nothing can be removed by age",
                subject=self._blobs.uri,
            )
        if abs(skew) > self._safety.clock_skew.total_seconds():
            raise NoEvidenceError(
                f"the store's clock and ours differ by {abs(skew):.0f} seconds",
                subject=self._blobs.uri,
                hint="Set the clock of this machine; until then the age of an object means nothing.",
            )

    def _delete(self, keys: Sequence[str]) -> list[Outcome]:
        outcomes = []
        for start in range(0, len(keys), _BATCH):
            for deletion in self._blobs.delete(keys[start : start + _BATCH]):
                message = "deleted" if deletion.error is None else str(deletion.error)
                outcomes.append(Outcome(subject=deletion.key, done=deletion.deleted, message=message))
        return outcomes

    def _begin(self, verb: str, details: dict[str, Any]) -> records.AuditRun:
        run = records.AuditRun(self._blobs, verb, by=self._by, now=self._clock())
        run.started(self._clock(), details)
        return run

    def _end(self, run: records.AuditRun, verb: str, outcomes: Sequence[Outcome], size: int) -> Report:
        report = Report(verb=verb, run=run.run, outcomes=tuple(outcomes), bytes=size)
        kept = [outcome.model_dump() for outcome in outcomes][:_BATCH]
        done = sum(outcome.done for outcome in outcomes)
        details = {"done": done, "not_done": len(outcomes) - done, "bytes": size, "outcomes": kept}
        run.finished(self._clock(), details)
        return report


def _ids(items: Iterable[PruneItem]) -> list[int | str]:
    return [item.checkpoint_id.value for item in items]
