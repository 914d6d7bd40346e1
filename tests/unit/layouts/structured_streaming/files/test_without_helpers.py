"""Without the extra ``native`` nothing fails: structure is checked, and what was not proven is said."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import UnsupportedError
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    FileKind,
    _native,
    read_lineage,
    verify_sidecars,
)
from tests.unit.layouts.structured_streaming.files.samples import every, kind_of, looked_at, names, sample

MODULES = ("cramjam", "google_crc32c", "lz4.block", "xxhash", "zstandard")


@pytest.fixture
def without(monkeypatch):
    """Makes modules impossible to import."""

    def block(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)
        _native.helper.cache_clear()

    yield block
    monkeypatch.undo()
    _native.helper.cache_clear()


@pytest.mark.parametrize("name", names())
def test_a_healthy_file_has_no_issue_and_what_was_not_proven_is_said(name, without):
    before = looked_at(name, sample(name))
    without(*MODULES)
    facts = looked_at(name, sample(name))
    assert facts.issues == ()
    missing = [statement for statement in facts.unproven if "extra: native" in statement]
    needs_helper = kind_of(name) not in (FileKind.ZIP, FileKind.SCHEMA) and not name.startswith("hdfs_lzf")
    assert bool(missing) == needs_helper
    assert facts.ssts == before.ssts


@pytest.mark.parametrize("name", names())
def test_a_cut_file_is_mostly_found_by_its_structure(name, without):
    without(*MODULES)
    data = sample(name)
    found = [bool(looked_at(name, data[:length]).issues) for length in range(0, len(data), 7)]
    # A snappy stream may be cut between two of its blocks; everything else says where it ends.
    assert sum(found) >= len(found) - 2 * name.startswith("hdfs_snappy")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("lz4.block", "hdfs_snapshots.delta"),
        ("xxhash", "hdfs_snapshots.delta"),
        ("zstandard", "hdfs_zstd.delta"),
        ("cramjam", "hdfs_snappy.delta"),
        ("xxhash", "rocksdb_changelog.sst"),
    ],
)
def test_each_helper_is_named_by_its_package(module, name, without):
    without(module)
    package = {"lz4.block": "lz4"}.get(module, module)
    assert any(f"{package} is not installed" in statement for statement in looked_at(name, sample(name)).unproven)


def test_records_are_walked_when_only_the_checksum_is_missing(without):
    name = "hdfs_snapshots.delta"
    before = looked_at(name, sample(name)).records
    without("xxhash")
    assert looked_at(name, sample(name)).records == before


@pytest.mark.parametrize("name", [name for name in names(FileKind.CHANGELOG) if "zstd" not in name])
def test_the_lineage_is_read_all_the_same(name, without):
    blobs = MemoryBlobs()
    blobs.create(name, sample(name))
    before = read_lineage(blobs, name)
    without(*MODULES)
    assert read_lineage(blobs, name) == before


def test_the_lineage_in_a_codec_that_needs_a_helper_says_so(without):
    blobs = MemoryBlobs()
    blobs.create("x", sample("rocksdb_zstd.changelog"))
    without(*MODULES)
    with pytest.raises(UnsupportedError, match="native"):
        read_lineage(blobs, "x")


def test_sidecars_are_compared_as_far_as_possible(without):
    name = "rocksdb_format2.changelog"
    blobs = MemoryBlobs()
    for key in (name, f"{name}.crc", f".{name}.crc"):
        blobs.create(key, every()[key])
    keys = {info.key for info in blobs.list()}
    without(*MODULES)
    # Hadoop's sums are of a kind that Python has; Spark's are not.
    assert [issue.code for issue in verify_sidecars(blobs, name, keys)] == ["crc_unproven"]
    assert verify_sidecars(blobs, name, {f".{name}.crc"}) == ()
    blobs.replace(name, sample(name)[:-1])
    assert "crc_mismatch" in [issue.code for issue in verify_sidecars(blobs, name, keys)]
