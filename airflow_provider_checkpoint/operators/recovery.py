"""Choosing the point to go back to, and going back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import CheckpointOperator, mark_of, who

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import BaseOperator, Context

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan
    from airflow_provider_checkpoint.lifecycle.recovery import Wish

#: What ``recover_from`` says where there is no checkpoint to start from.
FRESH = "fresh"
#: Candidates passed over that an XCom carries with their reasons.
_SHOWN = 50


class CheckpointSelectRecoveryPointOperator(CheckpointOperator):
    """
    Choose the newest checkpoint that fits and can be proven, and explain the choice. Changes nothing.

    Answers with ``checkpoint_id``, ``recover_from``, ``uri``, ``store``, ``pipeline``, ``epoch``, ``timeline``,
    ``created``, ``rollback_seconds``, ``rollback_epochs``, ``rollback_events`` (all text, ready for
    ``application_args`` of a SparkSubmitOperator), and with ``plan``, the whole explanation. If no checkpoint fits, the
    task fails, unless ``fresh_start_ok``.

    :param strategy: ``latest``, ``id``, ``before_time``, ``before_epoch``, ``before_watermark``, ``before_offset`` or
        ``pin``. (templated)
    :param checkpoint_id: for ``id``. (templated)
    :param at: for ``before_time``: an ISO time with a zone. (templated)
    :param epoch: for ``before_epoch``. (templated)
    :param watermark: for ``before_watermark``. (templated)
    :param source: for ``before_offset``; with ``partition`` and ``offset``. (templated)
    :param pin: for ``pin``: its name. (templated)
    :param depth: how a candidate is proven before it is chosen. (templated)
    :param max_rollback: fail if the point is so much older than the newest checkpoint, such as ``2h``. (templated)
    :param max_rollback_epochs: likewise in epochs. (templated)
    :param fresh_start_ok: answer with a fresh start if nothing fits. (templated)
    :param skip: checkpoints that are ruled out. (templated)
    """

    template_fields: Sequence[str] = (
        *CheckpointOperator.template_fields,
        *("strategy", "checkpoint_id", "at", "epoch", "watermark", "source", "partition", "offset", "pin"),
        *("depth", "max_rollback", "max_rollback_epochs", "fresh_start_ok", "skip"),
    )

    def __init__(
        self,
        *,
        strategy: str = "latest",
        checkpoint_id: str | int | None = None,
        at: datetime | str | None = None,
        epoch: int | str | None = None,
        watermark: int | str | None = None,
        source: str | None = None,
        partition: str | None = None,
        offset: int | str | None = None,
        pin: str | None = None,
        depth: str = "content",
        max_rollback: timedelta | str | None = None,
        max_rollback_epochs: int | str | None = None,
        fresh_start_ok: bool | str = False,
        skip: Sequence[str | int] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.strategy = strategy
        self.checkpoint_id = checkpoint_id
        self.at = at
        self.epoch = epoch
        self.watermark = watermark
        self.source = source
        self.partition = partition
        self.offset = offset
        self.pin = pin
        self.depth = depth
        self.max_rollback = max_rollback
        self.max_rollback_epochs = max_rollback_epochs
        self.fresh_start_ok = fresh_start_ok
        self.skip = skip

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        from airflow_provider_checkpoint import metrics
        from airflow_provider_checkpoint.cli.verbs.recover import show
        from airflow_provider_checkpoint.lifecycle.recovery import choose

        layout = self.open()
        now = datetime.now(UTC)
        plan = choose(layout, self.wish(layout), now=now)
        self.log_table(lambda console: show(plan, console), now)
        if plan.distance is not None:
            metrics.gauge("recovery_distance_seconds", plan.distance.seconds, **self.tags)
        answer = answer_of(plan, store=self.hook.settings.uri, pipeline=self.pipeline)
        return self.touched(plan.uri, answer)

    def wish(self, layout: Layout) -> Wish:
        """What is wanted. A field that the strategy does not use may be filled in, as in a form; it is left out."""
        from airflow_provider_checkpoint.exceptions import ConfigurationError
        from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish

        try:
            strategy = Strategy(self.strategy)
        except ValueError:
            raise ConfigurationError(
                f"unknown strategy {self.strategy!r}", hint=f"There are: {', '.join(Strategy)}."
            ) from None
        named = _values.text(self.checkpoint_id)
        all_limits: dict[str, Any] = {
            "checkpoint_id": None if named is None else layout.parse_id(named),
            "at": _values.moment("at", self.at),
            "epoch": _values.number("epoch", self.epoch),
            "watermark": _values.number("watermark", self.watermark),
            "source": _values.text(self.source),
            "partition": _values.text(self.partition),
            "offset": _values.number("offset", self.offset),
            "pin": _values.text(self.pin),
        }
        return Wish(
            strategy=strategy,
            **{name: all_limits[name] for name in strategy.limits},
            depth=_values.depth(self.depth),
            max_rollback=_values.span("max_rollback", self.max_rollback),
            max_rollback_epochs=_values.number("max_rollback_epochs", self.max_rollback_epochs),
            fresh_start_ok=_values.flag("fresh_start_ok", self.fresh_start_ok),
            skip=frozenset(layout.parse_id(word) for word in _values.words("skip", self.skip)),
            vnode_count=self.hook.settings.vnode_count,
        )


class CheckpointRestoreOperator(CheckpointOperator):
    """
    Go back to a checkpoint: prove it once more, and open a timeline that goes on after it.

    From then on every writer that still runs is refused, and whoever starts next continues there, so that
    ``recover_from`` in the answer is ``latest``: a job that is retried goes on where it was, not at the point of
    recovery again. Called again in the same run (a retry, a lost worker), it opens no second timeline.

    Answers with ``timeline``, ``checkpoint_id``, ``recover_from``, ``uri``, ``store``, ``pipeline``, ``epoch``,
    ``abandoned`` (ids) and ``applied``.

    A checkpoint directory that Spark wrote itself has no timelines. It is copied as it was after the batch, to
    ``target``; the answer then has ``checkpoint_location``, with which the query is started again. The query must not
    run: a directory that was written to a short time ago fails the task.

    :param checkpoint_id: where to go back to; ``fresh`` for a start from nothing. (templated)
    :param reason: why, for the record. (templated)
    :param target: for a directory of Spark: where the copy goes, an empty place: an address, or the name of
        a pipeline in the same store. (templated)
    :param new_query_id: for a directory of Spark: give the copy an id of its own (for Delta and Iceberg sinks).
    :param file_sink: for a directory of Spark: the output of its file sink, which goes back as well. (templated)
    :param batch_folders: for a directory of Spark: output in folders ``batch_id=N``, which goes back too. (templated)
    :param depth: how the checkpoint is proven before anything changes. (templated)
    :param if_writer_alive: ``fence`` (default): it is refused from then on and fails at its next commit; ``fail``:
        the task fails instead, if something speaks for a running writer. (templated)
    :param alive_within: a writer that started or committed so short a time ago counts as running. (templated)
    :param dry_run: only make the plan and show it. (templated)
    """

    template_fields: Sequence[str] = (
        *CheckpointOperator.template_fields,
        *("checkpoint_id", "reason", "depth", "if_writer_alive", "alive_within", "only_plan"),
        *("target", "file_sink", "batch_folders"),
    )
    changes_checkpoints = True

    def __init__(
        self,
        *,
        checkpoint_id: str | int,
        reason: str = "",
        depth: str = "content",
        if_writer_alive: str = "fence",
        alive_within: timedelta | str = "10m",
        dry_run: bool | str = False,
        target: str | None = None,
        new_query_id: bool = False,
        file_sink: str | None = None,
        batch_folders: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target = target
        self.new_query_id = new_query_id
        self.file_sink = file_sink
        self.batch_folders = batch_folders
        self.checkpoint_id = checkpoint_id
        self.reason = reason
        self.depth = depth
        self.if_writer_alive = if_writer_alive
        self.alive_within = alive_within
        self.only_plan = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.cli.verbs.restore import show
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK
        from airflow_provider_checkpoint.lifecycle.recovery import choose
        from airflow_provider_checkpoint.lifecycle.restoring import plan_restore

        layout = self.open()
        if layout.name == "structured_streaming":
            from airflow_provider_checkpoint.operators._spark_directories import go_back_in

            gone_back = go_back_in(self, layout, context)
            return self.touched(gone_back["uri"], gone_back)
        now = datetime.now(UTC)
        heed_writer(self, layout, self.if_writer_alive, self.alive_within)
        plan = plan_restore(layout, choose(layout, self._wish(layout), now=now))
        opened = None
        if not _values.flag("dry_run", self.only_plan):
            # With the point: a task that is cleared and then sent elsewhere has not been here before.
            mark = f"{RESTORE_MARK}{mark_of(context)}/{FRESH if plan.checkpoint_id is None else plan.checkpoint_id}"
            opened = Executor(layout, by=who(context)).restore(plan, reason=self.reason, mark=mark)
        self.log_table(lambda console: show(plan, opened, console), now)
        answer = {
            "timeline": "" if opened is None else str(opened.number),
            "checkpoint_id": "" if plan.checkpoint_id is None else str(plan.checkpoint_id),
            # The new timeline has nothing newer than the checkpoint, so that the latest is the one gone back to.
            "recover_from": FRESH if plan.checkpoint_id is None else "latest",
            "uri": plan.uri,
            "store": self.hook.settings.uri,
            "pipeline": self.pipeline or "",
            "epoch": "" if plan.epoch is None else str(plan.epoch),
            "abandoned": [str(each) for each in plan.abandons],
            "checkpoint_location": "",
            "restored_at": now.isoformat(),
            "applied": opened is not None,
        }
        return self.touched(plan.uri, answer)

    def _wish(self, layout: Layout) -> Wish:
        from airflow_provider_checkpoint.exceptions import ConfigurationError
        from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish

        depth = _values.depth(self.depth)
        named = _values.text(self.checkpoint_id)
        if named is None:
            raise ConfigurationError(
                "no checkpoint to go back to was given", hint=f"Give its id, or {FRESH!r} for a start from nothing."
            )
        if named == FRESH:
            return Wish(depth=depth, fresh_start_ok=True, skip=frozenset(layout.candidates()))
        vnodes = self.hook.settings.vnode_count
        return Wish(strategy=Strategy.ID, checkpoint_id=layout.parse_id(named), depth=depth, vnode_count=vnodes)


def heed_writer(
    operator: BaseOperator, layout: Layout, policy: str, within: timedelta | str, *, own: str | None = None
) -> None:
    """
    Look whether a writer seems to run, and fail or warn as the policy says.

    :param own: the owner of the timelines of earlier tries, which are no reason to fail: a retry takes over from them.
    """
    from airflow_provider_checkpoint.exceptions import ConfigurationError, ConfirmationNeededError
    from airflow_provider_checkpoint.lifecycle.liveness import sign_of_life, was_opened_by

    if policy not in ("fence", "fail"):
        raise ConfigurationError(f"if_writer_alive is 'fence' or 'fail', not {policy!r}")
    span = _values.span("alive_within", within) or timedelta(0)
    sign = sign_of_life(layout, now=datetime.now(UTC), within=span)
    if sign is None:
        return
    if policy == "fail" and not (own and was_opened_by(layout, own)):
        raise ConfirmationNeededError(
            f"a writer seems to be at work: {sign}",
            subject=layout.blobs.uri,
            hint="Stop it first; or set if_writer_alive='fence', which refuses it at its next commit.",
        )
    operator.log.warning("a writer seems to be at work (%s); it is refused at its next commit", sign)


def answer_of(plan: RecoveryPlan, *, store: str, pipeline: str | None) -> dict[str, Any]:
    """A recovery plan as XComs: text that a Spark job takes, and the explanation."""
    distance = plan.distance
    shown = plan.model_copy(update={"skipped": plan.skipped[:_SHOWN]})
    return {
        "checkpoint_id": "" if plan.chosen is None else str(plan.chosen),
        "recover_from": FRESH if plan.chosen is None else str(plan.chosen),
        "uri": plan.uri,
        "store": store,
        "pipeline": pipeline or "",
        "epoch": "" if plan.epoch is None else str(plan.epoch),
        "timeline": "" if plan.timeline is None else str(plan.timeline),
        "created": "" if plan.created is None else plan.created.isoformat(),
        "rollback_seconds": "" if distance is None else f"{distance.seconds:.0f}",
        "rollback_epochs": "" if distance is None else str(distance.epochs),
        "rollback_events": "" if distance is None or distance.events is None else str(distance.events),
        "plan": shown.model_dump(mode="json"),
    }
