"""Verbs that change a store: a dry run unless --yes, an outcome for each item, and the right exit code."""

from __future__ import annotations

import os

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import FencedWriterError
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.timelines import TimelineHolder, read_timelines
from tests.unit.cli.making import (
    add_sidecar,
    corrupt_sidecar,
    everything_in,
    orphan_sidecar,
    partitioned_store,
    sidecar_store,
    stream_store,
)


@pytest.fixture
def store(tmp_path):
    sidecar_store(tmp_path)
    return tmp_path


@pytest.fixture
def pruned(run, store):
    run("prune", store, "--keep-last", 2, "--yes")
    return store


def ids(run, store) -> list[int]:
    return [entry["checkpoint_id"] for entry in run("list", store, "--json").document["checkpoints"]]


# -- a dry run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["prune", "--keep-last", "1"],
        ["prune", "--keep-last", "1", "--dry-run"],
        ["sweep", "--undo-window", "0s"],
        ["orphans"],
        ["orphans", "--confirm"],
        ["restore", "4"],
    ],
    ids=" ".join,
)
def test_without_yes_nothing_is_changed_and_the_plan_says_so(run, pruned, words):
    orphan_sidecar(pruned, 90, age_hours=100)
    before = everything_in(pruned)
    verb, *rest = words
    table = run(verb, pruned, *rest)
    assert table.code == 0
    assert "Nothing was changed: this is a dry run. Add --yes to do it." in table.out
    document = run(verb, pruned, *rest, "--json").document
    assert document["applied"] is False
    assert "outcomes" not in document
    assert everything_in(pruned) == before


@pytest.mark.parametrize("words", [["prune", "--keep-last", "9"], ["sweep"], ["orphans"]], ids=" ".join)
@pytest.mark.parametrize("yes", [[], ["--yes"]], ids=["dry-run", "yes"])
def test_where_nothing_would_go_nothing_is_asked_for_or_promised(run, store, words, yes):
    verb, *rest = words
    told = run(verb, store, *rest, *yes)
    assert told.code == 0
    assert "Nothing to" in told.out
    assert not any(word in told.out for word in ("--yes", "undelete", "0 B", "dry run"))


@pytest.mark.parametrize("make", [sidecar_store, partitioned_store, stream_store], ids=lambda make: make.__name__)
def test_asking_for_a_checkpoint_in_the_trash_tells_the_way_out(run, tmp_path, make):
    where = tmp_path, *(["--pipeline", "orders"] if make is stream_store else [])
    make(tmp_path)
    assert run("prune", *where, "--keep-last", 1, "--yes").code == 0
    wanted = run("list", *where, "--trash", "--json").document["trash"][0]["checkpoint_id"]
    for words in (
        ["pin", *where, wanted, "--name", "gold", "--reason", "audit"],
        ["restore", *where, wanted],
        ["recover", *where, "--id", wanted],
    ):
        told = run(*words)
        assert told.code == (1 if words[0] == "recover" else 2)
        assert "undelete" in told.err, (words, told)
        assert "holds no checkpoint" not in told.err


@pytest.mark.parametrize("verb", ["prune", "sweep", "orphans", "restore"])
def test_yes_and_dry_run_contradict_each_other(run, store, verb):
    words = {"prune": ["--keep-last", 1], "restore": [3]}.get(verb, [])
    before = everything_in(store)
    assert run(verb, store, *words, "--yes", "--dry-run").code == 2
    assert everything_in(store) == before


# -- prune -------------------------------------------------------------------------------------------------------


def test_prune_says_for_each_checkpoint_whether_it_stays_and_why(run, store):
    run("pin", store, 2, "--name", "gold", "--reason", "audit")
    table = run("prune", store, "--keep-last", 1)
    assert table.code == 0
    assert "5   keep            newest restorable" in table.out
    assert "2   keep            pinned as 'gold'" in table.out
    assert "3   trash   1.0 kB  no rule keeps it (keep_last=1)" in table.out
    document = run("prune", store, "--keep-last", 1, "--json").document
    assert {item["checkpoint_id"]: item["action"] for item in document["items"]} == {
        5: "keep",
        4: "trash",
        3: "trash",
        2: "keep",
        1: "trash",
    }
    assert all(item["reasons"] for item in document["items"])
    assert document["bytes"] == 3000


def test_prune_moves_to_the_trash_and_answers_for_each(run, store):
    applied = run("prune", store, "--keep-last", 2, "--yes", "--json")
    assert applied.code == 0
    assert applied.document["applied"] is True
    assert sorted(outcome["subject"] for outcome in applied.document["outcomes"]) == ["1", "2", "3"]
    assert all(outcome["done"] for outcome in applied.document["outcomes"])
    assert ids(run, store) == [5, 4]
    again = run("prune", store, "--keep-last", 2, "--yes")
    assert again.code == 0
    assert "Nothing to prune" in again.out


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["--keep-last", "3"], [5, 4, 3]),
        (["--keep-last", "0"], [5]),
        (["--keep-within", "150m"], [5, 4, 3]),
        (["--keep-hourly", "2"], [5, 4]),
        (["--keep-yearly", "1"], [5]),
        (["--every-n-epochs", "2"], [5, 4, 2, 1]),
        (["--keep-last", "1", "--min-age", "210m"], [5, 4, 3]),
        (["--keep-last", "1", "--keep-hourly", "3", "--time-zone", "Europe/Berlin"], [5, 4, 3]),
    ],
)
def test_rules_are_spelled_as_users_know_them(run, store, rules, kept):
    items = run("prune", store, *rules, "--json").document["items"]
    assert [item["checkpoint_id"] for item in items if item["action"] == "keep"] == kept


def test_prune_proves_what_it_counts_to_the_depth_asked_for(run, store):
    corrupt_sidecar(store, 5)
    kept = {"presence": [5], "content": [4]}
    for depth, expected in kept.items():
        items = run("prune", store, "--keep-last", 1, "--depth", depth, "--json").document["items"]
        assert [item["checkpoint_id"] for item in items if item["action"] == "keep"] == expected


def test_prune_keeps_the_base_of_a_delta(run, tmp_path):
    layout = partitioned_store(tmp_path)
    base, second, third = (checkpoint_id.value for checkpoint_id in layout.candidates())
    applied = run("prune", tmp_path, "--keep-last", 1, "--yes", "--json").document
    actions = {item["checkpoint_id"]: item["action"] for item in applied["items"]}
    assert actions == {third: "keep", second: "trash", base: "keep"}
    assert ids(run, tmp_path) == [third, base]


def test_prune_works_on_a_stream(run, tmp_path):
    stream_store(tmp_path)
    words = [tmp_path, "--pipeline", "orders"]
    assert run("prune", *words, "--keep-last", 1, "--yes").code == 0
    assert [one["checkpoint_id"] for one in run("list", *words, "--json").document["checkpoints"]] == [30]
    assert run("undelete", tmp_path, 10, "--pipeline", "orders").code == 0
    assert run("validate", *words, "--depth", "restore").code == 0


def test_what_could_not_be_done_is_a_finding_and_told(run, run_on, store):
    blobs = FaultyBlobs(LocalBlobs(store))
    blobs.inject(Fault.FAIL, verb="replace", match="trash/2/entry.json")
    applied = run_on(SidecarLayout(blobs), "prune", "--keep-last", 2, "--yes")
    assert applied.code == 1
    assert "2 checkpoints moved to the trash" in applied.out
    assert "NOT DONE" in applied.out
    assert "2         injected fault: the store did not answer: trash/2/entry.json" in applied.out
    assert "1 item not done" in applied.err
    assert ids(run, store) == [5, 4, 2]


def test_an_error_in_the_middle_still_leaves_the_plan_and_the_exit_code_of_the_error(run_on, store):
    blobs = FaultyBlobs(LocalBlobs(store))
    blobs.inject(Fault.FAIL, verb="create", match="audit/")
    applied = run_on(SidecarLayout(blobs), "prune", "--keep-last", 2, "--yes", "--json")
    assert applied.code == 3
    assert applied.document["applied"] is False
    assert applied.document["error"]["kind"] == "StoreUnavailableError"
    assert len(applied.document["items"]) == 5


# -- undelete and sweep ------------------------------------------------------------------------------------------


def test_undelete_brings_a_checkpoint_back_whole(run, store):
    before = {
        name: data for name, data in everything_in(store).items() if name.startswith(("manifests", "checkpoints"))
    }
    run("prune", store, "--keep-last", 2, "--yes")
    back = run("undelete", store, 1)
    assert (back.code, back.out) == (0, "Checkpoint 1 is back.\n")
    assert run("undelete", store, 2, "--json").document["checkpoint_id"] == 2
    run("undelete", store, 3)
    assert run("validate", store, "--depth", "content").code == 0
    after = everything_in(store)
    assert {name: after[name] for name in before} == before


def test_undelete_of_what_is_not_in_the_trash_is_wrong_usage(run, pruned):
    for unknown in (5, 77):
        refused = run("undelete", pruned, unknown)
        assert refused.code == 2
        assert f"checkpoint {unknown} is not in the trash" in refused.err


def test_sweep_removes_for_good_only_what_was_pruned_long_enough_ago(run, pruned):
    early = run("sweep", pruned, "--yes")
    assert early.code == 0
    assert "Nothing to sweep: nothing was pruned more than 1d ago." in early.out
    planned = run("sweep", pruned, "--undo-window", "0s", "--json").document
    assert "checkpoints/state-000001.bin" in [item["path"] for item in planned["items"]]
    assert all(item["action"] == "delete" and item["reasons"] for item in planned["items"])
    assert planned["bytes"] > 3000
    swept = run("sweep", pruned, "--undo-window", "0s", "--yes")
    assert swept.code == 0
    assert "removed for good" in swept.out
    assert sorted(path.name for path in (pruned / "checkpoints").iterdir()) == ["state-000004.bin", "state-000005.bin"]
    assert run("undelete", pruned, 1).code == 2


def test_sweep_stops_while_a_manifest_cannot_be_read(run, pruned):
    (pruned / "manifests" / "manifest-000005.json").write_text("{")
    before = everything_in(pruned)
    stopped = run("sweep", pruned, "--undo-window", "0s", "--yes", "--json")
    assert stopped.code == 1
    assert stopped.document["error"]["kind"] == "NoEvidenceError"
    assert everything_in(pruned) == before


@pytest.mark.parametrize("words", [["prune", "--keep-last", 1, "--yes"], ["recover"]])
def test_nothing_goes_and_nothing_is_chosen_while_the_record_of_a_timeline_is_lost(run, store, words):
    add_sidecar(sidecar_store(store, count=0), 6, hours=0.5, timeline=2)
    before = everything_in(store)
    verb, *rest = words
    stopped = run(verb, store, *rest)
    assert stopped.code == 1
    assert "the record of timeline 2 is gone" in stopped.err
    assert everything_in(store) == before
    assert run("restore", store, 5, "--yes").code == 0
    assert run(verb, store, *rest).code == 0


# -- an entry of the trash that cannot be read -------------------------------------------------------------------


#: A whole entry of another checkpoint is as little use as half of one.
DAMAGE = {"cut": "{", "another's": None, "empty": "", "no entry": '{"checkpoint_id": 1}'}


@pytest.fixture(params=DAMAGE)
def damaged(request, pruned):
    """Checkpoints 1 to 3 are in the trash, and what is said of 1 cannot be read."""
    text = DAMAGE[request.param]
    whole = (pruned / "trash" / "2" / "entry.json").read_text()
    (pruned / "trash" / "1" / "entry.json").write_text(whole if text is None else text)
    return pruned


def test_an_unreadable_entry_of_the_trash_is_told_beside_the_others(run, damaged):
    shown = run("list", damaged, "--trash")
    assert shown.code == 0
    below = shown.out.partition("IN THE TRASH")[2]
    assert sorted(line.split()[0] for line in below.splitlines()[1:]) == ["1", "2", "3"]
    assert below.rstrip().endswith("UNREADABLE")
    assert "trash/1/entry.json" in shown.err
    assert "copy what lies below trash/1/kept/" in shown.err
    trash = run("list", damaged, "--trash", "--json").document["trash"]
    assert {entry["checkpoint_id"]: entry["problem"] is None for entry in trash} == {1: False, 2: True, 3: True}
    assert len({frozenset(entry) for entry in trash}) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list"], 0),
        (["show", 5], 0),
        (["show", 2], 0),
        (["show", 1], 1),
        (["timeline"], 0),
        (["recover"], 0),
        (["validate"], 0),
        (["prune", "--keep-last", 1, "--yes"], 0),
        (["pin", 5, "--name", "a", "--reason", "b"], 0),
        (["undelete", 2], 0),
        (["restore", 4], 0),
    ],
)
def test_an_unreadable_entry_of_the_trash_stands_in_the_way_of_nothing_else(run, damaged, words, code):
    verb, *rest = words
    done = run(verb, damaged, *rest)
    assert done.code == code, done.err


@pytest.mark.parametrize("words", [["sweep", "--undo-window", "0s"], ["orphans"], ["undelete", 1]])
def test_nothing_leaves_for_good_while_an_entry_of_the_trash_cannot_be_read(run, damaged, words):
    orphan_sidecar(damaged, 90, age_hours=100)
    before = everything_in(damaged)
    verb, *rest = words
    stopped = run(verb, damaged, *rest, *([] if verb == "undelete" else ["--yes"]))
    assert stopped.code == 1
    assert "copy what lies below trash/1/kept/" in stopped.err
    assert everything_in(damaged) == before


def test_what_is_told_to_do_about_an_unreadable_entry_helps(run, damaged):
    kept = damaged / "trash" / "1" / "kept"
    for file in kept.rglob("*.json"):
        (damaged / file.relative_to(kept)).write_bytes(file.read_bytes())
    assert ids(run, damaged) == [5, 4, 1]
    assert run("prune", damaged, "--keep-last", 2, "--yes").code == 0
    assert run("undelete", damaged, 1).code == 0
    assert run("prune", damaged, "--keep-last", 2, "--yes").code == 0
    assert run("sweep", damaged, "--undo-window", "0s", "--yes").code == 0
    assert sorted(path.name for path in (damaged / "checkpoints").iterdir()) == ["state-000004.bin", "state-000005.bin"]


# -- orphans -----------------------------------------------------------------------------------------------------


def test_orphans_are_told_with_reasons_and_removed_with_yes(run, store):
    old = orphan_sidecar(store, 90, age_hours=100)
    young = orphan_sidecar(store, 91, age_hours=2)
    (store / "notes.txt").write_text("not ours")
    shown = run("orphans", store)
    assert shown.code == 0
    first = shown.out.splitlines()[1]
    assert first.startswith("checkpoints/state-000090.bin  delete ")
    assert "1 too young to tell" in shown.out
    assert "1 not ours" in shown.out
    document = run("orphans", store, "--json").document
    actions = {item["path"]: item["action"] for item in document["items"]}
    assert actions["checkpoints/state-000090.bin"] == "delete"
    assert actions["checkpoints/state-000091.bin"] == "defer"
    assert actions["notes.txt"] == "skip_unknown"
    assert document["bytes"] == len(b"left behind")
    removed = run("orphans", store, "--yes")
    assert removed.code == 0
    assert "1 object removed, 11 B." in removed.out
    assert not old.exists()
    assert young.exists()
    assert run("validate", store, "--depth", "content").code == 0


def test_an_age_below_the_floor_is_raised_and_said(run, store):
    # Below the newest id, so that only the floor protects it.
    young = store / "checkpoints" / "state-000005.bin"
    run("pin", store, 4, "--name", "gold", "--reason", "keep")
    os.unlink(store / "manifests" / "manifest-000003.json")
    found = run("orphans", store, "--min-age", "5m", "--yes")
    assert "warning: --min-age 5m is too short" in found.err
    assert "1h is used" in found.err
    assert young.exists()
    assert (store / "checkpoints" / "state-000003.bin").exists()


def test_an_unusual_plan_needs_to_be_confirmed(run, store):
    for number in range(100, 120):
        orphan_sidecar(store, number, age_hours=100)
    asked = run("orphans", store)
    assert asked.code == 0
    assert "80% of all artifacts would be removed" in asked.err
    before = everything_in(store)
    refused = run("orphans", store, "--yes", "--json")
    assert refused.code == 1
    assert refused.document["applied"] is False
    assert refused.document["question"]
    assert refused.document["error"]["kind"] == "ConfirmationNeededError"
    assert run("orphans", store, "--yes").code == 1
    assert everything_in(store) == before
    assert run("orphans", store, "--yes", "--max-share", "90%", "--max-bytes", "100B").code == 1
    confirmed = run("orphans", store, "--yes", "--confirm", "--json")
    assert confirmed.code == 0
    assert len(confirmed.document["outcomes"]) == 20


def test_a_higher_cap_needs_no_confirmation(run, store):
    for number in range(100, 120):
        orphan_sidecar(store, number, age_hours=100)
    assert run("orphans", store, "--yes", "--max-share", "0.9").code == 0


def test_a_person_is_not_shown_thousands_of_objects_but_a_program_is(run, store):
    for number in range(1000, 1150):
        orphan_sidecar(store, number, age_hours=100)
    shown = run("orphans", store)
    assert "more (--json has all)" in shown.out
    assert shown.out.count(" delete ") == 100
    assert (
        len([item for item in run("orphans", store, "--json").document["items"] if item["action"] == "delete"]) == 150
    )


def test_artifacts_without_a_single_manifest_stop_the_search(run, store):
    for path in (store / "manifests").iterdir():
        path.unlink()
    stopped = run("orphans", store, "--layout", "sidecar", "--yes")
    assert stopped.code == 1
    assert "not one readable manifest" in stopped.err
    assert len(list((store / "checkpoints").iterdir())) == 5


# -- pins --------------------------------------------------------------------------------------------------------


def test_a_pin_holds_until_it_is_taken_away(run, store):
    set_ = run("pin", store, 1, "--name", "gold", "--reason", "audit", "--owner", "ada")
    assert (set_.code, set_.out) == (0, "Checkpoint 1 is pinned as 'gold' until it is unpinned.\n")
    run("prune", store, "--keep-last", 1, "--yes")
    assert ids(run, store) == [5, 1]
    gone = run("unpin", store, "gold", "--json")
    assert gone.document["pin"]["owner"] == "ada"
    assert run("unpin", store, "gold").code == 2
    run("prune", store, "--keep-last", 1, "--yes")
    assert ids(run, store) == [5]


def test_a_pin_can_expire(run, store):
    document = run("pin", store, 1, "--name", "gold", "--reason", "audit", "--expires", "30d", "--json").document
    assert document["pin"]["expires"]
    assert run("pin", store, 2, "--name", "past", "--reason", "x", "--expires", "2020-01-01T00:00Z").code == 2


def test_a_pin_that_stands_already_is_left_as_it_is_and_that_is_said(run, store):
    run("pin", store, 1, "--name", "gold", "--reason", "audit")
    again = run("pin", store, 1, "--name", "gold", "--reason", "audit", "--expires", "1d")
    assert again.code == 0
    assert "is left as it was" in again.err
    assert "until it is unpinned" in again.out
    renewed = run("pin", store, 1, "--name", "gold", "--reason", "another", "--json")
    assert "is left as it was (reason)" in renewed.err
    assert renewed.document["pin"]["reason"] == "audit"
    assert "left" not in run("pin", store, 1, "--name", "gold", "--reason", "audit").err
    elsewhere = run("pin", store, 2, "--name", "gold", "--reason", "audit", "--json")
    assert elsewhere.code == 1
    assert elsewhere.document["error"]["kind"] == "CheckpointConflictError"


# -- restore -----------------------------------------------------------------------------------------------------


def test_a_fork_fences_running_writers_and_leaves_a_record(run, store):
    layout = sidecar_store(store, count=0)
    run("restore", store, 5, "--yes")
    (writer,) = read_timelines(layout.blobs)
    planned = run("restore", store, 3, "--reason", "bad deployment")
    assert "History would go on after checkpoint 3" in planned.out
    assert "Checkpoints left behind: 2: 4 to 5." in planned.out
    forked = run("restore", store, 3, "--reason", "bad deployment", "--yes", "--by", "ada", "--json")
    assert forked.code == 0
    assert forked.document["applied"] is True
    assert forked.document["abandons"] == [4, 5]
    assert forked.document["timeline"]["owner"] == "ada"
    assert forked.document["timeline"]["reason"] == "bad deployment"
    with pytest.raises(FencedWriterError):
        TimelineHolder(layout.blobs, writer).check()
    assert layout.read_pointer() == layout.parse_id("3")
    assert run("recover", store, "--json").document["chosen"] == 3
    assert run("audit", store, "--json").document["runs"][0]["verb"] == "restore"


def test_a_broken_checkpoint_is_no_place_to_fork(run, store):
    corrupt_sidecar(store, 3)
    before = everything_in(store)
    refused = run("restore", store, 3, "--yes")
    assert refused.code == 1
    assert "checkpoint 3 is not usable" in refused.err
    assert everything_in(store) == before
