"""Choosing the point to go back to, and explaining the choice.

Candidates are looked at from the newest to the oldest and the first that fits is taken, so that a healthy store costs
a listing of the newest and the reads of one checkpoint. Whether a candidate fits is decided by pure functions of its
facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
    NoRecoveryPointError,
)
from airflow_provider_checkpoint.layouts._protocol import NOT_THERE
from airflow_provider_checkpoint.lifecycle.distance import offset_of, offsets_of, replay_distance
from airflow_provider_checkpoint.lifecycle.facts import decided, look_at, unsettled_sinks
from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan, SinkAction, SkipCode, Skipped
from airflow_provider_checkpoint.lifecycle.records import read_pins
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.lifecycle.timelines import History
from airflow_provider_checkpoint.lifecycle.validation import not_examined, validate_examined
from airflow_provider_checkpoint.model import Checkpoint, CheckpointId, Depth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.lifecycle.timelines import Lineage


class Strategy(StrEnum):
    LATEST = "latest"
    ID = "id"
    BEFORE_TIME = "before_time"
    BEFORE_EPOCH = "before_epoch"
    BEFORE_WATERMARK = "before_watermark"
    BEFORE_OFFSET = "before_offset"
    PIN = "pin"

    @property
    def limits(self) -> tuple[str, ...]:
        """The fields of a wish that it looks at."""
        return (*_NEEDS[self], *_MAY_HAVE.get(self, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What kind of point is wanted.

    ``before_time`` takes the newest point made at or before ``at``; ``before_epoch`` one whose epoch is lower than
    ``epoch``; ``before_watermark`` one whose watermark is not above ``watermark``; ``before_offset`` one from which the
    record at ``offset`` of that source and partition is read again.
    """

    strategy: Strategy = Strategy.LATEST
    checkpoint_id: CheckpointId | None = None
    at: datetime | None = None
    epoch: int | None = None
    watermark: int | None = None
    source: str | None = None
    partition: str | None = None
    offset: int | None = None
    pin: str | None = None

    depth: Depth = Depth.CONTENT
    max_rollback: timedelta | None = None
    """The chosen point may be at most so much older than the newest one."""
    max_rollback_epochs: int | None = None
    fresh_start_ok: bool = False
    """If no point fits, start from nothing instead of failing."""

    pipeline_hash: int | None = None
    """The hash of the job that will be started."""
    hash_policy: Literal["ignore", "warn", "require"] = "warn"
    vnode_count: int | None = None
    source_names: frozenset[str] | None = None
    sink_names: frozenset[str] | None = None
    skip: frozenset[CheckpointId] = field(default_factory=frozenset)
    """Points that a person has ruled out."""

    @property
    def exact(self) -> bool:
        """One certain checkpoint is wanted, and no other will do."""
        return self.strategy in (Strategy.ID, Strategy.PIN)

    def __post_init__(self) -> None:
        needed = _NEEDS[self.strategy]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ConfigurationError(
                f"strategy {self.strategy} needs {' and '.join(missing)}",
                hint=f"For example: {_EXAMPLES[self.strategy]}",
            )
        # Whoever names a limit believes that it counts.
        used = self.strategy.limits
        ignored = [name for name in _LIMITS if name not in used and getattr(self, name) is not None]
        if ignored:
            raise ConfigurationError(
                f"strategy {self.strategy} does not look at {' and '.join(ignored)}",
                hint="Leave it out, or choose the strategy that uses it.",
            )
        if self.at is not None and self.at.tzinfo is None:
            raise ConfigurationError("a time without a zone", subject=str(self.at), hint="Write 2026-11-15T14:05Z.")
        if self.hash_policy == "require" and self.pipeline_hash is None:
            raise ConfigurationError(
                "hash_policy 'require' needs the pipeline_hash of the job", hint="Give it, or choose another policy."
            )


_NEEDS: dict[Strategy, tuple[str, ...]] = {
    Strategy.LATEST: (),
    Strategy.ID: ("checkpoint_id",),
    Strategy.BEFORE_TIME: ("at",),
    Strategy.BEFORE_EPOCH: ("epoch",),
    Strategy.BEFORE_WATERMARK: ("watermark",),
    Strategy.BEFORE_OFFSET: ("source", "offset"),
    Strategy.PIN: ("pin",),
}
_MAY_HAVE: dict[Strategy, tuple[str, ...]] = {
    Strategy.BEFORE_OFFSET: ("partition",),
    Strategy.PIN: ("checkpoint_id",),  # The pin's own, once it has been looked up.
}
_LIMITS = sorted({name for names in (*_NEEDS.values(), *_MAY_HAVE.values()) for name in names})
_EXAMPLES: dict[Strategy, str] = {
    Strategy.LATEST: "--strategy latest",
    Strategy.ID: "--strategy id --id 7",
    Strategy.BEFORE_TIME: "--strategy before_time --at 2026-11-15T14:05Z",
    Strategy.BEFORE_EPOCH: "--strategy before_epoch --epoch 120",
    Strategy.BEFORE_WATERMARK: "--strategy before_watermark --watermark 1763215500000",
    Strategy.BEFORE_OFFSET: "--strategy before_offset --source orders --partition orders-0 --offset 4711",
    Strategy.PIN: "--strategy pin --pin before-migration",
}


# -- pure --------------------------------------------------------------------------------------------------------


def unwanted(wish: Wish, checkpoint: Checkpoint, history: Lineage | History) -> str | None:
    """Why a readable checkpoint is not the kind of point that is wanted; None if it is."""
    if checkpoint.id in wish.skip:
        return "ruled out by the caller"
    if wish.exact:
        return None if checkpoint.id == wish.checkpoint_id else "not the one asked for"
    if not history.contains(checkpoint.timeline, checkpoint.epoch):
        return f"on an abandoned branch (timeline {checkpoint.timeline})"
    if wish.at is not None and checkpoint.created > wish.at:
        return f"made at {checkpoint.created.isoformat()}, after {wish.at.isoformat()}"
    if wish.strategy is Strategy.BEFORE_EPOCH and wish.epoch is not None and checkpoint.epoch >= wish.epoch:
        return f"epoch {checkpoint.epoch} is not before {wish.epoch}"
    if wish.strategy is Strategy.BEFORE_WATERMARK and wish.watermark is not None:
        if checkpoint.watermark is None:
            return "has no watermark"
        if checkpoint.watermark > wish.watermark:
            return f"watermark {checkpoint.watermark} is past {wish.watermark}"
    if wish.strategy is Strategy.BEFORE_OFFSET:
        return _past_offset(wish, checkpoint)
    return None


def _past_offset(wish: Wish, checkpoint: Checkpoint) -> str | None:
    assert wish.source is not None
    assert wish.offset is not None
    position = checkpoint.sources.get(wish.source)
    if position is None:
        return f"has no position of source {wish.source!r}"
    offset = offset_of(position, wish.partition)
    if offset is None:
        return f"source {wish.source!r} {_no_offset(wish.partition, sorted(offsets_of(position)))}"
    if offset > wish.offset:
        return f"source {wish.source!r} had already read past {wish.offset} (next: {offset})"
    return None


def _no_offset(partition: str | None, known: Sequence[str]) -> str:
    if not known:
        return "has no numeric offset"
    named = ", ".join(known[:10])
    return (
        f"has several partitions: name one of {named}"
        if partition is None
        else f"has no offset of {partition!r}, only of {named}"
    )


def incompatible(wish: Wish, checkpoint: Checkpoint) -> str | None:
    """Why the job that will be started could not use this checkpoint; None if it can."""
    if wish.vnode_count and checkpoint.vnode_count and wish.vnode_count != checkpoint.vnode_count:
        return f"has {checkpoint.vnode_count} vnodes, the job runs with {wish.vnode_count}"
    if wish.hash_policy == "require" and wish.pipeline_hash is not None:
        if checkpoint.pipeline_hash is None:
            return "records no pipeline hash, and one is required"
        if checkpoint.pipeline_hash != wish.pipeline_hash:
            return f"was made by another version of the pipeline (hash {checkpoint.pipeline_hash})"
    return None


def changes(wish: Wish, checkpoint: Checkpoint) -> list[str]:
    """What differs between the job that wrote the chosen checkpoint and the one that will be started."""
    warnings = []
    hashes = (checkpoint.pipeline_hash, wish.pipeline_hash)
    if wish.hash_policy == "warn" and None not in hashes and hashes[0] != hashes[1]:
        warnings.append(
            f"the pipeline has changed (hash {hashes[0]} then, {hashes[1]} now): state of changed operators may not fit"
        )
    for kind, then, now in (
        ("source", checkpoint.source_names, wish.source_names),
        ("sink", checkpoint.sink_names, wish.sink_names),
    ):
        if now is None or not then:
            continue
        warnings.extend(f"new {kind} {name!r}: it has no saved position" for name in sorted(now - set(then)))
        warnings.extend(
            f"{kind} {name!r} is gone: what was saved for it is not used" for name in sorted(set(then) - now)
        )
    return warnings


def too_far(wish: Wish, chosen: Checkpoint, head: Checkpoint) -> str | None:
    """Why going back so far is not allowed; None if it is."""
    if wish.max_rollback is not None and head.created - chosen.created > wish.max_rollback:
        return (
            f"the newest point that fits, {chosen.id}, is {format_span(head.created - chosen.created)} older than the"
            f" newest checkpoint {head.id}; allowed are {format_span(wish.max_rollback)}"
        )
    if wish.max_rollback_epochs is not None and head.epoch - chosen.epoch > wish.max_rollback_epochs:
        return (
            f"the newest point that fits, {chosen.id}, is {head.epoch - chosen.epoch} epochs behind checkpoint"
            f" {head.id}; allowed are {wish.max_rollback_epochs}"
        )
    return None


def sink_actions(
    chosen: Checkpoint | None, newer: Sequence[Checkpoint], *, commit_again: Sequence[str]
) -> tuple[SinkAction, ...]:
    """Sinks of the chosen epoch whose commit was decided are committed again; what later epochs published is undone."""
    actions = [
        SinkAction(sink=sink, action="commit_again", epochs=(chosen.epoch,))
        for sink in commit_again
        if chosen is not None
    ]
    undone: dict[str, set[int]] = {}
    for checkpoint in newer:
        for sink in checkpoint.sinks:
            undone.setdefault(sink, set()).add(checkpoint.epoch)
    actions.extend(
        SinkAction(sink=sink, action="roll_back", epochs=tuple(sorted(epochs)))
        for sink, epochs in sorted(undone.items())
    )
    return tuple(actions)


# -- on the store ------------------------------------------------------------------------------------------------


def choose(layout: Layout, wish: Wish, *, now: datetime) -> RecoveryPlan:
    """Find the point, or raise NoRecoveryPointError with every candidate and why it was passed over."""
    return _Search(layout, wish, now).run()


class _Search:
    def __init__(self, layout: Layout, wish: Wish, now: datetime) -> None:
        self._layout = layout
        self._wish = wish
        self._now = now
        self._history = History(layout.blobs)
        self._skipped: list[Skipped] = []
        self._newer: list[Checkpoint] = []
        """Checkpoints of the current history that were passed over on the way, newest first."""
        self._unreadable: list[CheckpointId] = []
        self._untold: CorruptManifestError | None = None
        """What keeps us from telling whether some checkpoint was abandoned."""
        self._examined = 0

    def run(self) -> RecoveryPlan:
        wish = self._wish = self._resolve_pin(self._wish)
        for checkpoint in self._readable():
            skipped, commit_again = self._judge(checkpoint)
            if skipped is not None:
                self._skipped.append(skipped)
                if self._belongs(checkpoint):
                    self._newer.append(checkpoint)
                if wish.exact and checkpoint.id == wish.checkpoint_id:
                    break
                continue
            head = self._newer[0] if self._newer else checkpoint
            distance = too_far(wish, checkpoint, head)
            if distance is not None:
                raise self._none(distance)
            return self._plan(checkpoint, head, commit_again)
        if wish.exact and wish.checkpoint_id not in {skipped.checkpoint_id for skipped in self._skipped}:
            raise self._not_there()
        if wish.fresh_start_ok:
            return self._plan(None, self._newer[0] if self._newer else None, [])
        raise self._none(f"checkpoint {wish.checkpoint_id} is not usable" if wish.exact else "no checkpoint fits")

    def _readable(self) -> Iterator[Checkpoint]:
        """Candidates whose manifest can be understood, newest first, each read only when it is its turn."""
        for checkpoint_id in self._candidates():
            known = look_at(self._layout, checkpoint_id)
            if known is None:
                # A folder without a manifest: never committed, or in the trash. Not a checkpoint, so no reason either.
                continue
            self._examined += 1
            if known.checkpoint is None or known.problem:
                self._skipped.append(_skipped(checkpoint_id, SkipCode.UNREADABLE, known.problem))
                self._unreadable.append(checkpoint_id)
            else:
                yield known.checkpoint

    def _candidates(self) -> Iterable[CheckpointId]:
        newest_first = self._layout.newest_first()
        if not self._wish.exact:
            return newest_first
        # The newer ones tell how far back it is and what their sinks have published since.
        down_to_it = []
        for each in newest_first:
            down_to_it.append(each)
            if each == self._wish.checkpoint_id:
                return down_to_it
        raise self._not_there()

    def _resolve_pin(self, wish: Wish) -> Wish:
        if wish.strategy is not Strategy.PIN:
            return wish
        pins = {pin.name: pin for pin in read_pins(self._layout.blobs)}
        if wish.pin not in pins:
            raise CheckpointNotFoundError(
                f"no pin named {wish.pin!r}",
                subject=self._layout.blobs.uri,
                hint=f"Pins here: {', '.join(pins) or 'none'}.",
            )
        return replace(wish, checkpoint_id=pins[wish.pin].checkpoint_id)

    def _judge(self, checkpoint: Checkpoint) -> tuple[Skipped | None, list[str]]:
        """Why not, if not; and the sinks to commit again. Cheap questions first, proof last."""
        reason = unwanted(self._wish, checkpoint, self._history)
        if reason is not None:
            code = SkipCode.UNWANTED if self._belongs(checkpoint) else SkipCode.ABANDONED
            return _skipped(checkpoint.id, code, reason), []
        reason = incompatible(self._wish, checkpoint)
        if reason is not None:
            return _skipped(checkpoint.id, SkipCode.INCOMPATIBLE, reason), []
        open_sinks = unsettled_sinks(checkpoint)
        if open_sinks and not decided(self._layout.blobs, checkpoint):
            # Its source positions are past data that its sinks may never have published.
            reason = f"its commit was never decided (sinks not committed: {', '.join(open_sinks)})"
            return _skipped(checkpoint.id, SkipCode.UNDECIDED, reason), []
        result = validate_examined(self._layout, checkpoint, self._wish.depth)
        if not result.proven:
            raise not_examined(self._layout, result)
        if not result.valid:
            return _skipped(checkpoint.id, SkipCode.INVALID, result.reason), []
        return None, open_sinks

    def _belongs(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is of the current history. If that cannot be told, only a person may go on."""
        try:
            return self._history.contains(checkpoint.timeline, checkpoint.epoch)
        except CorruptManifestError as error:
            if not self._wish.exact:
                raise
            # Counted in: then what its sinks may have published is told.
            self._untold = error
            return True

    def _plan(self, chosen: Checkpoint | None, head: Checkpoint | None, commit_again: list[str]) -> RecoveryPlan:
        wish = self._wish
        warnings = changes(wish, chosen) if chosen is not None else ["a fresh start: all state is given up"]
        if chosen is not None and not self._belongs(chosen):
            warnings.append(
                f"timeline {chosen.timeline} was abandoned; this goes back to it, but what its sinks had published"
                " after the fork may have been discarded since"
            )
        if self._untold is not None:
            warnings.append(self._untold.message)
        if self._unreadable:
            named = ", ".join(map(str, self._unreadable[:5]))
            warnings.append(f"manifests that cannot be read ({named}) may hide sinks that published something")
        return RecoveryPlan(
            uri=self._layout.blobs.uri,
            layout=self._layout.name,
            made=self._now,
            strategy=wish.strategy,
            depth=wish.depth,
            chosen=None if chosen is None else chosen.id,
            epoch=None if chosen is None else chosen.epoch,
            timeline=None if chosen is None else chosen.timeline,
            created=None if chosen is None else chosen.created,
            head=None if head is None else head.id,
            skipped=tuple(self._skipped),
            examined=self._examined,
            distance=None if chosen is None else replay_distance(chosen, self._newer),
            sinks=sink_actions(chosen, self._newer, commit_again=commit_again),
            warnings=tuple(warnings),
        )

    def _not_there(self) -> NoRecoveryPointError:
        return self._none(f"there is no checkpoint {self._wish.checkpoint_id}", NOT_THERE)

    def _none(
        self, why: str, empty: str = "The store holds no checkpoint. A fresh start must be asked for."
    ) -> NoRecoveryPointError:
        # Of one certain checkpoint, only what is wrong with itself is of interest.
        only = self._wish.checkpoint_id if self._wish.exact else None
        telling = [skipped for skipped in self._skipped if only in (None, skipped.checkpoint_id)]
        shown = [f"{skipped.checkpoint_id}: {skipped.reason}" for skipped in telling[:10]]
        if len(telling) > 10:
            shown.append(f"and {len(telling) - 10} more")
        error = NoRecoveryPointError(
            f"no recovery point: {why}",
            subject=self._layout.blobs.uri,
            hint="; ".join(shown) or empty,
        )
        error.skipped = tuple(self._skipped)
        return error


def _skipped(checkpoint_id: CheckpointId, code: SkipCode, reason: str) -> Skipped:
    return Skipped(checkpoint_id=checkpoint_id, code=code, reason=reason)
