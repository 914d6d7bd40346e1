"""A new checkpoint directory for a changed query: it starts where another one stood, without its state.

A query whose operators have changed cannot go on from its old directory. Starting from nothing would read everything
again; sources other than Kafka cannot even be told where to start. A directory of one committed batch can.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointConflictError, ConfigurationError, CorruptManifestError
from airflow_provider_checkpoint.layouts.structured_streaming._names import COMMITS, METADATA, OFFSETS
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import read_set
from airflow_provider_checkpoint.layouts.structured_streaming._text import lines_of, read_small, stream_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View
    from airflow_provider_checkpoint.model import CheckpointId


def synthesize(
    layout: StructuredStreamingLayout, checkpoint_id: CheckpointId, target: BlobStore, *, keep_watermark: bool = False
) -> str:
    """Write a directory whose only batch, 0, has read exactly what the given batch had. Answers with its query id.

    The settings that Spark keeps in its log are taken over from there: settings that are missing would be read as those
    of very old versions.

    :param keep_watermark: go on with the watermark, so that events that were late then are late now. Without it, the
        new query begins to tell late events from the first ones it reads.
    """
    batch = layout.batch_of(checkpoint_id)
    view = layout.look()
    if next(target.list(), None) is not None:
        raise CheckpointConflictError("something lies at the target", subject=target.uri, hint="Choose an empty place.")
    offsets, sources = _offsets(layout, view, batch, keep_watermark=keep_watermark)
    watermark = view.commit(batch).watermark_ms if keep_watermark else 0
    query_id = str(uuid.uuid4())
    # As in a copy: commits before offsets, so that Spark refuses an unfinished one.
    for key, body in sources.items():
        _create(target, key, body)
    _create(target, f"{COMMITS}/0", f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'.encode())
    _create(target, METADATA, json.dumps({"id": query_id}, separators=(",", ":")).encode())
    _create(target, f"{OFFSETS}/0", offsets)
    return query_id


def _offsets(
    layout: StructuredStreamingLayout, view: View, batch: int, *, keep_watermark: bool
) -> tuple[bytes, dict[str, bytes]]:
    """The entry for batch 0, and the logs of file sources with everything they had read, as one entry each."""
    key = f"{OFFSETS}/{batch}"
    parsed = view.offsets(batch)
    lines = lines_of(read_small(layout.blobs, key), subject=key)
    settings = json.loads(lines[1]) if lines[1].strip() else {}
    if not keep_watermark:
        settings["batchWatermarkMs"] = 0
    positions, logs = [], {}
    for line in parsed.sources:
        end = log_offset(line)
        text = line.text if line.text is not None else "-"
        if end is not None and line.source in view.directory.sources:
            logs[f"sources/{line.source}/0"] = _one_entry(layout.blobs, view, line.source, end)
            text = '{"logOffset":0}'
        positions.append(text if parsed.version == 1 else f"{line.source}:{text}")
    head = [f"v{parsed.version}", json.dumps(settings, separators=(",", ":"))]
    return "\n".join([*head, *positions]).encode(), logs


def _one_entry(blobs: BlobStore, view: View, source: str, end: int) -> bytes:
    found = read_set(view.directory.sources[source], end)
    if found.missing:
        raise CorruptManifestError(
            f"the log of source {source} has holes: {found.missing[0]} is not there", subject=blobs.uri
        )
    return "\n".join(["v1", *_renumbered(blobs, found.keys)]).encode()


def _renumbered(blobs: BlobStore, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        lines = stream_lines(blobs, key)
        next(lines, None)
        for line in lines:
            yield json.dumps({**json.loads(line), "batchId": 0}, separators=(",", ":"))


def _create(target: BlobStore, key: str, body: bytes) -> None:
    if not target.create(key, body).created:
        raise ConfigurationError(f"somebody else writes to the target: {key}", subject=target.uri)
