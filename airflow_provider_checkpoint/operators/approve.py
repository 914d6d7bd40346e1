"""A person decides whether a recovery happens, and where it goes back to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.links.checkpoint import CheckpointPageLink
from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import with_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan

REJECT = "Reject"
#: Under which key of the task's state the choices wait that were put before the person.
_CHOICES = "recovery_choices"


class CheckpointApproveRecoveryOperator(HITLOperator):
    """
    Put a recovery before a person: the point, how far back it is, what is read again, sinks, and other valid points.

    Waits without holding a worker. Answers as ``CheckpointSelectRecoveryPointOperator`` does, for the point that was
    approved, and with ``approved_by``. A rejection, or no answer in time, skips what follows.

    :param plan: the ``plan`` in the answer of a ``CheckpointSelectRecoveryPointOperator``. (templated)
    :param pipeline: as for the other operators. (templated)
    :param checkpoint_conn_id: as for the other operators. (templated)
    :param layout: as for the other operators. (templated)
    :param ask: whether to ask at all; if not, the plan is approved as it is. (templated)
    :param subject: the headline of the question, instead of one that names the pipeline and the point. (templated)
    :param alternatives: how many older points are proven and offered besides.
    :param max_rollback: as for the choice: no point is offered that is further back. (templated)
    :param max_rollback_epochs: likewise in epochs. (templated)
    :param skip: as for the choice: points that are not offered. (templated)
    :param fail_on_reject: fail the task instead of skipping what follows.
    :param response_timeout: how long to wait; then the answer is "Reject".
    """

    template_fields: Sequence[str] = (
        *("plan", "pipeline", "checkpoint_conn_id", "layout", "ask", "subject", "body"),
        *("max_rollback", "max_rollback_epochs", "skip"),
    )
    operator_extra_links = (CheckpointPageLink(),)

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | str,
        pipeline: str | None = None,
        checkpoint_conn_id: str = CheckpointHook.default_conn_name,
        layout: str | None = None,
        ask: bool | str = True,
        subject: str | None = None,
        alternatives: int = 2,
        max_rollback: timedelta | str | None = None,
        max_rollback_epochs: int | str | None = None,
        skip: Sequence[str | int] | str = (),
        fail_on_reject: bool = False,
        response_timeout: timedelta | None = timedelta(hours=4),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            subject=subject or "",
            options=[REJECT],
            defaults=[REJECT],
            response_timeout=response_timeout,
            **with_defaults(kwargs),
        )
        self.plan = plan
        self.pipeline = pipeline
        self.checkpoint_conn_id = checkpoint_conn_id
        self.layout = layout
        self.ask = ask
        self.alternatives = alternatives
        self.max_rollback = max_rollback
        self.max_rollback_epochs = max_rollback_epochs
        self.skip = skip
        self.fail_on_reject = fail_on_reject

    @cached_property
    def hook(self) -> CheckpointHook:
        return CheckpointHook(self.checkpoint_conn_id, layout=self.layout or None)

    def execute(self, context: Context) -> dict[str, Any]:
        plan = self._plan()
        layout = self.hook.open(self.pipeline)
        _require_no_other(layout, plan)
        # A template that yields nothing must not do away with the question.
        if not _values.flag("ask", self.ask, unsaid=True):
            self.log.info("approved without asking: checkpoint %s", plan.chosen)
            return self._answer(plan, approved_by="")
        self._prepare(context, layout, plan)
        # Does not return: the task waits for an answer, and goes on in execute_complete.
        super().execute(context)
        raise AssertionError("a human decision is always waited for")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        choices = cast("dict[str, str] | None", context["task_state_store"].get(_CHOICES))
        if choices is None:
            # Removed in the UI, or expired: which point was meant by a label can no longer be told.
            raise AirflowFailException("the choices that were put before the person are gone; ask again")
        self.options = list(choices)
        decision = super().execute_complete(context, event)
        # An answer that chooses nothing is no approval.
        chosen = next(iter(decision["chosen_options"]), REJECT)
        user = decision["responded_by_user"]
        name = user["name"] if user else "nobody (no answer in time)"
        if chosen == REJECT:
            self._reject(f"the recovery was rejected by {name}")
        self.log.info("%s, approved by %s", chosen, name)
        return self._answer(self._choose(self.hook.open(self.pipeline), choices[chosen]), approved_by=name)

    def _plan(self) -> RecoveryPlan:
        from pydantic import ValidationError

        from airflow_provider_checkpoint.exceptions import ConfigurationError
        from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan

        try:
            return RecoveryPlan.model_validate(_values.mapping("plan", self.plan))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = ".".join(["plan", *(str(part) for part in first["loc"])])
            raise ConfigurationError(
                f"{name}: {first['msg'].lower()}",
                hint="Give the key 'plan' in the answer of a CheckpointSelectRecoveryPointOperator.",
            ) from None

    def _prepare(self, context: Context, layout: Layout, plan: RecoveryPlan) -> None:
        """What the page shows, as the store is now."""
        from airflow_provider_checkpoint.cli.text import clean
        from airflow_provider_checkpoint.lifecycle.restoring import plan_restore
        from airflow_provider_checkpoint.operators._page import page

        others = self._others(layout, plan)
        choices = _labelled([plan, *others])
        choices[REJECT] = ""
        name = self.pipeline or plan.uri
        self.options = list(choices)
        # Shown as it is: only the body is Markdown.
        self.subject = clean(_values.text(self.subject) or f"Recover {name}: {_label(_chosen(plan)).lower()}?")
        self.body = page(plan, plan_restore(layout, plan), others, pipeline=name, now=datetime.now(UTC))
        context["task_state_store"].set(_CHOICES, choices)

    def _others(self, layout: Layout, plan: RecoveryPlan) -> list[RecoveryPlan]:
        """The next older points of the same history that can be restored."""
        from airflow_provider_checkpoint.exceptions import NoRecoveryPointError
        from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose

        found: list[RecoveryPlan] = []
        last = plan
        while len(found) < self.alternatives and last.epoch is not None:
            wish = Wish(
                strategy=Strategy.BEFORE_EPOCH,
                epoch=last.epoch,
                depth=plan.depth,
                max_rollback=_values.span("max_rollback", self.max_rollback),
                max_rollback_epochs=_values.number("max_rollback_epochs", self.max_rollback_epochs),
                skip=frozenset(layout.parse_id(word) for word in _values.words("skip", self.skip)),
                vnode_count=self.hook.settings.vnode_count,
            )
            try:
                last = choose(layout, wish, now=datetime.now(UTC))
            except NoRecoveryPointError:
                break
            found.append(last)
        return found

    def _choose(self, layout: Layout, choice: str) -> RecoveryPlan:
        """The plan for the point that was approved, proven again: much may have happened since the page was made."""
        from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose

        plan = self._plan()
        _require_no_other(layout, plan)
        if choice == "":
            return plan
        wish = Wish(
            strategy=Strategy.ID,
            checkpoint_id=layout.parse_id(choice),
            depth=plan.depth,
            vnode_count=self.hook.settings.vnode_count,
        )
        return choose(layout, wish, now=datetime.now(UTC))

    def _answer(self, plan: RecoveryPlan, *, approved_by: str) -> dict[str, Any]:
        from airflow_provider_checkpoint.operators.recovery import answer_of

        return answer_of(plan, store=self.hook.settings.uri, pipeline=self.pipeline) | {"approved_by": approved_by}

    def _reject(self, why: str) -> None:
        if self.fail_on_reject:
            raise AirflowFailException(why)
        raise AirflowSkipException(why)


def _require_no_other(layout: Layout, plan: RecoveryPlan) -> None:
    """
    Raise if another recovery has gone back since the choice was made.

    Of two that are asked about at once, the second would take the pipeline back that the first has just restarted, by
    what a page says that is no longer true. Jobs that start meanwhile are no reason: one that fails again and again
    would never let itself be recovered.
    """
    from airflow_provider_checkpoint.exceptions import ConfirmationNeededError
    from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK
    from airflow_provider_checkpoint.lifecycle.timelines import read_timelines

    for timeline in reversed(read_timelines(layout.blobs)):
        if timeline.writer.startswith(RESTORE_MARK) and timeline.created > plan.made:
            raise ConfirmationNeededError(
                f"since the choice was made, another recovery has gone back and opened timeline {timeline.number}",
                subject=plan.uri,
                hint="See what it has done (timeline). If the pipeline has still to go back, start a new recovery.",
            )


def _labelled(plans: Sequence[RecoveryPlan]) -> dict[str, JsonValue]:
    """What the buttons say, and the point each stands for. Airflow puts them side by side: long ids would hide some."""
    chosen = [_chosen(plan) for plan in plans]
    labels = [_label(_short(each)) for each in chosen]
    if len(set(labels)) < len(labels):
        labels = [_label(each) for each in chosen]
    return dict(zip(labels, chosen, strict=True))


def _label(chosen: str) -> str:
    return f"Go back to {chosen}" if chosen else "Start from nothing"


def _short(chosen: str) -> str:
    """Enough of an id to find it again in the page above the buttons."""
    return chosen if len(chosen) <= 20 else f"{chosen[:8]}\N{HORIZONTAL ELLIPSIS}{chosen[-8:]}"


def _chosen(plan: RecoveryPlan) -> str:
    return "" if plan.chosen is None else str(plan.chosen)
