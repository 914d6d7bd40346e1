"""Checkpoints to test with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    OperatorEntry,
    PartitionData,
    PartitionEntry,
    SourceEntry,
    operators_of,
)
from airflow_provider_checkpoint.layouts.partitioned._paths import artifact_key
from airflow_provider_checkpoint.model import ArtifactKind, CheckpointId, SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout

#: On a busy machine any example may take its time.
patient = settings(deadline=None)

VECTORS = Path(__file__).parents[3] / "data" / "vectors"
M1 = (VECTORS / "M1_manifest_v2.json").read_bytes()
M2 = (VECTORS / "M2_latest_pointer").read_bytes()
M1_ID = CheckpointId("0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b")


def nth_id(number: int) -> CheckpointId:
    """The ids of these tests, in the order of their numbers."""
    return CheckpointId(str(UUID(int=0x0192A3B4_0000_7000_8000_000000000000 + number)))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(owner: CheckpointId, operator: str, partition: int, data: bytes, *, is_delta: bool = False) -> PartitionEntry:
    """The entry of an artifact that need not exist."""
    kind = ArtifactKind.DELTA if is_delta else ArtifactKind.SNAPSHOT
    return PartitionEntry(
        partition_id=partition,
        is_delta=is_delta,
        path=artifact_key(owner, operator, partition, kind),
        size_bytes=len(data),
        sha256=sha256(data),
    )


def manifest(
    checkpoint_id: CheckpointId, saved: Iterable[tuple[str, PartitionEntry]] = (), **more: Any
) -> CheckpointManifestV2:
    values = {"epoch": 1, "timestamp_ms": 1_700_000_000_000, "operators": operators_of(saved)} | more
    return CheckpointManifestV2(checkpoint_id=checkpoint_id, **values)


def commit(
    layout: PartitionedLayout, checkpoint_id: CheckpointId, *items: PartitionData, **more: Any
) -> CheckpointManifestV2:
    """The whole protocol: artifacts, manifest, pointer. ``reused`` are entries of older checkpoints."""
    reused = more.pop("reused", [])
    saved = layout.save_partitions(checkpoint_id, items)
    made = manifest(checkpoint_id, [*reused, *saved], **more)
    layout.save_manifest(made)
    layout.update_latest(checkpoint_id)
    return made


def commit_base_and_increment(layout: PartitionedLayout) -> tuple[CheckpointManifestV2, CheckpointManifestV2]:
    """Checkpoint 1 holds a snapshot; checkpoint 2 a delta on top of it."""
    base = commit(layout, nth_id(1), PartitionData("op", 0, b"base_state"))
    increment = commit(
        layout,
        nth_id(2),
        PartitionData("op", 0, b"_delta", is_delta=True),
        epoch=2,
        parent_id=nth_id(1),
        reused=[("op", base.operators["op"].partitions[0])],
    )
    return base, increment


# -- any manifest ------------------------------------------------------------------------------------------------

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
I64 = st.integers(-(2**63), 2**63 - 1)
# With no character that is half of one: such text cannot be written to any file.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
IDS = st.builds(nth_id, st.integers(0, 2**40))
STATUSES = st.one_of(
    st.just(SinkStatus(SinkState.PENDING)),
    st.just(SinkStatus(SinkState.COMMITTED)),
    st.builds(lambda message: SinkStatus(SinkState.FAILED, message=message), TEXT),
)


def maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(TEXT, values, max_size=3)


MANIFESTS = st.builds(
    CheckpointManifestV2,
    version=U32,
    checkpoint_id=IDS,
    epoch=U64,
    timestamp_ms=U64,
    operators=maps(
        st.builds(
            OperatorEntry,
            partitions=st.lists(
                st.builds(
                    PartitionEntry,
                    partition_id=U32,
                    is_delta=st.booleans(),
                    path=TEXT,
                    size_bytes=U64,
                    sha256=st.none() | TEXT,
                ),
                max_size=3,
            ),
            total_bytes=U64,
        )
    ),
    source_offsets=maps(st.builds(SourceEntry, source_type=TEXT, offsets=maps(TEXT), epoch=U64)),
    parent_id=st.none() | IDS,
    watermark=st.none() | I64,
    total_size_bytes=U64,
    timeline=st.none() | st.integers(1, 2**64 - 1),
    sink_epochs=maps(U64),
    sink_commit_statuses=maps(STATUSES),
    source_names=NAMES,
    sink_names=NAMES,
    pipeline_hash=st.none() | U64,
    vnode_count=st.none() | U16,
    source_watermarks=maps(I64),
    event_count=st.none() | U64,
    savepoint=st.booleans(),
    writer=st.none() | TEXT,
)
