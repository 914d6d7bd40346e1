"""What every store promises when several writers and readers meet."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.exceptions import BlobChangedError, TransientError
from tests.contract.racers import (
    Attempt,
    count_up,
    create_in_lanes,
    create_large_in_turns,
    in_processes,
    in_threads,
)

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.backends import Backend

ROUNDS = 50
LARGE_ROUNDS = 5
THREADS = 8
PROCESSES = 4
MEGABYTE = 1024 * 1024


def check_rounds(store: BlobStore, racers: list[list[Attempt]]) -> None:
    """Exactly one winner per round; everyone else saw the winner's bytes, and they are what stands there."""
    for number in range(ROUNDS):
        attempts = [racer[number] for racer in racers]
        winners = [attempt.body for attempt in attempts if attempt.created]
        assert len(winners) == 1, f"round {number} has {len(winners)} winners"
        assert {attempt.existing for attempt in attempts if not attempt.created} == set(winners)
        assert store.read(f"race/{number:03}") == winners[0]
    # Each of several racers must have won now and then, or nothing raced.
    assert sum(1 for racer in racers if any(attempt.created for attempt in racer)) > 1
    assert not list(store.list(temporary=True))


@pytest.mark.stress
class Racing:
    def test_of_threads_that_create_one_object_exactly_one_wins(self, store: BlobStore, backend: Backend) -> None:
        check_rounds(store, in_threads(THREADS, create_in_lanes, store, ROUNDS, lanes=backend.lanes))

    def test_of_processes_that_create_one_object_exactly_one_wins(self, store: BlobStore, backend: Backend) -> None:
        if backend.processes:
            racers = in_processes(PROCESSES, create_in_lanes, backend.open, ROUNDS, lanes=backend.lanes)
            check_rounds(store, racers)
        else:
            # What lives in a process cannot be promised beyond it, and is not.
            assert not store.capabilities.durable or store.uri.startswith("memory:")

    def test_of_threads_that_create_one_large_object_exactly_one_wins(self, backend: Backend) -> None:
        store = backend.staging()
        racers = in_threads(4, create_large_in_turns, store, LARGE_ROUNDS)
        for number in range(LARGE_ROUNDS):
            winners = [racer[number].body for racer in racers if racer[number].created]
            assert len(winners) == 1
            assert store.read(f"large/{number}") == winners[0] * 4096 * 20
        assert not list(store.list(temporary=True))
        assert backend.unfinished_uploads() == 0

    def test_no_increment_by_compare_and_swap_is_lost_between_threads(self, store: BlobStore, backend: Backend) -> None:
        if store.capabilities.compare_and_swap:
            lost = in_threads(THREADS, count_up, store, backend.increments)
            assert int(store.read("counter")) == THREADS * backend.increments
            assert sum(lost) > 0, "nothing raced"

    def test_no_increment_by_compare_and_swap_is_lost_between_processes(
        self, store: BlobStore, backend: Backend
    ) -> None:
        if store.capabilities.compare_and_swap and backend.processes:
            lost = in_processes(PROCESSES, count_up, backend.open, backend.increments)
            assert int(store.read("counter")) == PROCESSES * backend.increments
            assert sum(lost) > 0, "nothing raced"

    def test_readers_see_the_old_object_or_the_new_one_never_a_mixture(self, backend: Backend) -> None:
        writer = backend.open()
        writer.replace("object", bytes(MEGABYTE))
        finished = threading.Event()
        seen: set[int] = set()
        torn: list[str] = []

        def watch() -> None:
            store = backend.open()
            while not finished.is_set():
                try:
                    for body in (store.read("object"), store.read_versioned("object")[0]):
                        if len(body) != MEGABYTE or body.count(body[:1]) != MEGABYTE:
                            torn.append(f"{len(body)} bytes of {len(set(body))} kinds")
                        seen.add(body[0])
                except (BlobChangedError, TransientError):
                    # Told, not torn: the object was replaced between two requests of one read.
                    continue

        readers = [threading.Thread(target=watch) for _ in range(3)]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + 60
        for number in itertools.count(1):
            writer.replace("object", bytes([number % 256]) * MEGABYTE)
            if number >= 40 and (len(seen) > 20 or time.monotonic() > deadline):
                break
        finished.set()
        for reader in readers:
            reader.join()
        assert not torn
        assert len(seen) > 1, "nothing was read while it was written"
