"""What a stream processor knows at a checkpoint, in the reference's terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.stream import _codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer


@dataclass(frozen=True, order=True, slots=True)
class StreamCheckpointId:
    """One checkpoint among those of all streams; sorts by stream, then sequence, then time."""

    stream_id: str
    sequence: int
    """The last event that is included."""
    created_at: datetime


@dataclass(slots=True)
class CheckpointState:
    """A snapshot to be filled and written, or one that was read.

    ``metadata`` and ``id.created_at`` are not part of the encoded form, as in the reference: they do not survive a
    round trip. Nor is ``id.stream_id``, which the place of the file tells.
    """

    id: StreamCheckpointId
    operator_states: dict[str, Buffer] = field(default_factory=dict)
    source_offsets: dict[str, int] = field(default_factory=dict)
    watermark_ns: int = 0
    """Highest event time processed, in nanoseconds since 1970."""
    event_count: int = 0
    metadata: dict[str, str] = field(default_factory=dict)

    def set_operator_state(self, operator: str, state: Buffer) -> None:
        self.operator_states[operator] = state

    def set_source_offset(self, source: str, offset: int) -> None:
        self.source_offsets[source] = offset

    def encode(self) -> bytes:
        """The encoded form, put together by one copy. Raises UnsupportedError for what the format cannot hold."""
        return b"".join(self._pieces())

    def iter_encode(self) -> Iterator[Buffer]:
        """The encoded form in pieces that borrow from the states, so that a large one never exists twice.

        What the format cannot hold is told by this call, not halfway. Change nothing until the last piece was taken.
        """
        return _codec.gathered(self._pieces())

    def _pieces(self) -> list[Buffer]:
        return _codec.pieces(
            self.id.sequence, self.watermark_ns, self.event_count, self.operator_states, self.source_offsets
        )

    @classmethod
    def decode(
        cls,
        stream_id: str,
        data: Buffer,
        *,
        created_at: datetime | None = None,
        lenient: bool = False,
        subject: str | None = None,
    ) -> CheckpointState:
        """Read an encoded state; each operator's state is copied once, so ``data`` may go away.

        :param created_at: the format does not hold it; by default now.
        :param lenient: accept what the reference implementation accepts: the part about sources cut off, bytes after
            the end, a name twice.
        :param subject: what the bytes are, for messages.

        Raises CorruptArtifactError for anything that is not exactly one whole state.
        """
        source = _codec.BufferSource(data)
        outline = _codec.outline(source, subject=subject or f"stream {stream_id!r}", lenient=lenient)
        return cls(
            StreamCheckpointId(stream_id, outline.sequence, created_at or datetime.now(UTC)),
            {name: bytes(source.view(span.start, span.length)) for name, span in outline.operators.items()},
            dict(outline.source_offsets),
            outline.watermark_ns,
            outline.event_count,
        )
