"""Seals find what no checksum of Spark's can: a file that is whole and wrong."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs, SimulatedCrash
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptArtifactError,
    CorruptManifestError,
    TransientError,
)
from airflow_provider_checkpoint.layouts.structured_streaming import (
    Seal,
    StructuredStreamingLayout,
    diagnose,
    read_seal,
    seal,
)
from airflow_provider_checkpoint.model import Depth, Severity
from tests.unit.layouts.structured_streaming.making import KINDS, LAST, NOW, Scene, batch


def sealed(kind, number=11):
    scene = Scene.of(kind)
    seal(scene.layout, batch(number), clock=lambda: NOW)
    return scene


def errors(scene, number=11, depth=Depth.CONTENT):
    return {issue.code for issue in scene.layout.prove(batch(number), depth) if issue.severity is Severity.ERROR}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seal_holds_the_digest_of_every_file_a_batch_needs(kind):
    scene = Scene.of(kind, hadoop_checksums=True)
    taken = seal(scene.layout, batch(LAST[kind]), clock=lambda: NOW)
    assert read_seal(scene.layout.blobs, LAST[kind]) == taken
    checkpoint = scene.layout.load(batch(LAST[kind]))
    digests = {artifact.key: artifact.sha256 for artifact in checkpoint.artifacts if not artifact.key.endswith(".crc")}
    del digests[f"seals/{LAST[kind]}.json"]
    assert digests | {f"commits/{LAST[kind]}": None} == {
        file.key: file.sha256 if file.key in digests else None for file in taken.files
    }
    assert None not in digests.values()


def test_a_seal_is_canonical_json_beside_the_directory():
    scene = sealed("hdfs_agg")
    body = scene.records.read("seals/11.json")
    values = json.loads(body)
    assert body == json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    assert [file["key"] for file in values["files"]] == sorted(file["key"] for file in values["files"])
    assert not any(key.startswith("seals") for key in scene.keys)


CHANGES = {
    "an older copy of a delta": lambda s: s.put("state/0/0/12.delta", s.read("state/0/0/11.delta")),
    "an edited position": lambda s: s.put("offsets/11", s.read("offsets/11").replace(b'Offset":11', b'Offset":10')),
    "an edited commit": lambda s: s.put("commits/11", b'v1\n{"nextBatchWatermarkMs":9}'),
    "another query": lambda s: s.put("metadata", b'{"id":"c2a4ec23-e658-4144-915b-798c38fccb92"}'),
    "another log of a source": lambda s: s.put("sources/0/11", s.read("sources/0/10")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_is_whole_and_wrong_is_found(name):
    scene = sealed("hdfs_agg")
    assert errors(scene) == set()
    CHANGES[name](scene)
    assert "sealed_file_changed" in errors(scene)
    assert not diagnose(scene.layout).healthy


@pytest.mark.parametrize("name", CHANGES)
def test_sealing_again_says_that_files_have_changed_since(name):
    scene = sealed("hdfs_agg")
    before = scene.records.read("seals/11.json")
    CHANGES[name](scene)
    with pytest.raises(CheckpointConflictError, match="have changed since it was sealed"):
        seal(scene.layout, batch(11))
    assert scene.records.read("seals/11.json") == before


def test_diagnose_tells_a_sealed_file_that_spark_trips_over_from_one_that_it_takes():
    def said(scene):
        (finding,) = (each for each in diagnose(scene.layout).findings if each.subject == "state/0/0/12.delta")
        assert finding.code == "sealed_file_changed"
        return finding.spark_says

    scene = sealed("hdfs_agg")
    scene.put("state/0/0/12.delta", scene.read("state/0/0/11.delta"))
    assert said(scene).startswith("nothing: the query starts")
    scene = sealed("hdfs_agg")
    scene.put("state/0/0/12.delta", scene.read("state/0/0/12.delta")[:-5])
    assert "EOFException" in said(scene)


def test_sealing_again_answers_with_the_standing_seal():
    scene = sealed("hdfs_agg")
    assert seal(scene.layout, batch(11)).sealed == NOW


def test_a_snapshot_that_spark_writes_later_does_not_contradict_the_seal():
    scene = Scene.of("hdfs_agg")
    key = scene.find("state/0/0/11.snapshot")
    late = scene.read(key)
    scene.directory.delete([key])
    first = seal(scene.layout, batch(11), clock=lambda: NOW)
    scene.put(key, late)
    assert errors(scene) == set()
    assert seal(scene.layout, batch(11)) == first


def test_a_sealed_snapshot_that_was_swapped_is_an_error_because_spark_would_take_it():
    scene = sealed("hdfs_agg")
    scene.put("state/0/0/11.snapshot", scene.read("state/0/1/11.snapshot"))
    assert errors(scene) == {"sealed_file_changed"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.flip("state/0/0/12.delta", 0.7), "not whole"),
        (lambda s: s.remove("state/0/1/12.delta"), "not whole"),
        (lambda s: s.put("offsets/11", b""), "not whole"),
    ],
)
def test_a_batch_that_is_not_whole_is_not_sealed(damage, message):
    scene = Scene.of("hdfs_agg")
    damage(scene)
    with pytest.raises(CorruptArtifactError, match=message):
        seal(scene.layout, batch(11))
    assert list(scene.records.list()) == []


def test_a_batch_that_is_not_committed_is_not_sealed():
    with pytest.raises(CheckpointNotFoundError):
        seal(Scene.of("hdfs_agg").layout, batch(12))


def test_the_batch_planned_next_is_not_part_of_a_seal():
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/11")
    files = {file.key for file in seal(scene.layout, batch(10)).files}
    assert "offsets/10" in files
    assert not {"offsets/11", "sources/0/11"} & files


def test_a_seal_makes_a_lost_id_known_again():
    scene = sealed("hdfs_agg")
    query_id = scene.layout.query_id()
    scene.remove("metadata")
    finding = next(f for f in diagnose(scene.layout).findings if f.code == "metadata_missing")
    assert f'{{"id":"{query_id}"}}' in finding.fix


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"batch":11}'])
def test_a_damaged_seal_is_a_warning_and_a_typed_error(body):
    scene = sealed("hdfs_agg")
    scene.records.replace("seals/11.json", body)
    assert "seal_unreadable" in {issue.code for issue in scene.layout.examine(batch(11)).issues}
    assert errors(scene) == set()
    with pytest.raises(CorruptManifestError):
        seal(scene.layout, batch(11))


def test_a_seal_of_another_batch_is_not_believed():
    scene = sealed("hdfs_agg")
    scene.records.replace("seals/10.json", scene.records.read("seals/11.json"))
    with pytest.raises(CorruptManifestError, match="speaks of batch 11"):
        read_seal(scene.records, 10)


def test_a_sealed_batch_is_proven_by_digests_alone():
    scene = sealed("rocks")
    faulty = FaultyBlobs(scene.directory)
    layout = StructuredStreamingLayout(faulty, records=scene.records)
    for check in layout.checks(layout.load(batch(11)), Depth.CONTENT):
        assert check.run() == []
    needed = {file.key for file in read_seal(scene.records, 11).files}
    assert faulty.calls["stream"] == len(needed)


def test_a_seal_goes_through_json():
    taken = seal(Scene.of("stateless").layout, batch(11), clock=lambda: NOW)
    assert Seal.model_validate_json(taken.model_dump_json()) == taken


def test_a_lost_answer_or_a_death_leaves_a_whole_seal_or_none():
    scene = Scene.of("stateless")
    records = FaultyBlobs(MemoryBlobs("r"))
    records.inject(Fault.LOST_ANSWER, verb="create", match="seals/")
    layout = StructuredStreamingLayout(scene.directory, records=records)
    with pytest.raises(TransientError):
        seal(layout, batch(11), clock=lambda: NOW)
    assert seal(layout, batch(11)).sealed == NOW
    for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
        inner = MemoryBlobs("r")
        records = FaultyBlobs(inner)
        records.inject(fault, verb="create", match="seals/")
        with pytest.raises(SimulatedCrash):
            seal(StructuredStreamingLayout(scene.directory, records=records), batch(11))
        again = StructuredStreamingLayout(scene.directory, records=inner)
        assert seal(again, batch(11)) == read_seal(inner, 11)
