"""Starting a checkpointed Spark job where it shall go on."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from airflow_provider_checkpoint.assets import announce, facts_of
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.links.checkpoint import CheckpointPageLink
from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import who, with_defaults
from airflow_provider_checkpoint.operators._lineage import LineageMixin
from airflow_provider_checkpoint.operators._spark_engine import (
    hand_credentials,
    last_words,
    require_spark_connection,
    with_runtime,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_provider_checkpoint.layouts import Layout

LATEST = "latest"
FRESH = "fresh"
#: Under which key of the task's state it is kept what there was when the task first ran.
_FIRST_TRY = "checkpoint_first_try"


class CheckpointSparkSubmitOperator(LineageMixin, SparkSubmitOperator):
    """
    A ``SparkSubmitOperator`` for a checkpointed job: tells it where its checkpoints are and where to start.

    Puts ``--store``, ``--pipeline`` and ``--recover-from`` before ``application_args``, and ships the part of this
    package that runs on a cluster as ``py_files``. Before anything is submitted it looks whether the Spark connection
    exists (Airflow would silently take YARN instead) and whether another writer seems to run. The job fences every
    earlier writer when it starts, so that two never write at once.

    What a job says at its end decides about a retry, too: one that was fenced because another has taken over is not
    tried again, for it would take the pipeline back from the one that has it.

    The timeline that the job opens names the task and its run as its owner. By that, a retry tells a writer that an
    earlier try has started from somebody else's: it takes over from the former, also with ``if_writer_alive="fail"``.

    A retry goes on from the latest checkpoint, not from ``recover_from`` again, if the try before had got so far as to
    start there. ``durable`` is off unless asked for: a task that is cleared would not be submitted again.

    Answers with the newest checkpoint after the job has ended: ``checkpoint_id``, ``epoch``, ``timeline``, ``uri``.

    :param pipeline: the pipeline, a folder below the address of the store. (templated)
    :param checkpoint_conn_id: a connection of type ``checkpoint_store``. (templated)
    :param recover_from: ``latest``, ``fresh``, or the id of a checkpoint; the ``recover_from`` in the answer of the
        operators that select, approve or restore. (templated)
    :param if_writer_alive: ``fence`` (default) or ``fail``: what to do if another writer seems to run. (templated)
    :param alive_within: a writer that started or committed so short a time ago counts as running. (templated)
    :param ship_credentials: hand the credentials of the store's connection to the driver, in its environment. Only for
        local and client mode, where they appear on no command line.
    :param ship_runtime: send this package to the cluster; not needed where it is installed.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *("pipeline", "checkpoint_conn_id", "recover_from", "if_writer_alive", "alive_within"),
    )
    operator_extra_links = (CheckpointPageLink(),)
    changes_checkpoints = True

    def __init__(
        self,
        *,
        pipeline: str,
        checkpoint_conn_id: str = CheckpointHook.default_conn_name,
        recover_from: str = LATEST,
        if_writer_alive: str = "fence",
        alive_within: timedelta | str = "10m",
        ship_credentials: bool = False,
        ship_runtime: bool = True,
        **kwargs: Any,
    ) -> None:
        name = f"checkpointed-{kwargs.get('task_id', 'job')}"
        super().__init__(**with_defaults(kwargs, durable=False, name=name))
        self.pipeline = pipeline
        self.checkpoint_conn_id = checkpoint_conn_id
        self.recover_from = recover_from
        self.if_writer_alive = if_writer_alive
        self.alive_within = alive_within
        self.ship_credentials = ship_credentials
        self.ship_runtime = ship_runtime

    @cached_property
    def hook(self) -> CheckpointHook:
        return CheckpointHook(self.checkpoint_conn_id)

    def execute(self, context: Context) -> dict[str, str]:  # type: ignore[override] # unlike its parent, it answers
        from airflow_provider_checkpoint.lifecycle.liveness import OWNER_SETTING, newest_readable
        from airflow_provider_checkpoint.operators.recovery import heed_writer

        require_spark_connection(self.hook, self._conn_id)
        layout = self._layout()
        owner = _owner(context)
        heed_writer(self, layout, self.if_writer_alive, self.alive_within, own=owner)
        start = self._start(context, layout)
        self.application_args = [
            *self.hook.job_arguments(self.pipeline),
            *("--recover-from", start),
            *map(str, _values.items("application_args", self.application_args or [])),
        ]
        self.conf = {**(self.conf or {}), OWNER_SETTING: owner}
        if self.ship_runtime:
            self.py_files = with_runtime(self.py_files)
        self.log.info("starting pipeline %s from %s", self.pipeline, start)
        try:
            super().execute(context)
        except AirflowException as error:
            said = last_words(str(error))
            if said is None:
                raise
            raise said from error
        newest = newest_readable(layout)
        if newest is None:
            return {"checkpoint_id": "", "epoch": "", "timeline": "", "uri": layout.blobs.uri}
        facts = facts_of(newest, uri=layout.blobs.uri, pipeline=self.pipeline)
        announce(context, self.outlets, facts)
        self.touched(layout.blobs.uri, facts)
        return facts

    def _layout(self) -> Layout:
        # The jobs of this package write this layout; a pipeline that never ran has nothing to recognise it by.
        return CheckpointHook(self.checkpoint_conn_id, layout="partitioned").open(self.pipeline)

    def _start(self, context: Context, layout: Layout) -> str:
        """Where the job starts. Remembers the timelines there were at the first try, to tell what that one did."""
        from airflow_provider_checkpoint.lifecycle.timelines import read_timelines

        said = str(self.recover_from).strip()
        if said == LATEST:
            return LATEST
        wanted = None if said == FRESH else layout.parse_id(said)
        timelines = read_timelines(layout.blobs)
        newest = timelines[-1].number if timelines else 0
        memory = context.get("task_state_store")
        before = None if memory is None else memory.get(_FIRST_TRY)
        if isinstance(before, dict) and before["recover_from"] == said:
            since = [each for each in timelines if each.number > cast("int", before["timeline"])]
            if any(each.fork_checkpoint == wanted for each in since):
                self.log.info("an earlier try has started from %s: going on from the latest checkpoint", said)
                return LATEST
        elif memory is not None:
            memory.set(_FIRST_TRY, {"recover_from": said, "timeline": newest})
        return said if wanted is None else str(wanted)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        if self.ship_credentials:
            hand_credentials(hook, self.hook, self.env_vars)
        return hook


def _owner(context: Context) -> str:
    """The same in each try of a task, and of no other."""
    index = context["ti"].map_index
    return who(context) if index is None or index < 0 else f"{who(context)}, map index {index}"
