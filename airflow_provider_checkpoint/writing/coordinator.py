"""The commit protocol: how state, source positions and output of an epoch become one checkpoint, or nothing.

For each epoch, in this order:

1. **Artifacts** are written under a fresh checkpoint id, and **sinks prepare** their output under (timeline, epoch).
   Nothing refers to either yet. If the process dies here they are orphans and leftovers, removed later.
2. **Fence**: if a newer timeline exists, this writer stops.
3. **Manifest**, created with all sinks pending. From here on the state is whole. If the process dies here, nobody has
   decided to publish: recovery falls back to the checkpoint before, and the sinks discard this epoch.
4. **Decision marker**, created. This is the moment the epoch is committed. If the process dies from here on, recovery
   uses this checkpoint and commits the sinks again.
5. **Sinks commit.** May be repeated: commit is idempotent.
6. **Statuses** in the manifest, then the **pointer**. Both only save the next start some work.

Steps 1, 3 and 4 create objects only if absent, and the same bytes again are a success, so a lost answer is settled by
asking again. Ids and (timeline, epoch) pairs are never used twice: a failed epoch is abandoned and the next one gets
new ones.

On start, in this order: choose a checkpoint whose output the sinks still hold; ask the sinks whether they can follow;
open a timeline that forks from it, which fences whoever wrote before, and choose again if somebody else opened one
meanwhile; commit the sinks of its epoch again if that had been decided; let all sinks discard what is not part of the
new history. A crash in between is repaired by the next start, which does the same again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    CheckpointConflictError,
    ConfigurationError,
    CorruptManifestError,
    FencedWriterError,
    NoRecoveryPointError,
    OutcomeUnknownError,
    SinkCommitError,
)
from airflow_provider_checkpoint.layouts._positions import to_offsets
from airflow_provider_checkpoint.layouts.partitioned import CheckpointManifestV2, OperatorEntry, SourceEntry
from airflow_provider_checkpoint.lifecycle.facts import decision_key
from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan, SkipCode
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.restoring import require_still_there
from airflow_provider_checkpoint.lifecycle.timelines import (
    Lineage,
    TimelineHolder,
    lineage,
    open_timeline,
    read_timelines,
    timeline_key,
    timeline_numbers,
)
from airflow_provider_checkpoint.model import (
    FIRST_TIMELINE,
    Checkpoint,
    CheckpointId,
    Depth,
    SinkState,
    SinkStatus,
    SourcePosition,
    Timeline,
)
from airflow_provider_checkpoint.writing.sinks import EpochRef, Sink

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout

log = logging.getLogger(__name__)

Step = Literal["prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer"]
Hook = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class PendingEpoch:
    """An epoch that has begun: the names under which its artifacts and its output are written."""

    checkpoint_id: CheckpointId
    ref: EpochRef


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochContents:
    """What an epoch amounts to, once its artifacts are written and its sinks have prepared."""

    operators: Mapping[str, OperatorEntry] = field(default_factory=dict)
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    watermark: int | None = None
    event_count: int | None = None
    pipeline_hash: int | None = None
    vnode_count: int | None = None
    savepoint: bool = False


class Coordinator:
    """Commits the epochs of one writer. Made by :meth:`start`.

    :param hook: called after each step of a commit with its name; tests use it to die there.
    """

    def __init__(
        self,
        layout: PartitionedLayout,
        sinks: Mapping[str, Sink],
        holder: TimelineHolder,
        *,
        last: Checkpoint | None,
        clock: Callable[[], datetime],
        hook: Hook,
    ) -> None:
        self._layout = layout
        self._sinks = dict(sinks)
        self._holder = holder
        self._clock = clock
        self._hook = hook
        self.last = last
        """The checkpoint committed last, or the one this writer started from."""
        self._epoch = 0 if last is None else last.epoch
        self._may_be_decided: set[EpochRef] = set()

    # -- start ---------------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        layout: PartitionedLayout,
        sinks: Mapping[str, Sink],
        *,
        recover_from: str = "latest",
        depth: Depth = Depth.CONTENT,
        pipeline_hash: int | None = None,
        vnode_count: int | None = None,
        writer: str | None = None,
        owner: str = "",
        reason: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        hook: Hook = lambda _: None,
    ) -> Coordinator:
        """Take over a pipeline: choose where to start, fence the writer before, and put the sinks in order.

        A checkpoint whose output a sink has discarded since, because a run went back behind it, is refused.

        :param recover_from: ``latest`` (if nothing was ever committed, a fresh start; if nothing committed can be
            restored, an error), ``fresh`` (give up all state), or the id of a checkpoint.
        :param owner: who has started this writer, for the record.
        """
        holder = None
        while holder is None:
            newest = max(timeline_numbers(layout.blobs), default=0)
            wish = None if recover_from == "fresh" else _wish(layout, recover_from, depth, pipeline_hash, vnode_count)
            plan = None if wish is None else _choose(layout, wish, clock())
            chosen = None if plan is None or plan.chosen is None else layout.load(plan.chosen)
            used = any(layout.newest_first())
            try:
                _require_followers(layout, sinks, chosen, newest if newest or not used else FIRST_TIMELINE, clock())
            except (NoRecoveryPointError, ConfigurationError):
                if max(timeline_numbers(layout.blobs), default=0) == newest:
                    raise
                continue
            # If another writer started meanwhile and went back, its sinks discard what we have chosen: choose again.
            with contextlib.suppress(BlobChangedError):
                holder = open_timeline(
                    layout.blobs,
                    start=chosen,
                    has_checkpoints=used,
                    writer=writer or uuid4().hex,
                    now=clock(),
                    owner=owner,
                    reason=reason or f"started from {recover_from}",
                    after=newest,
                )
        again = () if plan is None else [each.sink for each in plan.sinks if each.action == "commit_again"]
        for warning in () if plan is None else plan.warnings:
            log.warning("recovering from %s: %s", recover_from, warning)
        history = lineage(read_timelines(layout.blobs))
        coordinator = cls(layout, sinks, holder, last=chosen, clock=clock, hook=hook)
        if chosen is not None:
            hint = f"undelete {chosen.id} and start again, or start from another one."
            require_still_there(layout, chosen.id, meanwhile="a writer was starting from it", hint=hint)
            _require_output(sinks, chosen, history)
            if again:
                coordinator._commit_sinks(chosen, EpochRef(chosen.timeline, chosen.epoch), tuple(again))
                coordinator.last = layout.load(chosen.id)
            layout.move_pointer(chosen.id)
        for sink in sinks.values():
            sink.retain(history)
        return coordinator

    @property
    def timeline(self) -> int:
        return self._holder.timeline.number

    # -- epochs --------------------------------------------------------------------------------------------------

    def begin(self) -> PendingEpoch:
        """Begin the next epoch, with names that were never used before."""
        self._epoch += 1
        return PendingEpoch(self._layout.next_id(), EpochRef(self.timeline, self._epoch))

    def commit(self, pending: PendingEpoch, contents: EpochContents) -> Checkpoint:
        """Make a checkpoint of an epoch whose artifacts are written and whose sinks have prepared.

        If it raises FencedWriterError, another writer has taken over and this one must stop. SinkCommitError means
        that the epoch is committed, or may be, but a sink did not publish yet; the next start sees to it. After any
        other error the epoch may be abandoned.
        """
        self._hook("prepared")
        self._check_fence(pending)
        self._hook("fenced")
        manifest = self._manifest(pending, contents)
        self._layout.save_manifest(manifest)
        self._hook("manifest")
        # Once more, because this is the step that counts: a manifest of a fenced writer is no part of the new history,
        # but after the decision its sinks would publish.
        self._check_fence(pending)
        self._decide(pending)
        # From here on the epoch counts, whatever the store answers or fails to answer.
        self._may_be_decided.add(pending.ref)
        self._hook("decided")
        checkpoint = self._layout.load(pending.checkpoint_id)
        self._commit_sinks(checkpoint, pending.ref, tuple(self._sinks))
        self._layout.update_latest(pending.checkpoint_id)
        self._hook("pointer")
        self.last = self._layout.load(pending.checkpoint_id)
        self._may_be_decided.discard(pending.ref)
        return self.last

    def abandon(self, pending: PendingEpoch) -> None:
        """Give up an epoch that was not committed. Its artifacts become orphans; its output is discarded.

        An epoch whose commit was decided, or for all one knows may have been, cannot be abandoned any more.
        """
        key = decision_key(pending.ref.timeline, pending.ref.epoch)
        if pending.ref in self._may_be_decided or self._layout.blobs.stat(key) is not None:
            raise SinkCommitError(
                f"epoch {pending.ref.epoch} is committed, or may be, and cannot be abandoned",
                hint="Restart the writer: it commits the sinks again.",
            )
        for sink in self._sinks.values():
            sink.roll_back(pending.ref)

    # -- steps ---------------------------------------------------------------------------------------------------

    def _check_fence(self, pending: PendingEpoch) -> None:
        try:
            self._holder.check()
        except FencedWriterError:
            # Nothing was decided, and no other writer uses our timeline's names: what we prepared can go.
            for sink in self._sinks.values():
                sink.roll_back(pending.ref)
            raise

    def _manifest(self, pending: PendingEpoch, contents: EpochContents) -> CheckpointManifestV2:
        epoch = pending.ref.epoch
        flat = {name: to_offsets(position) for name, position in contents.sources.items()}
        return CheckpointManifestV2(
            checkpoint_id=pending.checkpoint_id,
            epoch=epoch,
            timestamp_ms=int(self._clock().timestamp() * 1000),
            operators=dict(contents.operators),
            source_offsets={
                name: SourceEntry(source_type=kind, offsets=offsets, epoch=epoch)
                for name, (kind, offsets) in flat.items()
            },
            parent_id=None if self.last is None else self.last.id,
            watermark=contents.watermark,
            total_size_bytes=sum(operator.total_bytes for operator in contents.operators.values()),
            timeline=self.timeline,
            sink_epochs=dict.fromkeys(self._sinks, epoch),
            sink_commit_statuses=dict.fromkeys(self._sinks, SinkStatus(SinkState.PENDING)),
            source_names=tuple(sorted(contents.sources)),
            sink_names=tuple(sorted(self._sinks)),
            pipeline_hash=contents.pipeline_hash,
            vnode_count=contents.vnode_count,
            event_count=contents.event_count,
            savepoint=contents.savepoint,
            writer=self._holder.timeline.writer,
        )

    def _decide(self, pending: PendingEpoch) -> None:
        key = decision_key(pending.ref.timeline, pending.ref.epoch)
        body = f'{{"checkpoint_id": "{pending.checkpoint_id}", "writer": "{self._holder.timeline.writer}"}}'
        try:
            created = self._layout.blobs.create(key, body.encode()).created
        except OutcomeUnknownError as error:
            # It may land at any time from now on, so nothing of the epoch may be discarded.
            self._may_be_decided.add(pending.ref)
            raise SinkCommitError(
                f"whether epoch {pending.ref.epoch} is committed could not be learnt",
                subject=key,
                hint="Restart the writer from latest: it looks again, and no answer that comes later can do harm then.",
            ) from error
        if not created:
            raise CheckpointConflictError(
                f"epoch {pending.ref.epoch} of timeline {pending.ref.timeline} was decided by someone else", subject=key
            )

    def _commit_sinks(self, checkpoint: Checkpoint, ref: EpochRef, names: tuple[str, ...]) -> None:
        statuses: dict[str, SinkStatus] = {}
        failures: list[str] = []
        for name in names:
            sink = self._sinks.get(name)
            if sink is None:
                log.warning("sink %r of epoch %d no longer exists: what it prepared is not published", name, ref.epoch)
                continue
            try:
                sink.commit(ref)
            except FencedWriterError:
                raise
            except Exception as error:
                log.exception("sink %r failed to commit epoch %d", name, ref.epoch)
                failures.append(f"sink {name!r}: {error}")
                statuses[name] = SinkStatus(SinkState.FAILED, ref.epoch, str(error) or type(error).__name__)
            else:
                statuses[name] = SinkStatus(SinkState.COMMITTED, ref.epoch)
        self._hook("sinks")
        self._layout.update_statuses(checkpoint.id, statuses, dict.fromkeys(statuses, ref.epoch))
        self._hook("statuses")
        if failures:
            # A writer that was overtaken here must not be told to start again: it would take over in its turn.
            self._holder.check()
            raise SinkCommitError(
                f"epoch {ref.epoch} is committed but not published everywhere ({'; '.join(failures)})",
                subject=f"checkpoint {checkpoint.id}",
                hint="Restart the writer from latest: it commits these sinks again before it goes on.",
            )


def _require_followers(
    layout: PartitionedLayout, sinks: Mapping[str, Sink], chosen: Checkpoint | None, newest: int, now: datetime
) -> None:
    """Ask all that could speak against starting here while nothing has changed yet."""
    timelines = read_timelines(layout.blobs)
    if chosen is not None:
        _require_output(sinks, chosen, lineage(timelines))
    new = Timeline(
        number=max(newest, 0 if chosen is None else chosen.timeline) + 1,
        parent=None if chosen is None else chosen.timeline,
        fork_epoch=None if chosen is None else chosen.epoch,
        created=now,
        writer="nobody",
    )
    history = lineage([*timelines, new])
    unknown = set(history.reach) - {FIRST_TIMELINE, new.number} - {each.number for each in timelines}
    if unknown:
        # The sinks would take the output of all timelines before it for that of another history.
        raise CorruptManifestError(
            f"the record of timeline {max(unknown)} is gone, and with it where that began",
            subject=f"{layout.blobs.uri}/{timeline_key(max(unknown))}",
            hint="Bring it back from a version or a copy of the store.",
        )
    for sink in sinks.values():
        sink.require(history)


def _require_output(sinks: Mapping[str, Sink], checkpoint: Checkpoint, history: Lineage) -> None:
    """Refuse a checkpoint whose state counts rows that are no longer in the output, or are about to go.

    Going back discards the output of all later epochs at once, so the checkpoint's own epoch stands for those before.
    """
    ref = EpochRef(checkpoint.timeline, checkpoint.epoch)
    abandoned = not history.contains(ref.timeline, ref.epoch)
    without = [name for name in sorted(checkpoint.sinks) if name in sinks and (abandoned or not sinks[name].holds(ref))]
    if without:
        raise NoRecoveryPointError(
            f"the output of checkpoint {checkpoint.id} is discarded since a later run went back behind it"
            f" (timeline {ref.timeline}, epoch {ref.epoch}, sinks: {', '.join(without)})",
            hint="Start from a checkpoint of the current history, or fresh. A sink that shall begin empty needs a new"
            " name.",
        )


def _choose(layout: PartitionedLayout, wish: Wish, now: datetime) -> RecoveryPlan | None:
    """The point to start from; None if this history has not committed anything yet, which is a fresh start too.

    A history whose checkpoints exist but cannot be restored is not: that needs a person.
    """
    try:
        return choose(layout, wish, now=now)
    except NoRecoveryPointError as error:
        never_committed = all(each.code in (SkipCode.UNDECIDED, SkipCode.ABANDONED) for each in error.skipped)
        if wish.strategy is Strategy.LATEST and never_committed:
            return None
        raise


def _wish(
    layout: PartitionedLayout, recover_from: str, depth: Depth, pipeline_hash: int | None, vnode_count: int | None
) -> Wish:
    exact = None if recover_from == "latest" else layout.parse_id(recover_from)
    return Wish(
        strategy=Strategy.LATEST if exact is None else Strategy.ID,
        checkpoint_id=exact,
        depth=depth,
        pipeline_hash=pipeline_hash,
        vnode_count=vnode_count,
    )
