"""The documentation builds without a warning, and its links and pictures lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"),
            *("-d", tmp_path / "doctrees", ROOT / "docs", tmp_path / "html"),
        ],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    index = (tmp_path / "html" / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f'href="{page.stem}.html"' in index or page.stem == "index", f"{page.name} is in no table of contents"
    assert "CheckpointPruneOperator" in (tmp_path / "html" / "api" / "airflow.html").read_text()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text())
    broken = []
    for match in _LINK.finditer(text):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / unquote(path)).resolve() if path else page
        if not place.exists() or (anchor and anchor not in _anchors(place)):
            broken.append(target)
    assert not broken


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[a](#a-page) [b](#nowhere) ![c](missing.png)\n")
    with pytest.raises(AssertionError, match=r"#nowhere.*missing\.png"):
        test_links_and_pictures_lead_somewhere(page)


def _anchors(page: Path) -> set[str]:
    """Anchors of headings, as GitHub and MyST make them."""
    titles = (match["title"] for match in _HEADING.finditer(_FENCED.sub("", page.read_text())))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
