"""``airflow checkpoints ...``: the same verbs, on the store that a connection names."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.cli.catalogue import VERBS
from tests.unit.airflow_face.programs import run_program
from tests.unit.cli.making import corrupt_sidecar, sidecar_store

PROGRAM = """
import contextlib, io, json, os, sys
from airflow.__main__ import main

answers = {}
for name, words in json.loads(os.environ["COMMANDS"]).items():
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["airflow", "checkpoints", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = None
        except SystemExit as ended:
            code = ended.code
    answers[name] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(answers))
"""


#: Verbs that have no test of their own below, with what they need; all of them succeed.
OTHERS = {
    "show": ["5"],
    "prune": ["--keep-last", "2"],
    "sweep": [],
    "orphans": [],
    "pin": ["1", "--name", "before-migration", "--reason", "a test", "--by", "ada"],
    "unpin": ["before-migration", "--by", "ada"],
    "restore": ["4"],
    "timeline": [],
    "audit": [],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a number of commands answered, run by Airflow's own entry point in one process."""
    home = tmp_path_factory.mktemp("home")
    store = tmp_path_factory.mktemp("store")
    sidecar_store(store / "orders")
    sidecar_store(store / "broken", 3)
    corrupt_sidecar(store / "broken", 3)
    commands = {
        "list": ["list", "--pipeline", "orders", "--json"],
        "named": ["list", "--pipeline", "orders", "--json", "--conn-id", "lake", "--layout", "sidecar"],
        "validate": ["validate", "--pipeline", "orders"],
        "invalid": ["validate", "--pipeline", "broken", "--depth", "content", "--json"],
        "recover": ["recover", "--pipeline", "broken", "--json"],
        "no such pipeline": ["list", "--pipeline", "payments"],
        "no such connection": ["list", "--conn-id", "nowhere"],
        "wrong layout": ["list", "--pipeline", "orders", "--conn-id", "streams"],
        "wrong type": ["list", "--conn-id", "aws_default"],
        "wrong extra": ["list", "--conn-id", "wrong"],
        "unknown option": ["list", "--frobnicate"],
        "an address": ["list", str(store)],
        "other vnodes": ["recover", "--pipeline", "orders", "--json", "--conn-id", "seven"],
        **{verb: [verb, "--pipeline", "orders", *words] for verb, words in OTHERS.items()},
        **{f"{verb.name} --help": [verb.name, "--help"] for verb in VERBS},
    }
    host = json.dumps({"conn_type": "checkpoint_store", "host": str(store)})
    seven = json.dumps({"conn_type": "checkpoint_store", "host": str(store), "extra": {"vnode_count": 7}})
    wrong = json.dumps({"conn_type": "checkpoint_store", "host": str(store), "extra": {"vnode_count": "hush"}})
    streams = json.dumps({"conn_type": "checkpoint_store", "host": str(store), "extra": {"layout": "stream"}})
    return run_program(
        PROGRAM,
        home,
        COMMANDS=json.dumps(commands),
        COLUMNS="200",
        AIRFLOW_CONN_CHECKPOINT_DEFAULT=host,
        AIRFLOW_CONN_LAKE=host,
        AIRFLOW_CONN_SEVEN=seven,
        AIRFLOW_CONN_WRONG=wrong,
        AIRFLOW_CONN_STREAMS=streams,
        AIRFLOW_CONN_AWS_DEFAULT=json.dumps({"conn_type": "aws"}),
    )


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_its_page_of_help_with_a_connection_in_place_of_an_address(answers, verb):
    code, out, _ = answers[f"{verb} --help"]
    assert code == 0
    assert "--conn-id" in out
    assert f"airflow checkpoints {verb}" in out
    assert "s3://" not in out
    assert "--option-file" not in out


@pytest.mark.parametrize("name", ["list", "named"])
def test_list_shows_what_the_connection_leads_to(answers, name):
    code, out, _ = answers[name]
    assert code == 0
    assert [entry["checkpoint_id"] for entry in json.loads(out)["checkpoints"]] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("verb", OTHERS)
def test_the_other_verbs_work_on_it_too(answers, verb):
    code, _, err = answers[verb]
    assert code == 0, err


def test_validate_proves_them(answers):
    assert answers["validate"][0] == 0


def test_findings_have_exit_code_1(answers):
    code, out, _ = answers["invalid"]
    assert code == 1
    assert json.loads(out)["results"]


def test_recover_passes_over_the_broken_one(answers):
    code, out, _ = answers["recover"]
    assert code == 0
    assert json.loads(out)["chosen"] == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no such pipeline", "nothing is there"),
        ("no such connection", "nowhere"),
        ("wrong layout", "this looks like sidecar"),
        ("wrong type", "aws_default"),
        ("wrong extra", "vnode_count"),
        ("unknown option", "frobnicate"),
        ("an address", "unrecognized arguments"),
    ],
)
def test_a_question_that_makes_no_sense_has_exit_code_2_and_a_line_of_words(answers, name, words):
    code, _, err = answers[name]
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert "hush" not in err


def test_the_vnodes_of_the_connection_count(answers):
    code, out, _ = answers["other vnodes"]
    assert code == 1
    assert "vnodes" in json.loads(out)["error"]["message"] + out
