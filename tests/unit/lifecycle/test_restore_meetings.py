"""A restore that meets a prune, or a store that does not answer: it has its checkpoint, or says what is the matter."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import CheckpointError, CheckpointNotFoundError, StoreUnavailableError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.liveness import RESTORE_MARK
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.restoring import plan_restore
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.model import CheckpointId
from tests.crash.makers import HOUR, Clock
from tests.crash.meeting import MeetingBlobs
from tests.crash.scene import live_in
from tests.unit.lifecycle.tiny_layout import TinyLayout, artifact_key, tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

MARK = f"{RESTORE_MARK}run-1"
WANTED = CheckpointId(3)


class Store:
    """Checkpoints 1 to 5, a plan to go back to 3, and a plan to prune all but the newest."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(clock=self.clock)
        self.layout = tiny(self.blobs, *range(1, 6))
        self.clock.advance(300 * 24 * HOUR)
        wish = Wish(strategy=Strategy.ID, checkpoint_id=WANTED)
        self.going_back = plan_restore(self.layout, choose(self.layout, wish, now=self.clock()))
        self.pruning = plan_prune(self.layout, RetentionPolicy(keep_last=1), now=self.clock())

    def restore(self, blobs=None):
        executor = Executor(TinyLayout(blobs or self.blobs), by="test", clock=self.clock)
        return executor.restore(self.going_back, reason="", mark=MARK)

    def prune(self, blobs=None) -> None:
        Executor(TinyLayout(blobs or self.blobs), by="test", clock=self.clock).prune(self.pruning)

    def undelete(self) -> None:
        Executor(self.layout, by="test", clock=self.clock).undelete(WANTED)


class BeforeTimeline(WrapperBlobs):
    """Lets somebody in just before a timeline is opened, when everything has been looked at."""

    def __init__(self, inner: BlobStore, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._act = act

    def create(self, key, body):
        if key.startswith("timelines/"):
            self._act()
        return super().create(key, body)


def calls(verb: str) -> int:
    store = Store()
    watched = MeetingBlobs(store.blobs)
    getattr(store, verb)(watched)
    return len(watched.calls)


@pytest.mark.parametrize("moment", range(calls("restore")))
def test_a_prune_in_the_middle_of_a_restore_leaves_the_checkpoint_or_the_restore_says_that_it_is_gone(moment):
    store = Store()
    with suppress(CheckpointNotFoundError):
        store.restore(MeetingBlobs(store.blobs, moment, store.prune))
        assert WANTED in live_in(store.layout)
    if WANTED not in live_in(store.layout):
        store.undelete()
        assert store.restore().fork_checkpoint == WANTED
    assert choose(store.layout, Wish(), now=store.clock()).chosen == WANTED
    assert len(read_timelines(store.blobs)) == 1


@pytest.mark.parametrize("moment", range(calls("prune")))
def test_a_restore_in_the_middle_of_a_prune_has_its_checkpoint_in_the_end(moment):
    store = Store()
    ends: list[CheckpointError] = []

    def go_back() -> None:
        try:
            store.restore()
        except CheckpointNotFoundError as error:
            ends.append(error)

    store.prune(MeetingBlobs(store.blobs, moment, go_back))
    assert (WANTED in live_in(store.layout)) == (not ends)


def test_a_restore_called_again_does_not_claim_success_while_its_checkpoint_is_in_the_trash():
    store = Store()
    with pytest.raises(CheckpointNotFoundError):
        store.restore(BeforeTimeline(store.blobs, store.prune))
    with pytest.raises(CheckpointNotFoundError, match="undelete"):
        store.restore()


def test_a_checkpoint_that_the_store_did_not_answer_for_is_not_called_corrupt():
    store = Store()
    faulty = FaultyBlobs(store.blobs)
    for verb in ("read", "stream", "stat"):
        faulty.inject(Fault.FAIL, verb=verb, match=artifact_key(3, "state"), times=10)
    with pytest.raises(StoreUnavailableError, match="3"):
        store.restore(faulty)
    assert read_timelines(store.blobs) == []
    assert store.restore().fork_checkpoint == WANTED


def test_a_checkpoint_that_was_pruned_since_the_plan_was_made_is_not_called_corrupt():
    store = Store()
    store.prune()
    with pytest.raises(CheckpointNotFoundError, match="3"):
        store.restore()
    assert read_timelines(store.blobs) == []
