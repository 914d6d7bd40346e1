"""Looks at stores: joined, remembered, and no danger to each other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.plugins.lookups import PER_STORE, Lookups, SlowStoreError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(lookups, work, *, store="lake", thing=("all",), patience=10.0):
    return asyncio.run(lookups.ask(store, thing, work, patience=patience))


def test_a_finding_is_remembered_for_a_while_and_then_looked_up_again():
    clock, calls = Clock(), []
    lookups = Lookups(10, clock=clock)
    for moment in (0, 9, 11, 12):
        clock.now = moment
        ask(lookups, lambda: calls.append(clock.now))
    assert calls == [0, 11]


def test_what_took_long_to_find_is_remembered_for_as_long():
    clock, calls = Clock(), []

    def slow() -> None:
        calls.append(clock.now)
        clock.now += 60

    lookups = Lookups(10, clock=clock)
    ask(lookups, slow)
    clock.now += 50
    ask(lookups, slow)
    assert calls == [0]


def test_errors_are_told_to_whoever_asks():
    def fail() -> None:
        raise ConfigurationError("no address")

    lookups = Lookups(10)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no address"):
            ask(lookups, fail)


def test_a_timeout_of_the_work_itself_is_not_taken_for_a_slow_store():
    def fail() -> None:
        raise TimeoutError("from within")

    with pytest.raises(TimeoutError, match="from within"):
        ask(Lookups(10), fail)


def test_who_asks_for_what_is_under_way_joins_it_and_gets_its_result():
    gate, calls = threading.Event(), []

    def work() -> str:
        calls.append(1)
        gate.wait(10)
        return "found"

    async def both() -> list[str]:
        lookups = Lookups(10)
        asked = [asyncio.create_task(lookups.ask("lake", ("all",), work, patience=10)) for _ in range(5)]
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(both()) == ["found"] * 5
    assert calls == [1]


def test_a_dead_store_is_told_within_its_time_and_keeps_no_other_waiting():
    gate, lookups = threading.Event(), Lookups(10)
    try:
        for number in range(PER_STORE + 3):
            began = time.monotonic()
            with pytest.raises(SlowStoreError):
                ask(lookups, lambda: gate.wait(30), store="dead sea", thing=(str(number),), patience=0.05)
            assert time.monotonic() - began < 1
        hanging = [each for each in threading.enumerate() if each.name == "checkpoints-dead sea"]
        assert len(hanging) == PER_STORE
        assert all(each.daemon for each in hanging)
        assert ask(lookups, lambda: "alive", store="pond") == "alive"
    finally:
        gate.set()


def test_after_a_change_everything_of_its_store_is_read_anew():
    calls, lookups = [], Lookups(10)
    for store in ("lake", "pond"):
        ask(lookups, lambda: calls.append(1), store=store)
    lookups.forget("lake")
    for store in ("lake", "pond"):
        ask(lookups, lambda: calls.append(2), store=store)
    assert calls == [1, 1, 2]


def test_a_store_that_comes_back_is_asked_again():
    gate, lookups = threading.Event(), Lookups(0)
    with pytest.raises(SlowStoreError):
        ask(lookups, lambda: gate.wait(10), patience=0.05)
    gate.set()
    deadline = time.monotonic() + 5
    while any(each.name == "checkpoints-lake" for each in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ask(lookups, lambda: "alive", thing=("new",)) == "alive"


def test_what_came_of_a_change_is_told_once_and_waits_until_it_is():
    calls, lookups = [], Lookups(10)

    def change() -> int:
        calls.append(1)
        return len(calls)

    async def poll() -> int:
        return await lookups.ask("lake", ("prove",), change, patience=10, change=True)

    assert [asyncio.run(poll()), asyncio.run(poll())] == [1, 2]


def test_a_change_under_way_goes_on_when_another_has_ended():
    gate, calls, lookups = threading.Event(), [], Lookups(10)

    def slow() -> str:
        calls.append(1)
        gate.wait(10)
        return "proven"

    def poll(patience: float) -> str:
        return asyncio.run(lookups.ask("lake", ("prove",), slow, patience=patience, change=True))

    with pytest.raises(SlowStoreError):
        poll(0.05)
    lookups.forget("lake")
    gate.set()
    assert poll(10) == "proven"
    assert calls == [1]


def test_long_changes_do_not_keep_the_pages_of_their_store_from_being_read():
    gate, lookups = threading.Event(), Lookups(10)
    try:
        for number in range(PER_STORE):
            with pytest.raises(SlowStoreError):
                asyncio.run(lookups.ask("lake", (str(number),), lambda: gate.wait(30), patience=0.05, change=True))
        assert ask(lookups, lambda: "read") == "read"
    finally:
        gate.set()
