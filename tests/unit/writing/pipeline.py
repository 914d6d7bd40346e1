"""A pipeline small enough to see through: sums numbers, two per epoch, and copies each to its output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout, operators_of
from airflow_provider_checkpoint.model import FilePosition
from airflow_provider_checkpoint.writing.coordinator import Coordinator, EpochContents
from airflow_provider_checkpoint.writing.epoch_folders import EpochFolders, OutputFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import Checkpoint
    from airflow_provider_checkpoint.writing.coordinator import Hook

NUMBERS = tuple(range(1, 9))


class SumPipeline:
    """One run of the pipeline over a store and an output folder."""

    def __init__(
        self, store: BlobStore, output: BlobStore, *, recover_from: str = "latest", hook: Hook = lambda _: None
    ) -> None:
        self.layout = PartitionedLayout(store)
        self.sink = EpochFolders("numbers", output)
        self.coordinator = Coordinator.start(self.layout, {"numbers": self.sink}, recover_from=recover_from, hook=hook)
        self.position, self.total = self._restore(self.coordinator.last)

    def _restore(self, start: Checkpoint | None) -> tuple[int, int]:
        if start is None:
            return 0, 0
        snapshot, _ = self.layout.load_state(self.layout.load_manifest(start.id), "sum", 0)
        position = start.sources["numbers"]
        assert isinstance(position, FilePosition)
        return position.byte_offset, int(snapshot)

    def run(self, numbers: Sequence[int] = NUMBERS, *, epochs: int | None = None) -> None:
        while self.position < len(numbers) and epochs != 0:
            self.step(numbers[self.position : self.position + 2])
            epochs = None if epochs is None else epochs - 1

    def step(self, batch: Sequence[int]) -> Checkpoint:
        pending = self.coordinator.begin()
        total, position = self.total + sum(batch), self.position + len(batch)
        entries = self.layout.save_partitions(pending.checkpoint_id, [PartitionData("sum", 0, str(total).encode())])
        body = json.dumps(list(batch)).encode()
        path = f"{self.sink.folder(pending.ref)}/part-00000.json"
        self.sink.blobs.create(path, body)
        self.sink.prepare(pending.ref, [OutputFile(path=path, size=len(body), rows=len(batch))])
        checkpoint = self.coordinator.commit(
            pending,
            EpochContents(
                operators=operators_of(entries),
                sources={"numbers": FilePosition(path="numbers", byte_offset=position)},
                event_count=position,
                vnode_count=1,
            ),
        )
        self.total, self.position = total, position
        return checkpoint


def published(output: BlobStore) -> list[int]:
    """Every number in the published output, in order of publication."""
    sink = EpochFolders("numbers", output)
    return [number for file in sink.committed_files() for number in json.loads(output.read(file.path))]


def visible(output: BlobStore) -> list[int]:
    """Every number a reader of the bare folder sees."""
    files = sorted(info.key for info in output.list() if not info.key.startswith("_"))
    return [number for key in files for number in json.loads(output.read(key))]
