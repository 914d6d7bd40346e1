"""Verbs that only look: list, show, validate, recover, timeline, audit; as tables and as JSON, on every layout."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import SinkState, SinkStatus
from tests.unit.cli.making import (
    add_sidecar,
    corrupt_sidecar,
    everything_in,
    partitioned_store,
    sidecar_store,
    stream_store,
)

LAYOUTS = {"sidecar": sidecar_store, "partitioned": partitioned_store, "stream": stream_store}


@pytest.fixture
def store(tmp_path):
    sidecar_store(tmp_path)
    return tmp_path


@pytest.fixture(params=LAYOUTS)
def any_store(request, tmp_path):
    """The words that name a store of each layout, and the layout."""
    layout = LAYOUTS[request.param](tmp_path)
    pipeline = ["--pipeline", "orders"] if request.param == "stream" else []
    return [tmp_path, *pipeline], layout


# -- list --------------------------------------------------------------------------------------------------------


def test_list_shows_every_checkpoint_newest_first_on_every_layout(run, any_store):
    words, layout = any_store
    ids = [checkpoint_id.value for checkpoint_id in reversed(layout.candidates())]
    table = run("list", *words)
    assert table.code == 0
    header, *rows = table.out.splitlines()
    assert header.split()[:6] == ["ID", "EPOCH", "AGE", "SIZE", "TIMELINE", "PROVEN"]
    assert [row.split()[0] for row in rows] == [str(value) for value in ids]
    listed = run("list", *words, "--json")
    assert listed.document["layout"] == layout.name
    # Numbers stay numbers, text stays text.
    assert [entry["checkpoint_id"] for entry in listed.document["checkpoints"]] == ids
    assert listed.err == ""


def test_list_tells_epoch_age_size_timeline_pins_sinks_and_the_last_proof(run, store):
    run("pin", store, 4, "--name", "gold", "--reason", "audit")
    run("validate", store, 5, "--depth", "content")
    corrupt_sidecar(store, 3)
    run("validate", store, 3, "--depth", "content")
    rows = run("list", store).out.splitlines()
    assert rows[0].split() == ["ID", "EPOCH", "AGE", "SIZE", "TIMELINE", "PROVEN", "SINKS", "PINS"]
    assert rows[1].split()[:6] == ["5", "5", "1h", "1.0", "kB", "1"]
    assert "content" in rows[1]
    assert "1 committed" in rows[1]
    assert "never" in rows[2]
    assert rows[2].endswith("gold")
    assert "INVALID" in rows[3]
    newest, pinned, broken, *_ = run("list", store, "--json").document["checkpoints"]
    assert newest["proven"]["valid"] is True
    assert newest["proven"]["depth"] == "content"
    assert newest["sinks"] == {"lake": {"state": "committed", "epoch": 5, "message": None}}
    assert (newest["bytes"], newest["artifacts"], newest["timeline"], newest["abandoned"]) == (1000, 1, 1, False)
    assert pinned["pins"] == ["gold"]
    assert broken["proven"]["valid"] is False


def test_list_leaves_out_columns_that_say_nothing(run, tmp_path):
    stream_store(tmp_path)
    header = run("list", tmp_path, "--pipeline", "orders").out.splitlines()[0]
    assert "PINS" not in header
    assert "SINKS" not in header


def test_list_shows_sinks_that_need_a_look(run, store):
    layout = sidecar_store(store, count=0)
    failed = {"lake": SinkStatus(SinkState.FAILED, message="disk full"), "mail": SinkStatus(SinkState.PENDING)}
    add_sidecar(layout, 6, hours=0.5, sink_names=("lake", "mail"), sink_commit_statuses=failed)
    assert "1 FAILED, 1 PENDING" in run("list", store).out.splitlines()[1]


def test_list_shows_the_trash_only_if_asked(run, store):
    run("prune", store, "--keep-last", 2, "--yes")
    assert "trash" not in run("list", store).out.lower()
    assert "trash" not in run("list", store, "--json").document
    shown = run("list", store, "--trash")
    assert "IN THE TRASH" in shown.out
    assert "no rule keeps it" in shown.out
    trash = run("list", store, "--trash", "--json").document["trash"]
    assert sorted(entry["checkpoint_id"] for entry in trash) == [1, 2, 3]


def test_an_unreadable_checkpoint_is_listed_with_the_same_keys_and_its_reason(run, store):
    (store / "manifests" / "manifest-000005.json").write_text("{")
    shown = run("list", store)
    assert shown.code == 0
    assert shown.out.splitlines()[1].split() == ["5", "UNREADABLE"]
    assert "5: " in shown.out.splitlines()[-1]
    broken, sound, *_ = run("list", store, "--json").document["checkpoints"]
    assert broken.keys() == sound.keys()
    assert broken["epoch"] is None
    assert broken["problem"]
    assert sound["problem"] is None


@pytest.mark.parametrize("verb", ["list", "timeline"])
def test_a_lost_record_of_a_timeline_is_told(run, store, verb):
    add_sidecar(sidecar_store(store, count=0), 6, hours=0.5, timeline=2)
    shown = run(verb, store)
    assert shown.code == 0
    assert "the record of timeline 2 is gone" in shown.err
    assert "HINT" in shown.err


def test_list_says_when_there_is_nothing(run, tmp_path):
    assert run("list", tmp_path, "--layout", "sidecar").out == "No checkpoints.\n"
    assert run("list", tmp_path, "--layout", "sidecar", "--json").document["checkpoints"] == []
    assert everything_in(tmp_path) == {}


def test_checkpoints_on_an_abandoned_branch_are_shown_as_such(run, store):
    run("restore", store, 3, "--yes")
    rows = run("list", store).out.splitlines()[1:]
    assert ["abandoned" in row for row in rows] == [True, True, False, False, False]
    found = run("list", store, "--json").document
    assert found["timeline"] == 2
    assert [entry["abandoned"] for entry in found["checkpoints"]] == [True, True, False, False, False]


# -- show --------------------------------------------------------------------------------------------------------


def test_show_tells_everything_about_a_checkpoint_on_every_layout(run, any_store):
    words, layout = any_store
    newest = layout.candidates()[-1]
    shown = run("show", words[0], newest, *words[1:])
    assert shown.code == 0
    assert f"Checkpoint {newest}" in shown.out
    assert layout.manifest_keys(newest)[0] in shown.out
    document = run("show", words[0], newest, *words[1:], "--json").document
    assert document["checkpoint_id"] == newest.value
    assert document["artifacts"]
    assert document["sources"]


def test_show_tells_sources_sinks_proof_and_what_was_found(run, store):
    corrupt_sidecar(store, 5)
    run("validate", store, 5, "--depth", "content")
    shown = run("show", store, 5)
    assert shown.code == 0
    for told in ("orders-0 = 500", "lake  committed", "INVALID at depth content", "checksum_mismatch", "vnodes"):
        assert told in shown.out
    document = run("show", store, 5, "--json").document
    assert document["proven"]["issues"][0]["code"] == "checksum_mismatch"
    assert document["sources"]["orders"]["partitions"][0]["offset"] == 500
    assert (document["pipeline_hash"], document["watermark"], document["pointer"]) == (4711, 5000, True)


def test_show_tells_on_what_a_checkpoint_depends_and_what_depends_on_it(run, tmp_path):
    layout = partitioned_store(tmp_path)
    base, second, third = (checkpoint_id.value for checkpoint_id in layout.candidates())
    assert run("show", tmp_path, base, "--json").document["needed_by"] == [second, third]
    assert run("show", tmp_path, third, "--json").document["needs"] == [base]
    assert ["needs", base] in [line.split() for line in run("show", tmp_path, third).out.splitlines()]


def test_show_limits_artifacts_for_people_only(run, tmp_path):
    layout = partitioned_store(tmp_path)
    newest = layout.candidates()[-1]
    assert "... and 3 more" in run("show", tmp_path, newest, "--artifacts", 1).out
    assert len(run("show", tmp_path, newest, "--artifacts", 1, "--json").document["artifacts"]) == 4


def test_show_finds_a_checkpoint_in_the_trash(run, store):
    run("prune", store, "--keep-last", 2, "--yes")
    shown = run("show", store, 1)
    assert shown.code == 0
    assert "Checkpoint 1 is in the trash" in shown.out
    assert run("show", store, 1, "--json").document["trash"]["checkpoint_id"] == 1


def test_show_of_an_unreadable_checkpoint_is_a_finding(run, store):
    (store / "manifests" / "manifest-000005.json").write_text("{")
    shown = run("show", store, 5)
    assert shown.code == 1
    assert "Its manifest is unfit" in shown.out
    assert run("show", store, 5, "--json").document["problem"]


# -- validate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["structure", "presence", "content", "restore"])
def test_sound_checkpoints_are_valid_at_every_depth_on_every_layout(run, any_store, depth):
    words, layout = any_store
    proven = run("validate", *words, "--depth", depth, "--json")
    assert proven.code == 0
    assert proven.document["invalid"] == 0
    ids = [checkpoint_id.value for checkpoint_id in reversed(layout.candidates())]
    assert [result["checkpoint_id"] for result in proven.document["results"]] == ids
    assert all(result["valid"] for result in proven.document["results"])


def test_damage_is_a_finding_with_its_reason(run, store):
    corrupt_sidecar(store, 5)
    assert run("validate", store).code == 0  # The size is right, and nobody has read the bytes.
    proven = run("validate", store, "--depth", "content")
    assert proven.code == 1
    assert "5   INVALID  checksum_mismatch: " in proven.out
    assert "4 of 5 checkpoints valid at depth content" in proven.err
    results = run("validate", store, "--depth", "content", "--json").document["results"]
    assert [result["valid"] for result in results] == [False, True, True, True, True]
    (issue,) = results[0]["issues"]
    assert (issue["severity"], issue["code"]) == ("error", "checksum_mismatch")
    assert issue["message"]


def test_only_the_named_checkpoints_are_proven_wherever_they_are_typed(run, store):
    for words in (["4", "2", "--depth", "content"], ["--depth", "content", "4", "2"], ["4", "--depth", "content", "2"]):
        results = run("validate", store, *words, "--json").document["results"]
        assert [result["checkpoint_id"] for result in results] == [4, 2]


def test_a_sample_has_the_newest(run, store):
    results = run("validate", store, "--sample", 2, "--json").document["results"]
    assert len(results) == 2
    assert 5 in [result["checkpoint_id"] for result in results]
    assert len(run("validate", store, "--sample", "40%", "--json").document["results"]) == 2


def test_rolling_takes_the_least_recently_proven_first_and_stops_when_the_budget_is_spent(run, store):
    seen = []
    for _ in range(3):
        document = run("validate", store, "--rolling", "--budget-bytes", "1500B", "--json").document
        assert document["depth"] == "content"
        assert document["not_examined"] == 3
        seen.extend(result["checkpoint_id"] for result in document["results"])
    assert sorted(seen[:5]) == [1, 2, 3, 4, 5]
    assert "3 checkpoints left for another time" in run("validate", store, "--rolling", "--budget-bytes", "1500B").err
    assert run("validate", store, "--rolling", "--budget", "0s", "--json").document["not_examined"] == 5


def test_what_was_proven_is_recorded_unless_the_store_shall_not_be_written(run, store):
    before = everything_in(store)
    run("validate", store, "--no-record")
    assert everything_in(store) == before
    run("validate", store)
    assert len(list((store / "ledger").rglob("*.json"))) == 5


def test_a_checkpoint_that_is_being_written_is_no_finding_and_leaves_no_record(run, tmp_path):
    layout = partitioned_store(tmp_path)
    new = layout.next_id()
    layout.save_snapshot(new, "window", 0, b"half of it")
    proven = run("validate", tmp_path, "--json")
    assert proven.code == 0
    assert len(proven.document["results"]) == 3
    assert not (tmp_path / "ledger" / str(new)).exists()
    # Asked for by name, it is.
    assert run("validate", tmp_path, new).code == 1


def test_a_checkpoint_that_could_not_be_asked_for_is_not_called_invalid(run_on, store):
    blobs = FaultyBlobs(LocalBlobs(store))
    blobs.inject(Fault.FAIL, verb="stat", match="state-000004.bin")
    proven = run_on(SidecarLayout(blobs), "validate")
    assert proven.code == 3
    assert "4   NOT PROVEN" in proven.out
    blobs.inject(Fault.FAIL, verb="stat", match="state-000004.bin")
    document = run_on(SidecarLayout(blobs), "validate", "--json").document
    assert [result["proven"] for result in document["results"]] == [True, False, True, True, True]
    assert document["invalid"] == 0


# -- recover -----------------------------------------------------------------------------------------------------


def test_recover_chooses_the_newest_on_every_layout(run, any_store):
    words, layout = any_store
    newest = layout.candidates()[-1]
    shown = run("recover", *words)
    assert shown.code == 0
    assert f"Recover from checkpoint {newest}" in shown.out
    assert "none: it is the newest" in shown.out
    document = run("recover", *words, "--json").document
    assert document["chosen"] == newest.value
    assert document["skipped"] == []
    assert {"distance", "sinks", "warnings", "epoch", "timeline", "head", "examined"} <= document.keys()


def test_recover_explains_what_it_passed_over_how_far_it_goes_back_and_what_sinks_need(run, store):
    corrupt_sidecar(store, 5)
    (store / "manifests" / "manifest-000004.json").write_text("{")
    shown = run("recover", store)
    assert shown.code == 0
    for told in (
        "Recover from checkpoint 3",
        "2 epochs",
        "2h behind 5",
        "PASSED OVER",
        "checksum mismatch",
        "roll back",
        "orders-0",
        "200",
        "warning: manifests that cannot be read (4)",
    ):
        assert told in shown.out
    document = run("recover", store, "--json").document
    assert document["chosen"] == 3
    assert [skipped["checkpoint_id"] for skipped in document["skipped"]] == [5, 4]
    assert all(skipped["reason"] for skipped in document["skipped"])
    assert document["distance"]["sources"] == {"orders": {"orders-0": 200}}
    assert document["sinks"] == [{"sink": "lake", "action": "roll_back", "epochs": [5]}]
    assert len(document["warnings"]) == 1


def moment(hours_ago: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours_ago)).isoformat()


#: Stands for a time between checkpoints 3 and 4. The store is as old as the test, not as the list of cases.
HALFWAY = "two and a half hours ago"


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], 5),
        (["--strategy", "latest"], 5),
        (["--strategy", "id", "--id", "2"], 2),
        (["--id", "2"], 2),
        (["--strategy", "before_time", "--at", HALFWAY], 3),
        (["--at", HALFWAY], 3),
        (["--strategy", "before_epoch", "--epoch", "4"], 3),
        (["--watermark", "4500"], 4),
        (["--strategy", "before_offset", "--source", "orders", "--partition", "orders-0", "--offset", "250"], 2),
        (["--source", "orders", "--offset", "250"], 2),
        (["--pin", "gold"], 1),
        (["--skip", "5", "--skip", "4"], 3),
        (["--max-rollback", "2h"], 5),
    ],
)
def test_each_strategy_by_its_name_or_by_its_arguments(run, store, words, chosen):
    run("pin", store, 1, "--name", "gold", "--reason", "audit")
    typed = [moment(2.5) if word is HALFWAY else word for word in words]
    assert run("recover", store, *typed, "--json").document["chosen"] == chosen


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epoch", "1"], "no checkpoint fits"),
        (["--epoch", "2", "--max-rollback", "2h"], "allowed are 2h"),
        (["--epoch", "2", "--max-rollback-epochs", "2"], "allowed are 2"),
        (["--pipeline-hash", "1", "--hash-policy", "require"], "no checkpoint fits"),
    ],
)
def test_nothing_that_fits_is_a_finding_with_every_reason(run, store, words, told):
    shown = run("recover", store, *words)
    assert shown.code == 1
    assert "PASSED OVER" in shown.out
    assert told in shown.err
    assert "HINT: " in shown.err
    failed = run("recover", store, *words, "--json")
    assert failed.code == 1
    assert failed.document["chosen"] is None
    assert failed.document["skipped"]
    assert failed.document["error"]["kind"] == "NoRecoveryPointError"
    assert told in failed.document["error"]["message"]


def test_a_fresh_start_must_be_allowed(run, store):
    allowed = run("recover", store, "--epoch", 1, "--fresh-start-ok")
    assert allowed.code == 0
    assert "Fresh start" in allowed.out
    document = run("recover", store, "--epoch", 1, "--fresh-start-ok", "--json").document
    assert document["chosen"] is None
    assert "error" not in document
    assert document["warnings"]


def test_what_changed_in_the_job_is_a_warning(run, store):
    words = ["--pipeline-hash", "1", "--expect-source", "clicks", "--expect-sink", "lake"]
    warnings = run("recover", store, *words, "--json").document["warnings"]
    assert any("pipeline has changed" in warning for warning in warnings)
    assert any("new source 'clicks'" in warning for warning in warnings)
    assert any("source 'orders' is gone" in warning for warning in warnings)
    assert not any("sink" in warning for warning in warnings)
    assert "warning: new source 'clicks'" in run("recover", store, *words).out


def test_recover_changes_nothing(run, store):
    before = everything_in(store)
    run("recover", store)
    run("recover", store, "--epoch", 1)
    assert everything_in(store) == before


# -- timeline and audit ------------------------------------------------------------------------------------------


def test_a_store_without_records_has_one_timeline(run, any_store):
    words, layout = any_store
    document = run("timeline", *words, "--json").document
    assert document["current"] == 1
    (only,) = document["timelines"]
    assert only["checkpoints"] == [checkpoint_id.value for checkpoint_id in layout.candidates()]
    assert only["abandoned"] == []
    assert "current" in run("timeline", *words).out


def test_branches_are_shown_below_what_they_fork_from(run, store):
    layout = sidecar_store(store, count=0)
    run("restore", store, 3, "--reason", "bad deployment", "--yes", "--by", "ada")
    add_sidecar(layout, 6, hours=0.5, epoch=4, timeline=2)
    run("restore", store, 2, "--reason", "worse", "--yes")
    header, *rows = run("timeline", store).out.splitlines()
    assert header.split()[0] == "TIMELINE"
    first, second, third = rows
    assert first.startswith("1 ")
    assert "counts up to epoch 2" in first
    assert "2: 1 to 2" in first
    assert "3: 3 to 5" in first
    assert second.startswith("└─ 2")
    assert "abandoned" in second
    assert second.endswith("ada: bad deployment")
    assert third.startswith("└─ 3")
    assert "current" in third
    document = run("timeline", store, "--json").document
    assert [branch["number"] for branch in document["timelines"]] == [1, 2, 3]
    assert [branch["on_history"] for branch in document["timelines"]] == [True, False, True]
    assert document["timelines"][1]["abandoned"] == [6]
    assert document["timelines"][2]["record"]["fork_checkpoint"] == 2


def test_a_long_chain_of_restarts_stays_readable(run, store, monkeypatch):
    layout = sidecar_store(store, count=0)
    start = layout.load(layout.parse_id("5"))
    blobs = LocalBlobs(store)
    for _ in range(30):
        open_timeline(blobs, start=start, has_checkpoints=True, writer="w", now=datetime.now(UTC))
    monkeypatch.setenv("COLUMNS", "80")
    rows = run("timeline", store).out.splitlines()
    assert max(map(len, rows)) <= 80
    assert sum("└─" in row for row in rows) == 30


def test_timelines_that_name_each_other_as_parents_are_still_told(run, store):
    for number, parent in ((2, 3), (3, 2), (4, 1)):
        record = {
            "number": number,
            "parent": parent,
            "fork_checkpoint": 3,
            "fork_epoch": 3,
            "created": "2026-01-01T00:00:00Z",
            "writer": "w",
        }
        path = store / "timelines" / f"timeline-{number:06}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record))
    numbers = [branch["number"] for branch in run("timeline", store, "--json").document["timelines"]]
    assert sorted(numbers) == [1, 2, 3, 4]


def test_audit_tells_runs_newest_first_and_as_many_as_asked(run, store):
    assert "No records" in run("audit", store).out
    assert run("audit", store, "--json").document["runs"] == []
    run("pin", store, 5, "--name", "gold", "--reason", "audit", "--by", "ada")
    run("prune", store, "--keep-last", 2, "--yes", "--by", "bob")
    header, first, second = run("audit", store).out.splitlines()
    assert header.split() == ["STARTED", "VERB", "BY", "RUN", "OUTCOME"]
    assert "prune" in first
    assert "bob" in first
    assert "2 done, 2.0 kB" in first
    assert "pin" in second
    assert [one["verb"] for one in run("audit", store, "-n", 1, "--json").document["runs"]] == ["prune"]
    pruned, pinned = run("audit", store, "--json").document["runs"]
    assert pruned["outcome"]["done"] == 2
    assert pinned["by"] == "ada"


def test_a_run_without_an_end_is_told_as_interrupted(run, store):
    run("prune", store, "--keep-last", 2, "--yes")
    (end,) = (store / "audit").glob("*-finished.json")
    end.unlink()
    assert "interrupted" in run("audit", store).out
    assert run("audit", store, "--json").document["runs"][0]["finished"] is None
