"""Spark's directories as checkpoints."""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.layouts._protocol import NOT_THERE, Named, Role
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout, diagnose
from airflow_provider_checkpoint.model import (
    CheckpointId,
    Depth,
    GenericPosition,
    Severity,
)
from tests.unit.layouts.structured_streaming.making import ARCHIVE, KINDS, LAST, LONG_AGO, NOW, Scene, batch, files_of

UUID = "c2a4ec23-e658-4144-915b-798c38fccb92"


@pytest.fixture(scope="module")
def agg():
    """Only looked at."""
    return Scene.of("hdfs_agg").layout


# -- healthy directories -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hadoop_checksums", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_of_a_healthy_directory_is_proven(kind, hadoop_checksums):
    layout = Scene.of(kind, hadoop_checksums=hadoop_checksums).layout
    ids = layout.candidates()
    assert ids[-1] == batch(LAST[kind])
    for checkpoint_id in ids:
        issues = layout.prove(checkpoint_id)
        assert {issue.code for issue in issues} <= {"partly_proven"}
        assert all(issue.severity is Severity.WARNING for issue in issues)


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_of_what_a_batch_names_is_as_good(kind):
    """What is not named is not needed: the batch is proven just as well without it."""
    scene = Scene.of(kind)
    newest = scene.layout.candidates()[-1]
    clone = Scene()
    for artifact in scene.layout.load(newest).artifacts:
        clone.put(artifact.key, scene.read(artifact.key))
    clone.put(f"commits/{newest}", scene.read(f"commits/{newest}"))
    assert len(clone.keys) < len(scene.keys)
    assert [issue for issue in clone.layout.prove(newest) if issue.severity is Severity.ERROR] == []


#: Files that Spark writes anew, or does without: descriptions, checksums, and where a rate source began.
SPARED = re.compile(r"state/.*/_metadata/.*|.*crc|sources/./0")


@pytest.mark.parametrize("kind", ["hdfs_agg", "rocks", "rocks_v2", "tws", "union_two", "rate"])
def test_nothing_that_a_batch_names_can_be_missing_in_silence(kind):
    scene = Scene.of(kind)
    newest = scene.layout.candidates()[-1]
    for artifact in scene.layout.load(newest).artifacts:
        if SPARED.fullmatch(artifact.key):
            continue
        body = scene.read(artifact.key)
        scene.directory.delete([artifact.key])
        found = scene.layout.prove(newest, Depth.PRESENCE)
        # Without a snapshot the changes before it are needed instead; only if all of them are there is nothing wrong.
        assert found or artifact.key.endswith((".snapshot", ".zip")), artifact.key
        scene.put(artifact.key, body)


@pytest.mark.parametrize("kind", ["stateless", "hdfs", "rocksdb_changelog"])
def test_directories_of_spark_3_5_are_read_as_well(kind):
    scene = Scene()
    with zipfile.ZipFile(ARCHIVE.with_name("spark35.zip")) as archive:
        for name in archive.namelist():
            if name.startswith(f"{kind}/") and not name.endswith("/"):
                scene.put(name.removeprefix(f"{kind}/"), archive.read(name))
    diagnosis = diagnose(scene.layout)
    assert (diagnosis.findings, diagnosis.writer) == ((), "3.x")
    assert diagnosis.recoverable == (5, 4, 3, 2, 1, 0)


# -- reading -----------------------------------------------------------------------------------------------------


def test_a_batch_is_a_checkpoint(agg):
    checkpoint = agg.load(batch(11))
    assert (checkpoint.id, checkpoint.epoch, checkpoint.timeline) == (CheckpointId(11), 11, 1)
    planned = json.loads(files_of("hdfs_agg")["offsets/11"].split(b"\n")[1])["batchTimestampMs"]
    assert checkpoint.created == datetime.fromtimestamp(planned / 1000, UTC)
    assert checkpoint.sources == {"0": GenericPosition(connector_type="file_source", offsets={"logOffset": "11"})}
    assert checkpoint.watermark is None
    state = [artifact for artifact in checkpoint.artifacts if artifact.key.startswith("state/0/1/")]
    assert {(artifact.operator, artifact.partition) for artifact in state} == {("0", 1)}
    keys = {artifact.key for artifact in checkpoint.artifacts}
    assert {"metadata", "offsets/11", "offsets/10", "sources/0/9.compact", "sources/0/10", "sources/0/11"} <= keys
    assert not {"offsets/9", "sources/0/8", "commits/11"} & keys


def test_the_watermark_is_the_one_that_the_next_batch_would_use():
    assert Scene.of("hdfs_join").layout.load(batch(12)).watermark == 1767225960000


def test_the_first_batch_needs_no_offsets_before_it(agg):
    assert not [issue for issue in agg.prove(batch(0)) if issue.severity is Severity.ERROR]
    assert "offsets/-1" not in {artifact.key for artifact in agg.load(batch(0)).artifacts}


def test_named_sources_of_offsets_version_2_have_their_folder():
    checkpoint = Scene.of("offsets_v2").layout.load(batch(3))
    assert checkpoint.source_names == ("alpha",)
    assert "sources/alpha/3" in {artifact.key for artifact in checkpoint.artifacts}


def test_a_query_may_gain_a_named_source_but_not_lose_one():
    scene = Scene.of("offsets_v2")
    body = scene.read("offsets/11")
    assert b'enableSourceEvolution":"true"' in body
    scene.put("offsets/11", body + b"\nbeta:-")
    assert not [issue for issue in scene.layout.prove(batch(11)) if issue.severity is Severity.ERROR]
    assert diagnose(scene.layout).healthy
    scene.put("offsets/11", body.replace(b"\nalpha:", b"\nbeta:"))
    assert "source_count" in {issue.code for issue in scene.layout.prove(batch(11))}
    scene.put("offsets/11", body.replace(b'Evolution":"true"', b'Evolution":"false"') + b"\nbeta:-")
    assert "source_count" in {issue.code for issue in scene.layout.prove(batch(11))}


def test_the_name_of_a_source_may_begin_with_an_underscore():
    scene = Scene()
    for key, body in files_of("offsets_v2").items():
        text = body.replace(b"\nalpha:", b"\n_alpha:") if key.startswith("offsets/") else body
        scene.put(key.replace("sources/alpha/", "sources/_alpha/"), text)
    assert scene.layout.load(batch(3)).source_names == ("_alpha",)
    assert not [issue for issue in scene.layout.prove(batch(11)) if issue.severity is Severity.ERROR]


def test_the_stores_of_a_join_are_all_needed():
    artifacts = Scene.of("rocks_join_v2").layout.load(batch(5)).artifacts
    stores = {artifact.operator for artifact in artifacts if artifact.key.endswith(".changelog")}
    assert stores == {
        f"0/{side}-{store}" for side in ("left", "right") for store in ("keyToNumValues", "keyWithIndexToValue")
    }


def test_tables_have_the_size_that_their_snapshot_tells():
    scene = Scene.of("rocks")
    tables = [artifact for artifact in scene.layout.load(batch(11)).artifacts if artifact.key.endswith(".sst")]
    assert tables
    assert all(len(scene.read(table.key)) == table.size for table in tables)


def test_a_batch_that_sparks_clean_up_has_reached_is_no_checkpoint_any_more():
    layout = Scene.of("purged").layout
    assert layout.candidates() == [batch(9), batch(10), batch(11)]


def test_a_batch_without_a_time_has_that_of_its_commit():
    scene = Scene.of("stateless")
    body = scene.read("offsets/5").split(b"\n")
    for metadata in (b"{}", b'{"batchTimestampMs":9223372036854775807}'):
        scene.put("offsets/5", b"\n".join([body[0], metadata, *body[2:]]))
        assert scene.layout.load(batch(5)).created == LONG_AGO


def test_uncommitted_batches_are_no_checkpoints_but_belong_to_the_last_one():
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/(10|11)")
    layout = scene.layout
    assert layout.candidates()[-1] == layout.read_pointer() == batch(9)
    with pytest.raises(CheckpointNotFoundError):
        layout.load(batch(10))
    keys = {artifact.key for artifact in layout.load(batch(9)).artifacts}
    assert {"offsets/10", "offsets/11", "sources/0/10", "sources/0/11"} <= keys
    assert "offsets/10" not in {artifact.key for artifact in layout.load(batch(8)).artifacts}


def test_a_planned_batch_that_is_damaged_does_not_speak_against_the_committed_one():
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/11")
    scene.put("offsets/11", b"")
    assert not [issue for issue in scene.layout.prove(batch(10)) if issue.severity is Severity.ERROR]


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "9223372036854775808", "9" * 30, "٣"])
def test_what_is_no_number_of_a_batch_is_refused(agg, text):
    with pytest.raises(ConfigurationError):
        agg.parse_id(text)


@pytest.mark.parametrize("value", ["x", -1, 2**63, 99])
def test_a_batch_that_is_not_there_is_not_found(agg, value):
    with pytest.raises(CheckpointNotFoundError) as caught:
        agg.load(CheckpointId(value))
    # What a prune took comes back; the same is said of it whatever the layout.
    assert caught.value.hint == NOT_THERE
    assert [issue.code for issue in agg.examine(CheckpointId(value)).issues] == ["manifest_missing"]


@pytest.mark.parametrize(
    ("key", "body"), [("commits/5", b""), ("commits/5", b"v1\n{"), ("offsets/5", b"v1"), ("offsets/5", None)]
)
def test_damaged_logs_of_a_batch_are_a_corrupt_manifest(key, body):
    scene = Scene.of("hdfs_agg")
    scene.directory.delete([key])
    if body is not None:
        scene.put(key, body)
    with pytest.raises(CorruptManifestError):
        scene.layout.load(batch(5))
    assert [issue.code for issue in scene.layout.examine(batch(5)).issues] == ["manifest_corrupt"]


# -- how much it asks of the store -------------------------------------------------------------------------------


def test_one_listing_serves_every_batch_and_no_log_is_read_twice():
    scene = Scene.of("rocks_v2")
    faulty = FaultyBlobs(scene.directory)
    layout = StructuredStreamingLayout(faulty, records=scene.records)
    ids = layout.candidates()
    for checkpoint_id in ids:
        layout.examine(checkpoint_id)
    assert faulty.calls["list"] == 1
    reads = faulty.calls["read"]
    for checkpoint_id in ids:
        layout.examine(checkpoint_id)
    # Only the commits: whether a batch exists is always asked afresh.
    assert faulty.calls["read"] == reads + len(ids)
    assert faulty.calls["list"] == 1


def test_candidates_are_always_listed_afresh():
    scene = Scene.of("hdfs_agg")
    layout = scene.layout
    assert layout.candidates()[-1] == batch(11)
    scene.remove("commits/11")
    assert layout.candidates()[-1] == batch(10)
    with pytest.raises(CheckpointNotFoundError):
        layout.load(batch(11))


def test_a_batch_committed_since_the_listing_is_found():
    scene = Scene.of("hdfs_agg")
    body = scene.read("commits/11")
    scene.remove("commits/11")
    layout = scene.layout
    layout.candidates()
    scene.put("commits/11", body)
    assert layout.load(batch(11)).epoch == 11


def test_a_listing_is_not_believed_for_long():
    scene = Scene.of("hdfs_agg")
    moments = itertools.count(step=61)
    layout = StructuredStreamingLayout(scene.directory, records=scene.records, monotonic=lambda: next(moments))
    layout.load(batch(11))
    scene.put("state/0/0/12.snapshot", b"new")
    assert "state/0/0/12.snapshot" in {artifact.key for artifact in layout.load(batch(11)).artifacts}


def test_a_file_that_is_written_again_is_read_again():
    scene = Scene.of("hdfs_agg")
    layout = scene.layout
    assert layout.load(batch(5)).source_names == ("0",)
    scene.put("offsets/5", scene.read("offsets/5") + b"\n17")
    layout.candidates()
    assert layout.load(batch(5)).source_names == ("0", "1")


# -- names -------------------------------------------------------------------------------------------------------

ARTIFACTS = [
    "offsets/3",
    "offsets/.3.crc",
    "commits/.3.crc",
    "sources/0/3",
    "sources/alpha/9.compact",
    "state/0/0/3.delta",
    "state/0/0/.3.delta.crc",
    "state/0/1/left-keyToNumValues/3.snapshot",
    f"state/0/0/3_{UUID}.zip",
    f"state/0/0/3_{UUID}.zip.crc",
    f"state/0/0/.3_{UUID}.zip.crc.crc",
    f"state/0/0/SSTs/000009-{UUID}.sst",
    "state/0/_metadata/metadata",
    "state/0/_metadata/v2/0",
    "state/0/0/_metadata/schema",
    f"state/0/_stateSchema/default/0_{UUID}",
    # What a killed process left.
    f"offsets/.12.{UUID}.tmp",
    f"offsets/..12.{UUID}.tmp.crc",
    f"state/0/0/.7.delta.{UUID}.TID31.tmp",
    f"state/0/0/..7.delta.{UUID}.TID31.tmp.crc",
]
UNKNOWN = [
    "metadata",
    ".metadata.crc",
    "README.md",
    "offsets/03",
    "offsets/x",
    "offsets/3/4",
    "offsets/9223372036854775808",
    "commits/3.bak",
    "state/0/0/3.delta.bak",
    "state/0/0/3.txt",
    f"state/0/0/logs/000012-{UUID}.log",
    "state/0/0/SSTs/evil.sst",
    f".x.{UUID}.tmp",
    f"elsewhere/.x.{UUID}.tmp",
    "seals/x.json",
]


@pytest.mark.parametrize("key", ARTIFACTS)
def test_what_batches_need_may_go_when_none_does(agg, key):
    assert agg.named(key) == Named(Role.ARTIFACT)


@pytest.mark.parametrize("key", UNKNOWN)
def test_everything_else_is_never_touched(agg, key):
    assert agg.named(key) == Named(Role.UNKNOWN)


def test_commits_seals_and_records_have_roles_of_their_own(agg):
    assert agg.named("commits/7") == Named(Role.MANIFEST, batch(7))
    assert agg.named("seals/7.json") == Named(Role.ARTIFACT, batch(7))
    assert agg.named("pins/x.json") == Named(Role.HOUSEKEEPING)
    assert agg.manifest_keys(batch(7)) == ["commits/7"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_real_directory_is_known_but_the_id_of_the_query(kind):
    scene = Scene.of(kind, hadoop_checksums=True)
    unknown = {key for key in scene.keys if scene.layout.named(key).role is Role.UNKNOWN}
    assert unknown <= {"metadata", ".metadata.crc"}


# -- is the query running? ---------------------------------------------------------------------------------------


def test_a_directory_is_idle_when_nothing_was_written_for_long_enough():
    scene = Scene.of("hdfs_agg")
    quarter = timedelta(minutes=15)
    assert scene.layout.alive(LONG_AGO + quarter) is None
    assert "seconds ago" in scene.layout.alive(LONG_AGO + quarter - timedelta(seconds=1))
    patient = StructuredStreamingLayout(scene.directory, records=scene.records, idle_seconds=3600)
    assert patient.alive(LONG_AGO + quarter) is not None


@pytest.mark.parametrize(
    ("key", "alive"),
    [
        ("offsets/12", True),
        ("commits/12", True),
        ("sources/0/12", True),
        ("state/0/0/13.delta", True),
        (f"state/0/0/.13.delta.{UUID}.TID3.tmp", True),
        ("commits/3", False),
        ("notes.txt", False),
    ],
)
def test_a_new_file_of_the_query_says_that_it_runs_but_a_commit_from_the_trash_does_not(key, alive):
    scene = Scene.of("hdfs_agg")
    young = MemoryBlobs(clock=lambda: NOW)
    young.replace(key, b"v1\n{}")
    scene.directory._objects[key] = young._objects[key]
    reason = scene.layout.alive(NOW)
    assert (reason == f"{key} was written 0 seconds ago") if alive else reason is None


def test_a_directory_whose_store_tells_no_times_may_be_in_use():
    scene = Scene()
    assert scene.layout.alive(NOW) == "the store does not tell when its files were written"


@pytest.mark.parametrize("seconds", [0, 59, -1, float("nan")])
def test_no_setting_makes_a_directory_idle_at_once(seconds):
    with pytest.raises(ConfigurationError, match="at least 60"):
        StructuredStreamingLayout(MemoryBlobs(), records=MemoryBlobs(), idle_seconds=seconds)


def test_records_in_the_directory_itself_are_refused():
    with pytest.raises(ConfigurationError, match="must not lie in"):
        StructuredStreamingLayout(MemoryBlobs("x"))


# -- hostile directories -----------------------------------------------------------------------------------------


def test_absurd_numbers_cost_nothing():
    scene = Scene.of("hdfs_agg")
    last = 2**63 - 1
    scene.put(f"commits/{last}", scene.read("commits/11"))
    body = scene.read("offsets/11").replace(b'partitions":"2"', b'partitions":"1000000"')
    scene.put(f"offsets/{last}", body.replace(b'"logOffset":11', b'"logOffset":9223372036854775807'))
    examined = scene.layout.examine(batch(last))
    assert examined.checkpoint is not None
    assert len(examined.checkpoint.artifacts) < 1000
    assert {issue.code for issue in examined.issues} == {"source_log_missing"}
    assert scene.layout.prove(batch(last), Depth.PRESENCE)


def test_files_of_every_directory_are_small():
    assert sum(len(body) for kind in KINDS for body in files_of(kind).values()) < 3_000_000
