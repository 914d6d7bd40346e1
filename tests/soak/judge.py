"""What must hold of a pipeline when everything is over and the weather is fine again."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.layouts._protocol import Role
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import decision_key, is_decision_key, survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import AuditRecord
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth
from tests.soak.maintenance import BY, flip, now
from tests.soak.pipeline import AgedBlobs, Run
from tests.unit.writing.pipeline import published, visible

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import Checkpoint
    from tests.soak.pipeline import Pipeline
    from tests.soak.settings import Settings


def judge(pipeline: Pipeline, settings: Settings) -> tuple[list[str], Counter[str]]:
    """Start the writer one last time, clean up one last time, and say everything that is wrong."""
    verdict = _Verdict(pipeline, settings)
    try:
        verdict.run()
    except Exception:  # noqa: BLE001 - an error here is a verdict as well
        verdict.wrong.append(traceback.format_exc())
    return [f"pipeline {pipeline.number}: {each}" for each in verdict.wrong], verdict.counts


class _Verdict:
    def __init__(self, pipeline: Pipeline, settings: Settings) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._layout = PartitionedLayout(pipeline.clean_store)
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        pipeline = self._pipeline
        self._check_history()
        last = Run(pipeline.clean_store, pipeline.clean_output, hook=lambda _: None, begun=pipeline.note)
        wrong = pipeline.check_start(last)
        if wrong is not None:
            self.wrong.append(wrong)
        checkpoint = last.step(range(last.position + 1, last.position + 3))
        self._spoil(checkpoint)
        self._check_output(last)
        self._check_recovery(checkpoint)
        self._check_retained()
        self._clean_up()
        self._check_retained()
        self._check_recovery(checkpoint)
        self._check_journal()
        self._check_audit()

    def _say(self, condition: bool, what: str) -> None:
        if not condition:
            self.wrong.append(what)

    def _spoil(self, newest: Checkpoint) -> None:
        """Harm that nobody knows of, to see that it is found."""
        if self._settings.spoil == "damage":
            flip(self._pipeline.clean_store, newest.artifacts[-1].key)
        elif self._settings.spoil == "output":
            output = self._pipeline.clean_output
            first = min(info.key for info in output.list() if info.key.startswith("timeline="))
            output.replace(first, b"[0]")

    # -- output and state ----------------------------------------------------------------------------------------

    def _check_output(self, last: Run) -> None:
        truth = list(range(1, last.position + 1))
        self._say(last.total == sum(truth), f"the sum is {last.total} and should be {sum(truth)}")
        order = published(self._pipeline.clean_output)
        for reader, numbers in {"published": order, "visible": visible(self._pipeline.clean_output)}.items():
            lost, extra = Counter(truth) - Counter(numbers), Counter(numbers) - Counter(truth)
            self._say(not lost, f"{reader} output: lost are {_some(lost)}")
            self._say(not extra, f"{reader} output: too often or wrong are {_some(extra)}")
        self._say(order == sorted(order), "published output: out of order")
        leftovers = list(self._pipeline.clean_output.list("_prepared"))
        self._say(not leftovers, f"{len(leftovers)} epochs are prepared and neither published nor discarded")
        self.counts["numbers published"] += len(order)

    def _check_recovery(self, newest: Checkpoint) -> None:
        try:
            chosen = choose(self._layout, Wish(depth=Depth.RESTORE), now=now()).chosen
        except CheckpointError as error:
            self.wrong.append(f"no recovery point: {error}")
            return
        self._say(chosen == newest.id, f"a recovery would choose {chosen} and not the newest, {newest.id}")

    def _check_retained(self) -> None:
        """Whatever is live is whole, unless it was damaged; and then the proof says so."""
        for checkpoint in survey(self._layout).checkpoints:
            result = validate(self._layout, checkpoint.id, Depth.CONTENT)
            damaged = bool(self._pipeline.damaged.intersection(artifact.key for artifact in checkpoint.artifacts))
            self._say(
                result.valid != damaged,
                f"{checkpoint.id} (damaged: {damaged}) is said to be {result.reason or 'valid'}",
            )
            self.counts["checkpoints proven"] += 1
        problems = [known.problem for known in survey(self._layout).known if known.problem]
        self._say(not problems, f"manifests with errors: {problems[:3]}")

    # -- history -------------------------------------------------------------------------------------------------

    def _check_history(self) -> None:
        """Timelines grow, each has one writer, and what a checkpoint says of its writer is true."""
        timelines = {timeline.number: timeline for timeline in read_timelines(self._pipeline.clean_store)}
        writers = Counter(timeline.writer for timeline in timelines.values())
        twice = [writer for writer, count in writers.items() if count > 1]
        self._say(not twice, f"writers with several timelines: {twice[:3]}")
        for number, timeline in timelines.items():
            self._say(timeline.parent is None or timeline.parent < number, f"timeline {number} forks from a later one")
        for checkpoint in survey(self._layout).checkpoints:
            manifest = self._layout.load_manifest(checkpoint.id)
            owner = timelines.get(checkpoint.timeline)
            self._say(
                owner is not None and owner.writer == manifest.writer,
                f"{checkpoint.id} of timeline {checkpoint.timeline} was written by {manifest.writer}",
            )
        self.counts["timelines"] += len(timelines)

    def _check_journal(self) -> None:
        lines = [line.split() for line in self._pipeline.journal.read_text().splitlines()]
        ids = Counter(words[2] for words in lines)
        epochs = Counter((words[0], words[1]) for words in lines)
        self._say(max(ids.values()) == 1, f"ids used twice: {_some(ids - Counter(dict.fromkeys(ids, 1)))}")
        self._say(max(epochs.values()) == 1, f"epochs used twice: {_some(epochs - Counter(dict.fromkeys(epochs, 1)))}")

    def _check_audit(self) -> None:
        blobs = self._pipeline.clean_store
        phases: dict[str, set[str]] = {}
        for info in blobs.list("audit"):
            record = parse_model(AuditRecord, read_object(blobs, info.key), subject=info.key)
            phases.setdefault(record.run, set()).add(record.phase)
        ended = [run for run, seen in phases.items() if "started" not in seen]
        self._say(not ended, f"runs that ended and never began: {ended[:3]}")
        self.counts["audit records"] += sum(map(len, phases.values()))

    # -- the last clean-up ---------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Nobody writes any more: every orphan goes, and everything in the trash whose window has passed."""
        safety = replace(self._pipeline.safety(), commit_grace=timedelta(0))
        old = PartitionedLayout(AgedBlobs(self._pipeline.clean_store, lambda: now().timestamp() + 1))
        # A probe would look an hour old; so the clocks are compared by nobody.
        safety = replace(safety, clock_skew=timedelta(hours=2))
        Executor(old, by=BY, safety=safety).remove_orphans(plan_orphans(old, now=now(), safety=safety), confirmed=True)
        left = plan_orphans(old, now=now(), safety=safety).counts
        for kind in (OrphanDecision.DELETE, OrphanDecision.DEFER):
            self._say(not left.get(kind), f"{left.get(kind)} orphans are left after the last clean-up ({kind})")
        self._sweep_and_check(self._settings.undo_window)
        policy = RetentionPolicy(keep_last=self._settings.keep_last)
        plan = plan_prune(self._layout, policy, now=now(), depth=Depth.CONTENT, safety=safety)
        Executor(self._layout, by=BY, safety=safety).prune(plan)
        self._sweep_and_check(0)
        self._check_nothing_unnamed()

    def _sweep_and_check(self, window: float) -> None:
        safety = replace(self._pipeline.safety(), undo_window=timedelta(seconds=window), clock_skew=timedelta(hours=2))
        moment = now()
        plan = plan_sweep(self._layout, now=moment, safety=safety)
        Executor(self._layout, by=BY, safety=safety).sweep(plan)
        again = plan_sweep(self._layout, now=moment, safety=safety).expired
        self._say(not again, f"in the trash past their window of {window:.0f} s: {list(map(str, again[:3]))}")

    def _check_nothing_unnamed(self) -> None:
        """With the trash empty, every artifact and every decision belongs to a live checkpoint."""
        store = survey(self._layout)
        named = {artifact.key for checkpoint in store.checkpoints for artifact in checkpoint.artifacts}
        present = [info.key for info in self._pipeline.clean_store.list()]
        artifacts = {key for key in present if self._layout.named(key).role is Role.ARTIFACT}
        self._say(artifacts <= named, f"artifacts that nothing names: {sorted(artifacts - named)[:3]}")
        self._say(named <= artifacts, f"artifacts that are missing: {sorted(named - artifacts)[:3]}")
        decisions = {decision_key(checkpoint.timeline, checkpoint.epoch) for checkpoint in store.checkpoints}
        stray = [key for key in present if is_decision_key(key) and key not in decisions]
        self.counts["stray decisions"] += len(stray)


def _some(counts: Counter[Any]) -> str:
    shown = ", ".join(map(str, list(counts)[:5]))
    return f"{shown} ({counts.total()} in all)" if len(counts) > 5 else shown
