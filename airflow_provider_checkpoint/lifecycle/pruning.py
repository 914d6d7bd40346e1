"""Making prune and sweep plans from what a store holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import sha256_of
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, NoEvidenceError
from airflow_provider_checkpoint.layouts._protocol import Role
from airflow_provider_checkpoint.lifecycle.facts import (
    Known,
    Survey,
    bases_of,
    decided,
    decision_key,
    is_decision_key,
    survey,
    unsettled_sinks,
)
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision, PathItem, PruneItem, PrunePlan, SweepPlan
from airflow_provider_checkpoint.lifecycle.retention import Item, RetentionPolicy, Verdict, decide
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.side_by_side import side_by_side
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, entry_key, folder_of, trashed_at
from airflow_provider_checkpoint.lifecycle.validation import not_examined, validate_examined
from airflow_provider_checkpoint.model import Checkpoint, CheckpointId, Depth

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.layouts._protocol import Layout


def plan_prune(
    layout: Layout,
    policy: RetentionPolicy,
    *,
    now: datetime,
    depth: Depth = Depth.PRESENCE,
    safety: Safety = SAFE,
    store: Survey | None = None,
) -> PrunePlan:
    """Decide which checkpoints go to the trash, and say why for each.

    A checkpoint counts as restorable if its manifest is sound, its sinks are settled, no proof in the ledger speaks
    against it, and it was shown to be whole now, to ``depth``. The last is asked only of those on which the answer
    depends: from the newest down, until the policy has all it counts.
    """
    store = store or survey(layout)
    if store.lost_timeline is not None:
        # The rules count only what is not abandoned.
        raise store.lost_timeline
    items = _items(layout, store, now, safety)
    items, newest = _prove(layout, store, items, policy, depth, now)
    verdicts = {verdict.id: verdict for verdict in decide(items, policy, now)}
    shared = _reference_counts(store)
    return PrunePlan(
        uri=layout.blobs.uri,
        layout=layout.name,
        made=now,
        policy=policy,
        newest_restorable=newest,
        depth=depth,
        items=tuple(
            side_by_side(lambda known: _prune_item(layout, known, verdicts[known.id], shared), reversed(store.known))
        ),
    )


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a policy makes of one checkpoint, now and later."""

    now: Verdict
    goes_within: timedelta | None
    """The first of the horizons at which it goes; zero if it would go now; None if it stays beyond all of them."""
    why: str = ""
    """Why it goes then."""


def foresee_prune(
    layout: Layout,
    policy: RetentionPolicy,
    *,
    now: datetime,
    store: Survey,
    horizons: Sequence[timedelta] = (),
    safety: Safety = SAFE,
) -> dict[CheckpointId, Foreseen]:
    """What ``plan_prune`` would decide now and at some times to come, if no checkpoint were added.

    Reads no artifact: whatever nothing speaks against counts as whole. So it is a preview, not a plan.
    """
    first = {verdict.id: verdict for verdict in decide(_items(layout, store, now, safety), policy, now)}
    going = {each.id: (timedelta(0), each) for each in first.values() if not each.keep}
    for horizon in sorted(horizons):
        then = now + horizon
        # What is only protected for a while, pins that expire among it, is not protected then.
        for verdict in decide(_items(layout, store, then, safety), policy, then):
            if not verdict.keep:
                going.setdefault(verdict.id, (horizon, verdict))
    foreseen = {}
    for checkpoint_id, verdict in first.items():
        within, last = going.get(checkpoint_id, (None, None))
        foreseen[checkpoint_id] = Foreseen(verdict, within, "" if last is None else "; ".join(last.reasons))
    return foreseen


def _items(layout: Layout, store: Survey, now: datetime, safety: Safety) -> list[Item]:
    pins: dict[CheckpointId, list[str]] = {}
    for pin in store.pins:
        if pin.holds(now):
            pins.setdefault(pin.checkpoint_id, []).append(pin.name)
    start = store.timelines[-1].fork_checkpoint if store.timelines else None

    def item(known: Known) -> Item:
        return _item(layout, store, known, now, safety, tuple(pins.get(known.id, ())), start)

    # Threads only for what has to ask the store, which is the few.
    answered = iter(side_by_side(item, filter(_asks_the_store, store.known)))
    items = [next(answered) if _asks_the_store(known) else item(known) for known in store.known]
    held = layout.held()
    items = [replace(item, protected=(*item.protected, held[item.id])) if item.id in held else item for item in items]
    return _protect_next_base(items, {each.id for each in store.checkpoints if each.savepoint})


def _protect_next_base(items: list[Item], savepoints: set[CheckpointId]) -> list[Item]:
    """A running writer builds its next increment on the newest checkpoint that is not a savepoint, so that one stays.

    Usually it is the newest restorable one and stays anyway; after a savepoint it is not (FLINK-21351).
    """
    usable = [item for item in items if item.restorable and item.on_branch]
    newest = max(usable, key=lambda item: item.id, default=None)
    if newest is None or newest.id not in savepoints:
        return items
    base = max((item for item in usable if item.id not in savepoints), key=lambda item: item.id, default=None)
    reason = "the next increment builds on it"
    return [replace(item, protected=(*item.protected, reason)) if item is base else item for item in items]


def _asks_the_store(known: Known) -> bool:
    return known.checkpoint is None or bool(unsettled_sinks(known.checkpoint))


def _item(
    layout: Layout,
    store: Survey,
    known: Known,
    now: datetime,
    safety: Safety,
    pins: tuple[str, ...],
    start: CheckpointId | None,
) -> Item:
    checkpoint = known.checkpoint
    if checkpoint is None:
        return Item(known.id, _age_of_manifest(layout, known.id, now), restorable=False, pins=pins, unfit=known.problem)
    unfit = known.problem or _unfit_by_record(layout, store, checkpoint)
    protected = []
    if checkpoint.savepoint:
        protected.append("a savepoint")
    if store.lost_timeline is not None:
        protected.append("it cannot be told which checkpoints were abandoned")
    if known.id == start:
        protected.append("the current timeline starts from it")
    if unsettled_sinks(checkpoint) and now - checkpoint.created < safety.commit_grace:
        protected.append("its commit may be under way")
    return Item(
        known.id,
        checkpoint.created,
        epoch=checkpoint.epoch,
        restorable=not unfit,
        on_branch=store.on_branch(checkpoint),
        pins=pins,
        bases=bases_of(layout, checkpoint),
        protected=tuple(protected),
        unfit=unfit,
    )


def _unfit_by_record(layout: Layout, store: Survey, checkpoint: Checkpoint) -> str:
    """What speaks against a checkpoint without looking at its artifacts."""
    proof = store.ledger.get(checkpoint.id)
    if proof is not None and not proof.valid:
        return f"found invalid on {proof.proven.date().isoformat()}"
    open_sinks = unsettled_sinks(checkpoint)
    if open_sinks and not decided(layout.blobs, checkpoint):
        return f"its commit was never decided (sinks not committed: {', '.join(open_sinks)})"
    return ""


def _age_of_manifest(layout: Layout, checkpoint_id: CheckpointId, now: datetime) -> datetime:
    """When an unreadable manifest was written; unknown counts as just now, so that it stays."""
    seen = [layout.blobs.stat(key) for key in layout.manifest_keys(checkpoint_id)]
    return min((info.modified for info in seen if info is not None and info.modified is not None), default=now)


def _prove(
    layout: Layout, store: Survey, items: Sequence[Item], policy: RetentionPolicy, depth: Depth, now: datetime
) -> tuple[list[Item], CheckpointId | None]:
    """Replace the claim of restorability by proof, from the newest down, as far as the policy counts."""
    checkpoints = {known.id: known.checkpoint for known in store.known}
    wanted = max(1, policy.keep_last or 0)
    newest: CheckpointId | None = None
    found = 0
    proven: list[Item] = []
    for item in sorted(items, key=lambda item: item.id, reverse=True):
        checkpoint = checkpoints[item.id]
        if found < wanted and item.restorable and item.on_branch and item.created <= now and checkpoint is not None:
            result = validate_examined(layout, checkpoint, depth)
            if not result.proven:
                # What could not be asked is not broken; and without an answer, nothing older may go for it.
                raise not_examined(layout, result)
            if not result.valid:
                proven.append(replace(item, restorable=False, unfit=result.reason))
                continue
            found += not item.pins
            newest = newest or item.id
        proven.append(item)
    return proven, newest


def _reference_counts(store: Survey) -> Counter[str]:
    return Counter(key for checkpoint in store.checkpoints for key in {a.key for a in checkpoint.artifacts})


def _prune_item(layout: Layout, known: Known, verdict: Verdict, shared: Counter[str]) -> PruneItem:
    checkpoint = known.checkpoint
    artifacts = checkpoint.artifacts if checkpoint is not None else ()
    if verdict.keep:
        return PruneItem(checkpoint_id=known.id, action="keep", reasons=verdict.reasons)
    keys = layout.manifest_keys(known.id)
    return PruneItem(
        checkpoint_id=known.id,
        action="trash",
        reasons=verdict.reasons,
        bytes=sum(artifact.size or 0 for artifact in artifacts if shared[artifact.key] == 1)
        + (checkpoint.inline_bytes if checkpoint is not None else 0),
        keys=tuple(keys),
        artifacts=tuple(sorted({artifact.key for artifact in artifacts} | _marker(layout, checkpoint))),
        manifest_sha256=manifest_digest(layout, keys),
    )


def _marker(layout: Layout, checkpoint: Checkpoint | None) -> set[str]:
    """The commit decision of a checkpoint, if there is one: it goes with it, or markers would pile up for ever."""
    if checkpoint is None:
        return set()
    key = decision_key(checkpoint.timeline, checkpoint.epoch)
    return set() if layout.blobs.stat(key) is None else {key}


def manifest_digest(layout: Layout, keys: Sequence[str]) -> str | None:
    """What stands under a checkpoint's manifest names now; None if nothing does."""
    if not keys:
        return None
    try:
        return sha256_of(layout.blobs, keys[-1]).sha256
    except BlobNotFoundError:
        return None


# -- sweep -------------------------------------------------------------------------------------------------------


def plan_sweep(layout: Layout, *, now: datetime, safety: Safety = SAFE) -> SweepPlan:
    """Decide what leaves the store for good: what only checkpoints with a passed undo window had named."""
    store = survey(layout)
    require_readable(store)
    end = now - safety.undo_window
    pinned = {pin.checkpoint_id for pin in store.pins if pin.holds(now)}
    gone = [
        entry
        for entry in store.trash
        if entry.purged is None and entry.checkpoint_id not in pinned and trashed_at(layout.blobs, entry) <= end
    ]
    needed = needed_artifacts(store, without={entry.checkpoint_id for entry in gone})
    items = [item for entry in gone for item in _sweep_items(layout, entry, needed)]
    return SweepPlan(
        uri=layout.blobs.uri,
        layout=layout.name,
        made=now,
        undo_window_end=end,
        expired=tuple(entry.checkpoint_id for entry in gone),
        items=tuple({item.path: item for item in items}.values()),
    )


def require_readable(store: Survey) -> None:
    """Raise unless every manifest and every entry of the trash was read.

    One that cannot be read may name any artifact, so nothing is removed for good while there is one.
    """
    for entry in store.unreadable_trash:
        raise entry.error
    unreadable = [str(known.id) for known in store.known if known.checkpoint is None]
    if unreadable:
        raise NoEvidenceError(
            f"cannot tell which artifacts are needed: manifests cannot be read ({', '.join(unreadable[:5])})",
            hint="Prune or repair them first; what is pruned can be undeleted.",
        )


def needed_artifacts(store: Survey, *, without: set[CheckpointId]) -> frozenset[str]:
    """Every artifact that a live checkpoint or one in the trash names, leaving some of the trash out.

    So are the commit decisions of live checkpoints: without its own, one whose sinks are pending counts as undecided.
    """
    live = {artifact.key for checkpoint in store.checkpoints for artifact in checkpoint.artifacts}
    live |= {decision_key(checkpoint.timeline, checkpoint.epoch) for checkpoint in store.checkpoints}
    waiting = [entry for entry in store.trash if entry.checkpoint_id not in without and entry.purged is None]
    return frozenset(live | {key for entry in waiting for key in entry.artifacts})


def artifacts_to_sweep(layout: Layout, entry: TrashEntry, needed: frozenset[str]) -> list[str]:
    """Artifacts that nothing but a checkpoint in the trash needs. An entry that names anything else is not believed."""
    return [
        key
        for key in entry.artifacts
        if key not in needed and (layout.named(key).role is Role.ARTIFACT or is_decision_key(key))
    ]


def _sweep_items(layout: Layout, entry: TrashEntry, needed: frozenset[str]) -> list[PathItem]:
    reason = f"checkpoint {entry.checkpoint_id} was pruned on {entry.trashed.isoformat()}"
    items = []
    for key in artifacts_to_sweep(layout, entry, needed):
        info = layout.blobs.stat(key)
        if info is not None:
            items.append(_gone(key, reason, info.size, info.version))
    items.extend(
        _gone(info.key, reason, info.size, info.version)
        for info in layout.blobs.list(folder_of(entry.checkpoint_id))
        if info.key != entry_key(entry.checkpoint_id)
    )
    return items


def _gone(key: str, reason: str, size: int, version: str | None) -> PathItem:
    return PathItem(path=key, action=OrphanDecision.DELETE, reasons=(reason,), bytes=size, version=version)
