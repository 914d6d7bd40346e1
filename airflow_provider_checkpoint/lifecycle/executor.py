"""Applying plans: the only place that removes anything.

Each plan is checked against the store once more before it is carried out, each object is answered for, and each run
that changes something leaves two audit records: one before, one after. Every step may be repeated after a crash.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs import probe
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptManifestError,
    NoEvidenceError,
    UnsupportedError,
)
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.lifecycle import records, trash
from airflow_provider_checkpoint.lifecycle.facts import look_at_all, survey
from airflow_provider_checkpoint.lifecycle.holding import held_since, newest_restorable
from airflow_provider_checkpoint.lifecycle.orphans import gather_evidence, judge
from airflow_provider_checkpoint.lifecycle.plans import (
    OrphanDecision,
    OrphanPlan,
    Outcome,
    PathItem,
    PruneItem,
    PrunePlan,
    Report,
    RestorePlan,
    SweepPlan,
)
from airflow_provider_checkpoint.lifecycle.pruning import (
    artifacts_to_sweep,
    manifest_digest,
    needed_artifacts,
    require_readable,
)
from airflow_provider_checkpoint.lifecycle.restoring import require_its_start, require_restorable, restored_by
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.side_by_side import streaming
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.lifecycle.sweeping import Mark, mark_purging, unmark
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import CheckpointId, Pin, Timeline

_BATCH = 1_000
_BATCHES_AT_ONCE = 20


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
        self._check_idle()
        newest = newest_restorable(self._layout, plan, self._clock())
        held = held_since(self._layout, plan, self._clock()) | {newest: "the one to go back to"}
        details = plan.model_dump(mode="json", exclude={"items"})
        run = self._begin("prune", {"plan": details, "items": _ids(plan.removed)})
        self._repoint(plan, newest)
        outcomes = [self._trash(item, held, run.run) for item in reversed(plan.removed)]
        outcomes = self._put_back_what_is_held(plan, outcomes)
        freed = {outcome.subject for outcome in outcomes if outcome.done}
        size = sum(item.bytes for item in plan.removed if str(item.checkpoint_id) in freed)
        return self._end(run, "prune", outcomes, size)

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
        now_held = held_since(self._layout, plan, self._clock())
        held = {str(checkpoint_id): reason for checkpoint_id, reason in now_held.items()}
        return [
            self._put_back(outcome, held[outcome.subject]) if outcome.done and outcome.subject in held else outcome
            for outcome in outcomes
        ]

    def _put_back(self, outcome: Outcome, reason: str) -> Outcome:
        message = f"kept: {reason}"
        try:
            trash.undelete(self._blobs, self._layout.parse_id(outcome.subject))
        except CheckpointNotFoundError:
            pass  # Somebody else has put it back already.
        except CheckpointError as error:
            message = f"in the trash, although {reason}; undelete it ({error})"
        return Outcome(subject=outcome.subject, done=False, message=message)

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
        self._check_idle()
        self._check_clock(required=False)
        run = self._begin("sweep", {"checkpoints": [checkpoint_id.value for checkpoint_id in plan.expired]})
        writer = f"{self._by}, run {run.run}"
        marks: list[Mark] = []
        try:
            for each in plan.expired:
                mark = mark_purging(self._blobs, each, plan, writer)
                marks += [] if mark is None else [mark]
            # Only now that undelete is shut out: what is needed by anything else, read afresh.
            store = survey(self._layout)
            require_readable(store)
        except CheckpointError:
            unmark(self._blobs, marks)
            raise
        pinned = {pin.checkpoint_id for pin in store.pins if pin.holds(self._clock())}
        unmark(self._blobs, [mark for mark in marks if mark.entry.checkpoint_id in pinned])
        going = [mark.entry for mark in marks if mark.entry.checkpoint_id not in pinned]
        needed = needed_artifacts(store, without={entry.checkpoint_id for entry in going})
        ids = [known.id for known in store.known] + [entry.checkpoint_id for entry in store.trash]
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
        self._check_idle()
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

    # -- restore -------------------------------------------------------------------------------------------------

    def restore(self, plan: RestorePlan, *, reason: str, mark: str) -> Timeline:
        """Open the timeline that goes on after the plan's checkpoint. From then on every running writer is refused.

        :param mark: names this restore; called again with the same mark, it answers with the timeline it had opened.
        """
        self._check_fresh(plan)
        opened = restored_by(self._blobs, mark)
        if opened is not None:
            return require_its_start(self._layout, opened)
        start = require_restorable(self._layout, plan)
        # Timelines whose records are lost are taken all the same: what was written on them must not come back.
        live = (known.checkpoint for known in look_at_all(self._layout))
        taken = max((each.timeline for each in live if each is not None), default=0)
        run = self._begin("restore", plan.model_dump(mode="json", exclude={"abandons"}) | {"reason": reason})
        holder = open_timeline(
            self._blobs,
            start=start,
            has_checkpoints=any(self._layout.newest_first()),
            writer=mark,
            now=self._clock(),
            owner=self._by,
            reason=reason,
            taken=taken,
        )
        require_its_start(self._layout, holder.timeline)
        if start is not None:
            # Only a hint, but one that readers of other programs follow.
            self._layout.move_pointer(start.id)
        subject = f"timeline {holder.timeline.number}"
        self._end(
            run, "restore", [Outcome(subject=subject, done=True, message=f"goes on after {start and start.id}")], 0
        )
        return holder.timeline

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

    def _check_fresh(self, plan: PrunePlan | SweepPlan | OrphanPlan | RestorePlan) -> None:
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

    def _check_idle(self) -> None:
        """A writer that no timeline holds off may need what it wrote a moment ago and has not yet named."""
        reason = self._layout.alive(self._clock())
        if reason is not None:
            raise NoEvidenceError(
                f"a writer may be at work: {reason}",
                subject=self._blobs.uri,
                hint="Stop it, and try again when it has been still for a while. Nothing was removed.",
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
        batches = [keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH)]
        # Side by side, because a store takes one request at a time for each and answers it slowly.
        answers = (
            streaming(self._blobs.delete, batches, width=_BATCHES_AT_ONCE)
            if batches[1:]
            else map(self._blobs.delete, batches)
        )
        outcomes = []
        for answer in answers:
            for deletion in answer:
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
