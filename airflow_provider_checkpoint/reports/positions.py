"""Where a source stood, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.lifecycle.distance import offsets_of
from airflow_provider_checkpoint.model import GenericPosition, MysqlCdcPosition, PostgresCdcPosition

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import SourcePosition

_NUMBER = re.compile(r"([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Stand:
    """One part of a position."""

    partition: str
    text: str
    """As a person of that system would write it."""
    number: int | None
    """What can be counted with, if anything."""


def stands(position: SourcePosition) -> list[Stand]:
    """All parts of a position, also those that are no numbers, in the order of their names: 2 before 10."""
    numbers = offsets_of(position)
    found = {name: Stand(name, f"{number:,}", number) for name, number in numbers.items()}
    match position:
        case PostgresCdcPosition():
            found["lsn"] = Stand("lsn", position.confirmed_flush_lsn, numbers.get("lsn"))
        case MysqlCdcPosition() if position.gtid_set is not None:
            found["gtid set"] = Stand("gtid set", position.gtid_set, None)
        case GenericPosition():
            words = {name: Stand(name, value, None) for name, value in position.offsets.items()}
            found = words | found
    return sorted(found.values(), key=lambda each: _by_number(each.partition))


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in _NUMBER.split(name)]
