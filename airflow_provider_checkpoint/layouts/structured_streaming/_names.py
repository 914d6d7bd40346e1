"""Names in a checkpoint directory of Spark: which file is what.

A name is data of whoever wrote the directory, so each is matched whole against what Spark writes; anything else is not
ours and is never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
SEALS = "seals"
DEFAULT_STORE = "default"

#: The highest number of a batch: Spark counts them in a signed 64-bit number.
MAX_BATCH = 2**63 - 1

_NUMBER = r"0|[1-9][0-9]{0,18}"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_STORE = r"[A-Za-z0-9][A-Za-z0-9_.-]*"

#: Spark takes letters, digits and underscores for the name of a source, in any order.
_SOURCE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"

_LOG = re.compile(rf"(offsets|commits)/({_NUMBER})")
_SOURCE = re.compile(rf"sources/({_SOURCE_NAME})/({_NUMBER})(\.compact)?")
_VERSIONED = re.compile(
    rf"(state/({_NUMBER})/({_NUMBER})/(?:(?!SSTs/|logs/)({_STORE})/)?)"
    rf"({_NUMBER})(?:_({_UUID}))?\.(delta|snapshot|zip|changelog)"
)
_TABLE = re.compile(rf"state/(?:{_NUMBER})/(?:{_NUMBER})/(?:{_STORE}/)?SSTs/[0-9]+-{_UUID}\.sst")
_WAL = re.compile(rf"state/(?:{_NUMBER})/(?:{_NUMBER})/(?:{_STORE}/)?logs/[0-9]+-{_UUID}\.log")
_OPERATOR = re.compile(rf"state/({_NUMBER})/_metadata/(?:metadata|v2/({_NUMBER}))")
_SCHEMA = re.compile(rf"state/({_NUMBER})/({_NUMBER})/(?:({_STORE})/)?_metadata/schema")
_SCHEMA_V3 = re.compile(rf"state/({_NUMBER})/_stateSchema/({_STORE})/({_NUMBER})_{_UUID}")
#: What Java reads as a number.
_NUMBERED = re.compile(rf"(offsets|commits|sources/{_SOURCE_NAME})/([+-]?[0-9]{{1,19}})")
_SEAL = re.compile(rf"{SEALS}/({_NUMBER})\.json")
_UNIQUE_ID = re.compile(_UUID)
_NAMED_SOURCE = re.compile(_SOURCE_NAME)
#: What Java takes for a UUID: any five groups of hexadecimal digits.
_QUERY_ID = re.compile(r"(?=.{9,36}$)[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+){4}")

#: What a process that was killed leaves: ``.5.delta.<uuid>.TID3.tmp``, and the checksum Hadoop keeps of it.
_LITTER = re.compile(rf"\.{{1,2}}[^/]+\.{_UUID}(?:\.TID[0-9]+)?\.tmp(?:\.crc)?")
_PLACES = ("offsets/", "commits/", "sources/", "state/")


@dataclass(frozen=True, slots=True)
class StateName:
    """A state file that belongs to one version of one store."""

    folder: str
    operator: int
    partition: int
    store: str
    version: int
    unique_id: str | None
    """Set in checkpoint format 2, where each attempt at a version has its own."""
    extension: str


@dataclass(frozen=True, slots=True)
class SourceName:
    source: str
    number: int
    """Counted by the source itself; not the number of a batch."""
    compact: bool


@dataclass(frozen=True, slots=True)
class OperatorName:
    """A file that describes an operator or one of its stores."""

    operator: int
    batch: int | None
    """The batch that wrote it; None for what is written once."""
    schema_of: str | None = None
    """The store whose columns it describes; None if it describes the operator."""


def log_number(key: str, log: str) -> int | None:
    """The batch of a file in ``offsets`` or ``commits``."""
    match = _LOG.fullmatch(key)
    return _batch(match[2]) if match is not None and match[1] == log else None


def source_name(key: str) -> SourceName | None:
    match = _SOURCE.fullmatch(key)
    if match is None or (number := _batch(match[2])) is None:
        return None
    return SourceName(match[1], number, match[3] is not None)


def state_name(key: str) -> StateName | None:
    match = _VERSIONED.fullmatch(key)
    if match is None:
        return None
    operator, partition, version = (_batch(match[group]) for group in (2, 3, 5))
    if operator is None or partition is None or version is None:
        return None
    return StateName(match[1], operator, partition, match[4] or DEFAULT_STORE, version, match[6], match[7])


def operator_name(key: str) -> OperatorName | None:
    if match := _OPERATOR.fullmatch(key):
        return OperatorName(int(match[1]), None if match[2] is None else _batch(match[2]))
    if match := _SCHEMA.fullmatch(key):
        return OperatorName(int(match[1]), None, match[3] or DEFAULT_STORE)
    if match := _SCHEMA_V3.fullmatch(key):
        return OperatorName(int(match[1]), _batch(match[3]), match[2])
    return None


def schema_key(path: str) -> str | None:
    """The key of a schema that an absolute path leads to; None if it does not look like one."""
    key = path[path.rfind("/state/") + 1 :]
    return key if _SCHEMA_V3.fullmatch(key) else None


def stray_entry(key: str) -> tuple[str, int] | None:
    """The log and the number of a file that Spark takes for an entry, although it would not call one so: ``007``.

    It finds the number in a listing, and then looks for the file under its proper name.
    """
    match = _NUMBERED.fullmatch(key.removesuffix(".compact") if key.startswith("sources/") else key)
    if match is None or match[2] == str(int(match[2])):
        return None
    return match[1], int(match[2])


def is_table(key: str) -> bool:
    """Whether a file is a table (SST) of a RocksDB snapshot."""
    return _TABLE.fullmatch(key) is not None


def is_litter(key: str) -> bool:
    """Whether a file is what a killed process had not finished. Spark never reads nor removes it."""
    return key.startswith(_PLACES) and _LITTER.fullmatch(key.rpartition("/")[2]) is not None


def seal_number(key: str) -> int | None:
    match = _SEAL.fullmatch(key)
    return None if match is None else _batch(match[1])


def seal_key(batch: int) -> str:
    return f"{SEALS}/{batch}.json"


def is_source(text: str) -> bool:
    """Whether a source can be called so, since log version 2."""
    return _NAMED_SOURCE.fullmatch(text) is not None


def is_query_id(text: str) -> bool:
    """Whether Spark can read the id of a query."""
    return _QUERY_ID.fullmatch(text) is not None


def is_unique_id(text: str) -> bool:
    return _UNIQUE_ID.fullmatch(text) is not None


def hadoop_checksum(key: str) -> str:
    """Where Hadoop keeps the checksum of a file on a local disk: ``.5.delta.crc``."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def spark_checksum(key: str) -> str:
    """Where Spark keeps the checksum of a state file in checkpoint format 2: ``5_<uuid>.zip.crc``."""
    return f"{key}.crc"


def guarded_by(key: str) -> str | None:
    """The file whose checksum this is, going by its name; None if it is no checksum."""
    folder, slash, name = key.rpartition("/")
    if not name.endswith(".crc"):
        return None
    return f"{folder}{slash}{name.removeprefix('.').removesuffix('.crc')}"


def is_part_of_a_batch(key: str) -> bool:
    """Whether a file holds something that batches need and that may go once none of them does.

    ``metadata`` is not among them: it holds the id of the query, and goes with nothing. Neither are the write-ahead
    logs of RocksDB, which Spark has never been seen to write.
    """
    return (
        log_number(key, OFFSETS) is not None
        or source_name(key) is not None
        or state_name(key) is not None
        or operator_name(key) is not None
        or is_table(key)
    )


def _batch(digits: str) -> int | None:
    number = int(digits)
    return number if number <= MAX_BATCH else None
