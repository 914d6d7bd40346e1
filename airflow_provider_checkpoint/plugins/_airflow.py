"""The only place that touches what is inside Airflow: rights, and what its database knows.

These modules are not Airflow's public interface. If one of them moves, this file is what has to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_connection, requires_access_dag
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_checkpoint.hooks.settings import CONN_TYPE
from airflow_provider_checkpoint.plugins.rights import RecoveryDag, Rights, Used

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

_TEMPLATE = "{{"


class Airflow(Rights):
    """Asks Airflow's auth manager and database."""

    user = staticmethod(get_user)
    reads_connection = staticmethod(requires_access_connection("GET"))
    changes_connection = staticmethod(requires_access_connection("PUT"))
    reads_dag = staticmethod(requires_access_dag("GET"))
    reads_run = staticmethod(requires_access_dag("GET", DagAccessEntity.RUN))

    def connections(self, user: BaseUser) -> list[str]:
        with create_session() as session:
            asked = select(Connection.conn_id).where(Connection.conn_type == CONN_TYPE).order_by(Connection.conn_id)
            found = list(session.scalars(asked))
        return [conn_id for conn_id in found if self.may_read(user, conn_id)]

    def may_read(self, user: BaseUser, connection: str) -> bool:
        return self._may(user, connection, "GET")

    def may_change(self, user: BaseUser, connection: str) -> bool:
        return self._may(user, connection, "PUT")

    def _may(self, user: BaseUser, connection: str, method: ResourceMethod) -> bool:
        about = ConnectionDetails(conn_id=connection, team_name=Connection.get_team_name(connection))
        return bool(get_auth_manager().is_authorized_connection(method=method, details=about, user=user))

    def recovery_dag(self, user: BaseUser, dag_id: str) -> RecoveryDag:
        about = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        allowed = get_auth_manager().is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=about, user=user
        )
        with create_session() as session:
            dag = session.get(DagModel, dag_id)
            if dag is None or dag.is_stale:
                return RecoveryDag(exists=False, paused=False, may_start=bool(allowed))
            return RecoveryDag(exists=True, paused=bool(dag.is_paused), may_start=bool(allowed))

    def writers(self, user: BaseUser, asset_uri: str) -> list[str]:
        with create_session() as session:
            asked = (
                select(TaskOutletAssetReference.dag_id)
                .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
                .where(AssetModel.uri == asset_uri)
                .distinct()
            )
            found = sorted(session.scalars(asked))
        manager = get_auth_manager()
        return [
            each
            for each in found
            if manager.is_authorized_dag(
                method="GET", details=DagDetails(id=each, team_name=DagModel.get_team_name(each)), user=user
            )
        ]

    def used_by_dag(self, dag_id: str) -> list[Used] | None:
        with create_session() as session:
            stored = SerializedDagModel.get(dag_id, session=session)
            data = None if stored is None else stored.data
        return None if data is None else _distinct(_named(_tasks(data)))

    def used_by_run(self, dag_id: str, run_id: str) -> list[Used] | None:
        with create_session() as session:
            asked = select(DagRun.id).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            if session.scalar(asked) is None:
                return None
            rendered = select(RenderedTaskInstanceFields.rendered_fields).where(
                RenderedTaskInstanceFields.dag_id == dag_id, RenderedTaskInstanceFields.run_id == run_id
            )
            found = list(session.scalars(rendered))
        return _distinct(_named(found))


def _tasks(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The fields of each task in a serialised DAG; those of a mapped one are what all its instances share."""
    for task in data.get("dag", {}).get("tasks", ()):
        fields = task.get("__var", task) if isinstance(task, dict) else {}
        shared = fields.get("partial_kwargs")
        yield {**fields, **shared} if isinstance(shared, dict) else fields


def _named(tasks: Iterable[Mapping[str, Any]]) -> Iterator[Used]:
    """What tasks say they work on. What only a run can tell has no name yet."""
    for fields in tasks:
        connection, pipeline = fields.get("checkpoint_conn_id"), fields.get("pipeline")
        if isinstance(connection, str) and connection:
            unknown = _TEMPLATE in connection or not isinstance(pipeline, str | None) or _TEMPLATE in (pipeline or "")
            yield Used(connection=None, pipeline=None) if unknown else Used(connection, pipeline or None)


def _distinct(found: Iterable[Used]) -> list[Used]:
    return sorted(set(found), key=lambda each: (each.connection or "", each.pipeline or ""))
