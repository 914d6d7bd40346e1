"""Output as files, one folder per epoch: ``timeline=2/epoch=7/part-00003.parquet``.

Which files belong to an epoch is written down when it is prepared (``_prepared/``) and again when it is published
(``_committed/``), so leftovers of tasks that ran twice never count. Readers that want nothing but published output ask
:meth:`EpochFolders.committed_files`; one that reads the folder as a table may see an epoch a moment before it is
published, and sees exactly the published ones whenever no epoch is under way. Names that begin with an underscore are
invisible to Spark.

A folder belongs to one pipeline, because timelines and epochs have the same numbers everywhere: another one's output
would look like litter of one's own. ``_owner.json`` says whose it is, by the mark of the pipeline's first timeline, and
is created only if absent: of two pipelines that start at once, one gets the folder. A pipeline keeps it through every
restart, also when it goes back, begins anew or its checkpoints move. A folder without a mark, from before there were
any, becomes that of whoever starts with it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
)
from airflow_provider_checkpoint.layouts._json import parse_model, read_object
from airflow_provider_checkpoint.writing.sinks import EpochRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_checkpoint.blobs import BlobInfo, BlobStore
    from airflow_provider_checkpoint.lifecycle.timelines import Lineage

_FOLDER = re.compile(r"timeline=(\d+)/epoch=(\d+)/")
_OWNER = "_owner.json"
_RECORD = re.compile(r"_(?:prepared|committed)/timeline-(\d+)-epoch-(\d+)\.json")


class OutputFile(BaseModel):
    """One file of an epoch's output."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    size: int
    rows: int | None = None


class _Files(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    files: tuple[OutputFile, ...]


class _Owner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    writer: str
    """The mark of a timeline of the pipeline."""
    reason: str = ""
    """What that timeline was opened for. It names the pipeline to people."""


class EpochFolders:
    """A sink over a store of its own. Satisfies :class:`~airflow_provider_checkpoint.writing.sinks.Sink`."""

    def __init__(self, name: str, blobs: BlobStore) -> None:
        self._name = name
        self.blobs = blobs

    @property
    def name(self) -> str:
        return self._name

    @staticmethod
    def folder(ref: EpochRef) -> str:
        """Where the files of an epoch go."""
        return f"timeline={ref.timeline}/epoch={ref.epoch}"

    # -- taking part in a commit ---------------------------------------------------------------------------------

    def prepare(self, ref: EpochRef, files: Iterable[OutputFile]) -> None:
        """Say which files, already written, are the output of an epoch."""
        listed = tuple(sorted(files, key=lambda file: file.path))
        outcome = self.blobs.create(_record("prepared", ref), _encode(listed))
        if not outcome.created:
            raise CheckpointConflictError(
                f"epoch {ref.epoch} of timeline {ref.timeline} was prepared with other files", subject=self.blobs.uri
            )

    def commit(self, ref: EpochRef) -> None:
        committed = _record("committed", ref)
        try:
            listed = self._listed(_record("prepared", ref))
        except BlobNotFoundError:
            if self.blobs.stat(committed) is not None:
                return
            raise CheckpointNotFoundError(
                f"nothing was prepared for epoch {ref.epoch} of timeline {ref.timeline}", subject=self.blobs.uri
            ) from None
        if not self.blobs.create(committed, _encode(listed)).created:
            raise CheckpointConflictError(
                f"epoch {ref.epoch} of timeline {ref.timeline} was published with other files", subject=self.blobs.uri
            )
        wanted = {file.path for file in listed}
        present = {info.key for info in self.blobs.list(self.folder(ref), temporary=None)}
        if not wanted <= present:
            # Whoever has taken over may have discarded the epoch after we read its list.
            self._delete([committed])
            raise CheckpointNotFoundError(
                f"files of epoch {ref.epoch} of timeline {ref.timeline} are gone: {min(wanted - present)}",
                subject=self.blobs.uri,
            )
        # Safe to remove: files of this epoch that were not listed are second attempts of tasks; nobody refers to them.
        self._delete([*sorted(present - wanted), _record("prepared", ref)])

    def roll_back(self, ref: EpochRef) -> None:
        """Discard an epoch. The record of its publication goes first, then its files, the list of them last.

        A writer that was overtaken may publish in between. Either it sees that files are gone, and takes its record
        back, or its record was there before they went, and goes with the list.
        """
        self._delete([_record("committed", ref)])
        self._delete([info.key for info in self.blobs.list(self.folder(ref), temporary=None)])
        self._delete([_record("prepared", ref), _record("committed", ref)])

    def holds(self, ref: EpochRef) -> bool:
        return any(self.blobs.stat(_record(kind, ref)) is not None for kind in ("prepared", "committed"))

    def require(self, history: Lineage) -> None:
        foreign = [ref for ref in self._recorded() if ref.timeline >= history.current]
        if foreign:
            raise ConfigurationError(
                f"sink {self.name!r} holds output of timeline {foreign[0].timeline}, which this pipeline never opened",
                subject=self.blobs.uri,
                hint="It is another pipeline's, or its checkpoints were deleted. Give the sink a folder of its own, or"
                " empty this one.",
            )
        self._require_own(history)

    def retain(self, history: Lineage) -> None:
        self._claim(history)
        records = {_parse(info.key): info for info in self.blobs.list("_committed")}
        files = self._files()
        for ref in sorted(files.keys() | set(self._recorded())):
            if ref.timeline > history.current:
                continue
            record = records.get(ref)
            if record is None or not history.contains(ref.timeline, ref.epoch):
                self.roll_back(ref)
            elif any(_is_later(file, record) for file in files.get(ref, ())):
                self._tidy(ref, files[ref])

    def _claim(self, history: Lineage) -> None:
        """Before anything is discarded: the folder is this pipeline's from now on, or another one was faster."""
        if history.timelines:
            # The first, so that all writers of a pipeline write the same, whoever comes first.
            first = history.timelines[0]
            mark = _Owner(writer=first.writer, reason=first.reason)
            if not self.blobs.create(_OWNER, mark.model_dump_json(indent=2).encode()).created:
                self._require_own(history)

    def _require_own(self, history: Lineage) -> None:
        try:
            owner = parse_model(_Owner, read_object(self.blobs, _OWNER), subject=f"{self.blobs.uri}/{_OWNER}")
        except BlobNotFoundError:
            return
        if history.timelines and owner.writer not in {each.writer for each in history.timelines}:
            raise ConfigurationError(
                f"the folder of sink {self.name!r} belongs to another pipeline ({owner.reason or owner.writer})",
                subject=self.blobs.uri,
                hint="Give the sink a folder of its own. If the other one is gone for good, empty this one, the mark"
                f" {_OWNER} included. If it is this pipeline after all, and only its old timelines are lost, delete"
                f" {_OWNER}: the next start makes a new one.",
            )

    def _tidy(self, ref: EpochRef, files: Sequence[BlobInfo]) -> None:
        """Remove what came after the epoch was published: from a task that Spark had given up, on a worker it had lost.

        Readers of the bare folder would see its rows twice.
        """
        wanted = {file.path for file in self.files_of(ref)}
        # Safe to remove: as in commit, nobody refers to what is not listed.
        self._delete([file.key for file in files if file.key not in wanted])

    # -- reading -------------------------------------------------------------------------------------------------

    def committed(self) -> list[EpochRef]:
        """The published epochs."""
        return sorted(ref for ref in map(_parse, self._keys("_committed")) if ref is not None)

    def files_of(self, ref: EpochRef) -> tuple[OutputFile, ...]:
        """The files of one published epoch."""
        return self._listed(_record("committed", ref))

    def committed_files(self) -> list[OutputFile]:
        """The files of all published epochs, in order."""
        return [file for ref in self.committed() for file in self.files_of(ref)]

    def _files(self) -> dict[EpochRef, list[BlobInfo]]:
        """Everything in the folders of epochs."""
        found: dict[EpochRef, list[BlobInfo]] = {}
        for info in self.blobs.list(temporary=None):
            if match := _FOLDER.match(info.key):
                found.setdefault(EpochRef(int(match[1]), int(match[2])), []).append(info)
        return found

    def _recorded(self) -> list[EpochRef]:
        """Every epoch that was prepared or published."""
        records = (_parse(key) for key in [*self._keys("_prepared"), *self._keys("_committed")])
        return sorted({ref for ref in records if ref is not None})

    def _keys(self, folder: str) -> list[str]:
        return [info.key for info in self.blobs.list(folder)]

    def _listed(self, key: str) -> tuple[OutputFile, ...]:
        return parse_model(_Files, read_object(self.blobs, key), subject=key).files

    def _delete(self, keys: Sequence[str]) -> None:
        for outcome in self.blobs.delete(keys):
            if outcome.error is not None:
                raise outcome.error


def _record(kind: str, ref: EpochRef) -> str:
    return f"_{kind}/timeline-{ref.timeline:06d}-epoch-{ref.epoch:06d}.json"


def _parse(key: str) -> EpochRef | None:
    match = _RECORD.fullmatch(key)
    return None if match is None else EpochRef(int(match[1]), int(match[2]))


def _is_later(file: BlobInfo, record: BlobInfo) -> bool:
    """Files are written before their record, so this one is not in it. A store that tells no times is not searched."""
    return file.modified is not None and record.modified is not None and file.modified > record.modified


def _encode(files: Sequence[OutputFile]) -> bytes:
    return json.dumps({"files": [file.model_dump(mode="json") for file in files]}, indent=2).encode()
