"""Waiting for a checkpoint, and watching that they keep coming."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_checkpoint.assets import announce, facts_of
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.links.checkpoint import CheckpointPageLink
from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import with_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_checkpoint.sensors._looking import Freshness

#: Under which key of the task's state it is kept, from one reschedule to the next, how often the store did not answer.
_SILENT = "checkpoint_store_silent"


class _StoreSensor(BaseSensorOperator):
    """
    Base of the sensors. A deferrable one looks once on the worker and then waits in the triggerer, holding no worker.

    A store that does not answer is asked again at the next look, wherever the sensor waits; one that refuses, and one
    that stays silent for ten looks in a row, ends the wait.

    :param pipeline: the folder of the pipeline below the address of the connection. (templated)
    :param checkpoint_conn_id: a connection of type ``checkpoint_store``. (templated)
    :param layout: the format of the checkpoints, if it is not to be taken from the connection. (templated)
    :param deferrable: wait in the triggerer.
    """

    template_fields: Sequence[str] = ("pipeline", "checkpoint_conn_id", "layout")
    operator_extra_links = (CheckpointPageLink(),)

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        checkpoint_conn_id: str = CheckpointHook.default_conn_name,
        layout: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**with_defaults(kwargs, poke_interval=30.0))
        self.pipeline = pipeline
        self.checkpoint_conn_id = checkpoint_conn_id
        self.layout = layout
        self.deferrable = deferrable
        self._silent = 0

    @cached_property
    def hook(self) -> CheckpointHook:
        return CheckpointHook(self.checkpoint_conn_id, layout=self.layout or None)

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        first = self._first_look(context)
        if first:
            return first.xcom_value
        self.defer(
            trigger=self._trigger(
                pipeline=self.pipeline or None,
                checkpoint_conn_id=self.checkpoint_conn_id,
                layout=self.layout or None,
                poll_interval=float(self.poke_interval),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("defer does not return")

    def _first_look(self, context: Context) -> PokeReturnValue:
        """A look on the worker; what Airflow's own loop makes of a failure, this one does too."""
        from airflow_provider_checkpoint.exceptions import CheckpointError, TransientError

        try:
            return self._look(context)
        except TransientError as error:
            # The triggerer asks again, and has more patience than a retry.
            self.log.warning("the store did not answer: %s", error)
            return PokeReturnValue(is_done=False)
        except AirflowFailException as error:
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise
        except CheckpointError as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    def poke(self, context: Context) -> PokeReturnValue:
        from airflow_provider_checkpoint.exceptions import TransientError
        from airflow_provider_checkpoint.sensors._patience import is_worn_out

        silent = self._recall_silence(context)
        try:
            found = self._look(context)
        except TransientError as error:
            worn_out = is_worn_out(silent + 1, error, self.log)
            # One that looks on all the same (silent_fail) has patience anew.
            self._remember_silence(context, 0 if worn_out else silent + 1)
            if worn_out:
                raise
            return PokeReturnValue(is_done=False)
        if silent:
            self._remember_silence(context, 0)
        return found

    def _recall_silence(self, context: Context) -> int:
        """How often in a row the store did not answer so far in this try."""
        memory = context.get("task_state_store") if self.reschedule else None
        if memory is None:
            return self._silent
        kept = memory.get(_SILENT)
        return cast("int", kept["looks"]) if isinstance(kept, dict) and kept["try"] == context["ti"].try_number else 0

    def _remember_silence(self, context: Context, silent: int) -> None:
        self._silent = silent
        memory = context.get("task_state_store") if self.reschedule else None
        if memory is not None:
            memory.set(_SILENT, {"try": context["ti"].try_number, "looks": silent})

    def _look(self, context: Context) -> PokeReturnValue:
        """A look at the store, which may fail."""
        raise NotImplementedError

    def _trigger(self, **store: Any) -> BaseTrigger:
        raise NotImplementedError

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        if event["status"] != "success":
            from airflow_provider_checkpoint.exceptions import StoreUnavailableError

            if event.get("transient") and not self.never_fail:
                # Worth a retry of the task: the retry policy decides.
                raise StoreUnavailableError(event["message"])
            raise AirflowFailException(event["message"])
        return self._arrived(context, {name: value for name, value in event.items() if name != "status"})

    def _arrived(self, context: Context, answer: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class CheckpointCommittedSensor(_StoreSensor):
    """
    Wait until a checkpoint is committed: proof that a job that was started makes progress.

    Answers with ``checkpoint_id``, ``epoch``, ``timeline``, ``created``, ``bytes``, ``uri``; outlets that are
    assets get the same.

    :param min_epoch: of this epoch or a later one. (templated)
    :param min_timeline: on this timeline or a later one; one more than the ``timeline`` that a restore answers with
        proves that a new writer has committed. (templated)
    :param after: made after this time, ISO with a zone. (templated)
    :param depth: prove it so far. (templated)
    """

    template_fields: Sequence[str] = (*_StoreSensor.template_fields, "min_epoch", "min_timeline", "after", "depth")

    def __init__(
        self,
        *,
        min_epoch: int | str | None = None,
        min_timeline: int | str | None = None,
        after: datetime | str | None = None,
        depth: str = "structure",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_epoch = min_epoch
        self.min_timeline = min_timeline
        self.after = after
        self.depth = depth

    def _look(self, context: Context) -> PokeReturnValue:
        from airflow_provider_checkpoint.sensors._looking import newest_committed

        wanted = self._wanted()
        depth = _values.depth(self.depth)
        layout = self.hook.open_if_any(self.pipeline)
        found = None if layout is None else newest_committed(layout, **wanted, depth=depth)
        if layout is None or found is None:
            return PokeReturnValue(is_done=False)
        facts = facts_of(found, uri=layout.blobs.uri, pipeline=self.pipeline)
        return PokeReturnValue(is_done=True, xcom_value=self._arrived(context, facts))

    def _wanted(self) -> dict[str, Any]:
        return {
            "min_epoch": _values.number("min_epoch", self.min_epoch),
            "min_timeline": _values.number("min_timeline", self.min_timeline),
            "after": _values.moment("after", self.after),
        }

    def _trigger(self, **store: Any) -> BaseTrigger:
        from airflow_provider_checkpoint.triggers.checkpoint import CheckpointCommittedTrigger

        wanted = self._wanted()
        after = wanted.pop("after")
        return CheckpointCommittedTrigger(
            **wanted,
            after=None if after is None else after.isoformat(),
            depth=_values.depth(self.depth).value,
            **store,
        )

    def _arrived(self, context: Context, answer: dict[str, Any]) -> dict[str, Any]:
        self.log.info("checkpoint %s: epoch %s, timeline %s", *map(answer.get, ("checkpoint_id", "epoch", "timeline")))
        announce(context, self.outlets, answer)
        return answer


class CheckpointFreshnessSensor(_StoreSensor):
    """
    Watch that a pipeline can be recovered to a recent point.

    Succeeds if the newest checkpoint that can be restored is younger than ``warn_after``; waits, and warns in the log,
    while it is late; fails as soon as it is older than ``fail_after``, or nothing can be restored at all. A failure
    is an alarm: it is not retried.

    Answers with ``state``, ``checkpoint_id``, ``age_seconds``, ``message``.

    :param warn_after: from when on a checkpoint is late, such as ``30m``. (templated)
    :param fail_after: from when on it is too old, such as ``2h``. (templated)
    :param wait_when_late: wait for a fresh one; if not, a late one succeeds at once with ``state`` ``late``.
    :param depth: how the newest checkpoint is proven. (templated)
    """

    template_fields: Sequence[str] = (*_StoreSensor.template_fields, "warn_after", "fail_after", "depth")

    def __init__(
        self,
        *,
        warn_after: timedelta | str,
        fail_after: timedelta | str,
        wait_when_late: bool = True,
        depth: str = "presence",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.warn_after = warn_after
        self.fail_after = fail_after
        self.wait_when_late = wait_when_late
        self.depth = depth

    def _look(self, context: Context) -> PokeReturnValue:
        from airflow_provider_checkpoint.sensors._looking import LATE, freshness

        layout = self.hook.open(self.pipeline)
        warn_after, fail_after = self._windows()
        depth = _values.depth(self.depth)
        found: Freshness = freshness(layout, warn_after=warn_after, fail_after=fail_after, depth=depth)
        answer = found.answer(layout.blobs.uri, self.pipeline)
        if found.state == LATE and self.wait_when_late:
            self.log.warning("%s", found.words)
            self._tell_age(answer)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._arrived(context, answer))

    def _windows(self) -> tuple[timedelta, timedelta]:
        from airflow_provider_checkpoint.exceptions import ConfigurationError

        found = [_values.span(name, getattr(self, name)) for name in ("warn_after", "fail_after")]
        if found[0] is None or found[1] is None:
            raise ConfigurationError("warn_after and fail_after are needed", hint="For example: '30m' and '2h'.")
        return found[0], found[1]

    def _trigger(self, **store: Any) -> BaseTrigger:
        from airflow_provider_checkpoint.triggers.checkpoint import CheckpointFreshnessTrigger

        warn_after, fail_after = self._windows()
        return CheckpointFreshnessTrigger(
            warn_after=warn_after.total_seconds(),
            fail_after=fail_after.total_seconds(),
            depth=_values.depth(self.depth).value,
            **store,
        )

    def _arrived(self, context: Context, answer: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as its sibling
        from airflow_provider_checkpoint.sensors._looking import STALE

        self._tell_age(answer)
        if answer["state"] == STALE:
            raise AirflowFailException(answer["message"])
        self.log.info("%s", answer["message"])
        return answer

    def _tell_age(self, answer: dict[str, Any]) -> None:
        from airflow_provider_checkpoint import metrics

        # Where nothing can be restored there is no age.
        if answer["age_seconds"]:
            age = float(answer["age_seconds"])
            metrics.gauge("freshness_seconds", age, pipeline=self.pipeline, connection=self.checkpoint_conn_id)
