"""``_latest``: a hint at the newest checkpoint. The truth is the highest id that has a manifest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobChangedError, BlobNotFoundError
from airflow_provider_checkpoint.layouts._swap import swap, swapping
from airflow_provider_checkpoint.layouts.partitioned._paths import ID_LENGTH, LATEST, id_folder, is_id
from airflow_provider_checkpoint.model import CheckpointId

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

log = logging.getLogger(__name__)


def read_pointer(blobs: BlobStore) -> CheckpointId | None:
    """The id it names; None if it is absent, or holds anything but exactly one id."""
    try:
        return _parse(blobs.read(LATEST, length=ID_LENGTH + 1), blobs)
    except BlobNotFoundError:
        return None


def move_pointer(blobs: BlobStore, checkpoint_id: CheckpointId) -> None:
    """Let it name a checkpoint, whatever it named before."""
    blobs.replace(LATEST, id_folder(checkpoint_id).encode())


def advance_pointer(blobs: BlobStore, checkpoint_id: CheckpointId) -> None:
    """Let it name a checkpoint unless it names a newer one: a slow writer does not turn it back."""
    body = id_folder(checkpoint_id).encode()

    def attempt() -> None:
        info = blobs.stat(LATEST)
        if info is None:
            if not blobs.create(LATEST, body).created:
                raise BlobChangedError("another writer made the pointer first", subject=LATEST)
            return
        current = read_pointer(blobs) if info.size == ID_LENGTH else None
        if current is None or current < checkpoint_id:
            swap(blobs, LATEST, body, seen=info.version)

    swapping(attempt)


def retreat_pointer(blobs: BlobStore, removed: CheckpointId, newest: CheckpointId | None) -> None:
    """Let it name the newest checkpoint there is, or nothing, if it names one that was removed."""

    def attempt() -> None:
        info = blobs.stat(LATEST)
        if info is None or read_pointer(blobs) != removed:
            return
        if newest is not None:
            swap(blobs, LATEST, id_folder(newest).encode(), seen=info.version)
            return
        # Safe to remove: no checkpoint is left to point at, and a writer that commits one right now sets it anew.
        for outcome in blobs.delete([LATEST]):
            if outcome.error is not None:
                raise outcome.error

    swapping(attempt)


def _parse(data: bytes, blobs: BlobStore) -> CheckpointId | None:
    text = data.decode("ascii", errors="replace")
    if is_id(text):
        return CheckpointId(text)
    log.warning(
        "%s/%s does not hold a checkpoint id (%r...); looking at the manifests instead", blobs.uri, LATEST, data
    )
    return None
