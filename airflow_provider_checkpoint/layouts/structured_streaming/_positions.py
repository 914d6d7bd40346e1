"""Where the sources stand after a batch, in the terms of the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.model import GenericPosition, KafkaPartition, KafkaPosition

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.structured_streaming._logs import OffsetLine
    from airflow_provider_checkpoint.model import SourcePosition

FILE_SOURCE = "file_source"
_LOG_OFFSET = "logOffset"


def log_offset(line: OffsetLine) -> int | None:
    """The entry of its own log up to which a file source has read; None for other kinds of sources.

    Before its first file a file source stands at -1.
    """
    value = line.value()
    if isinstance(value, dict) and set(value) == {_LOG_OFFSET} and _is_whole(value[_LOG_OFFSET]):
        number: int = value[_LOG_OFFSET]
        return number if -1 <= number < 2**63 else None
    return None


def is_file_position(line: OffsetLine) -> bool:
    """Whether a position is that of a file source, going by its name; what it says may be no number."""
    value = line.value()
    return isinstance(value, dict) and _LOG_OFFSET in value


def position_of(line: OffsetLine) -> SourcePosition:
    """The typed position of a source; of a kind that is not known, its names and values as it wrote them."""
    number = log_offset(line)
    if number is not None:
        return GenericPosition(connector_type=FILE_SOURCE, offsets={_LOG_OFFSET: str(number)})
    value = line.value()
    return _kafka(value) or GenericPosition(connector_type="", offsets=_flat(value))


def _kafka(value: Any) -> KafkaPosition | None:
    """``{"topic":{"0":123}}``: the next offset to read, per partition."""
    if not isinstance(value, dict) or not value:
        return None
    parts = []
    for topic, offsets in value.items():
        if not isinstance(offsets, dict) or not offsets:
            return None
        for partition, offset in offsets.items():
            if not (partition.isascii() and partition.isdigit() and len(partition) <= 10) or not _is_whole(offset):
                return None
            parts.append(KafkaPartition(topic=topic, partition=int(partition), offset=offset))
    parts.sort(key=lambda part: (part.topic, part.partition))
    return KafkaPosition(partitions=tuple(parts))


def _flat(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return {name: part if isinstance(part, str) else json.dumps(part) for name, part in value.items()}
    return {"offset": value if isinstance(value, str) else json.dumps(value)}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
