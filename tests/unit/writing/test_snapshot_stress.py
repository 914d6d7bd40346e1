"""Running, cancelling and closing at random moments from several threads."""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.exceptions import SnapshotCancelledError
from airflow_provider_checkpoint.writing.snapshot import SnapshotMode, SnapshotTask
from airflow_provider_checkpoint.writing.strategies import FullSnapshots
from tests.unit.writing.keyed_state import KeyedState, KeyedView, Pipeline
from tests.unit.writing.scenes import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore

SLOTS = [("window", 0), ("window", 1), ("join", 0)]
KEYS = 20
PIECES = len(SLOTS) * KEYS


@pytest.fixture(autouse=True)
def _nervous_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def make_pipeline(blobs: BlobStore) -> Pipeline:
    state = KeyedState()
    for slot in SLOTS:
        for number in range(KEYS):
            state.put(slot, f"key-{number}", "value" * 10)
    strategy = FullSnapshots(state.capture, max_concurrent=2)
    return Pipeline(blobs, state, strategy, SnapshotMode.ASYNCHRONOUS)


def at_once(acts: list[Callable[[], object]]) -> list[object]:
    """Start everything at the same time, each on a thread of its own."""
    answers: list[object] = [None] * len(acts)
    barrier = threading.Barrier(len(acts))

    def perform(index: int) -> None:
        barrier.wait(PATIENCE)
        answers[index] = acts[index]()

    threads = [threading.Thread(target=perform, args=[index]) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    return answers


@pytest.mark.stress
@pytest.mark.parametrize(("store", "rounds"), [("memory", 300), ("local", 60)])
def test_whatever_is_done_at_once_resources_are_released_once_and_the_outcome_is_what_cancel_said(
    store: str, rounds: int, tmp_path: Path
) -> None:
    rng = random.Random(store)
    outcomes = {"written": 0, "cancelled on the way": 0}
    for round_number in range(rounds):
        blobs = MemoryBlobs() if store == "memory" else LocalBlobs(tmp_path / str(round_number))
        pipeline = make_pipeline(blobs)
        checkpoint_id, task = pipeline.begin()
        (view,) = pipeline.state.views

        def when_far_enough(
            act: Callable[[], object], pieces: int, view: KeyedView = view, task: SnapshotTask = task
        ) -> Callable[[], object]:
            def wait_and_act() -> object:
                while view.progress < pieces and not task.done:
                    pass
                return act()

            return wait_and_act

        acts = [task.cancel, task.cancel, lambda task=task: task.cancel(interrupt=False), pipeline.owner.close]
        chosen = rng.sample(acts, rng.randint(1, len(acts)))
        start = rng.randrange(-10, PIECES + 20)
        told = at_once(
            [task.run, task.run, *(when_far_enough(act, start + rng.randrange(10)) for act in chosen)],
        )

        assert view.releases == 1
        assert pipeline.owner.under_way == 0
        assert pipeline.streams.left_open() == []
        assert list(blobs.list(temporary=True)) == []
        assert task.done
        answers = {answer for answer in told if answer is not None}
        if isinstance(task.exception(), SnapshotCancelledError):
            outcomes["cancelled on the way"] += 0 < view.progress < PIECES
            assert answers <= {True}
        else:
            outcomes["written"] += 1
            assert answers <= {False}
            pipeline.commit(checkpoint_id, task.result())
            assert pipeline.restored(checkpoint_id) == pipeline.state.contents
    # Both must happen, or the moments were not random.
    assert min(outcomes.values()) > 3, outcomes


@pytest.mark.stress
def test_snapshots_that_start_while_their_owner_ends_are_refused_or_cancelled_and_never_leak() -> None:
    rng = random.Random(7)
    cancelled = 0
    for _ in range(200):
        pipeline = make_pipeline(MemoryBlobs())

        def start(pipeline: Pipeline = pipeline) -> SnapshotTask | None:
            try:
                _, task = pipeline.begin()
            except SnapshotCancelledError:
                return None
            task.run()
            return task

        def close(pipeline: Pipeline = pipeline, pieces: int = rng.randrange(2 * PIECES)) -> None:
            while sum(view.progress for view in pipeline.state.views) < pieces:
                pass
            pipeline.owner.close()

        tasks = at_once([start, start, start, close])[:3]
        assert [view.releases for view in pipeline.state.views] == [1] * len(pipeline.state.views)
        assert pipeline.owner.under_way == 0
        assert pipeline.streams.left_open() == []
        for task in tasks:
            assert task is None or task.done
            cancelled += task is not None and task.cancelled
    assert cancelled > 3
