"""States to save, and the byte-exact vectors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings

from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

#: A busy machine is no reason to fail.
patient = settings(deadline=None)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

VECTORS = Path(__file__).parents[3] / "data" / "vectors"


def vector(name: str) -> bytes:
    (path,) = VECTORS.glob(f"{name}_*")
    return path.read_bytes()


def state(
    sequence: int,
    *,
    stream: str = "orders",
    watermark_ns: int = 0,
    event_count: int | None = None,
    operators: Mapping[str, Buffer] | None = None,
    sources: Mapping[str, int] | None = None,
) -> CheckpointState:
    return CheckpointState(
        StreamCheckpointId(stream, sequence, NOON),
        dict(operators or {}),
        dict(sources or {}),
        watermark_ns,
        sequence if event_count is None else event_count,
    )


VECTOR_STATES = {
    "C1": state(42, watermark_ns=999_000_000),
    "C2": state(
        77,
        watermark_ns=1_700_000_000_000_000_000,
        operators={"window_op": b"window_state_data"},
        sources={"source-0": 8192},
    ),
    "C3": state(
        2**64 - 1,
        watermark_ns=2**64 - 1,
        event_count=2**64 - 1,
        operators={"опер": b""},
        sources={"": 2**64 - 1},
    ),
}


def same(left: CheckpointState, right: CheckpointState) -> bool:
    """Whether two states say the same, as far as the format holds it."""

    def said(state: CheckpointState) -> tuple[object, ...]:
        return (
            state.id.sequence,
            state.watermark_ns,
            state.event_count,
            {name: bytes(memoryview(data)) for name, data in state.operator_states.items()},
            state.source_offsets,
        )

    return said(left) == said(right)
