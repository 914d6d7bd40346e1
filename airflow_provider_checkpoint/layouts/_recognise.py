"""Which layout a folder holds, going by a few cheap looks at the names in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts._protocol import HOUSEKEEPING

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

#: What speaks for each layout, for people.
SIGNS = {
    "sidecar": "manifests/manifest-*.json, checkpoints/state-*.bin or checkpoints/checkpoint_*/",
    "partitioned": "_latest or {uuid of version 7}/",
    "stream": "checkpoint-{20 digits}.ckpt",
    "structured_streaming": "offsets/ with commits/ or metadata",
}

#: As far as a listing is read: one page.
_PAGE = 1000

_MANIFEST = re.compile(r"manifests/(manifest-\d+|latest)\.json")
_STATE = re.compile(r"checkpoints/(state-\d+\.bin|latest\.txt|checkpoint_\d+/(manifest\.json|state\.bin))")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_STREAM = re.compile(r"checkpoint-\d{20}\.ckpt")


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen in a folder."""

    layouts: dict[str, str] = field(default_factory=dict)
    """Each layout that something speaks for, with that something."""
    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The first few names in the folder, folders with a slash at the end."""


def look(blobs: BlobStore) -> Sight:
    """Look at a folder: one delimited listing, one or two object heads, and the first page of up to three listings."""
    folders = tuple(sorted(blobs.folders()))
    seen = _by_folders(blobs, folders)
    # Files that lie directly in the folder can only be had by listing what lies below, too. A stream has nothing below
    # but records of the lifecycle, so its files come within the first page of the rest.
    below = (info.key for info in blobs.list() if info.key.partition("/")[0] not in HOUSEKEEPING)
    files = [key for key in islice(below, _PAGE) if "/" not in key]
    stream = next(filter(_STREAM.fullmatch, files), None)
    if stream is not None:
        seen["stream"] = stream
    return Sight(seen, folders, tuple(f"{folder}/" for folder in folders) + tuple(files))


def _by_folders(blobs: BlobStore, folders: tuple[str, ...]) -> dict[str, str]:
    seen: dict[str, str] = {}
    sidecar = _first(blobs, folders, "manifests", _MANIFEST) or _first(blobs, folders, "checkpoints", _STATE)
    if sidecar is not None:
        seen["sidecar"] = sidecar
    uuid = next(filter(_UUID7.fullmatch, folders), None)
    if uuid is not None:
        seen["partitioned"] = f"{uuid}/"
    elif blobs.stat("_latest") is not None:
        seen["partitioned"] = "_latest"
    if "offsets" in folders and ("commits" in folders or blobs.stat("metadata") is not None):
        seen["structured_streaming"] = "offsets/"
    return seen


def _first(blobs: BlobStore, folders: tuple[str, ...], folder: str, pattern: re.Pattern[str]) -> str | None:
    if folder not in folders:
        return None
    keys = (info.key for info in islice(blobs.list(folder), _PAGE))
    return next(filter(pattern.fullmatch, keys), None)


def is_empty(sight: Sight) -> bool:
    """Whether there is nothing yet, but perhaps the records that the lifecycle keeps beside checkpoints."""
    return all(name.removesuffix("/") in HOUSEKEEPING for name in sight.names)
