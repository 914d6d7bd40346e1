"""The store that fails on purpose does what it says, or the tests that rely on it prove nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import MUTATIONS, READS, Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import OutcomeUnknownError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: dict[str, Callable[[FaultyBlobs], object]] = {
    "read": lambda store: store.read("folder/there"),
    "stream": lambda store: list(store.stream("folder/there")),
    "stat": lambda store: store.stat("folder/there"),
    "read_versioned": lambda store: store.read_versioned("folder/there"),
    "list": lambda store: list(store.list("folder")),
    "folders": lambda store: list(store.folders("folder")),
    "create": lambda store: store.create("folder/new", b"2"),
    "replace": lambda store: store.replace("folder/there", b"2"),
    "delete": lambda store: store.delete(["folder/there"]),
}


@pytest.fixture
def store() -> FaultyBlobs:
    inner = MemoryBlobs()
    inner.create("folder/there", b"1")
    return FaultyBlobs(inner)


def happened(verb: str, store: FaultyBlobs) -> bool:
    inner = store._inner
    return {
        "create": lambda: inner.stat("folder/new") is not None,
        "replace": lambda: inner.read("folder/there") == b"2",
        "delete": lambda: inner.stat("folder/there") is None,
    }[verb]()


def outcome(verb: str, store: FaultyBlobs) -> BaseException | None:
    """The error a call ends in, or for a delete the error of its key."""
    try:
        answer: Any = CALLS[verb](store)
    except (StoreUnavailableError, OutcomeUnknownError, SimulatedCrash) as error:
        return error
    return answer[0].error if verb == "delete" else None


def test_every_verb_is_known() -> None:
    assert set(CALLS) == READS | MUTATIONS


@pytest.mark.parametrize("verb", CALLS)
def test_without_a_fault_every_verb_passes_and_is_counted(store: FaultyBlobs, verb: str) -> None:
    assert outcome(verb, store) is None
    assert dict(store.calls) == {verb: 1}
    assert [name for name, _ in store.mutations] == ([verb] if verb in MUTATIONS else [])


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize(
    ("fault", "error", "acts"),
    [
        (Fault.FAIL, StoreUnavailableError, False),
        (Fault.TIMEOUT, OutcomeUnknownError, False),
        (Fault.LOST_ANSWER, OutcomeUnknownError, True),
        (Fault.CRASH_BEFORE, SimulatedCrash, False),
        (Fault.CRASH_AFTER, SimulatedCrash, True),
        (Fault.NONE, None, True),
    ],
)
def test_each_fault_does_what_it_says(
    store: FaultyBlobs, verb: str, fault: Fault, error: type[BaseException] | None, acts: bool
) -> None:
    store.inject(fault, verb=verb)
    ended = outcome(verb, store)
    assert type(ended) is (error or type(None))
    if verb in MUTATIONS:
        assert happened(verb, store) is acts


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_after_a_crash_the_process_stays_dead_and_the_store_stays_as_it_was(store: FaultyBlobs, fault: Fault) -> None:
    store.inject(fault, verb="create")
    assert isinstance(outcome("create", store), SimulatedCrash)
    for verb in CALLS:
        assert isinstance(outcome(verb, store), SimulatedCrash)
    assert store._inner.read("folder/there") == b"1"


def test_no_ordinary_handler_survives_a_crash(store: FaultyBlobs) -> None:
    store.inject(Fault.CRASH_BEFORE, verb="read")

    def careless() -> None:
        with contextlib.suppress(Exception):
            store.read("folder/there")

    with pytest.raises(SimulatedCrash):
        careless()


def test_a_fault_waits_for_its_verb_and_its_key_and_ends_after_its_times(store: FaultyBlobs) -> None:
    store.inject(Fault.FAIL, verb="create", match="manifest-", times=2)
    assert store.create("folder/other", b"1").created
    assert store.stat("manifest-1") is None
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            store.create("manifest-1", b"1")
    assert store.create("manifest-1", b"1").created


def test_faults_happen_in_the_order_they_were_given(store: FaultyBlobs) -> None:
    store.inject(Fault.NONE, verb="create")
    store.inject(Fault.FAIL, verb="create")
    store.inject(Fault.TIMEOUT, verb="create")
    assert store.create("1", b"").created
    with pytest.raises(StoreUnavailableError):
        store.create("2", b"")
    with pytest.raises(OutcomeUnknownError):
        store.create("2", b"")
    assert store.create("2", b"").created


def test_a_fault_of_one_key_does_not_stop_the_delete_of_the_others(store: FaultyBlobs) -> None:
    for key in "abc":
        store.create(key, b"1")
    store.inject(Fault.FAIL, verb="delete", match="b")
    outcomes = store.delete("abc")
    assert [(outcome.key, outcome.deleted) for outcome in outcomes] == [("a", True), ("b", False), ("c", True)]
    assert isinstance(outcomes[1].error, StoreUnavailableError)


@pytest.mark.parametrize("steps", range(6))
def test_a_process_can_be_stopped_after_each_of_its_mutations(steps: int) -> None:
    inner = MemoryBlobs()
    store = FaultyBlobs(inner, crash_after=steps)

    def work() -> None:
        store.create("a", b"1")
        store.create("b", b"1")
        store.replace("a", b"2")
        store.delete(["a", "b"])

    if steps == 5:
        work()
    else:
        with pytest.raises(SimulatedCrash):
            work()
    states = [{}, {"a": b"1"}, {"a": b"1", "b": b"1"}, {"a": b"2", "b": b"1"}, {"b": b"1"}, {}]
    assert {info.key: inner.read(info.key) for info in inner.list()} == states[steps]
    assert len(store.mutations) == steps


def test_latency_is_slept_before_every_call() -> None:
    pauses: list[float] = []
    store = FaultyBlobs(MemoryBlobs(), latency=0.25, sleep=pauses.append)
    store.create("a", b"1")
    store.read("a")
    list(store.list())
    assert pauses == [0.25, 0.25, 0.25]


def test_an_unknown_verb_is_refused(store: FaultyBlobs) -> None:
    with pytest.raises(ValueError, match="write"):
        store.inject(Fault.FAIL, verb="write")
