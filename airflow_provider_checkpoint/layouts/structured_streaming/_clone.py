"""Going back to batch N: a copy of the directory as it was after N, from which Spark goes on with N+1.

The directory itself stays as it is. Taking later entries out of its logs, the folk remedy, is not the same: state files
of the abandoned future lie around under versions that the new run reaches again, and are taken for its own.

The copy is written in an order that makes Spark refuse every unfinished one: state and source logs first, then the
commits, then the id of the query, and the offsets last, oldest first. Commits that have no offsets are an error to
Spark, in every version.
"""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pydantic import AwareDatetime, BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptArtifactError,
    CorruptError,
    InputGoneError,
)
from airflow_provider_checkpoint.layouts.structured_streaming import _names as names
from airflow_provider_checkpoint.layouts.structured_streaming._inputs import InputCheck, later_input
from airflow_provider_checkpoint.layouts.structured_streaming._names import COMMITS, METADATA, OFFSETS
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import source_files
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small
from airflow_provider_checkpoint.model import CheckpointId, Depth, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore, StoreOptions
    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

_AT_ONCE = 16
_STATE_PATH = "/state/"
_S3 = ("s3", "s3a", "s3n")


class CopyStage(StrEnum):
    """In this order; see above."""

    STATE = "state"
    COMMITS = "commits"
    METADATA = "metadata"
    OFFSETS = "offsets"


class CopyItem(BaseModel):
    model_config = ConfigDict(frozen=True)

    key: str
    stage: CopyStage
    bytes: int
    rewrite: bool = False
    """It holds absolute paths, which are made to lead into the copy."""


class ClonePlan(BaseModel):
    """What is copied, and what a person should know before the query is started on the copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    target: str
    made: AwareDatetime
    checkpoint_id: CheckpointId
    """The batch after which the copy goes on."""
    last: CheckpointId
    """The last batch that the directory has committed."""
    items: tuple[CopyItem, ...]
    input: InputCheck
    query_id: str
    new_query_id: str | None = None
    spark_location: str
    """How Spark will call the copy: its new checkpointLocation."""
    warnings: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)


def plan_clone(
    layout: StructuredStreamingLayout,
    checkpoint_id: CheckpointId,
    target: str,
    *,
    now: datetime,
    new_query_id: bool = False,
    whole_source_log: bool = False,
    spark_location: str | None = None,
    options: StoreOptions | None = None,
) -> ClonePlan:
    """Plan a copy of the directory as it was after a batch. Reads logs only; the batch itself is proven on applying.

    :param target: where the copy goes: an address of its own, empty.
    :param new_query_id: give the copy an id of its own. Sinks that remember batches by the id of the query (Delta,
        Iceberg) pass over batches that they have seen under it.
    :param whole_source_log: keep what file sources had listed after the batch. The next batch then takes all of it at
        once; for a replay of the same batches it is needed.
    :param spark_location: how Spark calls the target, if not by its address; such as ``s3a://...``.
    :param options: how to reach input in an object store; without, only input on a disk is looked for.
    """
    if target.rstrip("/") == layout.blobs.uri.rstrip("/"):
        raise ConfigurationError("a copy needs an address of its own", subject=target)
    batch = layout.batch_of(checkpoint_id)
    view = layout.look()
    if batch not in view.directory.commits:
        raise CheckpointNotFoundError(f"no committed batch {batch}", subject=layout.blobs.uri)
    location = spark_location or _as_spark_calls(target, layout.blobs, view)
    items = [*_state(view, batch), *_source_logs(view, batch, whole=whole_source_log), *_logs(view, batch)]
    checked = later_input(layout.blobs, view, batch, options)
    return ClonePlan(
        uri=layout.blobs.uri,
        target=target,
        made=now,
        checkpoint_id=checkpoint_id,
        last=CheckpointId(view.directory.commits[-1]),
        items=tuple(items),
        input=checked,
        query_id=view.query_id(),
        new_query_id=str(uuid.uuid4()) if new_query_id else None,
        spark_location=location,
        warnings=tuple(_warnings(view, checked, batch, new_query_id=new_query_id)),
    )


def apply_clone(
    layout: StructuredStreamingLayout,
    plan: ClonePlan,
    target: StructuredStreamingLayout,
    *,
    depth: Depth = Depth.CONTENT,
    missing_input_ok: bool = False,
) -> None:
    """Make the copy, and prove it. Whatever died in between, the same plan applied again finishes it.

    Raises CorruptArtifactError if the batch cannot be proven, InputGoneError if files are gone that would have to be
    read again, CheckpointConflictError if something else lies at the target.
    """
    if plan.input.missing and not missing_input_ok:
        raise InputGoneError(
            f"{len(plan.input.missing)} input files of later batches are gone, such as {plan.input.missing[0]}",
            subject=plan.uri,
            hint="Spark would leave their rows out without a word. Bring them back, or go back less far.",
        )
    _require_valid(layout, plan.checkpoint_id, depth)
    _require_nothing_else(target.blobs, plan)
    for stage in CopyStage:
        items = [item for item in plan.items if item.stage is stage]
        # The offsets make the copy usable, so they come one after the other, the decisive one last.
        if stage is CopyStage.OFFSETS:
            for item in items:
                _copy(layout.blobs, target.blobs, item, plan)
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda item: _copy(layout.blobs, target.blobs, item, plan), items))
    target.look()
    _require_valid(target, plan.checkpoint_id, depth)


# -- what is copied ----------------------------------------------------------------------------------------------


def _state(view: View, batch: int) -> Iterator[CopyItem]:
    """Files of versions that the batch and those before it need, and what describes the operators."""
    tables: set[str] = set()
    for stores in view.directory.stores.values():
        for files in stores.values():
            kept = [
                *(key for version, key in files.deltas.items() if version <= batch + 1),
                *(key for version, key in files.snapshots.items() if version <= batch + 1),
                *(key for (version, _), key in files.changelogs.items() if version <= batch + 1),
            ]
            zips = [key for (version, _), key in files.zips.items() if version <= batch + 1]
            for key in (*kept, *zips):
                yield from _with_checksum(view, key)
            tables |= {table for key in zips for table in _tables_of(view, files.folder, key)}
    for key in sorted(tables):
        yield _item(view, key, CopyStage.STATE)
    for described in view.directory.operators.values():
        for key, name in described.items():
            if name.batch is None or name.batch <= batch:
                yield _item(view, key, CopyStage.STATE, rewrite="/_metadata/v2/" in key)


def _tables_of(view: View, folder: str, key: str) -> Iterator[str]:
    try:
        metadata = view.zip_metadata(key)
    except (CorruptError, BlobNotFoundError):
        # Of no use to anybody. If the batch needs it, it is not valid and nothing is copied.
        return
    for table in metadata.ssts:
        place = f"{folder}SSTs/{table.dfs_name}"
        if place in view.directory.files:
            yield place


def _with_checksum(view: View, key: str) -> Iterator[CopyItem]:
    yield _item(view, key, CopyStage.STATE)
    checksum = names.spark_checksum(key)
    if checksum in view.directory.files:
        yield _item(view, checksum, CopyStage.STATE)


def _source_logs(view: View, batch: int, *, whole: bool) -> Iterator[CopyItem]:
    offsets = view.offsets(batch)
    ends = {line.source: log_offset(line) for line in offsets.sources}
    for source, entries in view.directory.sources.items():
        end = ends.get(source)
        for number, key in sorted(entries.items()):
            # Logs of other sources than files hold where they began, and have nothing that comes later.
            if whole or end is None or number <= end:
                yield _item(view, key, CopyStage.STATE)
        if end is not None and not whole:
            # A log keeps both the plain entry and the compact one for a while; the plain one counts if it is the last.
            yield from _plain_twins(view, source, entries, end)


def _plain_twins(view: View, source: str, entries: dict[int, str], end: int) -> Iterator[CopyItem]:
    for number, key in entries.items():
        plain = f"sources/{source}/{number}"
        if number <= end and key != plain and plain in view.directory.files:
            yield _item(view, plain, CopyStage.STATE)


def _logs(view: View, batch: int) -> Iterator[CopyItem]:
    directory = view.directory
    yield from (_item(view, f"{COMMITS}/{each}", CopyStage.COMMITS) for each in directory.commits if each <= batch)
    yield _item(view, METADATA, CopyStage.METADATA)
    yield from (_item(view, f"{OFFSETS}/{each}", CopyStage.OFFSETS) for each in directory.offsets if each <= batch)


def _item(view: View, key: str, stage: CopyStage, *, rewrite: bool = False) -> CopyItem:
    return CopyItem(key=key, stage=stage, bytes=view.directory.files[key].size, rewrite=rewrite)


def _warnings(view: View, checked: InputCheck, batch: int, *, new_query_id: bool) -> Iterator[str]:
    if view.directory.commits[-1] > batch and not new_query_id:
        yield (
            "the copy keeps the id of the query: sinks that remember batches by it (Delta, Iceberg) pass over those"
            " they have seen; restore the table as well, or give the copy a new id"
        )
    if checked.unknown:
        yield (
            f"{checked.unknown} input files of later batches could not be looked for; if one is gone, Spark leaves its"
            " rows out without a word"
        )
    if checked.missing:
        yield f"{len(checked.missing)} input files of later batches are gone: {', '.join(checked.missing[:3])}"


# -- copying -----------------------------------------------------------------------------------------------------


def _copy(source: BlobStore, target: BlobStore, item: CopyItem, plan: ClonePlan) -> None:
    if item.stage is CopyStage.METADATA and plan.new_query_id is not None:
        body = json.dumps({"id": plan.new_query_id}, separators=(",", ":")).encode()
        outcome = target.create(item.key, body)
    elif item.rewrite:
        outcome = target.create(item.key, rewritten(read_small(source, item.key), plan.spark_location))
    else:
        outcome = target.create(item.key, source.stream(item.key))
    if not outcome.created:
        raise CheckpointConflictError(
            f"something else lies at the target: {item.key}",
            subject=plan.target,
            hint="Choose an address where nothing is. An unfinished copy of another plan can be removed.",
        )


def rewritten(data: bytes, location: str) -> bytes:
    """A description of an operator whose paths lead into the copy.

    Spark writes down where the schemas of its stores are, as absolute paths. A copy that keeps them would go on using
    the old directory, or not start once that is gone.
    """
    head, _, text = data.decode().partition("\n")
    values = json.loads(text)
    for store in values.get("stateStoreInfo", []):
        paths = store.get("stateSchemaFilePaths")
        if paths:
            store["stateSchemaFilePaths"] = [_moved(path, location) for path in paths]
    return f"{head}\n{json.dumps(values, separators=(',', ':'))}".encode()


def _moved(path: str, location: str) -> str:
    place = path.rfind(_STATE_PATH)
    if place < 0:
        raise CorruptArtifactError("a path that leads to no state", subject=path[:200])
    return f"{location.rstrip('/')}{path[place:]}"


def _as_spark_calls(target: str, blobs: BlobStore, view: View) -> str:
    """A folder on a disk as Hadoop writes it, where a percent sign is itself; S3 by the scheme that the query uses."""
    if "://" not in target:
        return f"file:{os.path.abspath(target)}"
    scheme, _, place = target.partition("://")
    if scheme == "file":
        return f"file:{unquote(urlsplit(target, allow_fragments=False).path)}"
    if scheme not in _S3:
        return target
    used = (path.partition("://")[0] for path in _paths_of_spark(blobs, view))
    return f"{next((each for each in used if each in _S3), scheme)}://{place}"


def _paths_of_spark(blobs: BlobStore, view: View) -> Iterator[str]:
    """Addresses as the query wrote them down: of schemas, and of what it read last."""
    try:
        for operator in view.directory.operators:
            described = view.operator(operator, view.directory.commits[-1])
            yield from () if described is None else described.schema_paths
        for entries in view.directory.sources.values():
            yield from (file.path for file in islice(source_files(blobs, entries[max(entries)]), 1))
    except (CorruptError, BlobNotFoundError):
        return


def _require_nothing_else(target: BlobStore, plan: ClonePlan) -> None:
    wanted = {item.key for item in plan.items}
    other = next((info.key for info in target.list() if info.key not in wanted and not _is_record(info.key)), None)
    if other is not None:
        raise CheckpointConflictError(
            f"something else lies at the target: {other}", subject=plan.target, hint="Choose an empty place."
        )


def _is_record(key: str) -> bool:
    """Records of ours lie beside the directory; on a disk, Hadoop puts checksums beside files."""
    return names.guarded_by(key) is not None or key.partition("/")[0] in {"audit", "ledger", "pins", "timelines"}


def _require_valid(layout: StructuredStreamingLayout, checkpoint_id: CheckpointId, depth: Depth) -> None:
    wrong = [issue for issue in layout.prove(checkpoint_id, depth) if issue.severity is Severity.ERROR]
    if wrong:
        raise CorruptArtifactError(
            f"batch {checkpoint_id} cannot be restored: {wrong[0].message}",
            subject=layout.blobs.uri,
            hint="recover tells which batch can; diagnose tells what is wrong.",
        )
