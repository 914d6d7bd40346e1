"""The page on which a person decides: names in a store are hostile, and mean nothing but themselves."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from airflow_provider_checkpoint.cli.text import clean
from airflow_provider_checkpoint.lifecycle.plans import (
    Distance,
    RecoveryPlan,
    RestorePlan,
    SinkAction,
    SkipCode,
    Skipped,
)
from airflow_provider_checkpoint.model import CheckpointId, Depth
from airflow_provider_checkpoint.operators._page import escaped, page

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
#: What Airflow's pages make a link of, wherever it stands in plain text (mdast-util-gfm-autolink-literal).
URL = re.compile(r"(https?://|www(?=\.))([-.\w]+)([^ \t\r\n]*)", re.IGNORECASE)
MAIL = re.compile(r"([-.\w+]+)@([-\w]+(?:\.[-\w]+)+)")
JOINER = "\N{WORD JOINER}"

HOSTILE = [
    "a | b | c",
    "|---|---|",
    "`code`",
    "``` fence",
    "[click](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "[ref]: http://evil.example",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<http://evil.example>",
    "http://evil.example/approve",
    "HTTPS://evil.example",
    "www.evil.example",
    "mailto:eve@evil.example",
    "eve@evil.example",
    "&lt;b&gt; &amp; &#60;",
    "**bold** _em_ ~~gone~~",
    "# heading",
    "> quote",
    "- item",
    "+ item",
    "1. item",
    "1) item",
    "***",
    "===",
    "two\nlines\r\n\r\nand more",
    "    indented",
    "\ttab",
    "back\\slash\\",
    "\\",
    "\u202eesrever",
    "zero\u200bwidth",
    "{{ conn.lake.password }}",
    "${x} $y$",
    "",
    " ",
]


class Seen(HTMLParser):
    """The tags of a page and its plain text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def seen(markdown: str) -> Seen:
    parser = Seen()
    parser.feed(MARKDOWN.render(markdown))
    parser.close()
    return parser


@given(st.one_of(st.text(max_size=200), st.text("|`[]()<>!#*_~\\&:@/.-+=wWhtpsa1 \n\t", max_size=60)))
@example("a\\|b")
@example("http:http://x.y")
@example("x@@y.z")
def test_text_means_itself_wherever_it_stands(text):
    # Before and behind it there is other text, as on the page.
    inline = seen(f"so: {escaped(text)}.")
    assert inline.tags == ["p"]
    expected = " ".join(f"so: {clean(text)}.".split())
    assert " ".join(inline.text.replace(JOINER, "").split()) == expected
    assert not URL.search(inline.text)
    assert not MAIL.search(inline.text)

    cell = seen(f"| A | B |\n|---|---|\n| {escaped(text)} | end |")
    assert cell.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    assert " ".join(cell.text.replace(JOINER, "").split()) == " ".join(f"A B {clean(text)} end".split())


@pytest.mark.parametrize("text", HOSTILE)
def test_known_tricks(text):
    test_text_means_itself_wherever_it_stands.hypothesis.inner_test(text)


def test_text_without_an_end_is_cut():
    assert len(escaped("x" * 1_000_000)) < 400


def plan(**values) -> RecoveryPlan:
    usual = {
        "uri": "s3://bucket/orders",
        "layout": "sidecar",
        "made": NOW,
        "chosen": CheckpointId(4),
        "epoch": 4,
        "timeline": 1,
        "created": NOW,
        "head": CheckpointId(5),
        "depth": Depth.CONTENT,
        "strategy": "latest",
        "distance": Distance(checkpoints=1, epochs=1, seconds=3600, events=100, sources={"orders": {"orders-0": 100}}),
    }
    return RecoveryPlan(**{**usual, **values})


def restore_plan(abandons=()) -> RestorePlan:
    return RestorePlan(
        uri="s3://bucket/orders",
        layout="sidecar",
        made=NOW,
        checkpoint_id=CheckpointId(4),
        epoch=4,
        depth=Depth.CONTENT,
        current=1,
        abandons=abandons,
    )


def shown(chosen: RecoveryPlan, others=(), *, abandons=(), pipeline="orders") -> Seen:
    return seen(page(chosen, restore_plan(abandons), others, pipeline=pipeline, now=NOW))


def test_the_page_says_what_a_person_must_know():
    found = shown(
        plan(
            sinks=(SinkAction(sink="lake", action="roll_back", epochs=(5,)),),
            skipped=(Skipped(checkpoint_id=CheckpointId(5), code=SkipCode.INVALID, reason="state-5 is cut"),),
            warnings=("the job has changed",),
        ),
        [plan(chosen=CheckpointId(3), epoch=3)],
        abandons=(CheckpointId(5),),
    ).text
    for words in (
        "Pipeline orders would go back to checkpoint 4.",
        "to depth content, just now",
        "1h, 1 epoch, 1 checkpoint, 100 events behind 5",
        "Read again",
        "orders-0",
        "lake",
        "roll back",
        "Left behind on an abandoned branch: 1 checkpoint (5).",
        "state-5 is cut",
        "Other points that can be restored",
        "Warning: the job has changed",
    ):
        assert words in found, words


def test_a_start_from_nothing_is_said_loudly():
    nothing = plan(chosen=None, epoch=None, timeline=None, created=None, distance=None)
    assert "would start from nothing" in shown(nothing).text
    assert "All state is lost" in shown(nothing).text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_add_nothing_to_the_page(name):
    def made(word: str) -> Seen:
        return shown(
            plan(
                uri=f"s3://bucket/{word}",
                distance=Distance(checkpoints=1, epochs=1, seconds=1, sources={word: {word: 1}}),
                sinks=(SinkAction(sink=word, action="roll_back", epochs=(5,)),),
                skipped=(Skipped(checkpoint_id=CheckpointId(word), code=SkipCode.INVALID, reason=word),),
                warnings=(word,),
            ),
            [plan(chosen=CheckpointId(word))],
            abandons=(CheckpointId(word),),
            pipeline=word,
        )

    found = made(name)
    # What is empty, or begins with a space, cannot be made bold: the stars are shown. That is all.
    assert [tag for tag in found.tags if tag != "strong"] == [tag for tag in made("x").tags if tag != "strong"]
    assert not {"a", "img", "script", "code", "pre", "del", "h1", "blockquote", "li", "hr"} & set(found.tags)
    assert not URL.search(found.text)
    assert not MAIL.search(found.text)


def test_long_lists_are_cut_and_say_so():
    many = tuple(
        Skipped(checkpoint_id=CheckpointId(number), code=SkipCode.INVALID, reason="broken") for number in range(5000)
    )
    text = page(plan(skipped=many), restore_plan(tuple(map(CheckpointId, range(5000)))), (), pipeline="orders", now=NOW)
    assert len(text) < 4000
    assert "4,990 more" in text
    assert escaped("(5000 in all)") in text
