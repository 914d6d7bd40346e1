"""Removing what no rule keeps: prune, sweep, undelete, orphans."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import CheckpointOperator, push, who
from airflow_provider_checkpoint.operators._spark_engine import EngineOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from airflow.sdk import Context

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.facts import Survey
    from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan, PrunePlan, Report
    from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
    from airflow_provider_checkpoint.lifecycle.safety import Safety


class _RemovingOperator(CheckpointOperator):
    """
    Makes a plan, shows it, and applies it unless this is a dry run.

    :param dry_run: only make the plan and show it. The answer has it as ``plan``. (templated)
    """

    template_fields: Sequence[str] = (*CheckpointOperator.template_fields, "only_plan")
    #: What the bytes of its report add up to.
    _counter: ClassVar[str] = "freed_bytes"
    changes_checkpoints = True

    def __init__(self, *, dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Not under its own name: Airflow's operators have a method dry_run.
        self.only_plan = dry_run

    def _apply(
        self,
        context: Context,
        uri: str,
        answer: dict[str, Any],
        plan: Callable[[], Any],
        apply: Callable[[], Report],
    ) -> dict[str, Any]:
        self.touched(uri, answer | {"applied": False})
        if _values.flag("dry_run", self.only_plan):
            self.log.info("A dry run: nothing was changed.")
            return answer | {"applied": False, "plan": plan()}
        from airflow_provider_checkpoint import metrics
        from airflow_provider_checkpoint.exceptions import CheckpointError, StoreUnavailableError

        try:
            report = apply()
        except CheckpointError:
            # Whoever has to look finds what would have been done.
            push(context, answer | {"applied": False, "plan": plan()})
            raise
        metrics.count(self._counter, report.bytes, **self.tags)
        done = answer | {"applied": True, "run": report.run, "bytes_done": report.bytes}
        self.touched(uri, done)
        if not report.failures:
            return done
        for outcome in report.failures:
            self.log.warning("not done: %s: %s", outcome.subject, outcome.message)
        kept = [outcome for outcome in report.failures if outcome.message.startswith("kept: ")]
        done["not_done"] = len(report.failures)
        if len(kept) < len(report.failures):
            push(context, done)
            raise StoreUnavailableError(
                f"{len(report.failures) - len(kept)} objects could not be changed",
                subject=self.pipeline,
                hint="The log names them. Running the same again is safe.",
            )
        return done


class CheckpointPruneOperator(_RemovingOperator):
    """
    Move checkpoints that no rule keeps to the trash, from which they can be undeleted until they are swept.

    Whatever the rules say, these stay: the newest that can be restored, pinned ones, savepoints, and what a kept one
    depends on. Answers with ``removed`` (ids), ``kept``, ``bytes``, ``applied``.

    :param policy: what to keep, such as ``{"keep_last": 5, "keep_daily": 14, "min_age": "1h"}``. (templated)
    :param depth: how a checkpoint is proven before it counts as one that can be restored. (templated)
    """

    template_fields: Sequence[str] = (*_RemovingOperator.template_fields, "policy", "depth")
    template_fields_renderers = {"policy": "json"}  # noqa: RUF012 - as Airflow declares it
    _counter = "pruned_bytes"

    def __init__(self, *, policy: Mapping[str, Any] | str, depth: str = "presence", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.depth = depth

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.cli.verbs.prune import show
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.facts import survey
        from airflow_provider_checkpoint.lifecycle.pruning import plan_prune

        layout = self.open()
        now = datetime.now(UTC)
        store = survey(layout)
        plan = plan_prune(layout, policy_of(self.policy), now=now, depth=_values.depth(self.depth), store=store)
        self.log_table(lambda console: show(plan, console), now)
        answer = {
            "removed": [str(item.checkpoint_id) for item in plan.removed],
            "kept": len(plan.items) - len(plan.removed),
            "bytes": plan.bytes,
        }
        done = self._apply(
            context,
            layout.blobs.uri,
            answer,
            lambda: plan.model_dump(mode="json"),
            lambda: Executor(layout, by=who(context)).prune(plan),
        )
        self._tell_retained(store, plan, now, applied=done["applied"])
        return done

    def _tell_retained(self, store: Survey, plan: PrunePlan, now: datetime, *, applied: bool) -> None:
        from airflow_provider_checkpoint import metrics
        from airflow_provider_checkpoint.reports.views import retained_bytes

        kept = {item.checkpoint_id for item in plan.items if item.action == "keep" or not applied}
        checkpoints = [each for each in store.checkpoints if each.id in kept]
        metrics.gauge("retained_count", len(kept), **self.tags)
        metrics.gauge("retained_bytes", retained_bytes(checkpoints), **self.tags)
        for each in checkpoints:
            if each.id == plan.newest_restorable:
                metrics.gauge("freshness_seconds", (now - each.created).total_seconds(), **self.tags)


class CheckpointSweepOperator(_RemovingOperator):
    """
    Remove for good what was pruned longer ago than the undo window. Answers with ``swept`` (ids), ``bytes``.

    :param undo_window: how long a pruned checkpoint can be undeleted. (templated)
    """

    template_fields: Sequence[str] = (*_RemovingOperator.template_fields, "undo_window")

    def __init__(self, *, undo_window: timedelta | str = "24h", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.undo_window = undo_window

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.cli.verbs.sweep import show
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.pruning import plan_sweep

        layout = self.open()
        now = datetime.now(UTC)
        safety = safety_of(undo_window=_values.span("undo_window", self.undo_window))
        plan = plan_sweep(layout, now=now, safety=safety)
        self.log_table(lambda console: show(plan, console), now)
        answer = {"swept": [str(each) for each in plan.expired], "bytes": plan.bytes}
        return self._apply(
            context,
            layout.blobs.uri,
            answer,
            lambda: plan.model_dump(mode="json"),
            lambda: Executor(layout, by=who(context), safety=safety).sweep(plan),
        )


class CheckpointOrphanCleanupOperator(_RemovingOperator, EngineOperator):
    """
    Remove objects that no checkpoint needs: what writers left when they died.

    Young objects and those with names of others are left alone. If unusually much would go, the task fails and asks for
    a person, unless ``confirm`` is set. Answers with ``orphans``, ``bytes``, ``counts``, ``truncated``. Where there are
    very many manifests, ``engine="spark"`` reads them with a cluster and makes the same plan; see
    :class:`EngineOperator` for the rest. What goes is looked at once more, and removed, by this task in any case.

    :param min_age: only what is older; never less than an hour. (templated)
    :param max_bytes: ask a person if more would go. (templated)
    :param confirm: go on although the plan is unusual. (templated)
    """

    template_fields: Sequence[str] = (
        *EngineOperator.template_fields,
        *("only_plan", "min_age", "max_bytes", "confirm"),
    )

    def __init__(
        self,
        *,
        min_age: timedelta | str = "24h",
        max_bytes: int | str | None = None,
        confirm: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_age = min_age
        self.max_bytes = max_bytes
        self.confirm = confirm

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.cli.verbs.orphans import show
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans

        layout = self.open()
        now = datetime.now(UTC)
        safety = safety_of(
            orphan_age=_values.span("min_age", self.min_age),
            max_orphan_bytes=_values.size("max_bytes", self.max_bytes),
        )
        plan = self._ask_spark(layout, now, safety) if self.on_spark else plan_orphans(layout, now=now, safety=safety)
        self.log_table(lambda console: show(plan, console), now)
        answer = {
            "orphans": len(plan.deletions),
            "bytes": plan.bytes,
            "counts": {decision.value: count for decision, count in plan.counts.items()},
            "truncated": plan.truncated,
        }
        confirmed = _values.flag("confirm", self.confirm)
        return self._apply(
            context,
            layout.blobs.uri,
            answer,
            lambda: plan.model_dump(mode="json"),
            lambda: Executor(layout, by=who(context), safety=safety).remove_orphans(plan, confirmed=confirmed),
        )

    def _ask_spark(self, layout: Layout, now: datetime, safety: Safety) -> OrphanPlan:
        # Ages are counted from this worker's clock, which is the one that is compared with the store's.
        told = ["--at", now.isoformat(), "--min-age", f"{ceil(safety.orphan_age.total_seconds())}s"]
        told += [] if safety.max_orphan_bytes is None else ["--max-bytes", str(safety.max_orphan_bytes)]
        plan = self.ask_spark(layout, "orphans", told).plan
        assert plan is not None  # Whoever reads the answer has looked.
        return plan


class CheckpointUndeleteOperator(CheckpointOperator):
    """
    Bring a pruned checkpoint back from the trash.

    :param checkpoint_id: which one. (templated)
    """

    template_fields: Sequence[str] = (*CheckpointOperator.template_fields, "checkpoint_id")
    changes_checkpoints = True

    def __init__(self, *, checkpoint_id: str | int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint_id = checkpoint_id

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.lifecycle.executor import Executor

        layout = self.open()
        checkpoint_id = layout.parse_id(str(self.checkpoint_id))
        report = Executor(layout, by=who(context)).undelete(checkpoint_id)
        self.log.info("checkpoint %s is back", checkpoint_id)
        return self.touched(layout.blobs.uri, {"checkpoint_id": str(checkpoint_id), "run": report.run})


def policy_of(policy: Mapping[str, Any] | str) -> RetentionPolicy:
    """Retention rules, with an error that names the wrong one."""
    from pydantic import ValidationError

    from airflow_provider_checkpoint.exceptions import ConfigurationError
    from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy

    values = {name: value for name, value in _values.mapping("policy", policy).items() if value not in (None, "")}
    try:
        return RetentionPolicy.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(["policy", *(str(part) for part in first["loc"])])
        known = ", ".join(RetentionPolicy.model_fields)
        raise ConfigurationError(f"{name}: {first['msg']}", hint=f"There are: {known}.") from None


def safety_of(**given: Any) -> Safety:
    """The usual care, with what was given."""
    from airflow_provider_checkpoint.lifecycle.safety import SAFE

    return replace(SAFE, **{name: value for name, value in given.items() if value is not None})
