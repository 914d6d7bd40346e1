"""Which of the checkpoints that a store would rather be rid of may really go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobNotFoundError
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.model import Pin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore


def removable(
    sequences: Iterable[int], unwanted: Collection[int], pinned: Collection[int], is_sound: Callable[[int], bool]
) -> list[int]:
    """The unwanted ones without the pinned and without the newest sound one; none at all if nothing is sound.

    Several processes may decide this at the same time. Each removal needs a newer sound checkpoint, or one that is
    kept, so the newest sound one of all survives them all.
    """
    for sequence in sorted(sequences, reverse=True):
        if is_sound(sequence):
            return sorted(set(unwanted) - set(pinned) - {sequence})
    return []


def pinned(blobs: BlobStore, now: datetime) -> set[int]:
    """Sequences that a pin holds. Raises CorruptManifestError for a pin that cannot be read: it might hold any."""
    held = set()
    for info in blobs.list("pins"):
        if info.key.endswith(".json"):
            try:
                pin = parse_model(Pin, read_object(blobs, info.key), subject=info.key)
            except BlobNotFoundError:
                continue  # Unpinned since the listing.
            if pin.holds(now) and isinstance(pin.checkpoint_id.value, int):
                held.add(pin.checkpoint_id.value)
    return held
