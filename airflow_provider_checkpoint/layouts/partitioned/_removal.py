"""Removing one checkpoint for good, at once, as the reference's ``delete_checkpoint`` promises and does not do.

Which checkpoint may go is the lifecycle's to decide: pins and the newest valid checkpoint mean nothing here. Only one
thing is refused: taking away artifacts that another checkpoint needs, be it live or in the trash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointInUseError, CheckpointNotFoundError, CorruptManifestError
from airflow_provider_checkpoint.layouts.partitioned._paths import id_folder, manifest_key
from airflow_provider_checkpoint.layouts.partitioned._pointer import retreat_pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.partitioned._layout import PartitionedLayout
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId


def remove_checkpoint(layout: PartitionedLayout, checkpoint_id: CheckpointId) -> None:
    """Remove the manifest, then everything else in the folder, then mend the pointer. May be repeated after a crash.

    Not defended against: a writer that commits a manifest with a reference into this folder after we looked. Writers
    take as bases only checkpoints that their own retention keeps.
    """
    blobs = layout.blobs
    folder = id_folder(checkpoint_id)
    _refuse_if_needed(layout, checkpoint_id)
    # The manifest first: a crash leaves artifacts that nobody names, never a checkpoint that lacks some.
    _delete(blobs, [manifest_key(checkpoint_id)])
    # Safe to remove: the folder is this id's own, its manifest is gone, and no other manifest names anything in it.
    for temporary in (False, True):
        _delete(blobs, [info.key for info in blobs.list(folder, temporary=temporary)])
    retreat_pointer(blobs, checkpoint_id, max(layout.list_checkpoints(), default=None))


def _refuse_if_needed(layout: PartitionedLayout, checkpoint_id: CheckpointId) -> None:
    users = [
        str(other) for other in layout.candidates() if other != checkpoint_id and _needs(layout, other, checkpoint_id)
    ]
    users += [
        f"{other} (in the trash)" for other, kept in layout.trashed().items() if _needs(kept, other, checkpoint_id)
    ]
    if users:
        raise CheckpointInUseError(
            f"checkpoint {checkpoint_id} holds artifacts that other checkpoints need",
            subject=", ".join(users),
            hint="Remove those first, or keep it until newer checkpoints no longer build on it.",
        )


def _needs(layout: PartitionedLayout, other: CheckpointId, checkpoint_id: CheckpointId) -> bool:
    try:
        checkpoint: Checkpoint = layout.load(other)
    except CheckpointNotFoundError:
        return False
    except CorruptManifestError as error:
        raise CorruptManifestError(
            f"checkpoint {other} cannot be read, so it is not known whether it needs artifacts of {checkpoint_id}"
            f" ({error.message})",
            subject=f"{layout.blobs.uri}/{manifest_key(other)}",
            hint="Remove or repair the unreadable checkpoint first.",
        ) from error
    folder = f"{checkpoint_id}/"
    return any(artifact.key.startswith(folder) for artifact in checkpoint.artifacts)


def _delete(blobs: BlobStore, keys: Sequence[str]) -> None:
    for outcome in blobs.delete(keys):
        if outcome.error is not None:
            raise outcome.error
