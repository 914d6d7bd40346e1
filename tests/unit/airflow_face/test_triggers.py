"""Triggers: what they survive, what ends them, and that they never hold up the triggerer."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from contextlib import aclosing, suppress
from datetime import UTC, datetime

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.triggers import checkpoint as triggers
from airflow_provider_checkpoint.triggers.checkpoint import (
    CheckpointCommittedTrigger,
    CheckpointEventTrigger,
    CheckpointFreshnessTrigger,
)
from tests.unit.airflow_face.faults import faulty
from tests.unit.cli.making import add_sidecar, partitioned_store, sidecar_store

STORE = {"pipeline": "orders", "checkpoint_conn_id": "checkpoint_default", "poll_interval": 0.001}


def committed(**arguments) -> CheckpointCommittedTrigger:
    return CheckpointCommittedTrigger(**{**STORE, **arguments})


def add(number: int, **values) -> None:
    add_sidecar(CheckpointHook(layout="sidecar").open("orders"), number, hours=0, **values)


class Enough(Exception):  # noqa: N818 - no error: the test has seen enough
    """Ends a trigger that would look for ever."""


def events(trigger, *, looks: int = 3, count: int | None = None) -> list:
    """The events of so many looks, or the first ``count`` of them, or fewer if the trigger ends by itself."""
    look, left = trigger.look, iter(range(looks))

    def counted():
        if next(left, None) is None:
            raise Enough
        return look()

    async def collect() -> list:
        found = []
        async with aclosing(trigger.run()) as running:
            with suppress(Enough):
                async for event in running:
                    found.append(event.payload)
                    if len(found) == count:
                        break
        return found

    trigger.look = counted
    return asyncio.run(asyncio.wait_for(collect(), 60))


# -- as the triggerer keeps them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trigger",
    [
        committed(min_epoch=6, min_timeline=2, after="2026-01-01T00:00:00+00:00", depth="content", layout="sidecar"),
        committed(),
        CheckpointFreshnessTrigger(warn_after=1.0, fail_after=2.0, depth="restore", **STORE),
        CheckpointEventTrigger(pipeline="orders", layout="sidecar", poll_interval=5.0),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_a_trigger_is_made_anew_from_its_path_and_json(trigger):
    path, arguments = trigger.serialize()
    assert path == f"airflow_provider_checkpoint.triggers.checkpoint.{type(trigger).__name__}"
    again = getattr(triggers, type(trigger).__name__)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    known = {
        name
        for kind in type(trigger).__mro__
        if kind.__module__ == triggers.__name__
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(arguments) == known


def test_making_a_trigger_asks_no_store_and_no_connection():
    CheckpointCommittedTrigger(pipeline="orders", checkpoint_conn_id="nowhere").serialize()


# -- waiting -----------------------------------------------------------------------------------------------------


def test_it_fires_once_and_ends(orders):
    [event] = events(committed(min_epoch=5))
    assert (event["status"], event["checkpoint_id"], event["epoch"]) == ("success", "5", "5")


def test_it_looks_again_until_it_is_there(orders):
    async def wait():
        async with aclosing(committed(min_epoch=6).run()) as running:
            waiting = asyncio.ensure_future(anext(running))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await asyncio.to_thread(add, 6)
            return (await asyncio.wait_for(waiting, 20)).payload

    assert asyncio.run(wait())["checkpoint_id"] == "6"


@pytest.mark.parametrize(("verb", "times"), [("folders", 1), ("folders", 9), ("list", 3), ("read", 5)])
def test_a_store_that_does_not_answer_for_a_while_is_asked_again(orders, monkeypatch, verb, times):
    faults = faulty(monkeypatch)
    looked = 0
    look = CheckpointCommittedTrigger.look

    def counted(self):
        nonlocal looked
        looked += 1
        if looked > times:
            faults.heal()
        return look(self)

    faults.fail(verb=verb)
    monkeypatch.setattr(CheckpointCommittedTrigger, "look", counted)
    [event] = events(committed(), looks=20)
    assert (event["status"], looked) == ("success", times + 1)


def test_one_that_stays_silent_ends_the_wait_and_says_that_it_may_come_back(orders, monkeypatch):
    faulty(monkeypatch).fail(verb="folders")
    [event] = events(committed(), looks=20)
    assert (event["status"], event["transient"]) == ("error", True)
    assert "did not answer" in event["message"]


@pytest.mark.parametrize(
    "arguments", [{"layout": "parquet"}, {"pipeline": "letters"}, {"pipeline": "..", "layout": "sidecar"}]
)
def test_what_waiting_does_not_mend_ends_it_at_once(orders, arguments):
    (orders.parent / "letters").mkdir()
    (orders.parent / "letters" / "to-ada.txt").write_text("Dear Ada")
    [event] = events(committed(poll_interval=3600, **arguments))
    assert event["status"] == "error"
    assert "transient" not in event
    assert event["message"]


def test_a_connection_that_makes_no_sense_ends_it_without_its_secrets(orders, connect):
    connect("checkpoint_default", host=str(orders.parent), extra={"password": "hush-hush"})
    [event] = events(committed(poll_interval=3600))
    assert event["status"] == "error"
    assert "'password'" in event["message"]
    assert "hush" not in event["message"]


def test_a_connection_that_is_gone_ends_it_with_what_to_do(orders, supervisor):
    [event] = events(committed(checkpoint_conn_id="nowhere", poll_interval=3600))
    assert event["status"] == "error"
    assert "'nowhere'" in event["message"]
    assert "HINT" in event["message"]


def test_a_slow_store_does_not_hold_up_the_triggerer(orders, monkeypatch):
    faults = faulty(monkeypatch)
    faults.latency = 0.05
    turns: list[float] = []

    async def other_work() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0.001)

    async def both() -> None:
        busy = asyncio.ensure_future(other_work())
        async with aclosing(committed().run()) as running:
            await asyncio.wait_for(anext(running), 20)
        busy.cancel()

    asyncio.run(both())
    asked = sum(sum(store.calls.values()) for store in faults.opened)
    assert asked >= 3
    # It had at least as many turns as there were calls, each of which blocks for fifty times as long as a turn.
    assert len(turns) > asked


@pytest.mark.parametrize(("windows", "state"), [((5400.0, 9000.0), "fresh"), ((60.0, 120.0), "stale")])
def test_a_watch_over_freshness_fires_when_fresh_and_when_too_old(orders, windows, state):
    [event] = events(CheckpointFreshnessTrigger(warn_after=windows[0], fail_after=windows[1], **STORE))
    assert (event["status"], event["state"]) == ("success", state)


def test_while_it_is_late_it_waits(orders):
    assert events(CheckpointFreshnessTrigger(warn_after=60.0, fail_after=9000.0, **STORE)) == []


# -- announcing --------------------------------------------------------------------------------------------------


class Memory:
    """What Airflow keeps with an asset, also over restarts."""

    def __init__(self) -> None:
        self.kept: dict[str, object] = {}

    async def aget(self, key, default=None):
        return self.kept.get(key, default)

    async def aset(self, key, value):
        assert value is not None
        self.kept[key] = json.loads(json.dumps(value))


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(autouse=True)
def quick_airflow(monkeypatch):
    """One that takes events over at once."""
    monkeypatch.setattr(triggers, "_TAKEN_OVER", 0.0)


def watcher(memory: Memory | None, **arguments) -> CheckpointEventTrigger:
    """A trigger as the triggerer starts it; each call is a restart."""
    trigger = CheckpointEventTrigger(**{"pipeline": "orders", "poll_interval": 0.001, **arguments})
    assert isinstance(trigger, BaseEventTrigger)
    trigger.asset_state_store = memory
    return trigger


def announced(trigger, **limits) -> list[str]:
    return [event["checkpoint_id"] for event in events(trigger, **limits)]


def test_the_first_look_announces_nothing(orders, memory):
    assert announced(watcher(memory), looks=1) == []
    assert memory.kept == {"announced_checkpoint": "5"}


def test_what_comes_while_it_runs_is_announced_with_its_facts(orders, memory):
    announced(watcher(memory))
    add(6)
    [event] = events(watcher(memory))
    assert event == {
        "checkpoint_id": "6",
        "epoch": "6",
        "timeline": "1",
        "created": event["created"],
        "bytes": event["bytes"],
        "uri": f"file://{orders}",
        "pipeline": "orders",
    }
    assert json.loads(json.dumps(event)) == event


def test_a_restart_announces_nothing_twice(orders, memory):
    announced(watcher(memory))
    add(6)
    assert announced(watcher(memory)) == ["6"]
    assert announced(watcher(memory)) == []


def test_all_that_came_between_two_looks_is_announced_in_order(orders, memory):
    announced(watcher(memory))
    for number in (6, 7, 8):
        add(number)
    assert announced(watcher(memory)) == ["6", "7", "8"]


@pytest.mark.parametrize("got_out", [1, 2, 3])
def test_one_that_ends_before_airflow_has_its_events_announces_them_again(orders, memory, got_out):
    announced(watcher(memory))
    for number in (6, 7, 8):
        add(number)
    assert announced(watcher(memory), count=got_out) == ["6", "7", "8"][:got_out]
    assert announced(watcher(memory)) == ["6", "7", "8"]
    assert announced(watcher(memory)) == []


def test_two_assets_of_one_pipeline_share_what_was_announced(orders, supervisor):
    """They share a trigger, too, and Airflow tells it of both."""

    def both() -> AssetStateStoreAccessors:
        return AssetStateStoreAccessors(inlets=[Asset("mine"), Asset("yours")])

    announced(watcher(both()))
    assert supervisor.asset_state == {(name, "announced_checkpoint"): "5" for name in ("mine", "yours")}
    add(6)
    assert announced(watcher(both())) == ["6"]
    assert announced(watcher(both())) == []


def test_a_connection_that_is_made_only_later_is_waited_for(orders, memory, supervisor, monkeypatch, connect):
    announced(watcher(memory))
    monkeypatch.delenv("AIRFLOW_CONN_CHECKPOINT_DEFAULT")
    assert announced(watcher(memory), looks=5) == []
    connect("checkpoint_default", host=str(orders.parent))
    add(6)
    assert announced(watcher(memory)) == ["6"]


def test_the_first_checkpoint_of_a_new_pipeline_is_announced(root, memory):
    assert announced(watcher(memory)) == []
    sidecar_store(root / "orders", 2)
    assert announced(watcher(memory)) == ["1", "2"]


def test_the_first_checkpoint_is_announced_also_where_nothing_is_kept_with_the_asset(root):
    async def wait():
        async with aclosing(watcher(None).run()) as running:
            waiting = asyncio.ensure_future(anext(running))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(sidecar_store, root / "orders", 1)
            return (await asyncio.wait_for(waiting, 20)).payload

    assert asyncio.run(wait())["checkpoint_id"] == "1"


def test_a_point_that_a_recovery_went_back_to_is_not_new(orders, memory):
    announced(watcher(memory))
    layout = CheckpointHook(layout="sidecar").open("orders")
    start = layout.load(layout.parse_id("3"))
    open_timeline(layout.blobs, start=start, has_checkpoints=True, writer="a job", now=datetime.now(UTC))
    assert announced(watcher(memory)) == []
    # One that a zombie still writes for the old history is not new either; one of the new history is.
    add(6)
    add(7, epoch=4, timeline=2)
    assert announced(watcher(memory)) == ["7"]


def test_what_was_announced_may_be_pruned(orders, memory):
    announced(watcher(memory))
    (orders / "manifests" / "manifest-000005.json").unlink()
    assert announced(watcher(memory)) == []
    add(6)
    assert announced(watcher(memory)) == ["6"]


def test_the_layout_of_the_spark_runtime_is_announced_alike(root, memory):
    partitioned_store(root / "orders", 2)
    announced(watcher(memory))
    assert memory.kept["announced_checkpoint"] == str(CheckpointHook().open("orders").candidates()[-1])


def test_an_asset_is_watched_for_ever_whatever_the_store_says(orders, memory, connect, monkeypatch):
    announced(watcher(memory))
    faults = faulty(monkeypatch)
    faults.fail(verb="folders")
    assert announced(watcher(memory), looks=30) == []

    async def wait():
        async with aclosing(watcher(memory).run()) as running:
            waiting = asyncio.ensure_future(anext(running))
            # Silent for longer than a task would wait, then refused, then back.
            while len(faults.opened) < 80:  # noqa: ASYNC110 - stores are opened by threads
                await asyncio.sleep(0.005)
            connect("checkpoint_default", host=str(orders.parent), extra={"layout": "nonsense"})
            faults.heal()
            await asyncio.sleep(0.1)
            assert not waiting.done()
            connect("checkpoint_default", host=str(orders.parent))
            await asyncio.to_thread(add, 6)
            return (await asyncio.wait_for(waiting, 20)).payload

    assert asyncio.run(wait())["checkpoint_id"] == "6"


def test_two_watchers_of_one_pipeline_are_one_trigger(orders):
    ours = [watcher(None).serialize() for _ in range(2)]
    assert len({BaseEventTrigger.hash(*each) for each in ours}) == 1
    assert BaseEventTrigger.hash(*watcher(None, pipeline="clicks").serialize()) != BaseEventTrigger.hash(*ours[0])
