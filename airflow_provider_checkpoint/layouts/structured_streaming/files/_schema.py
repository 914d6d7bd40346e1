"""The columns of a state store, as Spark writes them. The format has no checksum: its structure is walked.

::

    version 1    text key schema, text value schema
    version 2    int chunks, text ... key schema; int chunks, text ... value schema
    version 3    int column families; each: text name, short id, chunks key schema, short id, chunks value schema,
                 chunks key encoder, chunks schema of the user's key (or an empty object)

Text is a 16-bit length and that many bytes. Schemas are JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts.structured_streaming.files._damage import DamagedSchemaError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
    from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed

#: Schemas of a thousand columns take a few hundred kilobytes.
_LARGEST = 16 * 1024 * 1024


def walk(feed: Feed, doubts: Doubts) -> None:
    """Go over a schema file to its end; raises DamagedFileError."""
    doubts.add("a schema file has no checksum: a changed name or type would not be seen")
    match _text(feed, "the version"):
        case "v1":
            _check_json(_text(feed, "the key schema"))
            _check_json(_text(feed, "the value schema"))
        case "v2":
            _check_json(_chunked(feed, "the key schema"))
            _check_json(_chunked(feed, "the value schema"))
        case "v3":
            for _ in range(int.from_bytes(feed.take(4, "the number of column families"), "big")):
                _column_family(feed)
        case version:
            raise DamagedSchemaError(f"unknown version {version[:20]!r}")
    if not feed.ended:
        raise DamagedSchemaError(f"byte {feed.place}: more bytes behind the schema")


def _column_family(feed: Feed) -> None:
    _text(feed, "the name of a column family")
    for what in ("the key schema", "the value schema"):
        feed.take(2, f"the id of {what}")
        _check_json(_chunked(feed, what))
    for what in ("the key encoder", "the schema of the user's key"):
        _check_json(_chunked(feed, what), struct=False)


def _text(feed: Feed, what: str) -> str:
    length = int.from_bytes(feed.take(2, what), "big")
    # Java's own UTF-8 differs from the real one in zeros and in characters beyond 16 bits; JSON of Spark has few.
    return feed.take(length, what).decode("utf-8", "replace")


def _chunked(feed: Feed, what: str) -> str:
    count = int.from_bytes(feed.take(4, what), "big")
    if count * 0xFFFF > _LARGEST:
        raise DamagedSchemaError(f"{what} in {count} pieces")
    return "".join(_text(feed, what) for _ in range(count))


def _check_json(text: str, *, struct: bool = True) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedSchemaError("a schema that is not JSON") from None
    if not isinstance(value, dict) or (struct and value.get("type") != "struct"):
        raise DamagedSchemaError("a schema that is not one of columns")
