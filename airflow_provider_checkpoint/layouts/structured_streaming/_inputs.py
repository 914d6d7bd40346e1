"""Whether the input is still there that a run from an older batch would have to read again.

A file source does not say so when a file that it had listed is gone. Its rows are left out without a word.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointError
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import source_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore, StoreOptions
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

_AT_ONCE = 16
_MISSING = 1000


class InputCheck(BaseModel):
    """What became of the files that batches after the chosen one had read."""

    model_config = ConfigDict(frozen=True)

    present: int = 0
    missing: tuple[str, ...] = ()
    """At most a thousand of them."""
    unknown: int = 0
    """On a store that could not be asked."""


def later_input(blobs: BlobStore, view: View, batch: int, options: StoreOptions | None) -> InputCheck:
    """Look for every file that sources had listed after a batch.

    :param options: how to reach input that is not on a disk of this machine; without, it is not looked for.
    """
    paths = list(dict.fromkeys(_later_paths(blobs, view, batch)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(_Places(options).has, paths))
    missing = [path for path, there in zip(paths, found, strict=True) if there is False]
    return InputCheck(present=found.count(True), missing=tuple(missing[:_MISSING]), unknown=found.count(None))


def _later_paths(blobs: BlobStore, view: View, batch: int) -> Iterator[str]:
    ends = {line.source: log_offset(line) for line in view.offsets(batch).sources}
    for source, entries in view.directory.sources.items():
        end = ends.get(source)
        if end is None:
            continue
        for number, key in sorted(entries.items()):
            if number > end:
                # A compact entry holds the files of earlier ones too, each with the number of its own.
                yield from (file.path for file in source_files(blobs, key) if file.batchId > end)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where input lies. A place that fails to answer is not asked again: there may be thousands of files."""

    options: StoreOptions | None
    opened: dict[str, BlobStore] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def has(self, path: str) -> bool | None:
        """Whether a file is there; None if that cannot be told. Spark writes paths percent-encoded."""
        parts = urlsplit(path, allow_fragments=False)
        name = unquote(parts.path)
        if parts.scheme in ("", "file"):
            return Path(name).exists()
        place = f"{parts.scheme}://{parts.netloc}"
        if self.options is None or place in self.failed:
            return None
        try:
            if place not in self.opened:
                self.opened[place] = open_blobs(place, self.options)
            return self.opened[place].stat(name.strip("/")) is not None
        except CheckpointError:
            self.failed.add(place)
            return None
