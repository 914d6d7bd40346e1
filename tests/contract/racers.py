"""Racers in threads and in processes, started together round by round."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from airflow_provider_checkpoint.exceptions import BlobChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore

Answer = TypeVar("Answer")

#: No round takes longer, unless something hangs.
PATIENCE = 120


@dataclass(frozen=True, slots=True)
class Attempt:
    """One racer's try to create the object of one round."""

    round: int
    body: bytes
    created: bool
    existing: bytes | None


def create_in_turns(store: BlobStore, rounds: Iterable[int], wait: Callable[[], object]) -> list[Attempt]:
    """Try to create one object per round, with bytes of our own, all racers of a round at the same time."""
    me = uuid4().hex
    # Whatever happens on first use only, happens before the race.
    store.create(f"warm/{me}", b"")
    attempts = []
    for number in rounds:
        body = f"{me} {number}".encode()
        wait()
        creation = store.create(f"race/{number:03}", body)
        attempts.append(Attempt(number, body, creation.created, creation.existing))
    return attempts


def create_large_in_turns(store: BlobStore, rounds: int, wait: Sequence[Callable[[], object]]) -> list[Attempt]:
    """The same with bodies that take the way of a large object, if the store was opened for it."""
    me = uuid4().bytes
    attempts = []
    for number in range(rounds):
        wait[0]()
        creation = store.create(f"large/{number}", (me * 4096 for _ in range(20)))
        attempts.append(Attempt(number, me, creation.created, creation.existing))
    return attempts


def create_in_lanes(store: BlobStore, rounds: int, wait: Sequence[Callable[[], object]]) -> list[Attempt]:
    """The same, with several rounds under way at once: as many as there are ways to wait."""
    lanes = len(wait)
    with ThreadPoolExecutor(lanes) as pool:
        done = pool.map(lambda lane: create_in_turns(store, range(lane, rounds, lanes), wait[lane]), range(lanes))
        return sorted(chain.from_iterable(done), key=lambda attempt: attempt.round)


def count_up(store: BlobStore, times: int, wait: Sequence[Callable[[], object]]) -> int:
    """Add one to a shared counter again and again by compare-and-swap; answers how often that lost and was repeated."""
    store.create("counter", b"0")
    lost = 0
    wait[0]()
    for _ in range(times):
        while True:
            number, version = store.read_versioned("counter")
            try:
                store.replace("counter", str(int(number) + 1).encode(), expected=version)
            except BlobChangedError:
                lost += 1
            else:
                break
    return lost


def in_threads(
    count: int, work: Callable[..., Answer], store: BlobStore, times: int, *, lanes: int = 1
) -> list[Answer]:
    barriers = [threading.Barrier(count, timeout=PATIENCE) for _ in range(lanes)]
    answers: list[Any] = [None] * count
    failures: list[str] = []

    def run(place: int) -> None:
        try:
            answers[place] = work(store, times, [barrier.wait for barrier in barriers])
        except BaseException:  # noqa: BLE001 - told by the main thread
            failures.append(traceback.format_exc())
            _abort(barriers)

    # Threads change places as often as possible, or those that never wait would run one after the other.
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(usual)
    assert not failures, "\n".join(failures)
    return answers


def in_processes(
    count: int, work: Callable[..., Answer], open_store: Callable[[], BlobStore], times: int, *, lanes: int = 1
) -> list[Answer]:
    """The same in freshly started processes, each with a store of its own."""
    context = multiprocessing.get_context("spawn")
    barriers = [context.Barrier(count, timeout=PATIENCE) for _ in range(lanes)]
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(target=_run_process, args=(work, open_store, times, barriers, sender), daemon=True)
        for _, sender in pipes
    ]
    for process in processes:
        process.start()
    try:
        for _, sender in pipes:
            sender.close()
        answers = []
        for receiver, _ in pipes:
            assert receiver.poll(PATIENCE), "a racer hangs"
            failure, answer = receiver.recv()
            assert not failure, failure
            answers.append(answer)
        return answers
    finally:
        for process, (receiver, _) in zip(processes, pipes, strict=True):
            receiver.close()
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def _run_process(work: Any, open_store: Any, times: int, barriers: Any, sender: Any) -> None:
    try:
        sender.send((None, work(open_store(), times, [barrier.wait for barrier in barriers])))
    except BaseException:  # noqa: BLE001 - told by the parent
        _abort(barriers)
        sender.send((traceback.format_exc(), None))


def _abort(barriers: Sequence[Any]) -> None:
    """Nobody waits for a racer that will not come."""
    for barrier in barriers:
        barrier.abort()
