"""Libraries of the extra ``native``, imported when they are first needed; each may be missing.

Without one, what it would have proven is stated as unproven; nothing fails.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

_PACKAGES = {
    "lz4.block": "lz4",
    "xxhash": "xxhash",
    "google_crc32c": "google-crc32c",
    "zstandard": "zstandard",
    "cramjam": "cramjam",
}


@cache
def helper(module: str) -> Any | None:
    """The module, or None if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        return None


def absence(module: str, unproven: str) -> str:
    """The statement for what was not proven because a module is missing."""
    return f"{unproven}: {_PACKAGES[module]} is not installed (extra: native)"
