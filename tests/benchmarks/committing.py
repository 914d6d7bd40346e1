"""Committing a checkpoint of many partitions on S3, against putting the same bytes there."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import obstore

from airflow_provider_checkpoint.layouts.partitioned import PartitionData, operators_of
from airflow_provider_checkpoint.writing.coordinator import Coordinator, EpochContents
from tests.benchmarks._measure import Contender, Line, lines
from tests.benchmarks._stores import OPERATOR, artifact_key, layout_on, manifest_bytes, nth_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks._stage import Stage

WIDTH = 16
SIZE = 64 * 1024


def rows(stage: Stage) -> Iterator[Line]:
    """Write the artifacts and commit: fence, manifest, decision, statuses, pointer."""
    partitions = stage.full(256, 64)
    bodies = [number.to_bytes(8) + os.urandom(SIZE - 8) for number in range(partitions)]
    layout, raw = layout_on(stage.bucket.ours("committing")), stage.bucket.raw("putting")
    writer = Coordinator.start(layout, {}, recover_from="fresh")
    numbers = count(1)

    def ours() -> None:
        pending = writer.begin()
        items = (PartitionData(OPERATOR, number, body) for number, body in enumerate(bodies))
        saved = layout.save_partitions(pending.checkpoint_id, items, WIDTH)
        checkpoint = writer.commit(pending, EpochContents(operators=operators_of(saved)))
        assert len(checkpoint.artifacts) == partitions

    def by_obstore() -> None:
        number = next(numbers)
        each = nth_id(number)

        def put(partition: int) -> None:
            obstore.put(raw, artifact_key(each, partition), bodies[partition], mode="create", use_multipart=False)

        with ThreadPoolExecutor(WIDTH) as pool:
            list(pool.map(put, range(partitions)))
        manifest = manifest_bytes(each, number, ((partition, SIZE, "0" * 64) for partition in range(partitions)))
        obstore.put(raw, f"{each}/manifest.json", manifest, mode="create", use_multipart=False)
        obstore.put(raw, "_latest", str(each).encode(), use_multipart=False)

    contenders = [Contender("ours", ours), Contender("obstore, bare puts", by_obstore)]
    medians = stage.race(contenders, repeats=9)
    yield from lines(f"commit {partitions} partitions of 64 KB on S3", medians, {"obstore, bare puts": 1.25})
