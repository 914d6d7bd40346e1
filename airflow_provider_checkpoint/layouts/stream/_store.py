"""Checkpoints of many streams, in the reference's terms: save, latest, list, delete_before."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptArtifactError,
)
from airflow_provider_checkpoint.layouts.stream import _retention
from airflow_provider_checkpoint.layouts.stream._layout import StreamLayout
from airflow_provider_checkpoint.layouts.stream._names import state_key, stream_folder, stream_name
from airflow_provider_checkpoint.layouts.stream._proof import content_issues, remove, write_digest
from airflow_provider_checkpoint.layouts.stream._state import CheckpointState, StreamCheckpointId
from airflow_provider_checkpoint.model import Severity

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is in the store, and what went to make room for it."""

    size: int
    sha256: str
    trimmed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that was passed over, and why."""

    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest checkpoint that can be trusted, and the newer ones that cannot."""

    state: CheckpointState
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Newest:
    """Like :class:`Latest`, for those who need only know which one it is."""

    sequence: int
    skipped: tuple[Skipped, ...] = ()


class StreamStore:
    """A folder per stream, a file per checkpoint, at most ``max_per_stream`` of each.

    Any number of processes may use one store. A name is given once: of two that save under the same sequence, the one
    with other bytes is told so.

    :param blobs: where the folders of the streams are.
    :param max_per_stream: how many checkpoints stay when another is saved. The newest that can be read and those that
        are pinned stay in any case.
    :param lenient: read what the reference implementation reads, see :class:`CheckpointState`.
    :param clock: tells whether a pin still holds, and the age of a file whose store does not tell it.
    """

    def __init__(
        self,
        blobs: BlobStore,
        max_per_stream: int,
        *,
        lenient: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if max_per_stream < 1:
            raise ConfigurationError(
                f"max_per_stream is {max_per_stream}, so that no checkpoint could stay",
                hint="Keep at least 1; 3 or more leave something to fall back to.",
            )
        self._blobs = blobs
        self._max_per_stream = max_per_stream
        self._lenient = lenient
        self._clock = clock

    def layout(self, stream: str) -> StreamLayout:
        """The checkpoints of one stream, for everything that works on any layout."""
        return StreamLayout(self._blobs.at(stream_folder(stream)), lenient=self._lenient, clock=self._clock)

    # -- writing -------------------------------------------------------------------------------------------------

    def save(self, state: CheckpointState) -> Saved:
        """Put a checkpoint into the store, then remove the oldest beyond ``max_per_stream``.

        Saving the same again is a success and finishes what an interrupted call left undone. Raises
        CheckpointConflictError if another state stands under the sequence; that one is not touched.

        Once this returns the checkpoint is there, even if the removal of older ones failed: that is logged, and the
        next ``save`` tries again.
        """
        sequence = state.id.sequence
        layout = self.layout(state.id.stream_id)
        body = state.iter_encode()
        creation = layout.blobs.create(state_key(sequence), body)
        if not creation.created:
            raise CheckpointConflictError(
                f"another state stands under sequence {sequence}",
                subject=f"{layout.blobs.uri}/{state_key(sequence)}",
                hint="A sequence is saved once. Two runs write this stream, or one went back and took another path.",
            )
        write_digest(layout.blobs, sequence, creation.sha256)
        return Saved(creation.size, creation.sha256, self._trim(layout, sequence))

    def _trim(self, layout: StreamLayout, saved: int) -> tuple[int, ...]:
        try:
            present = list(layout.files())
            return tuple(self._remove(layout, present, present[: -self._max_per_stream], known_sound=saved))
        except CheckpointError as error:
            log.warning("%s: older checkpoints were not removed: %s", layout.blobs.uri, error)
            return ()

    def delete_before(self, stream: str, sequence: int) -> builtins.list[int]:
        """Remove the checkpoints below a sequence and answer which.

        The newest that can be read stays, wherever it is, and so do pinned ones. Raises what hindered a removal, after
        having tried the others.
        """
        layout = self.layout(stream)
        present = list(layout.files())
        return self._remove(layout, present, [found for found in present if found < sequence])

    def _remove(
        self,
        layout: StreamLayout,
        present: builtins.list[int],
        unwanted: builtins.list[int],
        *,
        known_sound: int | None = None,
    ) -> builtins.list[int]:
        if not unwanted:
            return []
        held = _retention.pinned(layout.blobs, self._clock())
        going = _retention.removable(
            present,
            unwanted,
            held,
            lambda sequence: sequence == known_sound or not self._problems(layout, sequence),
        )
        # Safe: a newer sound checkpoint stays, no pin holds these, and no other checkpoint refers to them.
        return remove(layout.blobs, going)

    # -- reading -------------------------------------------------------------------------------------------------

    def latest(self, stream: str) -> Latest | None:
        """The newest checkpoint that can be read and proven; None if the stream has none at all.

        Damaged ones are passed over and reported. If there are checkpoints and all of them are damaged this raises
        CorruptArtifactError, for to start afresh is a decision that nobody should make by accident.
        """
        layout = self.layout(stream)
        skipped: list[Skipped] = []
        for sequence in reversed(layout.files()):
            try:
                return Latest(layout.restore(stream, sequence), tuple(skipped))
            except (CheckpointNotFoundError, CorruptArtifactError) as error:
                skipped.append(Skipped(sequence, error.message))
        _refuse_if_damaged(layout, skipped)
        return None

    def newest(self, stream: str) -> Newest | None:
        """Which checkpoint :meth:`latest` would read, found in constant memory."""
        layout = self.layout(stream)
        skipped: list[Skipped] = []
        for sequence in reversed(layout.files()):
            problems = self._problems(layout, sequence)
            if not problems:
                return Newest(sequence, tuple(skipped))
            skipped.append(Skipped(sequence, "; ".join(problems)))
        _refuse_if_damaged(layout, skipped)
        return None

    def list(self, stream: str) -> builtins.list[StreamCheckpointId]:
        """The checkpoints of a stream, lowest sequence first, damaged ones included."""
        layout = self.layout(stream)
        return [
            StreamCheckpointId(stream, sequence, layout.created_at(info)) for sequence, info in layout.files().items()
        ]

    def checkpoint_count(self, stream: str) -> int:
        return len(self.layout(stream).files())

    def streams(self) -> builtins.list[str]:
        """The streams that have a folder here, sorted; folders that are not a stream's are left out."""
        names = (stream_name(folder) for folder in self._blobs.folders())
        return sorted(name for name in names if name is not None)

    def _problems(self, layout: StreamLayout, sequence: int) -> builtins.list[str]:
        issues = content_issues(layout.blobs, sequence, lenient=self._lenient)
        return [issue.message for issue in issues if issue.severity is Severity.ERROR]


def _refuse_if_damaged(layout: StreamLayout, skipped: list[Skipped]) -> None:
    if skipped:
        raise CorruptArtifactError(
            f"none of {len(skipped)} checkpoints can be read; the newest: {skipped[0].reason}",
            subject=layout.blobs.uri,
            hint="Restore a file from a backup, or remove the folder to start afresh.",
        )
