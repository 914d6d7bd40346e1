"""Names in the store: a folder per stream, in it a file per checkpoint and, beside it, the file's digest."""

from __future__ import annotations

import re

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.stream._codec import MAX_U64

_FILE = re.compile(r"checkpoint-([0-9]{20})\.ckpt(|\.sha256|\.tmp)")
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")

#: The longest name of a folder that every store takes.
MAX_FOLDER = 200


def state_key(sequence: int) -> str:
    return f"checkpoint-{sequence:020}.ckpt"


def digest_key(sequence: int) -> str:
    return f"{state_key(sequence)}.sha256"


def parse_key(key: str) -> tuple[int, str] | None:
    """The sequence in a file's name, and what follows ``.ckpt``; None if the file is not of this layout."""
    match = _FILE.fullmatch(key)
    if match is None or int(match[1]) > MAX_U64:
        return None
    return int(match[1]), match[2]


def parse_state_key(key: str) -> int | None:
    """The sequence whose state a file holds, going by its name."""
    match parse_key(key):
        case (sequence, ""):
            return sequence
        case _:
            return None


def stream_folder(name: str) -> str:
    """The folder of a stream: its name, with every byte but ASCII letters, digits, ``_`` and ``-`` as ``%XX``.

    No two names share a folder. (The reference turns all other characters into ``_``, so that ``a/b`` and ``a.b`` read
    each other's checkpoints; folders are not looked for under such names.) An empty name, and one whose folder would
    be longer than :data:`MAX_FOLDER`, are refused with ConfigurationError.
    """
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("the name of the stream is not valid Unicode", subject=repr(name)) from None
    if not raw:
        raise ConfigurationError("the name of the stream is empty", hint="Every stream needs a name.")
    folder = "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"%{byte:02X}" for byte in raw)
    if len(folder) > MAX_FOLDER:
        raise ConfigurationError(
            f"the name of the stream needs a folder name of {len(folder)} characters, {MAX_FOLDER} are allowed",
            subject=f"{name[:40]!r}...",
            hint="Shorten it; characters other than ASCII letters, digits, '_' and '-' count three per UTF-8 byte.",
        )
    return folder


def stream_name(folder: str) -> str | None:
    """The stream whose folder this is; None if no stream has this folder."""
    try:
        raw = re.sub(r"%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), folder).encode("latin-1")
        name = raw.decode()
        return name if stream_folder(name) == folder else None
    except (UnicodeError, ConfigurationError):
        return None
