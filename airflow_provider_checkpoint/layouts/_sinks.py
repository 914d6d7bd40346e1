"""Sinks in a manifest: the status of each, tagged as the reference does, and its epoch under a key of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from airflow_provider_checkpoint.model import SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping


def _from_tag(value: object) -> SinkStatus:
    match value:
        case SinkStatus(state=state, message=message):
            # The epoch of a sink stands in sink_epochs. A message may quote a file name that is not Unicode.
            text = (message or "").encode(errors="backslashreplace").decode()
            return SinkStatus(state, message=text if state is SinkState.FAILED else None)
        case dict() if len(value) != 1:
            pass
        case "Pending" | {"Pending": None}:
            return SinkStatus(SinkState.PENDING)
        case "Committed" | {"Committed": None}:
            return SinkStatus(SinkState.COMMITTED)
        case {"Failed": str(message)}:
            return SinkStatus(SinkState.FAILED, message=message)
    raise ValueError('neither "Pending", "Committed" nor {"Failed": "why"}')


def _to_tag(status: SinkStatus) -> str | dict[str, str]:
    return {"Failed": status.message or ""} if status.state is SinkState.FAILED else status.state.value.capitalize()


#: Externally tagged: "Pending", "Committed", {"Failed": "why"}.
SinkCommitStatus: TypeAlias = Annotated[SinkStatus, PlainValidator(_from_tag), PlainSerializer(_to_tag)]


def join_sinks(statuses: Mapping[str, SinkStatus], epochs: Mapping[str, int]) -> dict[str, SinkStatus]:
    """Every sink of a manifest, by name, with its epoch.

    One with an epoch and no status takes no part in the two-phase commit: it has nothing left to publish.
    """
    committed = SinkStatus(SinkState.COMMITTED)
    found = dict.fromkeys(epochs, committed) | dict(statuses)
    return {name: SinkStatus(status.state, epochs.get(name), status.message) for name, status in sorted(found.items())}
