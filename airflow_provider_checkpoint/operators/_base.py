"""What the operators share: a store to work on, who works on it, and a table in the log."""

from __future__ import annotations

from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.links.checkpoint import CheckpointPageLink
from airflow_provider_checkpoint.operators._lineage import LineageMixin
from airflow_provider_checkpoint.retries import CHECKPOINT_RETRY_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from airflow.sdk import Context

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


class CheckpointOperator(LineageMixin, BaseOperator):
    """
    Base of the operators: works on the checkpoints of one pipeline and answers with JSON.

    Each key of the answer is an XCom of its own, so that ``task.output["checkpoint_id"]`` works.

    :param pipeline: the folder of the pipeline below the address of the connection; without one, the address itself.
        (templated)
    :param checkpoint_conn_id: a connection of type ``checkpoint_store``. (templated)
    :param layout: the format of the checkpoints, if it is not to be taken from the connection. (templated)
    """

    template_fields: Sequence[str] = ("pipeline", "checkpoint_conn_id", "layout")
    operator_extra_links = (CheckpointPageLink(),)

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        checkpoint_conn_id: str = CheckpointHook.default_conn_name,
        layout: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**with_defaults(kwargs))
        self.pipeline = pipeline
        self.checkpoint_conn_id = checkpoint_conn_id
        self.layout = layout

    @cached_property
    def hook(self) -> CheckpointHook:
        return CheckpointHook(self.checkpoint_conn_id, layout=self.layout or None)

    def open(self) -> Layout:
        return self.hook.open(self.pipeline)

    @property
    def tags(self) -> dict[str, str | None]:
        """What the numbers that this task tells are about."""
        return {"pipeline": self.pipeline, "connection": self.checkpoint_conn_id}

    def log_table(self, show: Callable[[Console], object], now: datetime) -> None:
        """Put into the log what the command line would show."""
        self.log.info("%s", as_text(show, now))


def with_defaults(kwargs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Arguments of a task with what suits this package, where neither they nor the DAG's defaults say otherwise."""
    said = kwargs.get("default_args") or {}
    ours = {"multiple_outputs": True, "retry_policy": CHECKPOINT_RETRY_POLICY, **more}
    return {name: value for name, value in ours.items() if name not in said} | kwargs


def as_text(show: Callable[[Console], object], now: datetime) -> str:
    """What a function of the command line shows, as text."""
    from airflow_provider_checkpoint.cli.console import Console

    out = StringIO()
    show(Console(json=False, now=now, out=out, err=out))
    return out.getvalue().rstrip()


def who(context: Context) -> str:
    """Who does this, for the audit trail: the task, and the person who started its run, if one did."""
    instance = context["ti"]
    user = getattr(context.get("dag_run"), "triggering_user_name", None)
    task = f"airflow {instance.dag_id}/{instance.task_id}, run {instance.run_id}"
    return f"{user} by {task}" if user else task


def mark_of(context: Context) -> str:
    """A name for what this task does in this run, the same in each of its tries."""
    instance = context["ti"]
    return f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.map_index}"


def push(context: Context, values: Mapping[str, Any]) -> None:
    """Leave an answer behind although the task is about to fail."""
    for name, value in {**values, "return_value": dict(values)}.items():
        context["ti"].xcom_push(key=name, value=value)
