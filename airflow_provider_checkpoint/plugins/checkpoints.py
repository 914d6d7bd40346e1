"""The plugin: pages about checkpoints in Airflow's UI.

Every component of Airflow imports this, and only the api-server shows pages: they are made when the first is asked for.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from fastapi import FastAPI


class CheckpointPages:
    """The application, made at the first request."""

    @cached_property
    def _app(self) -> FastAPI:
        from airflow_provider_checkpoint.exceptions import ConfigurationError
        from airflow_provider_checkpoint.plugins._airflow import Airflow
        from airflow_provider_checkpoint.plugins.app import create_app, create_refusing_app
        from airflow_provider_checkpoint.plugins.settings import PageSettings

        try:
            settings = PageSettings.from_airflow()
        except ConfigurationError as error:
            return create_refusing_app(Airflow(), error)
        return create_app(Airflow(), settings)

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        await self._app(scope, receive, send)


class CheckpointPlugin(AirflowPlugin):
    """
    *Browse / Checkpoints*, and a tab on DAGs and runs.

    Addresses are relative: they work in a deployment below a path, too.
    """

    name = "checkpoints"
    fastapi_apps = [  # noqa: RUF012 - how Airflow declares it
        {"app": CheckpointPages(), "url_prefix": "/checkpoints", "name": "Checkpoints"},
    ]
    external_views = [  # noqa: RUF012 - how Airflow declares it
        {
            "name": "Checkpoints",
            "href": "checkpoints/",
            "destination": "nav",
            "url_route": "checkpoints",
            "category": "browse",
        },
        {
            "name": "Checkpoints",
            "href": "checkpoints/dag/{DAG_ID}",
            "destination": "dag",
            "url_route": "checkpoints_of_dag",
        },
        {
            "name": "Checkpoints",
            "href": "checkpoints/dag/{DAG_ID}/run/{RUN_ID}",
            "destination": "dag_run",
            "url_route": "checkpoints_of_run",
        },
    ]
