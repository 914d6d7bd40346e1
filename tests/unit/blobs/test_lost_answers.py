"""A real server, and answers that are lost, late, cut or false on the way back."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import BlobStore, open_blobs, sha256_of
from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TransientError,
    UnsupportedError,
)
from tests.contract.backends import SINGLE_PUT, open_staging
from tests.contract.proxy import Proxy, Trouble

if TYPE_CHECKING:
    from tests.servers import S3Server

MEGABYTE = 1024 * 1024
#: Patient enough for a busy machine, short enough for a test.
TIMEOUTS = {"connect_timeout": 2, "read_timeout": 0.5, "max_retries": 1, "retry_timeout": 1}
PATIENCE = 30
CLIENTS = ["obstore", "fsspec"]


class Place:
    """One part of the bucket, seen directly and through the proxy."""

    def __init__(self, server: S3Server, proxy: Proxy) -> None:
        self.proxy = proxy
        self._address, self._options = server.fresh(), server.options()
        self.direct = open_blobs(self._address, self._options)
        self.direct.create("warm", b"")

    def through(self, **more: object) -> BlobStore:
        store = open_blobs(self._address, {**self._options, "endpoint_url": self.proxy.endpoint, **more})
        # The probe on first use is over before a test orders any trouble.
        assert store.create("warm", b"").created
        return store

    def staging_through(self) -> BlobStore:
        store = open_staging(self._address, {**self._options, "endpoint_url": self.proxy.endpoint})
        assert store.create("warm", b"").created
        return store


@pytest.fixture
def place(seaweedfs: S3Server, proxy: Proxy) -> Place:
    return Place(seaweedfs, proxy)


# -- create ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER, Trouble.CONFLICT_INSTEAD, Trouble.BUSY_INSTEAD]
)
def test_the_creator_learns_of_its_success_whatever_becomes_of_the_answer(
    place: Place, trouble: Trouble, times: int, client: str
) -> None:
    store = place.through(client=client)
    order = place.proxy.order(trouble, "PUT", "object", times=times)
    assert store.create("folder/object", b"ours").created
    assert order.done >= 1
    assert place.direct.read("folder/object") == b"ours"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER])
def test_of_two_writers_the_first_wins_though_its_answer_was_lost(place: Place, trouble: Trouble, client: str) -> None:
    first, second = place.through(client=client), place.through(client=client)
    rival = []
    order = place.proxy.order(
        trouble, "PUT", "object", then=lambda: rival.append(place.direct.create("object", b"second"))
    )
    assert first.create("object", b"first").created
    assert order.done == 1
    assert [(creation.created, creation.existing) for creation in rival] == [(False, b"first")]
    late = second.create("object", b"second, again")
    assert (late.created, late.existing) == (False, b"first")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_writer_turned_away_without_a_trial_learns_that_another_came_first(place: Place, client: str) -> None:
    store = place.through(client=client)
    order = place.proxy.order(
        Trouble.CONFLICT_INSTEAD, "PUT", "object", then=lambda: place.direct.create("object", b"theirs")
    )
    creation = store.create("object", b"ours")
    assert order.done == 1
    assert (creation.created, creation.existing) == (False, b"theirs")


@pytest.mark.parametrize("trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER])
@pytest.mark.parametrize("step", ["uploadId", "uploads"])
def test_a_large_object_takes_its_name_though_answers_are_lost(place: Place, trouble: Trouble, step: str) -> None:
    store = place.staging_through()
    body = random.Random(1).randbytes(SINGLE_PUT + 1000)
    orders = [
        place.proxy.order(trouble, "POST", f"large?{step}"),
        place.proxy.order(trouble, "PUT", "large?partNumber"),
    ]
    assert store.create("large", iter([body])).created
    assert sum(order.done for order in orders) == 2
    assert place.direct.read("large") == body
    assert not list(place.direct.list(temporary=True))


# -- replace and delete ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER, Trouble.CONFLICT_INSTEAD])
def test_a_conditional_replace_succeeds_though_its_answer_was_lost(place: Place, trouble: Trouble) -> None:
    store = place.through()
    version = place.direct.replace("object", b"old")
    order = place.proxy.order(trouble, "PUT", "object")
    fresh = store.replace("object", b"new", expected=version)
    assert order.done == 1
    assert place.direct.read_versioned("object") == (b"new", fresh)


@pytest.mark.parametrize("theirs", [b"theirs", b"new"], ids=["other bytes", "the very same bytes"])
def test_a_conditional_replace_that_was_overtaken_is_not_taken_for_a_success(place: Place, theirs: bytes) -> None:
    store = place.through()
    version = place.direct.replace("object", b"old")
    order = place.proxy.order(
        Trouble.CONFLICT_INSTEAD,
        "PUT",
        "object",
        then=lambda: place.direct.replace("object", theirs, expected=version),
    )
    with pytest.raises(BlobChangedError):
        store.replace("object", b"new", expected=version)
    assert order.done == 1
    assert place.direct.read("object") == theirs


def test_a_conditional_replace_of_an_object_removed_meanwhile_has_lost(place: Place) -> None:
    store = place.through()
    version = place.direct.replace("object", b"old")
    place.proxy.order(Trouble.CONFLICT_INSTEAD, "PUT", "object", then=lambda: place.direct.delete(["object"]))
    with pytest.raises(BlobChangedError):
        store.replace("object", b"new", expected=version)
    assert place.direct.stat("object") is None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_conflict_where_no_condition_was_set_is_a_passing_fault(place: Place, client: str) -> None:
    store = place.through(client=client, max_retries=0)
    place.direct.create("object", b"old")
    order = place.proxy.order(Trouble.CONFLICT_INSTEAD, "PUT", "object", times=20)
    with pytest.raises(StoreUnavailableError):
        store.replace("object", b"new")
    assert order.done >= 1
    assert place.direct.read("object") == b"old"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("trouble", [Trouble.CONFLICT_INSTEAD, Trouble.BUSY_INSTEAD])
def test_a_delete_that_fails_is_answered_key_by_key(place: Place, client: str, trouble: Trouble) -> None:
    store = place.through(client=client, max_retries=0)
    for key in ("a", "b"):
        place.direct.create(key, b"1")
    orders = [place.proxy.order(trouble, method, "", times=50) for method in ("POST", "DELETE")]
    outcomes = store.delete(["a", "b"])
    assert sum(order.done for order in orders) >= 1
    assert [(outcome.key, type(outcome.error)) for outcome in outcomes] == [
        ("a", StoreUnavailableError),
        ("b", StoreUnavailableError),
    ]
    assert len(list(place.direct.list())) == 3


@pytest.mark.parametrize("trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER])
def test_a_delete_whose_answer_was_lost_succeeds(place: Place, trouble: Trouble) -> None:
    store = place.through()
    place.direct.create("a", b"1")
    order = place.proxy.order(trouble, "POST", "delete")
    assert store.delete(["a"])[0].deleted
    assert order.done == 1
    assert place.direct.stat("a") is None


# -- reads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "length"), [(0, None), (1000, None), (1000, 2 * MEGABYTE)])
@pytest.mark.parametrize(
    ("client", "times", "retries"),
    # The client goes on by itself if it may; without its help we do.
    [("obstore", 1, 3), ("obstore", 3, 3), ("obstore", 3, 0), ("fsspec", 1, 3)],
)
def test_a_stream_that_breaks_goes_on_where_it_broke(
    place: Place, start: int, length: int | None, times: int, client: str, retries: int
) -> None:
    store = place.through(client=client, max_retries=retries)
    body = random.Random(3).randbytes(3 * MEGABYTE)
    place.direct.create("large", body)
    order = place.proxy.order(Trouble.CUT_BODY, "GET", "large", times=times)
    stop = None if length is None else start + length
    assert b"".join(store.stream("large", start=start, length=length)) == body[start:stop]
    assert order.done == times


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_that_breaks_again_and_again_ends_in_an_error_never_short(place: Place, client: str) -> None:
    store = place.through(client=client, max_retries=1)
    place.direct.create("large", bytes(3 * MEGABYTE))
    order = place.proxy.order(Trouble.CUT_BODY, "GET", "large", times=1000)
    with pytest.raises(StoreUnavailableError):
        sha256_of(store, "large")
    assert order.done >= 2


@pytest.mark.parametrize("client", CLIENTS)
def test_a_digest_over_a_breaking_connection_is_the_right_one(place: Place, client: str) -> None:
    store = place.through(client=client)
    creation = place.direct.create("large", random.Random(4).randbytes(3 * MEGABYTE))
    order = place.proxy.order(Trouble.CUT_BODY, "GET", "large")
    digest = sha256_of(store, "large")
    assert order.done == 1
    assert (digest.sha256, digest.size) == (creation.sha256, creation.size)


@pytest.mark.parametrize("size", [3 * MEGABYTE, 2 * MEGABYTE], ids=["same size", "other size"])
@pytest.mark.parametrize(("client", "retries"), [("obstore", 3), ("obstore", 0), ("fsspec", 3)])
def test_a_stream_of_an_object_replaced_meanwhile_ends_in_an_error_never_in_a_mixture(
    place: Place, size: int, client: str, retries: int
) -> None:
    store = place.through(client=client, max_retries=retries)
    place.direct.create("large", bytes(3 * MEGABYTE))
    order = place.proxy.order(
        Trouble.CUT_BODY, "GET", "large", then=lambda: place.direct.replace("large", b"\x01" * size)
    )
    expected = BlobChangedError if client == "obstore" else (BlobChangedError, TransientError)
    with pytest.raises(expected):
        list(store.stream("large"))
    assert order.done == 1
    assert store.read("large") == b"\x01" * size


@pytest.mark.parametrize("trouble", [Trouble.DROP_ANSWER, Trouble.ERROR_AFTER, Trouble.BUSY_INSTEAD])
def test_reads_are_repeated_until_they_succeed(place: Place, trouble: Trouble) -> None:
    store = place.through()
    place.direct.create("folder/object", b"1")
    for method, look in (
        ("GET", lambda: store.read("folder/object")),
        ("GET", lambda: store.read_versioned("folder/object")[0]),
        ("HEAD", lambda: store.stat("folder/object").size * b"1"),
        ("GET", lambda: len(list(store.list("folder"))) * b"1"),
    ):
        order = place.proxy.order(trouble, method, "")
        assert look() == b"1"
        assert order.done == 1


# -- a store that never answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("create", OutcomeUnknownError),
        ("replace", TransientError),
        ("swap", OutcomeUnknownError),
        ("read", StoreUnavailableError),
        ("stat", StoreUnavailableError),
        ("list", StoreUnavailableError),
        ("folders", StoreUnavailableError),
    ],
)
def test_a_store_that_falls_silent_is_given_up_within_the_timeouts(
    place: Place, verb: str, error: type[Exception], client: str
) -> None:
    store = place.through(**TIMEOUTS, client=client)
    if verb == "swap" and not store.capabilities.compare_and_swap:
        error = UnsupportedError
    version = place.direct.replace("there", b"1")
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        place.proxy.order(Trouble.SILENCE, method, "", times=1000)
    calls = {
        "create": lambda: store.create("new", b"1"),
        "replace": lambda: store.replace("there", b"2"),
        "swap": lambda: store.replace("there", b"2", expected=version),
        "read": lambda: store.read("there"),
        "stat": lambda: store.stat("there"),
        "list": lambda: list(store.list()),
        "folders": lambda: list(store.folders()),
    }
    began = time.monotonic()
    with pytest.raises(error) as caught:
        calls[verb]()
    assert time.monotonic() - began < PATIENCE
    assert caught.value.hint


def test_deletes_on_a_silent_store_are_answered_key_by_key_within_the_timeouts(place: Place) -> None:
    store = place.through(**TIMEOUTS)
    for method in ("POST", "DELETE"):
        place.proxy.order(Trouble.SILENCE, method, "", times=1000)
    began = time.monotonic()
    outcomes = store.delete(f"key-{number}" for number in range(3000))
    assert time.monotonic() - began < PATIENCE
    assert len(outcomes) == 3000
    assert {type(outcome.error) for outcome in outcomes} == {StoreUnavailableError}
