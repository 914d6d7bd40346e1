"""A cache that can lose everything and never lies."""

from __future__ import annotations

import errno
import hashlib

import pyarrow as pa
import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptArtifactError
from airflow_provider_checkpoint.spark.cache import ArtifactCache


def stored(data: bytes) -> tuple[FaultyBlobs, str]:
    blobs = FaultyBlobs(MemoryBlobs())
    blobs.create("artifact", data)
    return blobs, hashlib.sha256(data).hexdigest()


def test_an_artifact_is_fetched_once_and_then_read_from_disk(tmp_path):
    blobs, sha256 = stored(b"state")
    cache = ArtifactCache(str(tmp_path))
    for _ in range(3):
        assert cache.load(blobs, "artifact", sha256, 5).to_pybytes() == b"state"
    assert blobs.calls["stream"] == 1


def test_an_artifact_just_written_is_not_fetched_at_all(tmp_path):
    blobs, sha256 = stored(b"state")
    cache = ArtifactCache(str(tmp_path))
    cache.keep(sha256, pa.py_buffer(b"state"))
    assert cache.load(blobs, "artifact", sha256, 5).to_pybytes() == b"state"
    assert not blobs.calls["stream"]


def test_bytes_that_do_not_match_their_digest_are_refused_and_not_kept(tmp_path):
    blobs, _ = stored(b"other")
    sha256 = hashlib.sha256(b"state").hexdigest()
    with pytest.raises(CorruptArtifactError, match="SHA-256"):
        ArtifactCache(str(tmp_path)).load(blobs, "artifact", sha256, 5)
    assert not list(tmp_path.iterdir())


def test_a_cut_file_in_the_cache_is_fetched_again(tmp_path):
    blobs, sha256 = stored(b"state")
    (tmp_path / f"{sha256}.arrow").write_bytes(b"st")
    assert ArtifactCache(str(tmp_path)).load(blobs, "artifact", sha256, 5).to_pybytes() == b"state"


def test_a_missing_artifact_leaves_nothing_behind(tmp_path):
    with pytest.raises(BlobNotFoundError):
        ArtifactCache(str(tmp_path)).load(MemoryBlobs(), "artifact", "0" * 64, 5)
    assert not list(tmp_path.iterdir())


def test_the_least_recently_used_goes_first_and_a_mapped_one_stays_readable(tmp_path):
    cache = ArtifactCache(str(tmp_path), limit=250)
    held = None
    for number in range(5):
        data = bytes([number]) * 100
        cache.keep(str(number) * 64, pa.py_buffer(data))
        if number == 0:
            held = cache.load(MemoryBlobs(), "unused", "0" * 64, 100)
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["3", "4"]
    assert held is not None
    assert held.to_pybytes() == bytes(100)


def test_an_artifact_larger_than_the_whole_cache_is_read_all_the_same(tmp_path):
    blobs, sha256 = stored(b"state")
    cache = ArtifactCache(str(tmp_path), limit=1)
    cache.keep(sha256, pa.py_buffer(b"state"))
    assert cache.load(blobs, "artifact", sha256, 5).to_pybytes() == b"state"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A folder on a disk that takes nothing more."""

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = ArtifactCache(str(tmp_path))
    monkeypatch.setattr("pathlib.Path.open", refuse)
    return cache


def test_a_full_disk_costs_time_and_nothing_else(full):
    blobs, sha256 = stored(b"state")
    full.keep(sha256, pa.py_buffer(b"state"))
    assert full.load(blobs, "artifact", sha256, 5).to_pybytes() == b"state"


def test_also_without_a_disk_bytes_that_do_not_match_their_digest_are_refused(full):
    blobs, _ = stored(b"other")
    with pytest.raises(CorruptArtifactError, match="SHA-256"):
        full.load(blobs, "artifact", hashlib.sha256(b"state").hexdigest(), 5)
