"""A store in every state of disrepair, on any back end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    PartitionData,
    PartitionedLayout,
    operators_of,
)

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.model import CheckpointId

#: When what was written just now has become old enough to be an orphan.
LATER = timedelta(days=3)
_MADE_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True)
class Damaged:
    """The ids of checkpoints by what is wrong with them."""

    valid: list[CheckpointId]
    flipped: CheckpointId
    missing: CheckpointId
    truncated: CheckpointId
    unreadable: CheckpointId
    uncommitted: CheckpointId
    orphans: list[str]


def make_damaged(blobs: BlobStore, *, partitions: int = 3, size: int = 20_000, seed: int = 1) -> Damaged:
    """Nine checkpoints; all but the unharmed ones hold snapshots of their own, which were damaged afterwards."""
    layout = PartitionedLayout(blobs)
    rng = random.Random(seed)
    made: list[tuple[CheckpointId, list[str]]] = []
    base: list = []
    for number in range(9):
        new = layout.next_id()
        # The first four share the snapshots of the first.
        is_delta = 0 < number < 4
        items = [
            PartitionData("window", each, rng.randbytes(size // (each + 1)), is_delta=is_delta)
            for each in range(partitions)
        ]
        saved = layout.save_partitions(new, items)
        if number != 8:
            named = [*base, *saved] if is_delta else saved
            layout.save_manifest(
                CheckpointManifestV2(
                    checkpoint_id=new,
                    epoch=number + 1,
                    timestamp_ms=_MADE_MS + number * 60_000,
                    operators=operators_of(named),
                )
            )
        base = base or saved
        made.append((new, [entry.path for _, entry in saved]))
    ids, keys = [each for each, _ in made], dict(made)

    flipped, missing, truncated, unreadable = ids[4:8]
    body = bytearray(blobs.read(keys[flipped][0]))
    body[len(body) // 2] ^= 1
    blobs.replace(keys[flipped][0], bytes(body))
    blobs.delete([keys[missing][1]])
    blobs.replace(keys[truncated][0], blobs.read(keys[truncated][0])[:-1])
    blobs.replace(f"{unreadable}/manifest.json", b"{")
    orphans = [f"{ids[2]}/operators/gone/partition-{number}.snap" for number in range(2)]
    for key in orphans:
        blobs.create(key, b"left behind")
    blobs.create("notes.txt", b"not ours")
    return Damaged(ids[:4], flipped, missing, truncated, unreadable, ids[8], orphans)
