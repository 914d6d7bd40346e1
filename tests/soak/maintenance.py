"""What is done to pipelines while they run: proof, prune, sweep, orphans, undelete, recovery and damage."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfirmationNeededError,
    CorruptError,
    NoEvidenceError,
    NoRecoveryPointError,
    TransientError,
)
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.restoring import plan_restore
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.lifecycle.validation import Budget, select, validate, validate_many
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import RestorePlan
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId
    from tests.soak.pipeline import Pipeline
    from tests.soak.settings import Settings
    from tests.soak.tally import Tally

BY = "soak"
#: So often in a row a piece of work may meet bad weather before it is left for the next round.
_ATTEMPTS = 5

#: Answers that are right when two things meet; the work is done in the next round.
_MEETINGS: dict[str, tuple[type[CheckpointError], ...]] = {
    "validate": (),
    "prune": (ConfirmationNeededError, NoEvidenceError),
    "sweep": (),
    "orphans": (),
    "undelete": (CheckpointConflictError, CheckpointNotFoundError),
    "recovery": (ConfirmationNeededError, NoRecoveryPointError, CheckpointNotFoundError),
    "damage": (),
}


def now() -> datetime:
    return datetime.now(UTC)


def flip(store: BlobStore, key: str) -> None:
    """Change one byte, so that nothing but a digest tells."""
    data = store.read(key)
    store.replace(key, data[:-1] + bytes([data[-1] ^ 1]))


class Maintenance:
    """Works on pipelines in rotation until told to stop. Runs in a thread of its own."""

    def __init__(
        self,
        name: str,
        pipelines: Sequence[Pipeline],
        duties: Sequence[str],
        settings: Settings,
        tally: Tally,
        stop: threading.Event,
        *,
        pause: float,
    ) -> None:
        self._pipelines = pipelines
        self._duties = duties
        self._settings = settings
        self._tally = tally
        self._stop = stop
        self._pause = pause
        self._random = random.Random(f"{settings.seed} {name}")

    def __call__(self) -> None:
        while not self._stop.is_set():
            for pipeline in self._random.sample(self._pipelines, len(self._pipelines)):
                for duty in self._duties:
                    if self._stop.is_set():
                        return
                    if pipeline.committed.is_set():
                        self._do(duty, pipeline)
                self._stop.wait(self._pause)

    def _do(self, duty: str, pipeline: Pipeline) -> None:
        act: Callable[[Pipeline], None] = getattr(self, f"_{duty}")
        for _ in range(_ATTEMPTS):
            try:
                act(pipeline)
            except TransientError:
                self._tally.add("retries")
                if self._stop.wait(self._random.uniform(0.1, 0.5)):
                    return
                continue
            except _MEETINGS[duty]:
                self._tally.add("refusals")
            except CorruptError:
                if pipeline.damaged and duty == "recovery":
                    self._tally.add("refusals")
                else:
                    self._tally.unexpected(f"pipeline {pipeline.number}: {duty}")
            except Exception:  # noqa: BLE001 - told, and fails the run
                self._tally.unexpected(f"pipeline {pipeline.number}: {duty}")
            return
        self._tally.add("left for the next round")

    # -- duties --------------------------------------------------------------------------------------------------

    def _validate(self, pipeline: Pipeline) -> None:
        layout = PartitionedLayout(pipeline.store)
        ids = select(layout, Depth.CONTENT, rolling=True)
        before = frozenset(pipeline.damaged)
        for result in validate_many(layout, ids, Depth.CONTENT, budget=Budget(max_bytes=200, max_seconds=5)):
            self._tally.add("validations")
            if result.valid or not result.proven or result.missing:
                continue
            try:
                known = layout.load(result.checkpoint_id)
            except CheckpointNotFoundError:
                continue
            keys = {artifact.key for artifact in known.artifacts}
            if not keys & (before | pipeline.damaged):
                what = f"{result.checkpoint_id} is invalid and nobody damaged it"
                self._tally.fail(f"pipeline {pipeline.number}: {what}: {result.reason}")

    def _prune(self, pipeline: Pipeline) -> None:
        layout = PartitionedLayout(pipeline.store)
        safety = pipeline.safety()
        with pipeline.quiet.busy():
            policy = RetentionPolicy(keep_last=self._settings.keep_last)
            plan = plan_prune(layout, policy, now=now(), depth=Depth.CONTENT, safety=safety)
            report = Executor(layout, by=BY, safety=safety).prune(plan)
        self._tally.add("prunes")
        self._tally.add("checkpoints pruned", sum(outcome.done for outcome in report.outcomes))

    def _sweep(self, pipeline: Pipeline) -> None:
        layout = PartitionedLayout(pipeline.store)
        safety = pipeline.safety()
        report = Executor(layout, by=BY, safety=safety).sweep(plan_sweep(layout, now=now(), safety=safety))
        self._tally.add("sweeps")
        self._tally.add("objects swept", sum(outcome.done for outcome in report.outcomes))

    def _orphans(self, pipeline: Pipeline) -> None:
        layout = PartitionedLayout(pipeline.aged(pipeline.store))
        safety = pipeline.safety()
        plan = plan_orphans(layout, now=now(), safety=safety)
        report = Executor(layout, by=BY, safety=safety).remove_orphans(plan, confirmed=True)
        self._tally.add("orphan searches")
        self._tally.add("orphans removed", sum(outcome.done for outcome in report.outcomes))

    def _undelete(self, pipeline: Pipeline) -> None:
        if self._random.random() < 0.5:
            return
        layout = PartitionedLayout(pipeline.store)
        waiting = [entry.checkpoint_id for entry in survey(layout).trash if entry.purged is None]
        if waiting:
            Executor(layout, by=BY).undelete(self._random.choice(waiting))
            self._tally.add("undeletes")

    # -- recovery ------------------------------------------------------------------------------------------------

    def _recovery(self, pipeline: Pipeline) -> None:
        """Go back to an older checkpoint under the writer, which is fenced by it and goes on from there."""
        layout = PartitionedLayout(pipeline.store)
        store = survey(layout)
        epochs = sorted(checkpoint.epoch for checkpoint in store.checkpoints if store.on_branch(checkpoint))
        if len(epochs) < 2:
            return
        wish = Wish(strategy=Strategy.BEFORE_EPOCH, epoch=self._random.choice(epochs[1:]))
        with pipeline.quiet.busy(), pipeline.disturbing():
            plan = plan_restore(layout, choose(layout, wish, now=now()))
            self._restore(pipeline, layout, plan, mark=f"restore-{uuid4().hex}")
        self._tally.add("recoveries")

    def _restore(self, pipeline: Pipeline, layout: PartitionedLayout, plan: RestorePlan, *, mark: str) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                timeline = Executor(layout, by=BY).restore(plan, reason="soak", mark=mark)
            except TransientError:
                self._tally.add("retries")
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._check_restored(pipeline, timeline.number, plan.checkpoint_id)
            return

    def _check_restored(self, pipeline: Pipeline, number: int, checkpoint_id: CheckpointId | None) -> None:
        """A restore that says it succeeded has its checkpoint, as long as history has not moved on."""
        clean = PartitionedLayout(pipeline.clean_store)
        assert checkpoint_id is not None, "a fresh start was not asked for"
        try:
            clean.load(checkpoint_id)
        except CheckpointNotFoundError:
            newest = read_timelines(pipeline.clean_store)[-1]
            if newest.number == number:
                self._tally.fail(
                    f"pipeline {pipeline.number}: a restore went back to {checkpoint_id}, which is not there"
                )

    # -- damage --------------------------------------------------------------------------------------------------

    def _damage(self, pipeline: Pipeline) -> None:
        """Change a byte of the newest checkpoint; a proof must find it, and a recovery pass over it."""
        clean = PartitionedLayout(pipeline.clean_store)
        with pipeline.quiet.quiet(patience=5) as quiet:
            victim = _victim(clean, pipeline.damaged) if quiet else None
            if victim is None:
                return
            own = [
                artifact.key for artifact in victim.artifacts if clean.named(artifact.key).checkpoint_id == victim.id
            ]
            key = self._random.choice(own)
            with pipeline.disturbing():
                pipeline.damaged.add(key)
                flip(pipeline.clean_store, key)
            self._tally.add("damage done")
            self._find_damage(pipeline, victim)

    def _find_damage(self, pipeline: Pipeline, victim: Checkpoint) -> None:
        layout = PartitionedLayout(pipeline.store)
        for _ in range(4 * _ATTEMPTS):
            try:
                result = validate(layout, victim.id, Depth.CONTENT)
                chosen = choose(layout, Wish(depth=Depth.CONTENT), now=now()).chosen
                picked = None if chosen is None else layout.load(chosen)
            except (TransientError, CheckpointNotFoundError):
                self._tally.add("retries")
                continue
            if not result.proven:
                continue
            if result.valid:
                self._tally.fail(f"pipeline {pipeline.number}: damage to {victim.id} was not found")
            if picked is not None and pipeline.damaged.intersection(artifact.key for artifact in picked.artifacts):
                self._tally.fail(f"pipeline {pipeline.number}: a recovery would use {chosen}, which is damaged")
            self._tally.add("damage found")
            return
        self._tally.add("left for the next round")


def _victim(clean: PartitionedLayout, damaged: set[str]) -> Checkpoint | None:
    """The newest checkpoint of the current history, if an older one would be left to go back to."""
    store = survey(clean)
    history = sorted((each for each in store.checkpoints if store.on_branch(each)), key=lambda each: each.id)
    if not history:
        return None
    own = {
        artifact.key for artifact in history[-1].artifacts if clean.named(artifact.key).checkpoint_id == history[-1].id
    }
    if own & damaged:
        # The same byte once more would repair it.
        return None
    for older in history[:-1]:
        if not (own | damaged) & {artifact.key for artifact in older.artifacts}:
            return history[-1]
    return None
