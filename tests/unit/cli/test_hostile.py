"""Names and texts from a store are hostile: they must not steer a terminal, forge output or be read as markup."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.cli.text import clean
from airflow_provider_checkpoint.layouts.sidecar import ConnectorCheckpoint
from airflow_provider_checkpoint.lifecycle.records import AuditRun, add_pin
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import Pin, SinkState, SinkStatus
from tests.unit.cli.making import add_sidecar, corrupt_sidecar, sidecar_store

CLEAR = "\x1b[2J\x1b[H"
TITLE = "\x1b]0;owned\x07"
REVERSED = "\u202egnp.exe"
LINES = "a\nerror: forged\r\u2028b\x85"
MARKUP = "[bold red]x[/bold red][/] :skull: [link=file:///etc]y[/link]"
OURS = re.compile(r"\[([0-9;]+m|\?25[lh]|2K|1A)")
EVIL = f"{CLEAR}{TITLE}{REVERSED}{LINES}{MARKUP}\x00\x7f\x9b31m"

VERBS = [
    ["list", "--trash"],
    ["show", "6"],
    ["show", "1"],
    ["show", "7"],
    ["validate", "--depth", "content"],
    ["prune", "--keep-last", "2"],
    ["sweep", "--undo-window", "0s"],
    ["orphans"],
    ["recover"],
    ["recover", "--epoch", "1"],
    ["recover", "--expect-source", EVIL, "--skip", "6"],
    ["timeline"],
    ["audit"],
    ["unpin", f"x{EVIL}"],
    ["undelete", EVIL],
    ["pin", "77", "--name", EVIL, "--reason", EVIL],
]


@pytest.fixture
def store(run, tmp_path):
    """A store with hostile text wherever a writer can put some."""
    layout = sidecar_store(tmp_path, count=5)
    now = layout.load(layout.parse_id("5")).created
    add_sidecar(
        layout,
        6,
        hours=0.5,
        source_offsets={
            EVIL: ConnectorCheckpoint(offsets={EVIL: EVIL}, epoch=6, metadata={"connector_type": EVIL}),
        },
        source_names=(EVIL,),
        sink_epochs={EVIL: 6},
        sink_commit_statuses={EVIL: SinkStatus(SinkState.FAILED, message=EVIL)},
        sink_names=(EVIL,),
    )
    add_pin(layout.blobs, Pin(name=EVIL[:30], checkpoint_id=layout.parse_id("3"), owner=EVIL, reason=EVIL, created=now))
    AuditRun(layout.blobs, "prune", by=EVIL, now=now).finished(now, {"done": EVIL, "timeline": EVIL})
    run("prune", tmp_path, "--keep-last", "3", "--yes", "--by", EVIL)
    open_timeline(
        layout.blobs,
        start=layout.load(layout.parse_id("5")),
        has_checkpoints=True,
        writer=EVIL,
        owner=EVIL,
        reason=EVIL,
        now=now,
    )
    corrupt_sidecar(tmp_path, 5)
    (tmp_path / "manifests" / "manifest-000007.json").write_text(json.dumps({EVIL: EVIL, "version": EVIL}))
    (tmp_path / "manifests" / "manifest-000008.json").write_text(f'{{"{MARKUP}": 1, "{MARKUP}": 2}}')
    return tmp_path


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words)[:20].encode("unicode_escape").decode())
def test_nothing_from_the_store_steers_the_terminal(run, store, words):
    verb, *rest = words
    shown = run(verb, store, *rest)
    assert shown.code in (0, 1, 2)
    for text in (shown.out, shown.err):
        assert all(char.isprintable() or char == "\n" for char in text)
        assert not any(line.startswith("error: forged") for line in text.splitlines())


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words)[:20].encode("unicode_escape").decode())
def test_json_is_ascii_and_one_document(run, store, words):
    verb, *rest = words
    shown = run(verb, store, *rest, "--json")
    assert shown.out.isascii()
    assert all(char.isprintable() or char == "\n" for char in shown.out)
    assert isinstance(shown.document, dict)


def test_markup_is_text(run, store):
    assert "[bold red]x[/bold red][/] :skull: [link=file:///etc]y[/link]" in run("show", store, 6).out


def test_colour_on_a_terminal_is_ours_only(run, store, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = run("list", store)
    assert "\x1b[31m" in shown.out  # An invalid checkpoint is red,
    for verb, *rest in VERBS:
        forced = run(verb, store, *rest)
        # and no sequence but those for colour, weight and the progress bar is written.
        for sequence in (forced.out + forced.err).split("\x1b")[1:]:
            assert OURS.match(sequence)


def test_a_pipelines_name_in_a_hint_is_cleaned_too(run, tmp_path):
    sidecar_store(tmp_path / "evil\u202e[bold]", count=1)
    refused = run("list", tmp_path)
    assert refused.code == 2
    assert r"evil\u202e[bold]" in refused.err


@given(st.text())
def test_cleaned_text_is_printable_and_harmless_text_stays_as_it_is(text):
    cleaned = clean(text)
    assert cleaned.isprintable()
    assert clean(cleaned) == cleaned
    if text.isprintable():
        assert cleaned == text


def test_bytes_that_are_no_text_are_wrong_usage(run, store):
    refused = run("unpin", store, "\udcff")
    assert refused.code == 2
    assert "not text in UTF-8" in refused.err
