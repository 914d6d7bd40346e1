"""Source positions between the typed form of the model and the flat name-to-text form that manifests store.

A position of a known kind whose values do not parse stays a :class:`GenericPosition`: reading never loses what was
written, and a checkpoint does not become unreadable because one connector wrote something new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.model import (
    FilePosition,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    MysqlCdcPosition,
    PostgresCdcPosition,
    SourcePosition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def from_offsets(source_type: str, offsets: Mapping[str, str]) -> SourcePosition:
    """The typed position for what a manifest says of one source."""
    parse = _PARSERS.get(source_type)
    position = None if parse is None else parse(offsets)
    if position is None or to_offsets(position) != (source_type, dict(offsets)):
        return GenericPosition(connector_type=source_type, offsets=dict(offsets))
    return position


def to_offsets(position: SourcePosition) -> tuple[str, dict[str, str]]:
    """The source type and offsets a manifest stores for a position, names sorted."""
    match position:
        case KafkaPosition():
            group = {} if position.group_id is None else {"group_id": position.group_id}
            flat = group | {f"{part.topic}-{part.partition}": str(part.offset) for part in position.partitions}
        case PostgresCdcPosition():
            flat = _given(lsn=position.confirmed_flush_lsn, write_lsn=position.write_lsn, slot_name=position.slot_name)
        case MysqlCdcPosition():
            flat = _given(
                gtid_set=position.gtid_set,
                binlog_file=position.binlog_file,
                binlog_position=None if position.binlog_position is None else str(position.binlog_position),
            )
        case FilePosition():
            flat = {"path": position.path, "byte_offset": str(position.byte_offset)}
        case GenericPosition():
            return position.connector_type, dict(sorted(position.offsets.items()))
    return position.type, dict(sorted(flat.items()))


def _kafka(offsets: Mapping[str, str]) -> KafkaPosition | None:
    partitions = []
    for name, value in offsets.items():
        if name == "group_id":
            continue
        topic, dash, partition = name.rpartition("-")
        if not dash or not _is_number(partition) or not _is_number(value):
            return None
        partitions.append(KafkaPartition(topic=topic, partition=int(partition), offset=int(value)))
    partitions.sort(key=lambda part: (part.topic, part.partition))
    return KafkaPosition(group_id=offsets.get("group_id"), partitions=tuple(partitions))


def _postgres(offsets: Mapping[str, str]) -> PostgresCdcPosition | None:
    if "lsn" not in offsets:
        return None
    return PostgresCdcPosition(
        confirmed_flush_lsn=offsets["lsn"], write_lsn=offsets.get("write_lsn"), slot_name=offsets.get("slot_name")
    )


def _mysql(offsets: Mapping[str, str]) -> MysqlCdcPosition | None:
    position = offsets.get("binlog_position")
    if position is not None and not _is_number(position):
        return None
    return MysqlCdcPosition(
        gtid_set=offsets.get("gtid_set"),
        binlog_file=offsets.get("binlog_file"),
        binlog_position=None if position is None else int(position),
    )


def _file(offsets: Mapping[str, str]) -> FilePosition | None:
    if "path" not in offsets or not _is_number(offsets.get("byte_offset", "")):
        return None
    return FilePosition(path=offsets["path"], byte_offset=int(offsets["byte_offset"]))


_PARSERS = {"kafka": _kafka, "postgres_cdc": _postgres, "mysql_cdc": _mysql, "file": _file}


def _is_number(text: str) -> bool:
    # No offset has more digits than an unsigned 64-bit number; int() would refuse thousands of them.
    return len(text) <= 20 and text.isascii() and text.isdigit()


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
