"""Spark's own checkpoint directory as a layout."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._protocol import (
    HOUSEKEEPING,
    NOT_THERE,
    Check,
    Examination,
    Layout,
    Named,
    Role,
)
from airflow_provider_checkpoint.layouts.structured_streaming import _names as names
from airflow_provider_checkpoint.layouts.structured_streaming._beside import RecordsBeside
from airflow_provider_checkpoint.layouts.structured_streaming._logs import Commit, Offsets, parse_commit
from airflow_provider_checkpoint.layouts.structured_streaming._names import COMMITS, MAX_BATCH
from airflow_provider_checkpoint.layouts.structured_streaming._needs import Needs, ahead_of, needs_of
from airflow_provider_checkpoint.layouts.structured_streaming._positions import position_of
from airflow_provider_checkpoint.layouts.structured_streaming._proofs import Prover, run_checks
from airflow_provider_checkpoint.layouts.structured_streaming._seal import Seal, lost_operators, read_seal, with_digests
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small
from airflow_provider_checkpoint.layouts.structured_streaming._view import View
from airflow_provider_checkpoint.model import Artifact, Checkpoint, CheckpointId, Depth, Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_checkpoint.blobs import BlobStore

IDLE_SECONDS = 900
#: No setting makes a directory count as idle sooner: a batch of a query that runs may well take so long.
IDLE_FLOOR = 60
#: A view older than this is taken anew before it is believed. Nothing is removed on the strength of one: whoever
#: removes asks for the candidates first, and that always lists.
_VIEW_SECONDS = 60.0


class StructuredStreamingLayout(Layout):
    """A ``checkpointLocation`` of Spark 3 or 4. A checkpoint is a committed batch; its manifest is ``commits/N``.

    Taking ``commits/N`` away does not disturb Spark while a later one is there, since only the last is read; the last
    one is held. Everything else that batch N needs is an artifact: the offsets of N and of the batch before, the logs
    of its sources, and for every store the files of version N+1.

    The time of a checkpoint is that at which its batch was planned, as ``offsets/N`` tells: unlike the time of a file,
    it survives copying.

    :param blobs: the directory, with records beside it.
    :param records: where records are kept, if ``blobs`` is the bare directory.
    :param idle_seconds: for so long the query must have written nothing before anything is removed.
    :param clock: the time of a batch of which neither the log nor the store tells one.
    :param monotonic: counts the age of a view.
    """

    name: ClassVar[str] = "structured_streaming"

    def __init__(
        self,
        blobs: BlobStore,
        *,
        records: BlobStore | None = None,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if records is not None:
            blobs = RecordsBeside(blobs, records)
        if not isinstance(blobs, RecordsBeside):
            raise ConfigurationError(
                "records must not lie in a directory of Spark",
                subject=blobs.uri,
                hint="Open it with open_store, or say where records are kept: records=...",
            )
        if not idle_seconds >= IDLE_FLOOR:
            raise ConfigurationError(
                f"idle_seconds is {idle_seconds}, at least {IDLE_FLOOR} are needed",
                hint="A query that runs may write nothing for so long.",
            )
        super().__init__(blobs)
        self._directory = blobs.directory
        self._idle = timedelta(seconds=idle_seconds)
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._taken: tuple[float, View] | None = None

    # -- finding -------------------------------------------------------------------------------------------------

    def parse_id(self, text: str) -> CheckpointId:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_BATCH):
            raise ConfigurationError(
                "not the number of a batch", subject=repr(text), hint="A checkpoint is a batch: 0, 1, 2, ..."
            )
        return CheckpointId(int(text))

    def candidates(self) -> list[CheckpointId]:
        directory = self.look().directory
        return [CheckpointId(number) for number in directory.commits if number != directory.retired]

    def load(self, checkpoint_id: CheckpointId) -> Checkpoint:
        return self._examined(self.batch_of(checkpoint_id))[0]

    def read_pointer(self) -> CheckpointId | None:
        """The last commit: where Spark itself goes on."""
        commits = self.look().directory.commits
        return CheckpointId(commits[-1]) if commits else None

    def move_pointer(self, checkpoint_id: CheckpointId) -> None:
        """Nothing to do: Spark goes on from the last commit, whatever we say."""

    def look(self) -> View:
        """The directory as it is now: one listing."""
        with self._lock:
            before = None if self._taken is None else self._taken[1]
            began = self._monotonic()
            view = View.take(self.blobs, self._directory, before)
            self._taken = began, view
            return view

    def view(self, batch: int | None = None) -> View:
        """The directory as it was a moment ago, or now if that did not show a batch."""
        taken = self._taken
        if taken is None or self._monotonic() - taken[0] > _VIEW_SECONDS:
            return self.look()
        known = batch is None or f"{COMMITS}/{batch}" in taken[1].directory.files
        return taken[1] if known else self.look()

    def seal_of(self, batch: int) -> Seal | None:
        """The seal of a batch, if it has one that can be read."""
        return self._seal_of(self.view(), batch)[0]

    def query_id(self) -> str:
        """Raises CorruptManifestError, or BlobNotFoundError."""
        return self.view().query_id()

    # -- proving -------------------------------------------------------------------------------------------------

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        try:
            checkpoint, issues = self._examined(self.batch_of(checkpoint_id))
        except CheckpointNotFoundError as error:
            return Examination(None, [Issue.error("manifest_missing", error.message)])
        except CorruptManifestError as error:
            return Examination(None, [Issue.error("manifest_corrupt", f"{error.subject}: {error.message}")])
        return Examination(checkpoint, issues)

    def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
        if not depth.includes(Depth.PRESENCE):
            return []
        batch = self.batch_of(checkpoint.id)
        view = self.view(batch)
        try:
            offsets = view.offsets(batch)
            ahead = self.keys_ahead(checkpoint)
        except (BlobNotFoundError, CorruptError) as error:
            # Its logs were whole when it was loaded.
            gone = Issue.error("log_corrupt", f"{error.subject}: {error.message}")
            return [Check(f"{COMMITS}/{batch}", 0, lambda: [gone])]
        artifacts = [artifact for artifact in checkpoint.artifacts if artifact.key not in ahead]
        prover = Prover.of(self.blobs, view, offsets, depth, (each.key for each in artifacts))
        sealed = self._sealed_manifest(batch) if depth.includes(Depth.CONTENT) else []
        return prover.checks([*artifacts, *sealed])

    def prove(self, checkpoint_id: CheckpointId, depth: Depth = Depth.CONTENT, *, width: int = 8) -> list[Issue]:
        """Everything that is wrong with a batch, down to a depth."""
        examined = self.examine(checkpoint_id)
        if examined.checkpoint is None:
            return examined.issues
        found = run_checks(self.checks(examined.checkpoint, depth), width=width)
        return [*examined.issues, *(issue for _, issues in found for issue in issues)]

    def keys_ahead(self, checkpoint: Checkpoint) -> frozenset[str]:
        """Artifacts that a checkpoint names for the sake of the batches planned after it; it can do without them."""
        batch = self.batch_of(checkpoint.id)
        view = self.view(batch)
        if view.directory.commits[-1:] != [batch]:
            return frozenset()
        ahead = {artifact.key for artifact in ahead_of(view, view.offsets(batch))}
        return frozenset(ahead - {artifact.key for artifact in self._needs(view, batch, view.commit(batch)).artifacts})

    # -- removing ------------------------------------------------------------------------------------------------

    def alive(self, now: datetime) -> str | None:
        """Why the query may be running: Spark keeps no lock, so all there is to go by is what it wrote last."""
        change = self.look().directory.newest_change()
        if change is None:
            return "the store does not tell when its files were written"
        key, moment = change
        idle = now - moment
        if idle >= self._idle:
            return None
        return f"{key} was written {max(0, int(idle.total_seconds()))} seconds ago"

    def held(self) -> Mapping[CheckpointId, str]:
        """The last commit: without it Spark would run its batch once more, into sinks that have it already."""
        commits = self.look().directory.commits
        return {CheckpointId(commits[-1]): "Spark goes on from it"} if commits else {}

    def manifest_keys(self, checkpoint_id: CheckpointId) -> list[str]:
        return [f"{COMMITS}/{self.batch_of(checkpoint_id)}"]

    def named(self, key: str) -> Named:
        """What a file is, going by its name.

        Artifacts bear no batch: nearly all are shared by several, and one that needs an older batch's file does not
        need that batch.
        """
        batch = names.log_number(key, COMMITS)
        if batch is not None:
            return Named(Role.MANIFEST, CheckpointId(batch))
        sealed = names.seal_number(key)
        if sealed is not None:
            return Named(Role.ARTIFACT, CheckpointId(sealed))
        if key.partition("/")[0] in HOUSEKEEPING:
            return Named(Role.HOUSEKEEPING)
        return Named(Role.ARTIFACT if _is_artifact(key) else Role.UNKNOWN)

    # -- reading -------------------------------------------------------------------------------------------------

    def batch_of(self, checkpoint_id: CheckpointId) -> int:
        value = checkpoint_id.value
        if not isinstance(value, int) or not 0 <= value <= MAX_BATCH:
            raise self._not_found(value)
        return value

    def _examined(self, batch: int) -> tuple[Checkpoint, list[Issue]]:
        commit = self._read_commit(batch)
        view = self.view(batch)
        try:
            offsets = view.offsets(batch)
        except BlobNotFoundError:
            raise CorruptManifestError(
                "committed, but its offsets are not there", subject=f"{COMMITS}/{batch}", hint="diagnose tells more."
            ) from None
        needs = self._needs(view, batch, commit)
        seal, doubts = self._seal_of(view, batch)
        artifacts = {artifact.key: artifact for artifact in with_digests(needs.artifacts, seal)}
        if view.directory.commits[-1:] == [batch]:
            artifacts = {artifact.key: artifact for artifact in ahead_of(view, offsets)} | artifacts
        if batch in view.directory.seals:
            key = names.seal_key(batch)
            artifacts[key] = Artifact(key)
        sources = {line.source: position_of(line) for line in offsets.sources}
        checkpoint = Checkpoint(
            id=CheckpointId(batch),
            epoch=batch,
            created=self._created(view, batch, offsets),
            artifacts=tuple(artifacts.values()),
            sources=sources,
            source_names=tuple(sources),
            watermark=commit.watermark_ms or None,
        )
        return checkpoint, [*needs.issues, *doubts, *lost_operators(seal, needs.artifacts)]

    def _read_commit(self, batch: int) -> Commit:
        """Afresh each time: whether a checkpoint exists must not be answered from memory."""
        key = f"{COMMITS}/{batch}"
        try:
            return parse_commit(read_small(self.blobs, key), subject=key)
        except BlobNotFoundError:
            raise self._not_found(batch) from None

    def _needs(self, view: View, batch: int, commit: Commit) -> Needs:
        return needs_of(view, batch, view.offsets(batch), commit)

    def _created(self, view: View, batch: int, offsets: Offsets) -> datetime:
        try:
            if offsets.timestamp_ms > 0:
                return datetime.fromtimestamp(offsets.timestamp_ms / 1000, UTC)
        except (OverflowError, OSError, ValueError):
            pass  # No such time; that of the file must do.
        info = view.directory.files.get(f"{COMMITS}/{batch}")
        return (info.modified if info is not None else None) or self._clock()

    def _seal_of(self, view: View, batch: int) -> tuple[Seal | None, list[Issue]]:
        if batch not in view.directory.seals:
            return None, []
        try:
            return read_seal(self.blobs, batch), []
        except BlobNotFoundError:
            return None, []
        except CorruptError as error:
            return None, [Issue.warning("seal_unreadable", f"{error.subject}: {error.message}")]

    def _sealed_manifest(self, batch: int) -> list[Artifact]:
        seal = self.seal_of(batch)
        return [] if seal is None else with_digests((Artifact(f"{COMMITS}/{batch}"),), seal)

    def _not_found(self, batch: int | str) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"no committed batch {batch}",
            subject=self.blobs.uri,
            hint=NOT_THERE,
        )


def _is_artifact(key: str) -> bool:
    guarded = names.guarded_by(key)
    if names.is_litter(key) or names.is_part_of_a_batch(key):
        return True
    if guarded is None:
        return False
    # A checksum goes with its file, and so does the checksum that a disk keeps of it.
    inner = names.guarded_by(guarded)
    return any(
        names.is_part_of_a_batch(each) or names.log_number(each, COMMITS) is not None
        for each in (guarded, inner)
        if each is not None
    )
