"""The way from an Airflow connection to a checkpoint store."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.hooks.settings import CONN_TYPE, StoreSettings

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_checkpoint.blobs import BlobStore, StoreOptions
    from airflow_provider_checkpoint.layouts import Layout


class MissingConnectionError(AirflowNotFoundException, ConfigurationError):
    """Airflow's own error, as one that says what to do, that no retry mends, and that a trigger answers with."""


class CheckpointHook(BaseHook):
    """
    Opens the checkpoint store that a connection names.

    :param checkpoint_conn_id: a connection of type ``checkpoint_store``.
    :param layout: the format of the checkpoints, if it is not to be taken from the connection.
    """

    conn_name_attr = "checkpoint_conn_id"
    default_conn_name = "checkpoint_default"
    conn_type = CONN_TYPE
    hook_name = "Checkpoint Store"

    #: Options that say where a store is, and that this connection can say itself.
    _PLACES: ClassVar[tuple[str, ...]] = ("endpoint_url", "region", "allow_unfenced")

    def __init__(
        self, checkpoint_conn_id: str = default_conn_name, *, layout: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.checkpoint_conn_id = checkpoint_conn_id
        self._layout = layout

    @cached_property
    def settings(self) -> StoreSettings:
        try:
            return StoreSettings.of(self.get_connection(self.checkpoint_conn_id))
        except AirflowNotFoundException:
            raise MissingConnectionError(
                f"there is no connection {self.checkpoint_conn_id!r}",
                hint="Add it (type Checkpoint Store, Store URI s3://bucket/prefix), or name another one.",
            ) from None

    @cached_property
    def options(self) -> StoreOptions:
        """How to reach the store, credentials included; those of AWS are refreshed while they are used."""
        from airflow_provider_checkpoint.blobs import StoreOptions
        from airflow_provider_checkpoint.hooks.credentials import options_of

        settings = self.settings
        found: dict[str, Any] = {}
        if settings.storage_conn_id is not None:
            found = options_of(self._storage_connection(settings.storage_conn_id))
        # What this connection says itself counts more than what the cloud's says.
        own = {name: value for name in self._PLACES if (value := getattr(settings, name))}
        return StoreOptions.of(found | own)

    def get_conn(self) -> BlobStore:
        """The root of the store."""
        from airflow_provider_checkpoint.blobs import open_blobs

        return open_blobs(self.settings.uri, self.options)

    def open(self, pipeline: str | None = None) -> Layout:
        """The checkpoints of a pipeline; without one, those right below the address."""
        from airflow_provider_checkpoint.layouts import open_store

        settings = self.settings
        layout = self._layout or settings.layout
        for name, value in (("pipeline", pipeline), ("layout", layout)):
            if value is not None and not isinstance(value, str):
                # Templates of a DAG with native objects make a number of a name such as 2026.
                raise ConfigurationError(f"{name} is not text", subject=repr(value)[:100])
        # Only this layout compares it.
        more = {"vnode_count": settings.vnode_count} if settings.vnode_count and layout == "partitioned" else {}
        return open_store(settings.uri, layout=layout, pipeline=pipeline or None, options=self.options, **more)

    def open_if_any(self, pipeline: str | None = None) -> Layout | None:
        """Like ``open``, for whoever waits: None as long as there is nothing to recognise a layout by."""
        from airflow_provider_checkpoint.layouts._recognise import is_empty, look

        try:
            return self.open(pipeline)
        except ConfigurationError:
            root = self.get_conn()
            if is_empty(look(root.at(pipeline) if pipeline else root)):
                return None
            raise

    def pipelines(self) -> list[str]:
        """The pipelines in the store, sorted."""
        from airflow_provider_checkpoint.layouts import pipelines

        return pipelines(self.settings.uri, layout=self._layout or self.settings.layout, options=self.options)

    def test_connection(self) -> tuple[bool, str]:
        """Write, read and remove a probe, and look whether two writers would be kept apart."""
        from airflow_provider_checkpoint.blobs import probe
        from airflow_provider_checkpoint.exceptions import CheckpointError

        try:
            result = probe(self.get_conn())
            found = self.pipelines()
        except CheckpointError as error:
            return False, str(error)
        if not result.deletes:
            return False, "The store takes objects but does not remove them: check the right to delete."
        fence = "keeps two writers apart" if result.exclusive_create else "does NOT keep two writers apart"
        skew = "" if result.clock_skew is None else f", its clock is {abs(result.clock_skew):.0f} s off ours"
        names = f"; pipelines: {', '.join(found[:10])}" if found else "; no pipelines yet"
        return True, f"Written, read and removed a probe; the store {fence}{skew}{names}."

    # -- for a Spark job -----------------------------------------------------------------------------------------

    def job_arguments(self, pipeline: str) -> list[str]:
        """How a checkpointed job is told where its checkpoints are. Strings, and no secrets."""
        options = self.options
        # None of them is a secret. The account of an Azure store is part of its address.
        named = {name: value for name in (*self._PLACES, "account_name") if (value := getattr(options, name))}
        settings = [part for name, value in named.items() for part in ("--store-option", f"{name}={value}")]
        return ["--store", self.settings.uri, "--pipeline", pipeline, *settings]

    def job_environment(self) -> dict[str, str]:
        """The store's credentials as environment variables; empty if the connection names none."""
        from airflow_provider_checkpoint.hooks.credentials import environment_of

        if self.settings.storage_conn_id is None:
            return {}
        return environment_of(self._storage_connection(self.settings.storage_conn_id))

    def _storage_connection(self, conn_id: str) -> Connection:
        try:
            return self.get_connection(conn_id)
        except AirflowNotFoundException:
            raise ConfigurationError(
                f"storage_conn_id names {conn_id!r}, and there is no such connection",
                subject=f"connection {self.checkpoint_conn_id}",
                hint="Add it, or leave storage_conn_id out to use the worker's own environment.",
            ) from None
