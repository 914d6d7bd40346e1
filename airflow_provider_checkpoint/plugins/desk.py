"""From a request to what its page shows: looks at stores and asks Airflow, never on the loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from airflow.sdk.exceptions import AirflowNotFoundException
from starlette.concurrency import run_in_threadpool

from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.plugins import stores
from airflow_provider_checkpoint.plugins.lookups import Lookups, SlowStoreError
from airflow_provider_checkpoint.reports.checkpoint import Actions, Recovery
from airflow_provider_checkpoint.reports.markup import address
from airflow_provider_checkpoint.reports.overview import StoreRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_checkpoint.lifecycle.validation import ValidationResult
    from airflow_provider_checkpoint.model import Depth
    from airflow_provider_checkpoint.plugins.rights import Rights, Used
    from airflow_provider_checkpoint.plugins.settings import PageSettings
    from airflow_provider_checkpoint.plugins.stores import Looked
    from airflow_provider_checkpoint.reports.checkpoint import Detail

Value = TypeVar("Value")


class Desk:
    def __init__(self, rights: Rights, settings: PageSettings) -> None:
        self._rights = rights
        self._settings = settings
        self._lookups = Lookups(settings.cache_seconds)

    # -- reading -------------------------------------------------------------------------------------------------

    async def all_stores(self, user: Any) -> list[StoreRows]:
        """Every store that a user may read, each within the same time: a dead one costs the others nothing."""
        names = await run_in_threadpool(self._rights.connections, user)
        return list(await asyncio.gather(*(self._store(name) for name in names)))

    async def _store(self, connection: str) -> StoreRows:
        return await self._told(connection, ("all",), lambda: stores.look_at_all(connection, self._settings))

    async def _told(self, connection: str, thing: tuple[str, ...], work: Callable[[], StoreRows]) -> StoreRows:
        """What is wrong with a store is told in its place on the page."""
        try:
            return await self._ask(connection, thing, work)
        except SlowStoreError as error:
            why = f"The store is slow or dead, or has much to tell: {error.message}. This page looks again by itself."
            return StoreRows(connection, "", trouble=why, slow=True)
        except AirflowNotFoundException:
            return StoreRows(connection, "", trouble="There is no such connection.")
        except CheckpointError as error:
            return StoreRows(connection, "", trouble=error.message)
        except Exception as error:  # noqa: BLE001 - whatever a library raises: the other stores are not to suffer
            return StoreRows(connection, "", trouble=stores.unforeseen(error))

    async def pipeline(self, connection: str, pipeline: str | None) -> Looked:
        def work() -> Looked:
            return stores.look(connection, pipeline, self._settings)

        return await self._ask(connection, ("pipeline", pipeline or ""), work)

    async def checkpoint(self, connection: str, pipeline: str | None, checkpoint: str) -> Detail:
        began = time.monotonic()
        looked = await self.pipeline(connection, pipeline)
        thing = ("checkpoint", pipeline or "", checkpoint)
        # Both together take no longer than one may.
        left = max(0.1, self._settings.store_timeout - (time.monotonic() - began))
        return await self._ask(connection, thing, lambda: stores.detail(looked, checkpoint), patience=left)

    async def used_by_dag(self, dag_id: str) -> list[Used] | None:
        return await run_in_threadpool(self._rights.used_by_dag, dag_id)

    async def used_by_run(self, dag_id: str, run_id: str) -> list[Used] | None:
        return await run_in_threadpool(self._rights.used_by_run, dag_id, run_id)

    async def rows(self, user: Any, used: Iterable[Used]) -> list[StoreRows]:
        """Some pipelines in one line each. Those that a user may not read are named, and no more."""
        together: dict[str, list[str | None]] = {}
        for each in used:
            if each.connection is not None:
                together.setdefault(each.connection, []).append(each.pipeline)
        return list(await asyncio.gather(*(self._some(user, *each) for each in together.items())))

    async def _some(self, user: Any, connection: str, pipelines: list[str | None]) -> StoreRows:
        if not await run_in_threadpool(self._rights.may_read, user, connection):
            return StoreRows(connection, "", trouble="You need the right to read this connection.")
        # One look for all: a store has only a few at once.
        thing = ("some", *(pipeline or "" for pipeline in pipelines))
        return await self._told(connection, thing, lambda: stores.look_at_some(connection, pipelines, self._settings))

    # -- changing ------------------------------------------------------------------------------------------------

    async def prove(self, connection: str, pipeline: str | None, checkpoint: str, depth: Depth) -> ValidationResult:
        """Raises SlowStoreError as long as it takes; whoever asks again then joins."""

        def work() -> ValidationResult:
            try:
                return stores.prove(connection, pipeline, checkpoint, depth)
            finally:
                # Pages show the new proof at once.
                self._lookups.forget(connection)

        thing = ("prove", pipeline or "", checkpoint, depth.value)
        return await self._ask(connection, thing, work, change=True)

    async def pin(self, connection: str, pipeline: str | None, checkpoint: str, *, by: str, **wanted: str) -> None:
        """Like ``prove``."""

        def work() -> None:
            try:
                stores.pin(connection, pipeline, checkpoint, by=by, **wanted)
            finally:
                self._lookups.forget(connection)

        thing = ("pin", pipeline or "", checkpoint, by, *wanted.values())
        await self._ask(connection, thing, work, change=True)

    async def actions(self, user: Any, connection: str, pipeline: str | None, *, base: str) -> Actions:
        """What a user may do with a checkpoint. ``base`` leads from the page to where these pages begin."""

        def ask() -> Actions:
            return Actions(
                may_change=self._rights.may_change(user, connection),
                recovery=self._recovery(user, connection, pipeline, base),
                connection=connection,
                pipeline=pipeline,
            )

        return await run_in_threadpool(ask)

    def _recovery(self, user: Any, connection: str, pipeline: str | None, base: str) -> Recovery:
        from airflow_provider_checkpoint.assets import SCHEME

        dag_id = self._settings.recovery_dag
        dag = self._rights.recovery_dag(user, dag_id)
        refusal = ""
        if not dag.exists:
            refusal = (
                f"There is no DAG {dag_id} here. It comes with this package; [checkpoint] recovery_dag_id names it."
            )
        elif not dag.may_start:
            refusal = f"You need the right to start {dag_id}."
        elif not pipeline:
            refusal = f"{dag_id} works on a pipeline below the address of a connection; this store is one itself."
        asset = f"{SCHEME}://{quote(connection, safe='')}/{quote(pipeline or '', safe='')}"
        return Recovery(
            dag_id=dag_id,
            api=address("api", "v2", "dags", dag_id, "dagRuns", base=f"{base}../"),
            then=address("dags", dag_id, "runs", "", base=f"{base}../"),
            refusal=refusal,
            note=f"{dag_id} is paused: a run waits until somebody unpauses it." if dag.paused else "",
            restart_dags=tuple(self._rights.writers(user, asset)),
        )

    async def _ask(
        self,
        connection: str,
        thing: tuple[str, ...],
        work: Callable[[], Value],
        *,
        patience: float | None = None,
        change: bool = False,
    ) -> Value:
        allowed = self._settings.store_timeout if patience is None else patience
        return await self._lookups.ask(connection, thing, work, patience=allowed, change=change)
