"""Which history a store continues, and who may write it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    CorruptManifestError,
    FencedWriterError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.lifecycle.timelines import (
    TimelineHolder,
    lineage,
    open_timeline,
    read_timelines,
    timeline_key,
    timeline_numbers,
)
from airflow_provider_checkpoint.model import CheckpointId, Timeline
from tests.unit.lifecycle.tiny_layout import START, checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import Checkpoint


def timeline(number: int, parent: int | None = None, fork: int | None = None) -> Timeline:
    return Timeline(number=number, parent=parent, fork_epoch=fork, created=START, writer=f"writer-{number}")


def take(blobs: BlobStore, start: Checkpoint | None = None, **facts: Any) -> TimelineHolder:
    """Open a timeline as a writer of its own would."""
    usual = {"has_checkpoints": start is not None, "writer": "w", "now": START}
    return open_timeline(blobs, start=start, **(usual | facts))


@pytest.fixture(params=["memory", "local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path)


def test_a_lost_number_is_not_given_out_again_where_checkpoints_bear_it(blobs: BlobStore):
    assert take(blobs, checkpoint(4), taken=7).timeline.number == 8


# -- lineage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timelines", "current", "reach"),
    [
        pytest.param([], 1, {1: None}, id="no records: one history, the first timeline's"),
        pytest.param([timeline(1)], 1, {1: None}, id="the first writer"),
        pytest.param([timeline(1), timeline(2, 1, 9)], 2, {2: None, 1: 9}, id="a restart"),
        pytest.param(
            [timeline(1), timeline(2, 1, 9), timeline(3, 2, 14)], 3, {3: None, 2: 14, 1: 9}, id="restart after restart"
        ),
        pytest.param([timeline(2, 1, 9)], 2, {2: None, 1: 9}, id="the first timeline left no record"),
        pytest.param([timeline(1), timeline(2)], 2, {2: None}, id="a fresh start leaves everything behind"),
        pytest.param(
            [timeline(1), timeline(2, 1, 9), timeline(3, 1, 7)], 3, {3: None, 1: 7}, id="back before an earlier fork"
        ),
        pytest.param(
            [timeline(1), timeline(2, 1, 9), timeline(3, 1, 7), timeline(4, 2, 12)],
            4,
            {4: None, 2: 12, 1: 9},
            id="back to an abandoned branch",
        ),
        pytest.param(
            [timeline(1), timeline(2, 1, 5), timeline(3, 2, 8), timeline(4, 3, 10), timeline(5, 2, 7)],
            5,
            {5: None, 2: 7, 1: 5},
            id="a fork of a fork, then back",
        ),
        pytest.param([timeline(7, 6, 3)], 7, {7: None, 6: 3}, id="the parent is not known"),
        pytest.param([timeline(9), timeline(4, 9, 2)], 9, {9: None}, id="records in any order"),
        pytest.param([timeline(2, 1)], 2, {2: None, 1: 0}, id="a fork without an epoch takes nothing along"),
        pytest.param(
            [timeline(2, 1, 9), timeline(3, 2, 5)], 3, {3: None, 2: 5, 1: 5}, id="a fork before its parent began"
        ),
    ],
)
def test_the_history_is_followed_back_from_the_highest_timeline(
    timelines: list[Timeline], current: int, reach: dict[int, int | None]
):
    found = lineage(timelines)
    assert (found.current, found.reach) == (current, reach)


@pytest.mark.parametrize(
    ("timelines", "missing"),
    [
        pytest.param([], {1: None, 2: 2, 3: 3}, id="no records, but somebody had opened timelines"),
        pytest.param([timeline(1), timeline(2, 1, 9)], {1: None, 2: None, 3: 3}, id="a whole history"),
        pytest.param([timeline(2, 1, 9)], {1: None, 2: None}, id="the first timeline needs no record"),
        pytest.param([timeline(1), timeline(3, 2, 5)], {1: 2, 2: None, 3: None, 4: 4}, id="a gap on the way back"),
        pytest.param(
            [timeline(1), timeline(2, 1, 5), timeline(4, 3, 8), timeline(5, 1, 4)],
            {1: None, 2: None, 3: None, 4: None, 5: None},
            id="a gap that the way back does not come by",
        ),
        pytest.param(
            [timeline(1), timeline(3, 1, 5), timeline(4, 2, 8), timeline(5, 4, 9)],
            {1: 2, 2: None, 3: None, 4: None, 5: None},
            id="what came after the gap is known to be left behind",
        ),
    ],
)
def test_it_is_known_whose_lost_record_would_tell_whether_a_checkpoint_belongs(timelines, missing):
    found = lineage(timelines)
    assert {number: found.missing(number) for number in missing} == missing


@pytest.mark.parametrize(
    "timelines",
    [
        pytest.param([timeline(1, 1, 5)], id="from itself"),
        pytest.param([timeline(2, 3, 5), timeline(3, 2, 5)], id="from its child"),
        pytest.param([timeline(2, 4, 5), timeline(3, 2, 5), timeline(4, 3, 5)], id="from its grandchild"),
        pytest.param([timeline(2, 3, 5), timeline(3, 2, 5), timeline(9, 3, 5)], id="a circle further back"),
    ],
)
def test_timelines_that_fork_in_a_circle_are_corrupt(timelines: list[Timeline]):
    with pytest.raises(CorruptManifestError, match="circle"):
        lineage(timelines)


@pytest.mark.parametrize(
    ("number", "epoch", "inside"),
    [(1, 0, True), (1, 9, True), (1, 10, False), (2, 10, True), (2, 10**18, True), (3, 1, False), (0, 1, False)],
)
def test_a_timeline_counts_up_to_the_epoch_at_which_its_child_forked(number: int, epoch: int, *, inside: bool):
    assert lineage([timeline(1), timeline(2, 1, 9)]).contains(number, epoch) is inside


def test_a_very_long_history_is_followed_to_its_end():
    found = lineage([timeline(1), *(timeline(number, number - 1, number) for number in range(2, 20_001))])
    assert len(found.reach) == 20_000


# -- against a model ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A checkpoint that knows the one before it: the slow but certain way to tell a history."""

    timeline: int
    epoch: int
    before: Node | None


class Model:
    """Writers and zombies over one store. Each timeline has a writer that goes on from its last checkpoint."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.records = [timeline(1)]
        self.ends: dict[int, Node | None] = {1: None}

    def commit(self, number: int, skipped: int) -> None:
        """The next checkpoint of a timeline, perhaps after epochs that failed; a zombie's if there is a newer one."""
        end = self.ends[number]
        node = Node(number, (0 if end is None else end.epoch) + 1 + skipped, end)
        self.nodes.append(node)
        self.ends[number] = node

    def fork(self, start: Node | None) -> None:
        number = len(self.records) + 1
        self.records.append(
            timeline(number) if start is None else timeline(number, start.timeline, start.epoch),
        )
        self.ends[number] = start

    def history(self) -> set[Node]:
        found = set()
        node = self.ends[len(self.records)]
        while node is not None:
            found.add(node)
            node = node.before
        return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_checkpoint_is_of_the_history_exactly_if_walking_back_from_the_end_meets_it(data: st.DataObject):
    model = Model()
    for _ in range(data.draw(st.integers(0, 30))):
        match data.draw(st.sampled_from(["commit", "commit", "commit", "zombie", "fork", "fresh"])):
            case "commit":
                model.commit(len(model.records), data.draw(st.integers(0, 2)))
            case "zombie":
                model.commit(data.draw(st.sampled_from(sorted(model.ends))), 0)
            case "fork" if model.nodes:
                model.fork(data.draw(st.sampled_from(model.nodes)))
            case "fresh":
                model.fork(None)
    found = lineage(model.records)
    assert {node for node in model.nodes if found.contains(node.timeline, node.epoch)} == model.history()


# -- opening -----------------------------------------------------------------------------------------------------


def test_the_first_writer_of_an_empty_store_gets_the_first_timeline(blobs: BlobStore):
    holder = take(blobs)
    assert holder.timeline.number == 1
    assert holder.timeline.parent is None
    holder.check()


def test_a_store_with_checkpoints_but_no_records_has_had_a_first_timeline(blobs: BlobStore):
    holder = take(blobs, checkpoint(7))
    assert holder.timeline.number == 2
    assert holder.timeline.parent == 1
    assert holder.timeline.fork_checkpoint == CheckpointId(7)
    assert holder.timeline.fork_epoch == 7


def test_a_fresh_start_over_old_checkpoints_does_not_take_their_number(blobs: BlobStore):
    holder = take(blobs, None, has_checkpoints=True)
    assert holder.timeline.number == 2
    assert lineage(read_timelines(blobs)).reach == {2: None}


@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_timeline_is_always_newer_than_the_one_it_forks_from(blobs: BlobStore, *, has_checkpoints: bool):
    """Even if the records are lost: with an old number, the old checkpoints of that number would be current again."""
    holder = take(blobs, checkpoint(40, timeline=5), has_checkpoints=has_checkpoints)
    assert holder.timeline.number == 6
    assert lineage(read_timelines(blobs)).reach == {6: None, 5: 40}


def test_a_timeline_says_who_asked_and_why_and_survives_a_reading(blobs: BlobStore):
    holder = take(blobs, checkpoint(7), owner="ana", reason="wrong rates since noon", writer="driver-1")
    assert read_timelines(blobs) == [holder.timeline]
    assert (holder.timeline.owner, holder.timeline.reason, holder.timeline.writer) == (
        "ana",
        "wrong rates since noon",
        "driver-1",
    )


def test_a_newer_timeline_fences_every_older_holder(blobs: BlobStore):
    first = take(blobs)
    second = take(blobs, checkpoint(3))
    third = take(blobs, checkpoint(2))
    for holder in (first, second):
        with pytest.raises(FencedWriterError, match="timeline 3 has been opened"):
            holder.check()
    third.check()


def test_a_holder_whose_record_vanished_stops(blobs: BlobStore):
    holder = take(blobs)
    blobs.delete([timeline_key(1)])
    with pytest.raises(FencedWriterError, match="record of timeline 1 is gone"):
        holder.check()


def test_a_check_that_cannot_ask_the_store_is_not_a_yes():
    blobs = FaultyBlobs(MemoryBlobs())
    holder = take(blobs)
    blobs.inject(Fault.FAIL, verb="list", match="timelines")
    with pytest.raises(StoreUnavailableError):
        holder.check()


def test_racing_writers_get_different_numbers_and_exactly_one_may_go_on(blobs: BlobStore):
    racers = 12
    holders: list[TimelineHolder] = []
    start = threading.Barrier(racers)

    def race(number: int) -> None:
        start.wait()
        holders.append(take(blobs, checkpoint(7), writer=f"writer-{number}"))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(holder.timeline.number for holder in holders) == list(range(2, 2 + racers))
    assert [holder.timeline.number for holder in holders if may_commit(holder)] == [1 + racers]
    assert [each.number for each in read_timelines(blobs)] == list(range(2, 2 + racers))


def may_commit(holder: TimelineHolder) -> bool:
    try:
        holder.check()
    except FencedWriterError:
        return False
    return True


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.TIMEOUT])
def test_asking_again_after_a_lost_answer_gives_a_holder_and_the_same_history(fault: Fault):
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(fault, verb="create", match="timelines")
    with pytest.raises(OutcomeUnknownError):
        take(blobs, checkpoint(7), writer="driver")
    holder = take(blobs, checkpoint(7), writer="driver")
    holder.check()
    found = lineage(read_timelines(blobs))
    assert found.current == holder.timeline.number
    assert found.contains(1, 7)
    assert not found.contains(1, 8)


# -- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "timelines/backup/timeline-000009.json",
        "timelines/timeline-0000009.json",
        "timelines/timeline-9.json",
        "timelines/timeline-000009.json.bak",
        "timelines/timeline-00000٩.json",
        "timelines/notes.txt",
    ],
)
def test_a_name_that_no_writer_would_give_fences_nobody(blobs: BlobStore, key: str):
    holder = take(blobs)
    blobs.create(key, b"whatever")
    holder.check()
    assert timeline_numbers(blobs) == [1]
    assert read_timelines(blobs) == [holder.timeline]


def test_numbers_of_more_than_six_digits_are_read(blobs: BlobStore):
    blobs.create(timeline_key(1_000_000), timeline(1_000_000).model_dump_json().encode())
    assert take(blobs).timeline.number == 1_000_001
    assert timeline_numbers(blobs) == [1_000_000, 1_000_001]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"number": 2}',
        timeline(3).model_dump_json().encode(),
        timeline(2).model_dump_json().replace("writer-2", "\\ud800").encode(),
        json.dumps({**json.loads(timeline(2).model_dump_json()), "created": "2026-11-15T12:00:00"}).encode(),
        json.dumps({**json.loads(timeline(2).model_dump_json()), "parent": "one"}).encode(),
        b"[" * 100_000,
        b'{"number": 2, "number": 2}',
    ],
    ids=[
        "empty", "cut", "list", "null", "not text", "incomplete", "another's", "half a character", "no zone",
        "wrong type", "deep", "twice",
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_understood_is_corrupt_and_not_passed_over(blobs: BlobStore, body: bytes):
    """It may be the one that says which history counts."""
    blobs.create(timeline_key(2), body)
    with pytest.raises(CorruptManifestError) as caught:
        read_timelines(blobs)
    assert caught.value.subject.endswith(timeline_key(2))
    assert "parent_id in the manifest of the first checkpoint on it" in caught.value.hint


def test_a_record_that_vanishes_while_it_is_read_is_no_error():
    inner = MemoryBlobs()
    take(inner)
    take(inner, checkpoint(3))

    class Vanishing(FaultyBlobs):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            inner.delete([timeline_key(1)])
            return super().read(key, start=start, length=length)

    assert [each.number for each in read_timelines(Vanishing(inner))] == [2]


@given(st.binary(max_size=200))
def test_no_bytes_in_a_record_make_anything_but_a_timeline_or_a_typed_error(body: bytes):
    blobs = MemoryBlobs()
    blobs.create(timeline_key(1), body)
    try:
        lineage(read_timelines(blobs))
    except CheckpointError:
        return
