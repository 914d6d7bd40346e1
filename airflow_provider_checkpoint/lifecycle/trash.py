"""The trash: where a pruned checkpoint waits, whole, until its undo window has passed.

Pruning copies the manifest to ``trash/{id}/kept/{its key}``, then writes ``trash/{id}/entry.json``, then deletes the
manifest. Artifacts stay where they are. Undeleting puts the manifest back and removes nothing: an entry whose manifest
is live means nothing, and the next prune writes it anew. So at every moment the manifest is live, or the entry stands
with a whole copy beside it, whoever prunes and undeletes at the same time.

Only a sweep removes copies. It first creates ``trash/{id}/purging.json``. From then on the checkpoint cannot be
undeleted, because its artifacts are being removed. Undelete and sweep each look for the other's mark after setting
their own; if both back off, the checkpoint is still in the trash and nothing is lost. The copies go before the mark and
the mark before the entry: an undelete that finds no mark but no copy either knows that a sweep has come and gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pydantic import AwareDatetime, BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._json import MAX_MANIFEST_BYTES, parse_model, read_object
from airflow_provider_checkpoint.lifecycle.side_by_side import streaming
from airflow_provider_checkpoint.model import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout

#: An entry repeats some of what its manifest says, so it is never the larger of the two.
_ENTRY_LIMIT = MAX_MANIFEST_BYTES


class TrashEntry(BaseModel):
    """One checkpoint in the trash."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    checkpoint_id: CheckpointId
    trashed: AwareDatetime
    by: str
    run: str
    reasons: tuple[str, ...]
    keys: tuple[str, ...]
    """Where the manifest's objects stood."""
    artifacts: tuple[str, ...]
    """What the manifest named, so that a sweep need not understand a manifest that is corrupt."""
    size: int = 0
    purged: AwareDatetime | None = None
    """Set on the last trace of what was the highest id, which stays so that the id is not given out again."""


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An entry that is damaged or may not be read. It may name any artifact, so none goes while there is one."""

    checkpoint_id: CheckpointId
    error: CheckpointError


def folder_of(checkpoint_id: CheckpointId) -> str:
    return f"trash/{quote(str(checkpoint_id), safe='')}"


def entry_key(checkpoint_id: CheckpointId) -> str:
    return f"{folder_of(checkpoint_id)}/entry.json"


def purging_key(checkpoint_id: CheckpointId) -> str:
    return f"{folder_of(checkpoint_id)}/purging.json"


def kept_key(checkpoint_id: CheckpointId, key: str) -> str:
    return f"{folder_of(checkpoint_id)}/kept/{key}"


class TrashReader:
    """Reads the trash as often as asked, and each entry as often as it was written."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._told: dict[CheckpointId, str | None] = {}

    def read(self) -> Iterator[TrashEntry]:
        """Every entry that was not told before, or was written again since.

        An unreadable one raises: it may name artifacts that must not be removed.
        """
        for entry in self.look():
            if isinstance(entry, UnreadableEntry):
                raise entry.error
            yield entry

    def look(self) -> Iterator[TrashEntry | UnreadableEntry]:
        """The same for whoever removes nothing; one that cannot be read is told as that, and every time."""
        versions = dict(self._listed())
        # A version listed before the entry is read is never newer than what is read, so no later one goes unnoticed.
        fresh = [each for each, version in versions.items() if version is None or self._told.get(each) != version]
        for entry in streaming(self._look_at, fresh):
            if isinstance(entry, TrashEntry):
                self._told[entry.checkpoint_id] = versions[entry.checkpoint_id]
            if entry is not None:
                yield entry

    def _look_at(self, checkpoint_id: CheckpointId) -> TrashEntry | UnreadableEntry | None:
        try:
            return read_entry(self._layout.blobs, checkpoint_id)
        except (CorruptError, AccessDeniedError) as error:
            return UnreadableEntry(checkpoint_id, error)

    def _listed(self) -> Iterator[tuple[CheckpointId, str | None]]:
        for info in self._layout.blobs.list("trash"):
            folder = info.key.split("/")[1]
            with suppress(ConfigurationError):
                checkpoint_id = self._layout.parse_id(unquote(folder))
                if info.key == entry_key(checkpoint_id):
                    yield checkpoint_id, info.version


def read_trash(layout: Layout) -> Iterator[TrashEntry]:
    """Every entry, once."""
    return TrashReader(layout).read()


def trashed_ids(layout: Layout) -> Iterator[CheckpointId]:
    """Every id that has left something in the trash, be it a trace."""
    for folder in layout.blobs.folders("trash"):
        with suppress(ConfigurationError):
            yield layout.parse_id(unquote(folder))


def read_entry(blobs: BlobStore, checkpoint_id: CheckpointId) -> TrashEntry | None:
    key = entry_key(checkpoint_id)
    try:
        entry = parse_model(TrashEntry, read_object(blobs, key, limit=_ENTRY_LIMIT), subject=key)
    except BlobNotFoundError:
        return None
    except CorruptManifestError as error:
        raise _damaged(blobs, checkpoint_id, error.message) from error
    if entry.checkpoint_id != checkpoint_id:
        raise _damaged(blobs, checkpoint_id, f"it speaks of checkpoint {entry.checkpoint_id}")
    return entry


def _damaged(blobs: BlobStore, checkpoint_id: CheckpointId, problem: str) -> CorruptManifestError:
    kept = kept_key(checkpoint_id, "")
    return CorruptManifestError(
        f"the entry of checkpoint {checkpoint_id} in the trash cannot be read: {problem}",
        subject=f"{blobs.uri}/{entry_key(checkpoint_id)}",
        hint=f"Bring it back from a version or a copy of the store. Or copy what lies below {kept} to the same path"
        f" without {kept} - then the checkpoint is live again, and the next prune writes the entry anew.",
    )


def put_into_trash(blobs: BlobStore, entry: TrashEntry) -> None:
    """Move a checkpoint's manifest to the trash. May be repeated after a crash at any point."""
    for key in entry.keys:
        try:
            copied = blobs.create(kept_key(entry.checkpoint_id, key), blobs.stream(key))
        except BlobNotFoundError:
            # An earlier attempt had come as far as deleting it.
            continue
        if not copied.created:
            # A copy from an earlier attempt, made before the manifest changed: take the present one.
            blobs.replace(kept_key(entry.checkpoint_id, key), blobs.read(key))
    # A mark left by a sweep that died is void: the checkpoint was live until now.
    _delete(blobs, [purging_key(entry.checkpoint_id)])
    # Replaced rather than created, so that the undo window counts from this prune, not from an earlier one.
    blobs.replace(entry_key(entry.checkpoint_id), entry.model_dump_json(indent=2).encode())
    # Safe to remove: the entry and a whole copy stand. Artifacts are not touched.
    _delete(blobs, entry.keys)


def trashed_at(blobs: BlobStore, entry: TrashEntry) -> datetime:
    """When its undo window began: by the clock of who pruned it or by the store's, whichever is later."""
    info = blobs.stat(entry_key(entry.checkpoint_id))
    return max(entry.trashed, info.modified) if info is not None and info.modified is not None else entry.trashed


def leave_trace(blobs: BlobStore, entry: TrashEntry, now: datetime) -> None:
    """Leave nothing of a checkpoint but its id, so that no writer is given it again."""
    trace = entry.model_copy(update={"purged": now, "artifacts": (), "keys": ()})
    blobs.replace(entry_key(entry.checkpoint_id), trace.model_dump_json(indent=2).encode())


def require_entry(blobs: BlobStore, checkpoint_id: CheckpointId) -> TrashEntry:
    """The entry of a checkpoint that can be put back; raises CheckpointNotFoundError."""
    entry = read_entry(blobs, checkpoint_id)
    if entry is None or entry.purged is not None or all(blobs.stat(key) is not None for key in entry.keys):
        raise CheckpointNotFoundError(
            f"checkpoint {checkpoint_id} is not in the trash",
            subject=blobs.uri,
            hint="It was never pruned, has been put back already, or its undo window has passed.",
        )
    return entry


def undelete(blobs: BlobStore, checkpoint_id: CheckpointId) -> TrashEntry:
    """Put a checkpoint back. May be repeated after a crash at any point."""
    entry = require_entry(blobs, checkpoint_id)
    _refuse_if_purging(blobs, entry)
    restored = []
    for key in reversed(entry.keys):
        if blobs.stat(key) is None:
            restored.append(key)
        try:
            outcome = blobs.create(key, blobs.stream(kept_key(checkpoint_id, key)))
        except BlobNotFoundError:
            # The copy went since; the check below says so.
            break
        if not outcome.created:
            raise CheckpointConflictError(
                f"another object stands where checkpoint {checkpoint_id} was",
                subject=f"{blobs.uri}/{key}",
                hint="The id was given out again by a writer that knows nothing of the trash. Look at both.",
            )
    try:
        _refuse_if_purging(blobs, entry)
    except CheckpointConflictError:
        # Safe to remove: we put them there just now, and what they name is going or gone.
        blobs.delete(restored)
        raise
    return entry


def _delete(blobs: BlobStore, keys: Sequence[str]) -> None:
    for outcome in blobs.delete(keys):
        if outcome.error is not None:
            raise outcome.error


def _refuse_if_purging(blobs: BlobStore, entry: TrashEntry) -> None:
    """Raise CheckpointConflictError if a sweep has begun with it or is through with it. Looks at the mark first."""
    marked = blobs.stat(purging_key(entry.checkpoint_id)) is not None
    if marked or any(blobs.stat(kept_key(entry.checkpoint_id, key)) is None for key in entry.keys):
        raise CheckpointConflictError(
            f"checkpoint {entry.checkpoint_id} is being removed for good",
            subject=blobs.uri,
            hint="A sweep has begun with it, so its artifacts may be gone.",
        )
