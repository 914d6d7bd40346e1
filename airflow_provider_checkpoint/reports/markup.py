"""HTML that is safe by construction: whatever is not made here is text, and text is escaped.

Names in a store are hostile input. There is no way to put a string into a page other than through ``tag``, which
escapes it, and no way to write a script or a style but the two that this package brings along.
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote, urlencode

from airflow_provider_checkpoint.cli.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Tags that have no end.
_VOID = frozenset({"br", "input", "link", "meta"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
#: Addresses that stay on this host: a path that says no scheme and no host, a query, or a place on the same page.
_HERE = re.compile(r"(?:\.{1,2}/)*(?:[A-Za-z0-9_%.~-]+(?:/[A-Za-z0-9_%.~-]*)*)?(?:\?[^#\s]*)?(?:#[A-Za-z0-9_-]*)?")
_ADDRESSES = frozenset({"href", "action", "src", "formaction", "data_post", "data_api", "data_then"})


@dataclass(frozen=True, slots=True)
class Html:
    """Markup that was made by ``tag``, and so is safe to put into a page as it is."""

    text: str

    def __str__(self) -> str:
        return self.text


Node: TypeAlias = "Html | str | int | Iterable[Node] | None"


def tag(name: str, /, *children: Node, **attributes: str | float | bool | None) -> Html:
    """An element. Strings in it are text; ``None`` is nothing. Attributes: ``class_``, ``data_label``, ``viewBox``.

    Addresses must stay on this host; an event handler or a style cannot be written at all.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Node) -> Html:
    return Html("".join(_written(child) for child in children))


def _written(node: Node) -> str:
    if node is None:
        return ""
    if isinstance(node, Html):
        return node.text
    if isinstance(node, str | int):
        return html.escape(clean(str(node)), quote=True)
    return "".join(_written(child) for child in node)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if _NAME.fullmatch(name) is None or name.startswith("on") or name == "style":
        raise ValueError(f"not an attribute for these pages: {name!r}")
    if value is True:
        return f" {name}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if key in _ADDRESSES and _HERE.fullmatch(text) is None:
        raise ValueError(f"an address that may leave this host: {text!r}")
    return f' {name}="{html.escape(clean(text), quote=True)}"'


def address(*parts: str, base: str = "", **query: object) -> str:
    """A relative address from names that may hold anything. ``base`` leads up: ``../../``."""
    path = "/".join(quote(part, safe="") for part in parts)
    # A part of dots only would lead up.
    path = "/".join(part.replace(".", "%2E") if set(part) == {"."} else part for part in path.split("/"))
    known = {name: str(value) for name, value in query.items() if value is not None}
    return f"{base}{path}" + (f"?{urlencode(known, quote_via=quote, safe='')}" if known else "")


# -- the page around ---------------------------------------------------------------------------------------------


@cache
def style() -> str:
    return _asset("page.css")


@cache
def script() -> str:
    return _asset("page.js")


def _asset(name: str) -> str:
    return (files("airflow_provider_checkpoint.reports") / name).read_text(encoding="utf-8")


@cache
def content_security_policy(*, scripted: bool) -> str:
    """Nothing is loaded from anywhere; our style, and on a page that acts our script, are known by their digests."""
    rules = ["default-src 'none'", f"style-src '{_digest(style())}'", "base-uri 'none'", "form-action 'none'"]
    if scripted:
        rules += [f"script-src '{_digest(script())}'", "connect-src 'self'"]
    return "; ".join(rules)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def document(title: str, *body: Node, scripted: bool, refresh: int | None = None, policy: bool = False) -> str:
    """A whole page.

    :param scripted: whether it can act; a report in a file cannot.
    :param refresh: load it again after so many seconds.
    :param policy: write the content security policy into it, for a page that no server sends.
    """
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=content_security_policy(scripted=scripted))
        if policy
        else None,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="same-origin"),
        tag("meta", http_equiv="refresh", content=refresh) if refresh else None,
        tag("title", title),
        tag("style", Html(style())),
    ]
    tail = tag("script", Html(script())) if scripted else None
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', tag('main', *body), tail), lang='en')}\n"
