"""The same work on a Spark cluster: submits a job, fetches its answer from the store, and takes it for its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import CheckpointOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_provider_checkpoint.exceptions import CheckpointError
    from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.spark.jobs._answers import JobAnswer, Verb

ENGINES = ("local", "spark")
#: What this module says to spark-submit itself, and what would let it return before the job has ended.
_OURS = frozenset({"application_args", "conn_id", "track_driver_via_k8s_api", "yarn_rm_auth", "yarn_track_via_rm_api"})


# -- for whoever submits a job -----------------------------------------------------------------------------------


def require_spark_connection(hook: CheckpointHook, conn_id: str) -> None:
    from airflow.sdk.exceptions import AirflowNotFoundException

    from airflow_provider_checkpoint.exceptions import ConfigurationError

    try:
        hook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"there is no Spark connection {conn_id!r}",
            hint="Without one the job would go to YARN. Add it: type spark, host local[2], spark://... or yarn.",
        ) from None


def with_runtime(py_files: str | None) -> str:
    """The part of this package that runs on a cluster, after the files that are sent anyway."""
    from airflow_provider_checkpoint.spark.runtime_zip import spark_runtime_zip

    runtime = str(spark_runtime_zip())
    return f"{py_files},{runtime}" if py_files else runtime


def hand_credentials(hook: SparkSubmitHook, store: CheckpointHook, env_vars: Mapping[str, Any] | None) -> None:
    """Put the credentials of a store into the environment of a driver that runs on this machine."""
    from airflow_provider_checkpoint.exceptions import ConfigurationError

    if store.settings.storage_conn_id is None:
        # There are none: whoever runs the job has what it needs.
        return
    if hook._connection["deploy_mode"] == "cluster" or hook._is_kubernetes or hook._is_yarn:  # noqa: SLF001 - it has no other way
        raise ConfigurationError(
            "ship_credentials works in local and client mode only",
            hint="On a cluster they would stand in the configuration of the application, for all to read.",
        )
    # Not in env_vars of the task, which are shown as rendered templates.
    hook._env_vars = {**(env_vars or {}), **store.job_environment()}  # noqa: SLF001 - it has no other way


def last_words(output: str) -> CheckpointError | None:
    """
    The error that a job has named at its end, if it decides about a retry.

    Errors about what a job has read are left out: the next start may pass over a checkpoint that is broken.
    """
    from airflow_provider_checkpoint import exceptions

    deciding = (exceptions.TransientError, exceptions.AttentionError, exceptions.FencedWriterError)
    for line in reversed(output.splitlines()):
        name, colon, message = line.partition(": ")
        kind = getattr(exceptions, name, None) if colon else None
        if isinstance(kind, type) and issubclass(kind, deciding):
            error: CheckpointError = kind(message, hint="So the job has said; its log is above.")
            return error
    return None


# -- for operators that can do their work here or there ----------------------------------------------------------


class EngineOperator(CheckpointOperator):
    """
    Works in the worker, or as a Spark job with the same answer.

    :param engine: ``local`` or ``spark``. (templated)
    :param spark_conn_id: a connection of type ``spark``. (templated)
    :param spark_options: what else ``SparkSubmitHook`` takes, such as ``{"executor_memory": "2g", "conf": {...}}``.
        (templated)
    :param spark_partitions: tasks at once; without, as many as Spark thinks right for the cluster. (templated)
    :param spark_threads: objects read at once in each task. (templated)
    :param ship_credentials: hand the credentials of the store's connection to the driver, in its environment. Only for
        local and client mode. Executors on other machines need credentials of their own; they only read.
    :param ship_runtime: send this package to the cluster; not needed where it is installed.
    """

    template_fields: Sequence[str] = (
        *CheckpointOperator.template_fields,
        *("engine", "spark_conn_id", "spark_options", "spark_partitions", "spark_threads"),
    )
    template_fields_renderers = {"spark_options": "json"}  # noqa: RUF012 - as Airflow declares it
    _submitting: SparkSubmitHook | None = None

    def __init__(
        self,
        *,
        engine: str = "local",
        spark_conn_id: str = "spark_default",
        spark_options: Mapping[str, Any] | str | None = None,
        spark_partitions: int | str | None = None,
        spark_threads: int | str | None = 8,
        ship_credentials: bool = False,
        ship_runtime: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.engine = engine
        self.spark_conn_id = spark_conn_id
        self.spark_options = spark_options
        self.spark_partitions = spark_partitions
        self.spark_threads = spark_threads
        self.ship_credentials = ship_credentials
        self.ship_runtime = ship_runtime

    @property
    def on_spark(self) -> bool:
        from airflow_provider_checkpoint.exceptions import ConfigurationError

        word = str(self.engine).strip()
        if word not in ENGINES:
            raise ConfigurationError(f"unknown engine {self.engine!r}", hint=f"There are: {', '.join(ENGINES)}.")
        return word == "spark"

    def ask_spark(self, layout: Layout, verb: Verb, arguments: Sequence[str]) -> JobAnswer:
        """Submit a job and wait for it. What it could not do is raised here as it was raised there."""
        from airflow.sdk.exceptions import AirflowException

        from airflow_provider_checkpoint.exceptions import StoreUnavailableError
        from airflow_provider_checkpoint.spark.jobs import _answers, maintenance

        require_spark_connection(self.hook, self.spark_conn_id)
        # For this submission alone, also among the tries of one task: an earlier job may still be running.
        mark = uuid4().hex
        hook = self._submitting = self._spark_hook(verb, [verb, *self._job_arguments(), *arguments, "--mark", mark])
        try:
            try:
                hook.submit(maintenance.__file__)
            except AirflowException:
                answer = _answers.read_answer(layout.blobs, mark, verb=verb, layout=layout.name)
                if answer is None or answer.error is None:
                    raise
            else:
                answer = _answers.read_answer(layout.blobs, mark, verb=verb, layout=layout.name)
            if answer is None:
                raise StoreUnavailableError(
                    "the job has ended and left no answer",
                    subject=layout.blobs.uri,
                    hint="Its log is above. Is it the same store that the job and this worker see?",
                )
            if answer.error is not None:
                raise answer.error.as_error()
            return answer
        finally:
            self._submitting = None
            _answers.remove_answer(layout.blobs, mark)

    def on_kill(self) -> None:
        if self._submitting is not None:
            self._submitting.on_kill()

    def _job_arguments(self) -> list[str]:
        """What every job is told; no secrets."""
        from airflow_provider_checkpoint.exceptions import ConfigurationError

        settings = self.hook.settings
        layout = self.layout or settings.layout
        told = [*self.hook.job_arguments(self.pipeline or ""), "--layout", layout]
        if settings.vnode_count and layout == "partitioned":
            told += ["--vnode-count", str(settings.vnode_count)]
        for option, name in (("--partitions", "spark_partitions"), ("--threads", "spark_threads")):
            number = _values.number(name, getattr(self, name))
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} is {number}", hint="At least one, or leave it out.")
            told += [] if number is None else [option, str(number)]
        return told

    def _spark_hook(self, verb: str, arguments: Sequence[str]) -> SparkSubmitHook:
        from inspect import signature

        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        from airflow_provider_checkpoint.exceptions import ConfigurationError

        options = _values.mapping("spark_options", self.spark_options or {})
        known = sorted(set(signature(SparkSubmitHook).parameters) - _OURS)
        for name in options:
            if name not in known:
                raise ConfigurationError(f"spark_options: {name!r} is none", hint=f"There are: {', '.join(known)}.")
        if self.ship_runtime:
            options = options | {"py_files": with_runtime(options.get("py_files"))}
        hook = SparkSubmitHook(
            conn_id=self.spark_conn_id,
            application_args=list(arguments),
            **{"name": f"checkpoint-{verb}", **options},
        )
        if self.ship_credentials:
            hand_credentials(hook, self.hook, options.get("env_vars"))
        return hook
