"""Help that teaches, quickly; and a catalogue that says the truth."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_checkpoint import __version__
from airflow_provider_checkpoint.cli import arguments, exits
from airflow_provider_checkpoint.cli.catalogue import VERBS
from airflow_provider_checkpoint.cli.parser import parse
from airflow_provider_checkpoint.layouts._open import _CLASSES
from airflow_provider_checkpoint.lifecycle.recovery import Strategy
from airflow_provider_checkpoint.model import Depth

NAMES = ["list", "show", "validate", "prune", "sweep", "undelete"]
NAMES += ["orphans", "recover", "pin", "unpin", "restore", "timeline", "report", "diagnose", "seal"]
NAMES += ["synthesize", "audit"]
HEAVY = {"airflow", "pyspark", "obstore", "fsspec", "pydantic", "rich"}


def test_the_verbs_are_those_that_were_promised():
    assert [verb.name for verb in VERBS] == NAMES


@pytest.mark.parametrize("words", [["--help"], *([verb.name, "--help"] for verb in VERBS)], ids=" ".join)
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys\n"
        "from airflow_provider_checkpoint.cli.main import main\n"
        f"code = main({words!r})\n"
        "print({name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(eval(done.stderr))
    assert "usage: checkpoints" in done.stdout


def test_the_top_help_shows_each_verb_a_session_and_the_exit_codes(run):
    shown = run("--help")
    assert shown.code == 0
    for verb in VERBS:
        assert f"    {verb.name} " in shown.out
        assert verb.summary in shown.out
    assert "A typical session:" in shown.out
    assert "Exit codes: 0 fine; 1" in shown.out


def test_the_page_about_the_command_has_each_verb_and_each_exit_code():
    page = (Path(__file__).parents[3] / "docs" / "command.md").read_text()
    table = page.partition("## Verbs")[2].partition("## ")[0]
    assert {verb.name for verb in VERBS} == {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition("|")[2].partition("|")[0])
    }
    codes = page.partition("## Exit codes")[2]
    for code in (value for value in vars(exits).values() if type(value) is int):
        assert re.search(rf"^\|.*\b{code}\b.*\|", codes, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verbs_help_has_a_summary_a_paragraph_and_examples_and_fits_a_terminal(run, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(verb.name, "--help")
    assert shown.code == 0
    assert verb.summary in shown.out
    assert " ".join(verb.paragraph.split()) in " ".join(shown.out.split())
    told, _, examples = shown.out.partition("Examples:\n")
    usage, _, explained = told.partition("\n\n")
    assert "..." not in usage or verb.name in ("validate", "seal")
    assert max(len(line) for line in explained.splitlines() if "{" not in line) <= 80
    assert examples.count(f"  checkpoints {verb.name} ") == len(verb.examples) >= 2


@pytest.mark.parametrize(
    ("verb", "typed"),
    [(verb, typed) for verb in VERBS for typed, _ in verb.examples],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_example_can_be_typed_as_it_stands(verb, typed):
    words = shlex.split(typed.partition("|")[0])
    assert parse([verb.name, *words]).verb == verb.name


def test_every_verb_leads_to_a_function_and_only_when_it_is_used():
    for verb in VERBS:
        assert callable(verb.load())


def test_choices_are_those_of_the_lifecycle():
    assert list(arguments.DEPTHS) == [depth.value for depth in Depth]
    assert list(arguments.STRATEGIES) == [strategy.value for strategy in Strategy]
    assert set(arguments.LAYOUTS) == {"auto", *_CLASSES}


def test_arguments_are_told_in_terms_that_airflows_command_line_takes_too():
    taken = {"help", "action", "default", "nargs", "type", "choices", "required", "metavar", "dest"}
    for verb in VERBS:
        for argument in verb.all_arguments:
            assert set(argument.settings) <= taken
            assert argument.settings["help"]


def test_version(run):
    assert run("--version").out == f"checkpoints {__version__}\n"


def test_without_a_verb_the_help_is_shown_and_the_exit_code_says_wrong_usage(run):
    shown = run()
    assert shown.code == 2
    assert "A typical session:" in shown.err
    assert shown.out == ""
