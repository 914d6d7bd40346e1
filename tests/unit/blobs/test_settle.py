"""What became of a write: decided from what the store says and what stands there, without a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import Backoff, Digest, MemoryBlobs
from airflow_provider_checkpoint.blobs._settle import (
    ConditionFailedError,
    settle,
    settle_create,
    settle_large_create,
    settle_replace,
)
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobChangedError,
    BlobNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NO_PAUSE = Backoff(attempts=4, first=0)
REFUSED = ConditionFailedError("taken")
LOST = StoreUnavailableError("no answer")
UNKNOWN = OutcomeUnknownError("late")
DENIED = AccessDeniedError("no right")


@dataclass
class Script:
    """Answers calls one after the other: an error is raised, a function called, anything else returned."""

    answers: list[object]
    calls: int = 0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> object:
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


@pytest.mark.parametrize(
    ("writes", "looks", "outcome", "sent"),
    [
        (["done"], ["never asked"], "done", 1),
        ([REFUSED], ["theirs"], "theirs", 1),
        ([LOST], ["ours"], "ours", 1),
        ([UNKNOWN], ["ours"], "ours", 1),
        ([LOST, "done"], [None], "done", 2),
        ([REFUSED, LOST, "done"], [None, None], "done", 3),
        ([LOST, LOST, REFUSED], [None, None, "ours"], "ours", 3),
        ([LOST, LOST, LOST, "done"], [None], "done", 4),
    ],
)
def test_a_write_is_sent_until_its_outcome_is_known(
    writes: list[object], looks: list[object], outcome: str, sent: int
) -> None:
    write, look = Script(writes), Script(looks)
    assert settle(write, look, NO_PAUSE, subject="x", sleep=lambda _: None) == outcome
    assert write.calls == sent


@pytest.mark.parametrize(
    ("writes", "looks", "error", "sent"),
    [
        ([LOST], [None], OutcomeUnknownError, 4),
        ([REFUSED], [None], OutcomeUnknownError, 4),
        ([LOST], [LOST], OutcomeUnknownError, 1),
        ([LOST], [UNKNOWN], OutcomeUnknownError, 1),
        ([DENIED], ["never asked"], AccessDeniedError, 1),
        ([LOST], [DENIED], AccessDeniedError, 1),
        ([REFUSED], [BlobChangedError("theirs")], BlobChangedError, 1),
    ],
)
def test_what_cannot_be_learnt_is_said_and_what_is_no_passing_fault_is_not_repeated(
    writes: list[object], looks: list[object], error: type[Exception], sent: int
) -> None:
    write = Script(writes)
    with pytest.raises(error):
        settle(write, Script(looks), NO_PAUSE, subject="x", sleep=lambda _: None)
    assert write.calls == sent


def test_an_unknown_outcome_names_the_object_and_the_last_answer_on_one_line() -> None:
    trouble = StoreUnavailableError("no answer", hint="many\nlines")
    with pytest.raises(OutcomeUnknownError) as caught:
        settle(Script([trouble]), Script([None]), NO_PAUSE, subject="s3://b/key", sleep=lambda _: None)
    assert caught.value.subject == "s3://b/key"
    assert str(caught.value.hint).endswith("no answer")
    assert caught.value.__cause__ is trouble


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(), [0.1, 0.4, 1.6]),
        (Backoff(attempts=6), [0.1, 0.4, 1.6, 2.0, 2.0]),
        (Backoff(attempts=1), []),
        (Backoff(attempts=3, first=1, factor=1), [1, 1]),
    ],
)
def test_pauses_grow_up_to_a_limit_and_none_follows_the_last_attempt(backoff: Backoff, pauses: list[float]) -> None:
    taken: list[float] = []
    with pytest.raises(OutcomeUnknownError):
        settle(Script([LOST]), Script([None]), backoff, subject="x", sleep=taken.append)
    assert taken == pytest.approx(pauses)
    assert list(backoff.pauses()) == pytest.approx(pauses)


# -- create ------------------------------------------------------------------------------------------------------


def landing(store: MemoryBlobs, body: bytes, error: Exception) -> Callable[[], object]:
    """A put that reaches the store and whose answer does not reach us."""

    def put() -> object:
        store.replace("key", body)
        raise error

    return put


@pytest.mark.parametrize("error", [REFUSED, LOST, UNKNOWN], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_our_bytes_there_mean_created_whatever_the_answer_was(error: Exception, large: bool) -> None:
    store = MemoryBlobs()
    put = landing(store, b"ours", error)
    if large:
        real = store.create("sample", b"ours")
        digest = Digest(real.sha256, real.size)
        creation = settle_large_create(store, "key", digest, put, NO_PAUSE)
    else:
        creation = settle_create(store, "key", b"ours", put, NO_PAUSE)
    assert creation.created
    assert creation.size == 4


@pytest.mark.parametrize("theirs", [b"", b"theirs", b"our", b"ours and more"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_other_bytes_there_mean_lost(theirs: bytes, large: bool) -> None:
    store = MemoryBlobs()
    store.create("key", theirs)
    if large:
        real = store.create("sample", b"ours")
        creation = settle_large_create(store, "key", Digest(real.sha256, 4), Script([REFUSED]), NO_PAUSE)
        assert creation.existing is None
    else:
        creation = settle_create(store, "key", b"ours", Script([REFUSED]), NO_PAUSE)
        assert creation.existing == theirs
    assert not creation.created


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_nothing_there_means_try_again(large: bool) -> None:
    store = MemoryBlobs()
    put = Script([LOST, REFUSED, lambda: store.create("key", b"ours")])
    if large:
        creation = settle_large_create(store, "key", Digest("0" * 64, 4), put, NO_PAUSE)
    else:
        creation = settle_create(store, "key", b"ours", put, NO_PAUSE)
    assert creation.created
    assert put.calls == 3


def test_a_store_that_cannot_be_asked_leaves_the_outcome_unknown() -> None:
    store = FaultyBlobs(MemoryBlobs())
    store.inject(Fault.FAIL, verb="read")
    with pytest.raises(OutcomeUnknownError):
        settle_create(store, "key", b"ours", Script([LOST]), NO_PAUSE)
    store.inject(Fault.FAIL, verb="stat")
    with pytest.raises(OutcomeUnknownError):
        settle_large_create(store, "key", Digest("0" * 64, 4), Script([LOST]), NO_PAUSE)


# -- replace -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("puts", "looks", "outcome"),
    [
        (["v2"], [], "v2"),
        ([LOST], [("v2", "mine")], "v2"),
        ([REFUSED], [("v2", "mine")], "v2"),
        ([LOST, "v2"], [("v1", None)], "v2"),
        ([LOST, REFUSED], [("v1", "earlier"), ("v2", "mine")], "v2"),
        # Versions can be hashes of the bytes: ours may be the one we expected.
        ([LOST], [("v1", "mine")], "v1"),
        ([REFUSED], [("v2", "theirs")], BlobChangedError),
        ([REFUSED], [("v2", None)], BlobChangedError),
        ([LOST], [("v3", "theirs")], BlobChangedError),
        ([REFUSED], [BlobNotFoundError("gone")], BlobChangedError),
        ([LOST], [LOST], OutcomeUnknownError),
        ([LOST], [("v1", None)], OutcomeUnknownError),
    ],
)
def test_a_swap_is_settled_by_the_mark_of_its_writer(
    puts: list[object], looks: list[object], outcome: str | type[Exception]
) -> None:
    def swap() -> str | None:
        return settle_replace(Script(puts), Script(looks), NO_PAUSE, expected="v1", mark="mine", subject="x")

    if isinstance(outcome, str):
        assert swap() == outcome
    else:
        with pytest.raises(outcome):
            swap()
