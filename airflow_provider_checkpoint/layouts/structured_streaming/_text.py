"""Spark's logs are text: a version line, then JSON. Reading it bounded, and with nothing taken on trust."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CorruptManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.exceptions import CorruptError

#: An entry of ``offsets`` or ``commits``. The largest there are hold a unique id per operator and partition.
MAX_LOG_BYTES = 64 * 1024 * 1024
#: One line of a source's or sink's log: a path and a few numbers.
MAX_LINE_BYTES = 1024 * 1024

_VERSION = re.compile(r"v([1-9][0-9]{0,8})")
_NEWER = "is newer than"


def read_small(blobs: BlobStore, key: str, *, limit: int = MAX_LOG_BYTES) -> bytes:
    """A whole file that must be small; raises BlobNotFoundError or CorruptManifestError."""
    data = blobs.read(key, length=limit + 1)
    if len(data) > limit:
        raise CorruptManifestError(f"larger than {limit} bytes, which no such file is", subject=key)
    return data


def lines_of(data: bytes, *, subject: str) -> list[str]:
    """The lines of a log, without the empty one that a newline at the end would make."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptManifestError(f"not UTF-8 text (byte {error.start})", subject=subject) from None
    if not text:
        raise CorruptManifestError("the file is empty", subject=subject)
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def stream_lines(blobs: BlobStore, key: str) -> Iterator[bytes]:
    """The lines of a log that may be large, one after the other, in memory for one."""
    rest = bytearray()
    for piece in blobs.stream(key):
        rest += piece
        *whole, last = rest.split(b"\n")
        yield from (bytes(line) for line in whole)
        rest = bytearray(last)
        if len(rest) > MAX_LINE_BYTES:
            raise CorruptManifestError(f"a line is longer than {MAX_LINE_BYTES} bytes", subject=key)
    if rest:
        yield bytes(rest)


def is_too_new(error: CorruptError) -> bool:
    """Whether an entry cannot be read because its version is newer than all that are known."""
    return _NEWER in error.message


def parse_version(line: str, newest: int, *, subject: str) -> int:
    """The number in a version line such as ``v1``.

    :param newest: the newest version that is understood.
    """
    match = _VERSION.fullmatch(line)
    if match is None:
        raise CorruptManifestError(f"the first line is {line[:40]!r}, not a version such as v1", subject=subject)
    version = int(match[1])
    if version > newest:
        raise CorruptManifestError(
            f"log version v{version} {_NEWER} v{newest}, the newest that is known",
            subject=subject,
            hint="It was written by a newer Spark, or the first line is damaged.",
        )
    return version
