"""What lies on the store, by id. Nothing here is kept between calls."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts._protocol import Role
from airflow_provider_checkpoint.layouts.sidecar import _names as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobInfo, BlobStore

log = logging.getLogger(__name__)


def list_manifests(blobs: BlobStore) -> dict[int, list[str]]:
    """The manifests of every id, ids ascending; where several claim one id, the one that counts comes first."""
    found: dict[int, list[str]] = {}
    for folder in (names.MANIFESTS, names.CHECKPOINTS):
        for number, info in _named(blobs, folder, Role.MANIFEST):
            found.setdefault(number, []).append(info.key)
    return {number: sorted(keys, key=partial(names.precedence, number)) for number, keys in sorted(found.items())}


def list_states(blobs: BlobStore) -> list[tuple[int, BlobInfo]]:
    """Every sidecar with the id whose name it bears."""
    return list(_named(blobs, names.CHECKPOINTS, Role.ARTIFACT))


def list_trash(blobs: BlobStore) -> set[int]:
    """Ids in the trash: one folder each."""
    return {number for folder in blobs.folders(names.TRASH) if (number := names.parse_number(folder)) is not None}


def _named(blobs: BlobStore, folder: str, role: Role) -> Iterator[tuple[int, BlobInfo]]:
    for info in blobs.list(folder):
        name = names.named(info.key)
        if name.role is role and name.checkpoint_id is not None:
            yield int(name.checkpoint_id.value), info
        elif names.is_malformed(info.key):
            log.warning("%s/%s: ignored, its name holds no checkpoint id", blobs.uri, info.key)
