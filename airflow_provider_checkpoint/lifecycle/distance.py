"""How much a rollback will do again. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.lifecycle.plans import Distance
from airflow_provider_checkpoint.model import (
    Checkpoint,
    FilePosition,
    GenericPosition,
    KafkaPosition,
    MysqlCdcPosition,
    PostgresCdcPosition,
    SourcePosition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def offsets_of(position: SourcePosition) -> dict[str, int]:
    """The numbers in a position, by partition; empty where it has none that count something."""
    match position:
        case KafkaPosition():
            return {f"{part.topic}-{part.partition}": part.offset for part in position.partitions}
        case FilePosition():
            return {position.path: position.byte_offset}
        case PostgresCdcPosition():
            lsn = _lsn(position.confirmed_flush_lsn)
            return {} if lsn is None else {"lsn": lsn}
        case MysqlCdcPosition():
            if position.binlog_position is None:
                return {}
            return {position.binlog_file or "binlog": position.binlog_position}
        case GenericPosition():
            return {name: int(value) for name, value in position.offsets.items() if _is_number(value)}


def offset_of(position: SourcePosition, partition: str | None) -> int | None:
    """The number for one partition; without a name, the only one there is."""
    offsets = offsets_of(position)
    if partition is None:
        return next(iter(offsets.values())) if len(offsets) == 1 else None
    return offsets.get(partition)


def replay_distance(chosen: Checkpoint, newer: Sequence[Checkpoint]) -> Distance:
    """From the chosen point to the newest of those passed over, the head."""
    if not newer:
        return Distance()
    head = newer[0]
    events = None
    if head.event_count is not None and chosen.event_count is not None:
        events = max(0, head.event_count - chosen.event_count)
    return Distance(
        seconds=max(0.0, (head.created - chosen.created).total_seconds()),
        epochs=max(0, head.epoch - chosen.epoch),
        checkpoints=len(newer),
        events=events,
        sources=_sources(chosen, head),
    )


def _sources(chosen: Checkpoint, head: Checkpoint) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, position in sorted(head.sources.items()):
        then = offsets_of(chosen.sources[name]) if name in chosen.sources else {}
        # Where only the head has a position, the source begins at an offset that nobody here knows.
        ahead = {part: offset - then[part] for part, offset in sorted(offsets_of(position).items()) if part in then}
        again = {part: count for part, count in ahead.items() if count > 0}
        if again:
            found[name] = again
    return found


def _lsn(text: str) -> int | None:
    match = _LSN.fullmatch(text)
    return None if match is None else (int(match[1], 16) << 32) + int(match[2], 16)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
