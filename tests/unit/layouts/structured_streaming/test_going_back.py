"""Copies of a directory as it was after a batch: whole or not startable, and never anybody else's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, StoreOptions, open_blobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConfirmationNeededError,
    CorruptArtifactError,
    InputGoneError,
    NoEvidenceError,
    OutcomeUnknownError,
)
from airflow_provider_checkpoint.layouts.structured_streaming import (
    StructuredStreamingLayout,
    apply_cleanup,
    apply_clone,
    plan_batch_folders,
    plan_clone,
    plan_file_sink,
    replay,
    synthesize,
)
from airflow_provider_checkpoint.layouts.structured_streaming._clone import CopyStage, rewritten
from airflow_provider_checkpoint.layouts.structured_streaming._inputs import InputCheck
from airflow_provider_checkpoint.layouts.structured_streaming.going_back import Rollback, go_back
from airflow_provider_checkpoint.lifecycle.records import read_audit
from airflow_provider_checkpoint.model import Depth, Severity
from tests.unit.layouts.structured_streaming.making import KINDS, LAST, NOW, Scene, batch

BACK_TO = 4


def plan_of(scene: Scene, number: int = BACK_TO, **how):
    """A plan whose input is taken to be there: it was at ``/data/landing`` of another machine."""
    plan = plan_clone(scene.layout, batch(number), "memory://copy", now=NOW, **how)
    return plan.model_copy(update={"input": InputCheck()})


def target_of(blobs: MemoryBlobs | FaultyBlobs | None = None) -> StructuredStreamingLayout:
    return StructuredStreamingLayout(blobs or MemoryBlobs("copy"), records=MemoryBlobs("copy.checkpoints"))


# -- the copy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("purged")])
def test_a_copy_ends_with_the_batch_and_can_be_restored_there(kind):
    scene = Scene.of(kind)
    target = target_of()
    apply_clone(scene.layout, plan_of(scene, 3), target)
    assert target.candidates()[-1] == batch(3)
    assert not [issue for issue in target.prove(batch(3), Depth.RESTORE) if issue.severity is Severity.ERROR]
    directory = target.look().directory
    assert max(directory.offsets) == 3
    versions = [
        version for stores in directory.stores.values() for files in stores.values() for version in files.deltas
    ]
    assert max(versions, default=0) <= 4
    assert not any(info.key.rpartition("/")[2].startswith(".") for info in target.blobs.list(temporary=None))


@pytest.mark.parametrize("kind", ["purged", "purged_rocks"])
def test_a_directory_that_spark_has_cleaned_up_is_copied_at_its_last_batches(kind):
    scene = Scene.of(kind)
    target = target_of()
    apply_clone(scene.layout, plan_of(scene, LAST[kind] - 1), target)
    assert target.candidates()[-1] == batch(LAST[kind] - 1)


def test_the_original_stays_as_it_is():
    scene = Scene.of("rocks_changelog")
    before = {key: scene.read(key) for key in scene.keys}
    apply_clone(scene.layout, plan_of(scene), target_of())
    assert {key: scene.read(key) for key in scene.keys} == before


@pytest.mark.parametrize("kind", ["hdfs_agg", "rocks_v2"])
def test_until_it_is_whole_a_copy_has_commits_without_offsets_which_spark_refuses(kind):
    scene = Scene.of(kind)
    plan = plan_of(scene)
    whole = len(plan.items)
    for step in range(whole):
        inner = MemoryBlobs("copy")
        with pytest.raises(SimulatedCrash):
            apply_clone(scene.layout, plan, target_of(FaultyBlobs(inner, crash_after=step)))
        present = {info.key for info in inner.list()}
        assert f"offsets/{BACK_TO}" not in present
        # Spark starts from nothing where it finds no log at all, and says so if there is state: it never goes on.
        if any(key.startswith("offsets/") for key in present):
            assert f"commits/{BACK_TO}" in present
            assert "metadata" in present
        again = target_of(inner)
        apply_clone(scene.layout, plan, again)
        assert again.candidates()[-1] == batch(BACK_TO)


def test_a_lost_answer_is_settled_and_the_copy_is_whole():
    scene = Scene.of("hdfs_agg")
    plan = plan_of(scene)
    inner = MemoryBlobs("copy")
    faulty = FaultyBlobs(inner)
    faulty.inject(Fault.LOST_ANSWER, verb="create", match="state/")
    with pytest.raises(OutcomeUnknownError):
        apply_clone(scene.layout, plan, target_of(faulty))
    apply_clone(scene.layout, plan, target_of(inner))


def test_a_batch_that_cannot_be_proven_is_not_copied():
    scene = Scene.of("hdfs_agg")
    scene.flip(r"state/0/0/3\.delta")
    inner = MemoryBlobs("copy")
    with pytest.raises(CorruptArtifactError, match="batch 4 cannot be restored"):
        apply_clone(scene.layout, plan_of(scene), target_of(inner))
    assert list(inner.list()) == []


@pytest.mark.parametrize("key", ["offsets/4", "state/0/0/1.delta", "readme.txt"])
def test_what_lies_at_the_target_is_not_touched(key):
    scene = Scene.of("hdfs_agg")
    inner = MemoryBlobs("copy")
    inner.create(key, b"somebody else's")
    with pytest.raises(CheckpointConflictError):
        apply_clone(scene.layout, plan_of(scene), target_of(inner))
    assert inner.read(key) == b"somebody else's"
    assert f"offsets/{BACK_TO}" == key or inner.stat(f"offsets/{BACK_TO}") is None


def test_a_copy_onto_itself_and_one_of_a_batch_that_never_was_are_refused():
    scene = Scene.of("hdfs_agg")
    with pytest.raises(ConfigurationError, match="an address of its own"):
        plan_clone(scene.layout, batch(3), scene.directory.uri, now=NOW)
    with pytest.raises(CheckpointNotFoundError):
        plan_of(scene, 99)


def test_input_that_is_gone_stops_the_copy_unless_it_is_accepted():
    scene = Scene.of("hdfs_agg")
    plan = plan_clone(scene.layout, batch(BACK_TO), "memory://copy", now=NOW)
    assert len(plan.input.missing) == LAST["hdfs_agg"] - BACK_TO
    with pytest.raises(InputGoneError, match="input files of later batches are gone"):
        apply_clone(scene.layout, plan, target_of())
    apply_clone(scene.layout, plan, target_of(), missing_input_ok=True)


def test_input_in_a_store_is_looked_for_there():
    scene = Scene.of("stateless")
    for number in range(BACK_TO + 1, LAST["stateless"] + 1):
        key = scene.find(f"sources/0/{number}(.compact)?")
        scene.put(key, scene.read(key).replace(b"file:///data/landing/", b"memory://landing-of-test/a%20b/"))
    landing = open_blobs("memory://landing-of-test")
    plan = plan_clone(scene.layout, batch(BACK_TO), "memory://copy", now=NOW, options=StoreOptions())
    assert len(plan.input.missing) == LAST["stateless"] - BACK_TO
    for path in plan.input.missing[1:]:
        landing.replace(f"a b/{path.rpartition('/')[2]}", b"rows")
    plan = plan_clone(scene.layout, batch(BACK_TO), "memory://copy", now=NOW, options=StoreOptions())
    assert (len(plan.input.missing), plan.input.unknown) == (1, 0)


def test_input_in_a_place_that_does_not_answer_is_unknown_and_told():
    scene = Scene.of("stateless")
    scene.put("sources/0/11", scene.read("sources/0/11").replace(b"file:///data/", b"nowhere://data/"))
    for options in (None, StoreOptions()):
        plan = plan_clone(scene.layout, batch(10), "memory://copy", now=NOW, options=options)
        assert plan.input == InputCheck(unknown=1)
        assert any("could not be looked for" in warning for warning in plan.warnings)


def test_the_whole_log_of_the_sources_is_kept_for_a_replay():
    scene = Scene.of("hdfs_agg")
    cut, whole = (plan_of(scene, 2, whole_source_log=flag) for flag in (False, True))
    kept = [{item.key for item in plan.items if item.key.startswith("sources/")} for plan in (cut, whole)]
    assert kept[0] < kept[1]
    assert kept[1] == {key for key in scene.keys if key.startswith("sources/")}


def test_a_new_query_id_is_given_and_the_old_one_is_kept_otherwise():
    scene = Scene.of("stateless")
    for new in (False, True):
        target = target_of()
        plan = plan_of(scene, new_query_id=new)
        apply_clone(scene.layout, plan, target)
        assert (target.query_id() != scene.layout.query_id()) is new
        assert any("id of the query" in warning for warning in plan.warnings) is not new


def test_paths_of_schemas_lead_into_the_copy():
    scene = Scene.of("tws")
    target = target_of()
    apply_clone(scene.layout, plan_of(scene, spark_location="s3a://lake/copy/"), target)
    described = [info.key for info in target.blobs.list() if "/_metadata/v2/" in info.key]
    assert described
    for key in described:
        paths = [
            path
            for store in json.loads(target.blobs.read(key).partition(b"\n")[2])["stateStoreInfo"]
            for path in store["stateSchemaFilePaths"]
        ]
        assert paths
        assert all(path.startswith("s3a://lake/copy/state/0/_stateSchema/") for path in paths)


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/lake/my copy", "file:/lake/my copy"),
        ("/lake/100%25", "file:/lake/100%25"),
        ("file:///lake/my%20copy", "file:/lake/my copy"),
        ("file:///lake/caf%C3%A9", "file:/lake/café"),
        ("s3://lake/copy", "s3a://lake/copy"),
        ("s3a://lake/copy", "s3a://lake/copy"),
        ("gs://lake/copy", "gs://lake/copy"),
    ],
)
def test_a_copy_is_called_as_the_query_calls_its_files(target, location):
    scene = Scene.of("tws")
    key = "state/0/_metadata/v2/0"
    scene.put(key, scene.read(key).replace(b"file:/data/", b"s3a://lake/"))
    assert plan_clone(scene.layout, batch(3), target, now=NOW).spark_location == location


def test_a_relative_place_is_spelt_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = plan_clone(Scene.of("tws").layout, batch(3), "copy", now=NOW)
    assert plan.spark_location == f"file:{tmp_path}/copy"


def test_s3_goes_by_the_scheme_of_the_input_where_no_schema_has_a_path():
    scene = Scene.of("stateless")
    scene.put("sources/0/11", scene.read("sources/0/11").replace(b"file:///", b"s3a://lake/"))
    assert plan_clone(scene.layout, batch(3), "s3://lake/copy", now=NOW).spark_location == "s3a://lake/copy"


def test_a_description_whose_path_leads_nowhere_is_an_error():
    body = b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["/somewhere/else"]}]}'
    with pytest.raises(CorruptArtifactError):
        rewritten(body, "file:/copy")


def test_stages_are_copied_in_an_order_of_their_own():
    assert list(CopyStage) == [CopyStage.STATE, CopyStage.COMMITS, CopyStage.METADATA, CopyStage.OFFSETS]
    offsets = [item.key for item in plan_of(Scene.of("stateless"), 11).items if item.stage is CopyStage.OFFSETS]
    assert offsets == [f"offsets/{number}" for number in range(12)]


# -- sinks -------------------------------------------------------------------------------------------------------


def sink_log(blobs: MemoryBlobs, number: int, *files: str, compact: bool = False) -> None:
    lines = [
        json.dumps({"path": f"file:/data/out/{name}", "size": 1, "isDir": False, "action": "add"}) for name in files
    ]
    key = f"_spark_metadata/{number}{'.compact' if compact else ''}"
    blobs.create(key, "\n".join(["v1", *lines]).encode())


def sink(*, keep_plain: bool = True) -> MemoryBlobs:
    """The output of six batches, one file each; the log was compacted with batch 4."""
    blobs = MemoryBlobs("data/out")
    for number in range(6):
        blobs.create(f"part-{number}.json", b"{}")
    for number in (0, 1, 2, 3):
        if keep_plain:
            sink_log(blobs, number, f"part-{number}.json")
    sink_log(blobs, 4, *(f"part-{number}.json" for number in range(5)), compact=True)
    sink_log(blobs, 5, "part-5.json")
    return blobs


class Out(MemoryBlobs):
    """As a disk: the address is a path."""

    @property
    def uri(self) -> str:
        return "file:///data/out"


def test_the_file_sink_loses_what_came_after_the_batch_and_nothing_else():
    blobs = Out()
    for info in sink().list():
        blobs.create(info.key, sink().read(info.key))
    blobs.create("not-listed.json", b"{}")
    plan = plan_file_sink(blobs, 2)
    assert plan.log == ("_spark_metadata/5", "_spark_metadata/4.compact", "_spark_metadata/3")
    assert plan.data == ("part-3.json", "part-4.json", "part-5.json")
    apply_cleanup(blobs, plan)
    left = sorted(info.key for info in blobs.list())
    assert left == [
        *(f"_spark_metadata/{number}" for number in range(3)),
        "not-listed.json",
        *(f"part-{number}.json" for number in range(3)),
    ]
    assert plan_file_sink(blobs, 2).log == ()


def test_a_log_that_was_compacted_since_no_longer_tells_and_nothing_goes():
    blobs = Out()
    for info in sink(keep_plain=False).list():
        blobs.create(info.key, sink(keep_plain=False).read(info.key))
    with pytest.raises(NoEvidenceError, match="no longer tells"):
        plan_file_sink(blobs, 2)


def test_a_sink_that_was_moved_is_told():
    blobs = sink()
    with pytest.raises(NoEvidenceError, match="not below it"):
        plan_file_sink(blobs, 2)


def test_folders_of_later_batches_go_and_others_stay():
    blobs = MemoryBlobs()
    for name in ("batch_id=1", "batch_id=2", "batch_id=10", "batch_id=x", "other"):
        blobs.create(f"{name}/part.json", b"{}")
    plan = plan_batch_folders(blobs, 1)
    assert plan.data == ("batch_id=10/part.json", "batch_id=2/part.json")
    with pytest.raises(NoEvidenceError):
        plan_batch_folders(blobs, 1, pattern="no number")


# -- the whole ---------------------------------------------------------------------------------------------------


def test_a_query_that_seems_to_run_is_not_gone_back_from():
    scene = Scene.of("stateless")
    scene.directory._clock = lambda: NOW
    scene.put("offsets/11", scene.read("offsets/11"))
    with pytest.raises(ConfirmationNeededError, match="seems to be running"):
        go_back(scene.layout, Rollback(plan_of(scene), target_of()), by="test", clock=lambda: NOW)


def test_the_sinks_go_back_after_the_copy_is_whole_and_a_record_is_left():
    scene = Scene.of("stateless")
    folders = MemoryBlobs("out")
    for number in range(12):
        folders.create(f"batch_id={number}/part.json", b"{}")
    inner = MemoryBlobs("copy")
    rollback = Rollback(plan_of(scene), target_of(inner), ((folders, plan_batch_folders(folders, BACK_TO)),))
    dying = replace(rollback, target=target_of(FaultyBlobs(inner, crash_after=len(rollback.plan.items) - 1)))
    with pytest.raises(SimulatedCrash):
        go_back(scene.layout, dying, by="test", clock=lambda: NOW)
    assert len(list(folders.list())) == 12
    go_back(scene.layout, rollback, by="test", reason="bad data", clock=lambda: NOW)
    assert len(list(folders.list())) == BACK_TO + 1
    (ended,) = [record for record in read_audit(scene.layout.blobs) if record.phase == "finished"]
    assert (ended.verb, ended.details["batch"], ended.details["reason"]) == ("restore", BACK_TO, "bad data")


# -- replay and synthesis ----------------------------------------------------------------------------------------


def run_by_hand(scene: Scene, copy: StructuredStreamingLayout):
    """As Spark does with a batch that was planned: it commits it."""

    def run(number: int) -> None:
        copy.blobs.create(f"commits/{number}", scene.read(f"commits/{number}"))

    return run


def test_a_replay_puts_one_plan_after_the_other_before_the_query():
    scene = Scene.of("stateless")
    copy = target_of()
    apply_clone(scene.layout, plan_of(scene, whole_source_log=True), copy)
    assert replay(scene.layout, copy, run_by_hand(scene, copy), last=7) == 7
    assert copy.look().directory.offsets == list(range(8))
    assert replay(scene.layout, copy, run_by_hand(scene, copy)) == 11


def test_a_replay_that_died_goes_on_and_one_on_a_copy_that_went_its_own_way_is_refused():
    scene = Scene.of("stateless")
    copy = target_of()
    apply_clone(scene.layout, plan_of(scene, whole_source_log=True), copy)

    def dies(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(scene.layout, copy, dies)
    assert replay(scene.layout, copy, run_by_hand(scene, copy), last=5) == 5
    copy.blobs.create("offsets/6", b"v1\n{}\n0")
    with pytest.raises(CheckpointConflictError, match="planned otherwise"):
        replay(scene.layout, copy, run_by_hand(scene, copy))


def test_a_run_that_commits_nothing_is_told():
    scene = Scene.of("stateless")
    copy = target_of()
    apply_clone(scene.layout, plan_of(scene, whole_source_log=True), copy)
    with pytest.raises(ConfigurationError, match="trigger"):
        replay(scene.layout, copy, lambda _: None)


@pytest.mark.parametrize("kind", ["hdfs_agg", "union_two", "offsets_v2", "rate"])
def test_a_synthetic_directory_has_read_what_the_batch_had_and_holds_no_state(kind):
    scene = Scene.of(kind)
    blobs = MemoryBlobs("new")
    synthesize(scene.layout, batch(3), blobs)
    made = target_of(blobs)
    assert made.candidates() == [batch(0)]
    directory = made.look().directory
    assert not directory.stores
    original, copied = scene.layout.view().offsets(3), made.view().offsets(0)
    assert [line.source for line in copied.sources] == [line.source for line in original.sources]
    assert copied.conf == original.conf
    assert copied.watermark_ms == 0
    for source in directory.sources:
        wanted = {
            json.loads(line)["path"]
            for number in range(4)
            for line in scene.read(f"sources/{source}/{number}").decode().splitlines()[1:]
        }
        found = [json.loads(line) for line in blobs.read(f"sources/{source}/0").decode().splitlines()[1:]]
        assert {entry["path"] for entry in found} == wanted
        assert {entry["batchId"] for entry in found} == {0}
    assert not [issue for issue in made.prove(batch(0)) if issue.severity is Severity.ERROR]


def test_a_synthetic_directory_takes_no_place_that_is_taken():
    scene = Scene.of("hdfs_agg")
    blobs = MemoryBlobs("new")
    blobs.create("metadata", b"{}")
    with pytest.raises(CheckpointConflictError):
        synthesize(scene.layout, batch(3), blobs)
