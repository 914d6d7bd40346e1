"""Going back to an older batch with real Spark: what a restart puts out is what it would have put out then."""

from __future__ import annotations

import json
import shutil
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import InputGoneError
from airflow_provider_checkpoint.layouts.structured_streaming import (
    StructuredStreamingLayout,
    apply_cleanup,
    apply_clone,
    diagnose,
    plan_clone,
    plan_file_sink,
    replay,
    synthesize,
)
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.safety import Safety
from airflow_provider_checkpoint.model import CheckpointId, Depth, Severity
from tests.integration.spark_native.directory import layout_of
from tests.integration.spark_native.queries import QUERIES
from tests.integration.spark_native.running import run

if TYPE_CHECKING:
    from tests.integration.spark_native.corpus import Corpus

pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("native")]

KINDS = [name for name, query in QUERIES.items() if query.sink != "files"]
FILE_SINKS = [name for name in QUERIES if name not in KINDS]
BACK_TO = 2


def gone_back(corpus: Corpus, name: str, batch: int, **how: bool) -> tuple[StructuredStreamingLayout, Path]:
    """A copy of a directory as it was after a batch, in a place of its own; the original one is out of reach."""
    original = corpus.copy(name)
    target = original.parent / "clone"
    layout = layout_of(original)
    plan = plan_clone(layout, CheckpointId(batch), str(target), now=datetime.now(UTC), **how)
    apply_clone(layout, plan, layout_of(target))
    if "whole_source_log" not in how:
        # Whatever still leads there fails from now on.
        shutil.move(original, original.with_name("moved away"))
    return layout, target


@pytest.mark.parametrize("name", KINDS)
def test_a_restart_on_the_copy_puts_out_what_came_after_the_batch(corpus, name):
    _, target = gone_back(corpus, name, BACK_TO)
    outcome = corpus.run(name, target)
    assert outcome.error is None, outcome.message
    assert result(name, outcome.batches) == result(name, after(corpus.truth[name], BACK_TO))


def after(batches: dict[int, list[str]], batch: int) -> dict[int, list[str]]:
    return {number: rows for number, rows in batches.items() if number > batch}


def result(name: str, batches: dict[int, list[str]]) -> list[str]:
    """What the output amounts to, however the input fell into batches: Spark plans those anew after a rollback."""
    if QUERIES[name].mode == "complete":
        return batches[max(batches)]
    return sorted(row for rows in batches.values() for row in rows)


@pytest.mark.parametrize(
    "name", ["hdfs_snapshots", "rocksdb", "rocksdb_changelog", "rocksdb_format2", "join", "process"]
)
def test_what_is_pruned_and_swept_is_needed_by_none_of_those_that_stay(corpus, name):
    directory = corpus.copy(name)
    layout = layout_of(directory)
    # Nothing is removed while the query may be running; by then it has been idle for long.
    later = datetime.now(UTC) + timedelta(hours=1)
    executor = Executor(
        layout, by="test", clock=lambda: later, safety=Safety(undo_window=timedelta(0), clock_skew=timedelta(days=1))
    )
    plan = plan_prune(layout, RetentionPolicy(keep_last=2), now=later, depth=Depth.CONTENT)
    assert plan.removed
    executor.prune(plan)
    files = set(directory.rglob("*"))
    executor.sweep(plan_sweep(layout, now=later, safety=Safety(undo_window=timedelta(0), clock_skew=timedelta(days=1))))
    assert set(directory.rglob("*")) < files
    oldest = layout.candidates()[0]
    target = directory.parent / "clone"
    apply_clone(layout, plan_clone(layout, oldest, str(target), now=later), layout_of(target))
    for each, start in ((directory, layout.candidates()[-1]), (target, oldest)):
        outcome = corpus.run(name, each)
        assert outcome.error is None, outcome.message
        assert result(name, outcome.batches) == result(name, after(corpus.truth[name], int(start.value)))


@pytest.mark.parametrize("name", ["hdfs", "rocksdb_changelog", "join"])
def test_a_replay_runs_the_same_batches_with_the_same_boundaries(corpus, name):
    original, target = gone_back(corpus, name, 1, whole_source_log=True)
    copy = layout_of(target)
    batches: dict[int, list[str]] = {}

    def once(_: int) -> None:
        outcome = run(corpus.spark, QUERIES[name], corpus.landing, target, target.parent / "output", once=True)
        assert outcome.error is None, outcome.message
        batches.update(outcome.batches)

    last = original.look().directory.commits[-1]
    assert replay(original, copy, once, last=last) == last
    truth = corpus.truth[name]
    assert batches == {batch: truth[batch] for batch in range(2, last + 1)}
    for log in ("offsets", "commits"):
        for batch in range(2, last + 1):
            assert copy.blobs.read(f"{log}/{batch}") == original.blobs.read(f"{log}/{batch}")


def test_a_changed_query_starts_where_the_old_one_stood(corpus):
    layout = layout_of(corpus.copy("hdfs"))
    target = Path(str(corpus.root)) / "synthetic"
    synthesize(layout, CheckpointId(BACK_TO), open_blobs(str(target)))
    outcome = corpus.run("stateless", target)
    assert outcome.error is None, outcome.message
    rows = sorted(row for each in outcome.batches.values() for row in each)
    truth = corpus.truth["stateless"]
    assert rows == sorted(row for batch, each in truth.items() if batch > BACK_TO for row in each)


@pytest.mark.parametrize("name", FILE_SINKS)
def test_the_file_sink_goes_back_with_the_query_and_no_row_is_lost_or_doubled(corpus, name):
    directory = corpus.copy(name)
    output = directory.parent / "output"
    relocate_sink_log(output, corpus.directory(name).parent / "output")
    layout = layout_of(directory)
    target = directory.parent / "clone"
    sink = open_blobs(str(output))
    assert diagnose(layout, file_sink=sink).findings == ()
    cleanup = plan_file_sink(sink, BACK_TO)
    assert cleanup.log
    assert cleanup.data
    apply_clone(
        layout, plan_clone(layout, CheckpointId(BACK_TO), str(target), now=datetime.now(UTC)), layout_of(target)
    )
    assert [finding.code for finding in diagnose(layout_of(target), file_sink=sink).findings] == ["sink_ahead"]
    apply_cleanup(sink, cleanup)
    assert diagnose(layout_of(target), file_sink=sink).findings == ()
    outcome = corpus.run(name, target)
    assert outcome.error is None, outcome.message
    read = corpus.spark.read.schema("key STRING, value LONG").json(f"file://{output}").collect()
    truth = [json.loads(row) for row in corpus.truth[name][0]]
    assert sorted(map(tuple, read)) == sorted((row["key"], row.get("value")) for row in truth)
    assert diagnose(layout_of(target), file_sink=sink).findings == ()


def relocate_sink_log(output: Path, made: Path) -> None:
    """The log of a sink has absolute paths; make those of a copy lead to the copy."""
    for entry in (output / "_spark_metadata").iterdir():
        if not entry.name.startswith("."):
            entry.write_text(entry.read_text().replace(str(made), str(output)))


def test_input_that_is_gone_is_told_before_anything_is_copied(corpus):
    original = corpus.copy("stateless")
    layout = layout_of(original)
    gone = corpus.landing / "left" / "0004.json"
    kept = gone.read_bytes()
    target = original.parent / "clone"
    try:
        gone.unlink()
        plan = plan_clone(layout, CheckpointId(BACK_TO), str(target), now=datetime.now(UTC))
        assert [Path(path).name for path in plan.input.missing] == ["0004.json"]
        with pytest.raises(InputGoneError, match="0004"):
            apply_clone(layout, plan, layout_of(target))
        assert not target.exists()
    finally:
        from tests.integration.spark_native.queries import land

        gone.write_bytes(kept)
        land(corpus.landing, 4, 1)


@pytest.mark.parametrize("name", ["stateless", "hdfs", "rocksdb_changelog"])
def test_a_directory_of_spark_3_5_is_gone_back_in_and_goes_on_with_a_newer_spark(corpus, name, tmp_path):
    directory = tmp_path / "checkpoint"
    with zipfile.ZipFile(Path(__file__).parents[2] / "data" / "spark" / "spark35.zip") as archive:
        for key in archive.namelist():
            if key.startswith(f"{name}/"):
                path = directory / key.removeprefix(f"{name}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                # Its input had the same files, elsewhere.
                path.write_bytes(
                    archive.read(key).replace(b"file:///data/landing", f"file://{corpus.landing}".encode())
                )
    layout = layout_of(directory)
    assert not [issue for issue in layout.prove(layout.candidates()[-1]) if issue.severity is Severity.ERROR]
    target = tmp_path / "clone"
    apply_clone(
        layout, plan_clone(layout, CheckpointId(BACK_TO), str(target), now=datetime.now(UTC)), layout_of(target)
    )
    outcome = corpus.run(name, target)
    assert outcome.error is None, outcome.message
    assert result(name, outcome.batches) == result(name, after(corpus.truth[name], BACK_TO))
