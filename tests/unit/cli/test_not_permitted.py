"""Files and folders that may not be read, searched or written: told as that, with what to do, and nothing goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.unit.cli.making import everything_in, sidecar_store
from tests.unit.cli.unprivileged import CANNOT

ALL = {
    "list": ["list"],
    "validate": ["validate", "--no-record"],
    "recover": ["recover"],
    "prune": ["prune", "--keep-last", "1", "--yes"],
    "pin": ["pin", "2", "--name", "a", "--reason", "b"],
}
NOT_PIN = ("list", "validate", "recover", "prune")

#: What may not be reached, its mode, and by which verbs that is met; and what is named then, if it is something else.
SHUT = {
    "a folder that may not be opened": ("manifests", 0, ALL, "store/manifests"),
    "a folder that may be read but not searched": ("manifests", 0o444, ALL, "store/manifests/"),
    "a manifest": ("manifests/manifest-000005.json", 0, NOT_PIN, "store/manifests/manifest-000005.json"),
    "a folder of state": ("checkpoints", 0, ALL, "store/checkpoints"),
    "a folder of state, not searched": ("checkpoints", 0o444, ALL, "store/checkpoints/"),
    "state of the newest": ("checkpoints/state-000005.bin", 0, ("recover", "prune"), "checkpoints/state-000005.bin"),
    "a record": ("pins", 0, ("list", "prune", "pin"), "store/pins"),
    "the store": (".", 0, ALL, "store"),
    "the folder above": ("..", 0, ALL, "store"),
    "a store that may only be read": (".", 0o555, ("prune", "pin"), "store/audit"),
}
CASES = [(name, verb) for name, (_, _, verbs, _) in SHUT.items() for verb in verbs]


def run_all(cases):
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.cli.unprivileged"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=plain,
        timeout=600,
        check=False,
    )
    if done.returncode == CANNOT:
        pytest.skip("root cannot give up its rights here")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def new_store(folder):
    sidecar_store(folder)
    (folder / "pins").mkdir()
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """For each case the exit code, what was told, and whether the store is as it was; all in one process."""
    stores = {case: new_store(tmp_path_factory.mktemp("above") / "store") for case in CASES}
    before = {case: everything_in(store) for case, store in stores.items()}
    words = []
    for (name, verb), store in stores.items():
        path, mode, *_ = SHUT[name]
        first, *rest = ALL[verb]
        words.append([str((store / path).resolve()), mode, [first, str(store), *rest]])
    told = run_all(words)
    return {
        case: (code, out, err, everything_in(stores[case]) == before[case])
        for case, (code, out, err) in zip(CASES, told, strict=True)
    }


@pytest.mark.parametrize(("name", "verb"), CASES)
def test_what_may_not_be_reached_is_named_and_taken_for_nothing_else(answers, name, verb):
    code, out, err, same = answers[name, verb]
    assert code == 3, (out, err)
    assert SHUT[name][3] in err
    assert "Permission denied" in err
    assert "HINT" in err
    assert "invalid" not in (out + err).lower()
    assert same


def test_what_may_be_told_of_the_other_checkpoints_is_told(tmp_path):
    store = new_store(tmp_path / "store")
    state = str(store / "checkpoints" / "state-000005.bin")
    [(code, out, _)] = run_all([[state, 0, ["validate", str(store)]]])
    assert code == 3
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["NOT", *["valid"] * 4]
    # What was not proven is not in the ledger: it speaks neither for the checkpoint nor against it.
    assert sorted(each.name for each in (store / "ledger").iterdir()) == ["1", "2", "3", "4"]


def test_a_store_that_may_only_be_read_is_proven_without_a_record(tmp_path):
    store = new_store(tmp_path / "store")
    words = ["validate", str(store), "--depth", "content"]
    recorded, unrecorded = run_all([[str(store), 0o555, words], [str(store), 0o555, [*words, "--no-record"]]])
    assert recorded[0] == 3
    assert "checkpoint 5 is valid, but that may not be written down" in recorded[2]
    assert "--no-record" in recorded[2]
    assert unrecorded[0] == 0


def test_what_cannot_leave_is_answered_for_and_stays(tmp_path):
    store = new_store(tmp_path / "store")
    before = everything_in(store / "manifests")
    words = ["prune", str(store), "--keep-last", "2", "--yes"]
    [(code, out, err)] = run_all([[str(store / "manifests"), 0o555, words]])
    assert code == 1
    assert "0 checkpoints moved to the trash" in out
    assert out.count("Permission denied") == 3
    assert "running the same again is safe" in err
    assert everything_in(store / "manifests") == before
