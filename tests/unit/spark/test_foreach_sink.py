"""A function of the user's as a sink: called after the commit, again after a crash, and told what to undo."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.spark.operators import output_file, write_part
from airflow_provider_checkpoint.spark.sinks import ForeachSink
from airflow_provider_checkpoint.writing.coordinator import Coordinator, EpochContents
from tests.unit.spark.dying import Death

STEPS = ("prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer")


class Board:
    """Where the function publishes: a page per epoch, and a list of all calls."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, int], list[int]] = {}
        self.calls: list[tuple[int, int]] = []

    def publish(self, ref, staging, files) -> None:
        rows = [row for file in files for row in pq.read_table(io.BytesIO(staging.read(file.path))).to_pylist()]
        self.calls.append((ref.timeline, ref.epoch))
        self.pages[ref.timeline, ref.epoch] = [row["number"] for row in rows]

    def undo(self, history) -> None:
        self.pages = {ref: rows for ref, rows in self.pages.items() if history.contains(*ref)}

    @property
    def numbers(self) -> list[int]:
        return [number for ref in sorted(self.pages) for number in self.pages[ref]]


def start(folder, board, *, recover_from="latest", die_at=None):
    def hook(step):
        if step == die_at:
            raise Death

    sink = ForeachSink("board", str(folder / "staging"), board.publish, undo=board.undo)
    layout = PartitionedLayout(LocalBlobs(str(folder / "store")), vnode_count=1)
    return sink, Coordinator.start(layout, {"board": sink}, recover_from=recover_from, hook=hook)


def write_epoch(sink, coordinator) -> None:
    """An epoch that puts out its own number."""
    pending = coordinator.begin()
    rows = pa.table({"number": [pending.ref.epoch]})
    line = write_part(sink.address, sink.folder(pending.ref), "board", "part", rows)
    sink.prepare(pending.ref, [output_file(line)])
    coordinator.commit(pending, EpochContents(vnode_count=1))


@pytest.mark.parametrize("step", STEPS)
def test_each_epoch_is_on_the_board_once_whatever_dies_where(tmp_path, step):
    board = Board()
    write_epoch(*start(tmp_path, board))
    with pytest.raises(Death):
        write_epoch(*start(tmp_path, board, die_at=step))
    again = start(tmp_path, board)
    decided = STEPS.index(step) >= STEPS.index("decided")
    assert board.numbers == ([1, 2] if decided else [1])
    write_epoch(*again)
    assert board.numbers == ([1, 2, 3] if decided else [1, 2])


def test_nothing_is_published_before_the_commit_is_decided(tmp_path):
    board = Board()
    with pytest.raises(Death):
        write_epoch(*start(tmp_path, board, die_at="manifest"))
    assert board.calls == []


def test_a_crash_after_publishing_calls_again_for_the_same_epoch(tmp_path):
    board = Board()
    with pytest.raises(Death):
        write_epoch(*start(tmp_path, board, die_at="sinks"))
    start(tmp_path, board)
    assert board.calls == [(1, 1), (1, 1)]


def test_going_back_undoes_what_came_after(tmp_path):
    board = Board()
    sink, coordinator = start(tmp_path, board)
    for _ in range(3):
        write_epoch(sink, coordinator)
    first = PartitionedLayout(LocalBlobs(str(tmp_path / "store")), vnode_count=1).candidates()[0]
    again = start(tmp_path, board, recover_from=str(first))
    assert board.numbers == [1]
    write_epoch(*again)
    assert board.numbers == [1, 2]
    assert sorted(board.pages) == [(1, 1), (2, 2)]
