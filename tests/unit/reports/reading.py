"""Pages as a browser reads them, and names as an attacker writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from airflow_provider_checkpoint.reports.markup import script, style

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title></style></textarea><svg onload=alert(1)>",
    "https://evil.example/x",
    "//evil.example/x",
    "../../../api/v2/dags",
    "..",
    "a/b?c=d#e&f",
    "]]>",
    "<!--",
    "\x1b[31mred\x00\u202egnirts",
    "{{ 7 * 7 }}",
    "&lt;script&gt;",
    "\ud800",
)

#: Addresses that a page may hold: relative, or a place on the page.
_ADDRESS = re.compile(r"(?![a-zA-Z][a-zA-Z0-9+.-]*:)(?!//)(?!/)(?!\\)[^\s\"'<>]*")
_TAGS = """
html head meta title style body main nav p h1 h2 h3 a code span time div section details summary table caption
thead tbody tr th td dl dt dd ul li form label input select option textarea datalist small button output
script svg desc defs pattern line rect circle path g text br
"""
_ALLOWED = frozenset(_TAGS.split())


@dataclass
class Page(HTMLParser):
    """A page taken apart. Raises if it holds anything that could run, load or leave."""

    text: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, document: str) -> Page:
        page = cls()
        page.feed(document)
        page.close()
        assert page._open == [], f"left open: {page._open}"
        return page

    def handle_starttag(self, tag, attrs):
        assert tag in _ALLOWED, tag
        self.tags.append(tag)
        if tag not in ("meta", "input", "br"):
            self._open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("style", "src", "srcdoc", "action", "formaction", "ping", "background"), (tag, name)
            assert not name.startswith("xlink"), (tag, name)
            self.attributes.append(value or "")
            if name == "href" or name in ("data-post", "data-api", "data-then"):
                assert _ADDRESS.fullmatch(value), value
                self.links.append(value)
            if tag == "meta" and name == "http-equiv":
                assert value in ("refresh", "Content-Security-Policy"), value

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            # What a browser would run or apply is ours, to the letter.
            assert data in (script(), style())
        else:
            self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data):
        raise AssertionError(f"an instruction: {data}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data}")

    @property
    def words(self) -> str:
        return " ".join(self.text)
