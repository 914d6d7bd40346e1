"""The log of a file source (``sources/<i>/K``) or file sink (``_spark_metadata/N``): which files were taken, or made.

Every so many entries Spark writes one that holds all before it, ``K.compact``; what lies before that is history.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._fields import I64
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts.structured_streaming._text import parse_version, stream_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_checkpoint.blobs import BlobStore

_VERSION = 1
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,18})(?:\.compact)?")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    path: Annotated[str, Field(min_length=1)]


class SourceFile(_Entry):
    """A file that a source has taken."""

    timestamp: I64
    batchId: I64  # noqa: N815 - Spark's own name


class SinkFile(_Entry):
    """A file that a sink has made, or removed."""

    size: I64
    action: Literal["add", "delete"] = "add"


_Model = TypeVar("_Model", SourceFile, SinkFile)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The entries from which a log is read up to some number, and those of them that are not there."""

    keys: tuple[str, ...]
    missing: tuple[int, ...]
    """Numbers without a file. After a compaction the first of them held all that came before."""


def read_set(entries: Mapping[int, str], last: int) -> ReadSet:
    """What Spark reads of a log up to the entry ``last``: the newest compact one, and all after it.

    :param entries: number to name, ``.compact`` where it is one.
    """
    start = max((number for number, key in entries.items() if number <= last and key.endswith(".compact")), default=0)
    # No more numbers are looked at than there are files: ``last`` may be anything.
    present = sorted(number for number in entries if start <= number <= last)
    missing = _gaps(present, start, last)
    return ReadSet(tuple(entries[number] for number in present), tuple(missing))


def _gaps(present: list[int], start: int, last: int, *, most: int = 20) -> Iterator[int]:
    """Numbers of a range that are not present, lowest first, but not more than ``most`` of them."""
    expected = start
    for number in [*present, last + 1]:
        while expected < number:
            if most == 0:
                return
            yield expected
            most -= 1
            expected += 1
        expected = number + 1


def entry_number(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".compact"))


def source_files(blobs: BlobStore, key: str) -> Iterator[SourceFile]:
    """The files that an entry of a source's log names; raises CorruptManifestError, also half-way."""
    return _entries(blobs, key, SourceFile)


def prove_source_entry(blobs: BlobStore, key: str) -> None:
    """Read an entry of a source's log through; raises CorruptManifestError.

    Spark writes an entry only for new files, and marks each with the number of the entry. It passes over files that are
    marked otherwise, and takes those that are missing for new ones: rows are lost or come twice, without a word.
    """
    number = entry_number(key)
    # A compact entry holds those of all before it, in their order.
    expected = 0 if key.endswith(".compact") else number
    first = True
    for file in source_files(blobs, key):
        if file.batchId != expected and (first or file.batchId != expected + 1):
            raise CorruptManifestError(f"a file of entry {file.batchId} where one of {expected} belongs", subject=key)
        expected, first = file.batchId, False
    if first or expected != number:
        raise CorruptManifestError(f"names no file of entry {number}", subject=key)


def sink_files(blobs: BlobStore, key: str) -> Iterator[SinkFile]:
    """The files that an entry of a sink's log names; raises CorruptManifestError, also half-way."""
    return _entries(blobs, key, SinkFile)


def read_sink_log(blobs: BlobStore, last: int | None = None) -> Iterator[SinkFile]:
    """The files that a file sink has made, up to a batch or all of them.

    What readers of the output see is this log, not the folder. Raises CorruptManifestError if the log has holes or
    cannot be understood.

    :param blobs: the folder ``_spark_metadata`` of the output.
    """
    named = {match[0]: int(match[1]) for info in blobs.list() if (match := _ENTRY.fullmatch(info.key))}
    entries = {number: key for key, number in sorted(named.items())}
    wanted = max(entries, default=-1) if last is None else last
    found = read_set(entries, wanted)
    if found.missing:
        raise CorruptManifestError(
            f"of the sink's log, entries {', '.join(map(str, found.missing[:5]))} are not there", subject=blobs.uri
        )
    files = [file for key in found.keys for file in sink_files(blobs, key)]
    gone = {file.path for file in files if file.action == "delete"}
    yield from (file for file in files if file.path not in gone)


def _entries(blobs: BlobStore, key: str, kind: type[_Model]) -> Iterator[_Model]:
    lines = stream_lines(blobs, key)
    first = next(lines, None)
    if first is None:
        raise CorruptManifestError("the file is empty", subject=key)
    parse_version(first.decode("utf-8", "replace"), _VERSION, subject=key)
    for line in lines:
        yield parse_model(kind, parse_object(line, subject=key), subject=key)
