"""The command on directories that Spark wrote itself."""

from __future__ import annotations

import os

import pytest

from tests.unit.cli.making import everything_in, sidecar_store
from tests.unit.layouts.structured_streaming.making import write_out


@pytest.fixture
def directory(tmp_path):
    """Nobody writes into it any more. A sibling holds what the command writes down."""
    return write_out("hdfs_agg", tmp_path / "clicks")


def test_a_healthy_directory_is_fine(run, directory):
    done = run("diagnose", directory)
    assert done.code == 0
    assert "The query can go on." in done.out
    assert run("diagnose", directory, "--json").document["recoverable"] == list(range(11, -1, -1))


def test_a_damaged_one_is_explained_and_left_as_it_is(run, directory):
    (directory / "offsets" / "10").unlink()
    (directory / "state" / "0" / "0" / "12.delta").write_bytes(b"")
    before = everything_in(directory)
    done = run("diagnose", directory)
    assert done.code == 1
    assert "batch 10 doesn't exist" in done.out
    assert "Go back to batch 9" in done.out
    document = run("diagnose", directory, "--json").document
    assert not document["healthy"]
    assert {finding["code"] for finding in document["findings"]} == {"previous_offsets_missing", "state_truncated"}
    assert run("diagnose", directory, "--depth", "presence", "--json").document["recoverable"][0] == 11 - 2
    assert everything_in(directory) == before


def test_the_file_sink_is_looked_into_if_it_is_named(run, directory, tmp_path):
    log = tmp_path / "pages" / "_spark_metadata"
    log.mkdir(parents=True)
    for number in range(12):
        (log / str(number)).write_text("v1")
    fits = run("diagnose", directory, "--file-sink", log.parent)
    assert (fits.code, fits.err) == (0, "")
    (log / "10").write_text("")
    before = everything_in(log.parent)
    assert run("diagnose", directory).code == 0
    done = run("diagnose", directory, "--file-sink", log.parent)
    assert done.code == 1
    assert "1. _spark_metadata/10 (sink_log_corrupt)" in done.out
    assert "Go back to batch 9 with the sink (--file-sink)" in done.out
    document = run("diagnose", directory, "--file-sink", log.parent, "--json").document
    assert document["recoverable"] == list(range(9, -1, -1))
    assert document["file_sink"] == f"file://{log.parent}"
    assert everything_in(log.parent) == before


def test_names_in_a_directory_cannot_steer_a_terminal(run, directory):
    (directory / "metadata").write_bytes(b'{"id":"\\u001b[31mred"}')
    assert "\x1b" not in run("diagnose", directory).out


def test_the_newest_batch_is_sealed_and_the_seal_is_compared(run, directory):
    before = everything_in(directory)
    done = run("seal", directory)
    assert (done.code, done.out[:9]) == (0, "Batch 11:")
    assert everything_in(directory) == before
    assert (directory.parent / "clicks.checkpoints" / "seals" / "11.json").exists()
    sealed = run("seal", directory, "11", "10", "--json").document["seals"]
    assert [each["batch"] for each in sealed] == [11, 10]

    (directory / "state/0/0/12.delta").write_bytes((directory / "state/0/0/11.delta").read_bytes())
    again = run("seal", directory)
    assert again.code == 1
    assert "have changed since it was sealed: state/0/0/12.delta" in again.err
    assert run("validate", directory, "11", "--depth", "content").code == 1
    assert run("diagnose", directory).code == 1


def test_what_is_not_whole_is_not_sealed(run, directory):
    (directory / "state/0/0/12.delta").unlink()
    done = run("seal", directory)
    assert done.code == 1
    assert "cannot be sealed" in done.err


def test_a_directory_without_commits_has_nothing_to_seal(run, tmp_path):
    (tmp_path / "new" / "offsets").mkdir(parents=True)
    (tmp_path / "new" / "offsets" / "0").write_bytes(b"v1")
    done = run("seal", tmp_path / "new", "--layout", "structured_streaming")
    assert done.code == 2
    assert "no batch is committed yet" in done.err


@pytest.mark.parametrize("verb", ["diagnose", "seal"])
def test_other_layouts_are_pointed_to_validate(run, tmp_path, verb):
    sidecar_store(tmp_path)
    done = run(verb, tmp_path)
    assert done.code == 2
    assert "this is the layout sidecar" in done.err
    assert "validate" in done.err


def test_the_verbs_of_every_layout_work_on_it(run, directory):
    assert run("list", directory, "--json").document["checkpoints"][0]["checkpoint_id"] == 11
    assert run("show", directory, "7").code == 0
    assert run("validate", directory, "--depth", "content").code == 0
    assert run("recover", directory, "--json").document["chosen"] == 11
    assert run("prune", directory, "--keep-last", "2", "--yes").code == 0
    assert run("undelete", directory, "4").code == 0
    assert run("orphans", directory).code == 0
    assert run("timeline", directory).code == 0
    assert run("audit", directory).code == 0
    assert sorted(os.listdir(directory / "commits")) == ["10", "11", "4"]


def test_nothing_goes_while_the_query_may_be_running(run, directory):
    os.utime(directory / "offsets" / "11")
    done = run("prune", directory, "--keep-last", "2", "--yes")
    assert done.code == 1
    assert "a writer may be at work: offsets/11 was written" in done.err
    assert len(os.listdir(directory / "commits")) == 12


# -- going back --------------------------------------------------------------------------------------------------


def test_a_restore_without_a_place_for_the_copy_says_what_to_do(run, directory):
    refused = run("restore", directory, 5, "--yes")
    assert refused.code == 2
    assert "--to URI" in refused.err


def test_a_restore_shows_what_it_would_do_and_does_it_when_told(run, directory, tmp_path):
    copy = tmp_path / "clicks-2"
    before = everything_in(directory)
    # The input lay on another machine, so it counts as gone here.
    words = ("restore", directory, 5, "--to", copy, "--missing-input-ok")
    shown = run(*words)
    assert shown.code == 0
    assert f"as it was after batch 5 would be copied to {copy}" in shown.out
    assert "Batches 6 to 11 will run again" in shown.out
    assert "delta: " in shown.out
    assert not copy.exists()
    assert run("restore", directory, 5, "--to", copy, "--yes").code == 1
    done = run(*words, "--yes", "--json")
    assert done.code == 0
    assert done.document["applied"] is True
    assert done.document["spark_location"] == f"file:{copy}"
    assert run("list", copy, "--json").document["checkpoints"][0]["checkpoint_id"] == 5
    assert everything_in(directory) == before
    assert run("audit", directory, "--json").document["runs"][0]["verb"] == "restore"


def test_folders_of_later_batches_go_with_it(run, directory, tmp_path):
    for number in range(12):
        folder = tmp_path / "out" / f"batch_id={number}"
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("{}")
    words = ("restore", directory, 5, "--to", tmp_path / "copy", "--missing-input-ok")
    done = run(*words, "--batch-folders", tmp_path / "out", "--yes")
    assert done.code == 0
    assert "6 files of later batches removed" in done.out
    assert len(list((tmp_path / "out").glob("*/part.json"))) == 6


def test_a_changed_query_gets_a_directory_of_its_own(run, directory, tmp_path):
    target = tmp_path / "new"
    made = run("synthesize", directory, 5, "--to", target, "--json")
    assert made.code == 0
    assert made.document["batch"] == 5
    assert (target / "offsets" / "0").exists()
    assert run("diagnose", target).code == 0
    assert run("synthesize", directory, 5, "--to", target).code == 1


def test_verbs_for_directories_of_spark_are_refused_elsewhere(run, tmp_path):
    sidecar_store(tmp_path / "other")
    for words in (["synthesize", tmp_path / "other", 1, "--to", tmp_path / "x"], ["seal", tmp_path / "other"]):
        assert run(*words).code == 2
    assert run("restore", tmp_path / "other", 1, "--to", tmp_path / "x").code == 2
