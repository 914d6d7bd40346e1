"""Looking at a store from the triggerer, where no call may block the loop: every look happens in a thread."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
    from airflow_provider_checkpoint.sensors._looking import Freshness

#: Seconds after which Airflow has an event in its database. It takes events over about once a second.
_TAKEN_OVER = 5.0


class _StoreTrigger(BaseTrigger):
    """
    Looks at a store again and again.

    A store that does not answer is asked again; one that refuses, and one that stays silent, ends the wait.
    """

    def __init__(
        self,
        *,
        pipeline: str | None,
        checkpoint_conn_id: str,
        layout: str | None = None,
        poll_interval: float = 30.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Airflow's triggers have no types
        self.pipeline = pipeline
        self.checkpoint_conn_id = checkpoint_conn_id
        self.layout = layout
        self.poll_interval = poll_interval

    def arguments(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "checkpoint_conn_id": self.checkpoint_conn_id,
            "layout": self.layout,
            "poll_interval": self.poll_interval,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    @property
    def hook(self) -> CheckpointHook:
        """A new one for each look: a connection may change while a trigger waits."""
        from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook

        return CheckpointHook(self.checkpoint_conn_id, layout=self.layout)

    @abstractmethod
    def look(self) -> dict[str, Any] | None:
        """What was waited for, or None. Blocks."""

    async def looks(self) -> AsyncIterator[dict[str, Any] | None]:
        """The answer of each look; an error that waiting does not mend is an answer, and the last one."""
        from airflow_provider_checkpoint.exceptions import CheckpointError, TransientError
        from airflow_provider_checkpoint.sensors._patience import is_worn_out

        silent = 0
        while True:
            try:
                found = await asyncio.to_thread(self.look)
            except TransientError as error:
                silent += 1
                if is_worn_out(silent, error, self.log):
                    yield {"status": "error", "message": str(error), "transient": True}
                    return
            except CheckpointError as error:
                yield {"status": "error", "message": str(error)}
                return
            else:
                silent = 0
                yield found
            await asyncio.sleep(self.poll_interval)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for found in self.looks():
            if found is not None:
                yield TriggerEvent(found)  # type: ignore[no-untyped-call] # likewise
                return


class CheckpointCommittedTrigger(_StoreTrigger):
    """
    Fires when a checkpoint as wanted is there.

    :param min_epoch: of this epoch or a later one.
    :param min_timeline: on this timeline or a later one.
    :param after: made after this time, ISO.
    :param depth: proven so far.
    """

    def __init__(
        self,
        *,
        min_epoch: int | None = None,
        min_timeline: int | None = None,
        after: str | None = None,
        depth: str = "structure",
        **store: Any,
    ) -> None:
        super().__init__(**store)
        self.min_epoch = min_epoch
        self.min_timeline = min_timeline
        self.after = after
        self.depth = depth

    def arguments(self) -> dict[str, Any]:
        wanted = ("min_epoch", "min_timeline", "after", "depth")
        return super().arguments() | {name: getattr(self, name) for name in wanted}

    def look(self) -> dict[str, Any] | None:
        from airflow_provider_checkpoint.assets import facts_of
        from airflow_provider_checkpoint.model import Depth
        from airflow_provider_checkpoint.sensors._looking import newest_committed

        layout = self.hook.open_if_any(self.pipeline)
        if layout is None:
            return None
        found = newest_committed(
            layout,
            min_epoch=self.min_epoch,
            min_timeline=self.min_timeline,
            after=None if self.after is None else datetime.fromisoformat(self.after),
            depth=Depth(self.depth),
        )
        if found is None:
            return None
        return {"status": "success"} | facts_of(found, uri=layout.blobs.uri, pipeline=self.pipeline)


class CheckpointFreshnessTrigger(_StoreTrigger):
    """
    Fires when the newest checkpoint is fresh, or too old.

    :param warn_after: seconds after which it is late.
    :param fail_after: seconds after which it is too old.
    """

    def __init__(self, *, warn_after: float, fail_after: float, depth: str = "presence", **store: Any) -> None:
        super().__init__(**store)
        self.warn_after = warn_after
        self.fail_after = fail_after
        self.depth = depth

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {name: getattr(self, name) for name in ("warn_after", "fail_after", "depth")}

    def look(self) -> dict[str, Any] | None:
        from airflow_provider_checkpoint.model import Depth
        from airflow_provider_checkpoint.sensors._looking import LATE, freshness

        layout = self.hook.open(self.pipeline)
        found: Freshness = freshness(
            layout,
            warn_after=timedelta(seconds=self.warn_after),
            fail_after=timedelta(seconds=self.fail_after),
            depth=Depth(self.depth),
        )
        if found.state == LATE:
            self.log.warning("%s", found.words)
            return None
        return {"status": "success"} | found.answer(layout.blobs.uri, self.pipeline)


class CheckpointEventTrigger(BaseEventTrigger, _StoreTrigger):
    """
    Announces each new checkpoint of a pipeline, for an ``AssetWatcher``.

    What was announced last is kept with the asset, so that a restart of the triggerer loses nothing: what was committed
    meanwhile is announced afterwards, and what was announced in its last seconds is announced again, since Airflow may
    not have taken it over. The first look ever announces nothing: what is there is not new. A point that a recovery
    went back to is not new either. A store that cannot be looked at is looked at again: an asset is watched for ever.
    """

    _ANNOUNCED = "announced_checkpoint"

    def __init__(
        self,
        *,
        pipeline: str | None,
        checkpoint_conn_id: str = "checkpoint_default",
        layout: str | None = None,
        poll_interval: float = 60.0,
    ) -> None:
        _StoreTrigger.__init__(
            self, pipeline=pipeline, checkpoint_conn_id=checkpoint_conn_id, layout=layout, poll_interval=poll_interval
        )
        #: The last checkpoint that needs no announcement: its id, empty if there was none, None before the first look.
        self._announced: str | None = None

    def look(self) -> dict[str, Any] | None:
        from airflow_provider_checkpoint.assets import facts_of
        from airflow_provider_checkpoint.sensors._looking import committed_since, newest_committed

        layout = self.hook.open_if_any(self.pipeline)
        if layout is None:
            return {"seen": "", "new": []}
        if self._announced is None:
            newest = newest_committed(layout)
            return {"seen": "" if newest is None else str(newest.id), "new": []}
        last = layout.parse_id(self._announced) if self._announced else None
        new = committed_since(layout, last)
        return {"new": [facts_of(each, uri=layout.blobs.uri, pipeline=self.pipeline) for each in new]} if new else None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        self._announced = await self._recall()
        while True:
            async for found in self.looks():
                if found is None:
                    continue
                if found.get("status") == "error":
                    self.log.error("cannot look for checkpoints: %s", found["message"])
                    continue
                if self._announced is None:
                    await self._remember(found["seen"])
                for facts in found["new"]:
                    yield TriggerEvent(facts)  # type: ignore[no-untyped-call] # likewise
                if found["new"]:
                    # Not before: an event that a triggerer still holds when it ends is lost.
                    await asyncio.sleep(_TAKEN_OVER)
                    await self._remember(found["new"][-1]["checkpoint_id"])
            await asyncio.sleep(self.poll_interval)

    @property
    def _memories(self) -> list[Any]:
        """What Airflow keeps with each asset that is watched by this trigger: those of one pipeline share it."""
        kept: Any = getattr(self, "asset_state_store", None)
        # Its own short form refuses more than one.
        several = getattr(kept, "_by_name", None)
        return [*several.values()] if several else [] if kept is None else [kept]

    async def _recall(self) -> str | None:
        for memory in self._memories:
            announced: str | None = await memory.aget(self._ANNOUNCED)
            if announced is not None:
                return announced
        return None

    async def _remember(self, checkpoint_id: str) -> None:
        self._announced = checkpoint_id
        for memory in self._memories:
            await memory.aset(self._ANNOUNCED, checkpoint_id)
