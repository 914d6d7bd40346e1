"""Files of healthy directories are whole, and say what they hold."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import BlobNotFoundError
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    FileKind,
    inspect_file,
    read_lineage,
    read_zip_metadata,
)
from tests.unit.layouts.structured_streaming.files.samples import WITHOUT_CHECKSUM, kind_of, looked_at, names, sample


def stored(name: str) -> MemoryBlobs:
    blobs = MemoryBlobs()
    blobs.create(name, sample(name))
    return blobs


def test_there_is_a_sample_of_every_kind_and_codec():
    assert {kind_of(name) for name in names()} == set(FileKind)
    starts = {sample(name)[:2] for name in names(FileKind.DELTA, FileKind.CHANGELOG)}
    assert starts == {b"LZ", b"(\xb5", b"\x82S", b"ZV"}


@pytest.mark.parametrize("name", names())
def test_a_healthy_file_has_no_issue(name):
    facts = looked_at(name, sample(name), size=len(sample(name)))
    assert facts.issues == ()
    told = any("checksum" in statement for statement in facts.unproven)
    assert told == (name in WITHOUT_CHECKSUM or kind_of(name) is FileKind.SCHEMA)


@pytest.mark.parametrize("name", names(FileKind.DELTA, FileKind.SNAPSHOT, FileKind.CHANGELOG, FileKind.SST))
def test_records_are_counted(name):
    records = looked_at(name, sample(name)).records
    assert records is not None
    assert records > 0


@pytest.mark.parametrize("name", names(FileKind.CHANGELOG))
def test_only_a_changelog_of_format_2_has_a_lineage_and_its_beginning_tells(name):
    lineage = looked_at(name, sample(name)).lineage
    assert bool(lineage) == ("format2" in name)
    assert read_lineage(stored(name), name) == lineage
    assert [version for version, _ in lineage] == sorted(version for version, _ in lineage)


@pytest.mark.parametrize("name", names(FileKind.ZIP))
def test_a_zip_names_its_tables_and_its_metadata_can_be_read_alone(name):
    facts = looked_at(name, sample(name))
    assert facts.ssts
    assert facts.num_keys is not None
    metadata = read_zip_metadata(stored(name), name)
    assert (metadata.ssts, metadata.logs, metadata.num_keys) == (facts.ssts, facts.logs, facts.num_keys)
    largest = max(facts.ssts, key=lambda ref: ref.size)
    assert largest.size == len(sample(name.replace(".zip", ".sst")))


@pytest.mark.parametrize("name", names())
def test_another_size_than_expected_is_an_issue(name):
    facts = looked_at(name, sample(name), size=len(sample(name)) + 1)
    assert [issue.code for issue in facts.issues] in (["size_mismatch"], ["state_truncated"])


@pytest.mark.parametrize("kind", FileKind)
def test_a_missing_object_is_an_issue(kind):
    facts = inspect_file(MemoryBlobs(), "gone", kind=kind)
    assert [issue.code for issue in facts.issues] == ["artifact_missing"]


def test_what_is_asked_of_a_missing_object_raises():
    with pytest.raises(BlobNotFoundError):
        read_zip_metadata(MemoryBlobs(), "gone")
    with pytest.raises(BlobNotFoundError):
        read_lineage(MemoryBlobs(), "gone")


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("lz4", "hdfs_snapshots.delta"),
        ("zstd", "hdfs_zstd.delta"),
        ("snappy", "hdfs_snappy.delta"),
        ("lzf", "hdfs_lzf.delta"),
        ("org.apache.spark.io.ZStdCompressionCodec", "hdfs_zstd.delta"),
    ],
)
def test_the_codec_of_the_query_must_be_that_of_the_file(codec, name):
    assert looked_at(name, sample(name), codec=codec).issues == ()
    other = "zstd" if "zstd" not in codec.lower() else "lz4"
    assert [issue.code for issue in looked_at(name, sample(name), codec=other).issues] == ["state_corrupt"]
