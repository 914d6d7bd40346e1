"""Validation and orphan search with Spark give what they give without it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    ConfigurationError,
    CorruptError,
    InvalidKeyError,
    NoEvidenceError,
    PermanentError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.records import read_ledger
from airflow_provider_checkpoint.lifecycle.validation import Budget, validate_many
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.jobs import _answers, _engine
from airflow_provider_checkpoint.spark.jobs._answers import JobAnswer, JobError
from airflow_provider_checkpoint.spark.jobs.maintenance import Engine, Place, main
from tests.contract.proxy import Trouble
from tests.unit.cli import making
from tests.unit.layouts.structured_streaming.making import files_of
from tests.unit.spark.damaged import LATER, make_damaged

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture(autouse=True, scope="module")
def templates(tmp_path_factory):
    before, making.templates = making.templates, tmp_path_factory.mktemp("templates")
    yield
    making.templates = before


def sidecar(folder):
    making.sidecar_store(folder)
    making.corrupt_sidecar(folder, 2)
    making.orphan_sidecar(folder, 4_000, age_hours=48)
    (folder / "checkpoints" / "state-000004.bin").unlink()


def partitioned(folder):
    folder.mkdir()
    make_damaged(LocalBlobs(folder))


def stream(folder):
    making.stream_store(folder.parent)
    assert folder.is_dir()
    newest = max(folder.iterdir())
    newest.write_bytes(newest.read_bytes()[:-3])


def structured_streaming(folder):
    for key, body in files_of("hdfs_agg").items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(body)
    delta = next(folder.glob("state/0/0/11.delta"))
    delta.write_bytes(delta.read_bytes()[:-1])


LAYOUTS = [sidecar, partitioned, stream, structured_streaming]


def opened(spark, tmp_path, make, **options):
    make(tmp_path / "orders")
    return engine(spark, tmp_path, **options)


def engine(spark, root, **options):
    place = Place(str(root), "orders")
    layout = place.open()
    return layout, Engine(spark.sparkContext, layout, place, **{"partitions": 2, "threads": 2, **options})


# -- the same results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", LAYOUTS)
@pytest.mark.parametrize("depth", list(Depth))
def test_every_layout_is_proven_alike_to_every_depth(spark, tmp_path, make, depth):
    layout, cluster = opened(spark, tmp_path, make)
    ids = layout.candidates()[::-1]
    alone = validate_many(layout, ids, depth, record=False)
    assert len(alone) == len(ids) > 2
    assert cluster.validate(ids, depth, record=False) == alone


@pytest.mark.parametrize("make", LAYOUTS)
def test_every_layout_has_the_same_orphans(spark, tmp_path, make):
    layout, cluster = opened(spark, tmp_path, make)
    now = datetime.now(UTC) + LATER
    assert cluster.plan_orphans(now=now) == plan_orphans(layout, now=now)


def test_what_is_damaged_is_found(spark, tmp_path):
    """Else two engines that find nothing would be alike as well."""
    (tmp_path / "orders").mkdir()
    made = make_damaged(LocalBlobs(tmp_path / "orders"))
    layout, cluster = engine(spark, tmp_path)
    results = {each.checkpoint_id: each for each in cluster.validate(layout.candidates(), Depth.CONTENT)}
    assert [each for each, result in results.items() if result.valid] == made.valid
    codes = {each: [issue.code for issue in results[each].issues] for each in results}
    assert codes[made.flipped] == ["checksum_mismatch"]
    assert codes[made.missing] == ["artifact_missing"]
    assert codes[made.truncated] == ["size_mismatch"]
    assert codes[made.unreadable] == ["manifest_corrupt"]
    assert results[made.uncommitted].missing
    plan = cluster.plan_orphans(now=datetime.now(UTC) + LATER)
    # The artifacts of what was never committed lie above the unreadable manifest, so that it cannot name them.
    assert {item.path for item in plan.deletions} >= {f"{made.uncommitted}/operators/window/partition-0.snap"}
    (tmp_path / "orders" / str(made.unreadable) / "manifest.json").unlink()
    plan = cluster.plan_orphans(now=datetime.now(UTC) + LATER)
    assert {item.path for item in plan.deletions} >= set(made.orphans)


@pytest.mark.parametrize("bytes_left", [0, 1, 60_000, 10**9])
@pytest.mark.parametrize("checks", [1, 50_000])
def test_a_budget_ends_at_the_same_checkpoint_however_long_the_rounds_are(
    spark, tmp_path, monkeypatch, bytes_left, checks
):
    monkeypatch.setattr(_engine, "_ROUND_CHECKS", checks)
    monkeypatch.setattr(_engine, "_FIRST_LOOK", 4)
    layout, cluster = opened(spark, tmp_path, partitioned)
    ids = layout.candidates()
    # It costs nothing, since it is not read: the round goes less far than was expected.
    link(tmp_path / "orders" / str(ids[0]) / "operators" / "window" / "partition-0.snap")
    alone = validate_many(layout, ids, Depth.CONTENT, budget=Budget(bytes_left), record=False)
    assert cluster.validate(ids, Depth.CONTENT, budget=Budget(bytes_left), record=False) == alone


def test_when_the_time_is_up_what_was_begun_is_kept_and_nothing_new_begins(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(_engine, "_ROUND_CHECKS", 1)
    layout, cluster = opened(spark, tmp_path, partitioned)
    ticks = iter(range(100))
    budget = Budget(max_seconds=3, clock=lambda: float(next(ticks)))
    # It begins at 0, and is looked at before each round: at 1, 2 and 3.
    assert len(cluster.validate(layout.candidates(), Depth.CONTENT, budget=budget)) == 2


def test_the_driver_writes_the_same_ledger_and_executors_write_nothing(spark, tmp_path):
    layout, cluster = opened(spark, tmp_path / "a", lambda folder: [folder.parent.mkdir(), partitioned(folder)])
    making.shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = making.everything_in(tmp_path / "a")
    ids = layout.candidates()
    cluster.validate(ids, Depth.CONTENT, now=lambda: NOW)
    validate_many(open_store(str(tmp_path / "b"), pipeline="orders"), ids, Depth.CONTENT, now=lambda: NOW)
    after = making.everything_in(tmp_path / "a")
    assert after == making.everything_in(tmp_path / "b")
    assert {key for key in after if "/ledger/" not in key} == set(before)
    # All but the one that was never committed.
    assert len(after) - len(before) == len(ids) - 1


# -- errors ------------------------------------------------------------------------------------------------------


def test_no_readable_manifest_stops_the_search(spark, tmp_path):
    layout, cluster = opened(spark, tmp_path, partitioned)
    for each in layout.candidates():
        (tmp_path / "orders" / str(each) / "manifest.json").unlink(missing_ok=True)
    with pytest.raises(NoEvidenceError, match="not one readable manifest"):
        cluster.plan_orphans(now=datetime.now(UTC) + LATER)


def link(path):
    """What a store refuses to read: it could lead anywhere."""
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def test_a_manifest_that_the_store_refuses_stops_both_and_what_came_before_it_is_noted(spark, tmp_path):
    layout, cluster = opened(spark, tmp_path, partitioned)
    ids = layout.candidates()
    link(tmp_path / "orders" / str(ids[2]) / "manifest.json")
    with pytest.raises(InvalidKeyError, match="symbolic link"):
        cluster.plan_orphans(now=datetime.now(UTC) + LATER)
    with pytest.raises(InvalidKeyError, match="symbolic link"):
        cluster.validate(ids, Depth.PRESENCE)
    assert {path.name for path in (tmp_path / "orders" / "ledger").iterdir()} == {str(each) for each in ids[:2]}


def test_a_store_that_does_not_answer_leaves_the_same_checkpoints_unproven(spark, seaweedfs, proxy):
    uri = seaweedfs.fresh()
    made = make_damaged(open_blobs(f"{uri}/orders", seaweedfs.options()))
    options = seaweedfs.options(max_retries=0) | {"endpoint_url": proxy.endpoint}
    place = Place(uri, "orders", "partitioned", options)
    layout = place.open()
    cluster = Engine(spark.sparkContext, layout, place, partitions=2, threads=2)
    # A snapshot that four share, and a manifest.
    for match in (f"{made.valid[0]}/operators/window/partition-1.snap", f"{made.flipped}/manifest.json"):
        for method in ("GET", "HEAD"):
            proxy.order(Trouble.BUSY_INSTEAD, method, match, times=10_000)
    ids = layout.candidates()
    alone = validate_many(layout, ids, Depth.PRESENCE, record=False)
    assert [each.checkpoint_id for each in alone if not each.proven] == [*made.valid, made.flipped]
    assert cluster.validate(ids, Depth.PRESENCE) == alone
    assert set(read_ledger(layout.blobs, layout)) == {made.missing, made.truncated, made.unreadable}
    with pytest.raises(StoreUnavailableError):
        cluster.plan_orphans(now=datetime.now(UTC) + LATER)


def test_an_executor_that_sees_another_store_than_the_driver_ends_the_run_at_once(spark, tmp_path):
    layout, cluster = opened(spark, tmp_path, partitioned)
    cluster._place = replace(cluster._place, meant=("partitioned", "file:///elsewhere"))
    for work in (
        lambda: cluster.validate(layout.candidates(), Depth.CONTENT),
        lambda: cluster.plan_orphans(now=datetime.now(UTC)),
    ):
        with pytest.raises(ConfigurationError, match="the driver sees"):
            work()


# -- answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", LAYOUTS)
def test_an_answer_comes_back_whole_and_no_reader_of_the_store_sees_it(tmp_path, make):
    make(tmp_path / "orders")
    layout = Place(str(tmp_path), "orders").open()
    ids = layout.candidates()
    results = tuple(validate_many(layout, ids, Depth.CONTENT))
    before = sorted(info.key for info in layout.blobs.list())
    mark = uuid4().hex
    told = {"verb": "validate", "uri": layout.blobs.uri, "layout": layout.name, "mark": mark}
    answer = JobAnswer(**told, selected=9, results=results)
    _answers.write_answer(layout.blobs, answer)
    assert sorted(info.key for info in layout.blobs.list()) == before
    assert Place(str(tmp_path), "orders").open().candidates() == ids
    assert _answers.read_answer(layout.blobs, mark, verb="validate", layout=layout.name) == answer
    # Another attempt of the same job changes nothing.
    _answers.write_answer(layout.blobs, JobAnswer(**told))
    assert _answers.read_answer(layout.blobs, mark, verb="validate", layout=layout.name) == answer
    _answers.remove_answer(layout.blobs, mark)
    assert _answers.read_answer(layout.blobs, mark, verb="validate", layout=layout.name) is None


@pytest.fixture
def store(tmp_path):
    partitioned(tmp_path / "orders")
    return Place(str(tmp_path), "orders").open()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mark": uuid4().hex}, "something else"),
        ({"mark": None}, "something else"),
        ({"verb": "orphans"}, "something else"),
        ({"uri": "s3://other/store"}, "something else"),
        ({"layout": "sidecar"}, "something else"),
        ({"plan": None, "surprise": 1}, "not the answer"),
        ({"results": [{"checkpoint_id": 1.5}]}, "not the answer"),
    ],
)
def test_no_other_answer_is_taken_for_ours(store, changed, words):
    mark = uuid4().hex
    told = {"verb": "validate", "uri": store.blobs.uri, "layout": store.name, "mark": mark, **changed}
    store.blobs.create(_answers.answer_key(mark), json.dumps(told).encode())
    with pytest.raises(CorruptError, match=words):
        _answers.read_answer(store.blobs, mark, verb="validate", layout=store.name)


def test_an_answer_without_a_plan_is_none(store):
    mark = uuid4().hex
    _answers.write_answer(store.blobs, JobAnswer(verb="orphans", uri=store.blobs.uri, layout=store.name, mark=mark))
    with pytest.raises(CorruptError, match="without what was asked for"):
        _answers.read_answer(store.blobs, mark, verb="orphans", layout=store.name)


def test_an_answer_that_nobody_fetched_is_litter_one_day(store):
    mark = uuid4().hex
    _answers.write_answer(store.blobs, JobAnswer(verb="orphans", uri=store.blobs.uri, layout=store.name, mark=mark))
    key = _answers.answer_key(mark)
    soon = plan_orphans(store, now=datetime.now(UTC) + timedelta(hours=1))
    assert key not in {item.path for item in soon.deletions}
    later = plan_orphans(store, now=datetime.now(UTC) + LATER)
    assert key in {item.path for item in later.deletions}


@pytest.mark.parametrize("mark", ["", "x", "../../etc", "A" * 32, "0" * 33, f"{'0' * 32}\n"])
def test_a_mark_that_is_none_names_nothing(store, mark):
    with pytest.raises(ConfigurationError, match="hexadecimal"):
        _answers.read_answer(store.blobs, mark, verb="validate", layout=store.name)


def _kinds(kind):
    return [kind, *(each for below in kind.__subclasses__() for each in _kinds(below))]


@pytest.mark.parametrize("kind", [kind for kind in _kinds(CheckpointError) if kind.__module__.endswith(".exceptions")])
def test_every_error_comes_back_as_it_was(kind):
    error = kind("what", subject="where", hint="do this")
    back = JobError.model_validate_json(JobError.of(error).model_dump_json()).as_error()
    assert (type(back), str(back)) == (kind, str(error))


@pytest.mark.parametrize("kind", ["SystemExit", "annotations", "Any", "__name__"])
def test_a_name_that_is_no_error_of_ours_raises_nothing_else(kind):
    assert type(JobError(kind=kind, message="what").as_error()) is PermanentError


# -- the command line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "required: verb"),
        (["validate"], "--store"),
        (["validate", "--store", "/s", "--depth", "deep"], "--depth"),
        (["validate", "--store", "/s", "--rolling", "--sample", "2"], "not allowed with"),
        (["validate", "--store", "/s", "--partitions", "0"], "not a positive number"),
        (["validate", "--store", "/s", "--store-option", "region"], "not NAME=VALUE"),
        (["validate", "--store", "/s", "--budget-bytes", "lots"], "not a size"),
        (["orphans", "--store", "/s", "--min-age", "soon"], "not a span of time"),
        (["orphans", "--store", "/s", "--at", "2026-11-15T14:05"], "needs a zone"),
    ],
)
def test_arguments_that_make_no_sense_are_told_before_anything_starts(capsys, words, told):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--store", "/nowhere", "--mark", "x"], "hexadecimal"),
        (["--store", "nosuch://x"], "unknown kind of store"),
    ],
)
def test_errors_of_ours_are_one_message_with_a_hint(words, told):
    with pytest.raises(SystemExit, match=told) as ended:
        main(["validate", *words])
    assert "HINT" in str(ended.value.code)
