"""What may be shown of an address and of a library's error: one line, without secrets."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_QUERY = re.compile(r"\?[^\s\"',)]*")


def shown_address(uri: str) -> str:
    """An address without the user, password and query it may hold."""
    if "://" not in uri:
        return uri
    parts = urlsplit(uri, allow_fragments=False)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def first_line(error: BaseException) -> str:
    """The beginning of an error's text, up to the body of the answer it may quote.

    The query part of addresses is left out: it may hold a signature.
    """
    line = str(error).strip().partition("\n")[0].partition("<?xml")[0]
    return _QUERY.sub("?…", line).strip() or type(error).__name__
