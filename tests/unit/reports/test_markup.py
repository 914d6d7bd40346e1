"""Nothing that comes from outside can become markup, a script, or an address elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.cli.text import clean
from airflow_provider_checkpoint.reports.markup import address, content_security_policy, document, script, tag
from tests.unit.reports.reading import HOSTILE, Page

ANY = st.one_of(st.sampled_from(HOSTILE), st.text())


@given(ANY, ANY)
def test_text_comes_out_as_the_text_it_was(text, attribute):
    page = Page.of(document("t", tag("p", text, title=attribute), scripted=True))
    assert clean(text) in "".join(page.text)
    assert clean(attribute) in page.attributes


@given(ANY)
def test_an_address_made_of_names_stays_on_this_host_and_below_where_it_was_put(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode()
    made = address("store", text, "checkpoint", base="../", id=text)
    page = Page.of(document("t", tag("a", "x", href=made), scripted=False))
    assert page.links == [made]
    path = made.partition("?")[0]
    assert path.startswith("../store/")
    assert path.count("/") == 3
    assert "/../" not in path.removeprefix("../")


@pytest.mark.parametrize(
    "bad", ["javascript:alert(1)", "https://evil.example", "//evil.example", "/absolute", "\\\\evil", " x", "data:x"]
)
def test_an_address_that_leaves_is_refused(bad):
    with pytest.raises(ValueError, match="leave this host"):
        tag("a", "x", href=bad)


@pytest.mark.parametrize("bad", ["onclick", "style", "onload", "a b", 'x"y'])
def test_handlers_and_styles_cannot_be_written(bad):
    with pytest.raises(ValueError, match="not an attribute"):
        tag("p", "x", **{bad: "1"})


def test_the_policy_allows_our_style_and_script_by_digest_and_nothing_else():
    policy = content_security_policy(scripted=True)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert policy.count("sha256-") == 2
    assert "script-src" not in content_security_policy(scripted=False)


def test_the_script_neither_makes_markup_nor_runs_text():
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "document.write", "http:", "https:"):
        assert dangerous not in script()
