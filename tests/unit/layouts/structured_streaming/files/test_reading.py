"""How much is fetched, and what a failing store does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import StoreUnavailableError
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    FileKind,
    _inspect,
    _sst,
    inspect_file,
    read_lineage,
    read_zip_metadata,
)
from tests.unit.layouts.structured_streaming.files.making import lz4_stream, records, text
from tests.unit.layouts.structured_streaming.files.samples import kind_of, names, sample


class Counting(MemoryBlobs):
    """Counts what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []
        self.answer = True

    def read(self, key, *, start=0, length=None):
        if not self.answer:
            raise StoreUnavailableError("no answer", subject=key)
        data = super().read(key, start=start, length=length)
        self.reads.append(len(data))
        return data

    def stream(self, key, *, start=0, length=None):
        yield self.read(key, start=start, length=length)


def stored(name: str, data: bytes) -> Counting:
    blobs = Counting()
    blobs.create(name, data)
    return blobs


def test_the_metadata_of_a_small_zip_costs_one_read():
    blobs = stored("x", sample("rocksdb_changelog.zip"))
    read_zip_metadata(blobs, "x")
    assert len(blobs.reads) == 1


def test_the_metadata_of_a_large_zip_costs_a_few_small_reads(monkeypatch):
    blobs = stored("x", sample("rocksdb_changelog.zip"))
    right = read_zip_metadata(blobs, "x")
    blobs.reads.clear()
    for tail in (22, 100, 400, 1000, 3000):
        monkeypatch.setattr(_inspect, "_TAIL", tail)
        assert read_zip_metadata(blobs, "x") == right
    assert len(blobs.reads) <= 3 * 5


def test_a_lineage_costs_the_beginning_of_a_large_file():
    import random

    body = records((random.Random(n).randbytes(20), random.Random(n).randbytes(100)) for n in range(5000))
    header = text("v3") + text('[{"version":3,"checkpointUniqueId":"a"}]')
    blobs = stored("x", lz4_stream(header + body))
    assert read_lineage(blobs, "x") == ((3, "a"),)
    assert sum(blobs.reads) <= 64 * 1024


def test_a_lineage_that_is_longer_than_the_beginning_is_read_whole(monkeypatch):
    items = ",".join(f'{{"version":{n},"checkpointUniqueId":"{n:036}"}}' for n in range(600))
    blobs = stored("x", lz4_stream(text("v3") + text(f"[{items}]") + records([])))
    monkeypatch.setattr(_inspect, "_TAIL", 1000)
    assert len(read_lineage(blobs, "x")) == 600


@pytest.mark.parametrize("name", names(FileKind.SST))
def test_a_large_table_is_read_once_in_windows(name, monkeypatch):
    data = sample(name)
    monkeypatch.setattr(_sst, "_WINDOW", max(600, len(data) // 8))
    monkeypatch.setattr(_sst, "_TAIL", 300)
    blobs = stored("x", data)
    facts = inspect_file(blobs, "x", kind=FileKind.SST)
    assert facts.issues == ()
    assert facts.records == inspect_file(stored("x", data), "x", kind=FileKind.SST).records
    # The end, which holds the index, is fetched beforehand; nothing else twice.
    assert sum(blobs.reads) <= len(data) * 3
    assert len(blobs.reads) <= 24


@pytest.mark.parametrize("name", names(FileKind.SST))
def test_a_small_table_is_read_in_one_go(name):
    blobs = stored("x", sample(name))
    inspect_file(blobs, "x", kind=FileKind.SST)
    assert blobs.reads == [len(sample(name))]


@pytest.mark.parametrize("name", names())
def test_a_store_that_does_not_answer_is_not_damage(name):
    blobs = stored(name, sample(name))
    blobs.answer = False
    with pytest.raises(StoreUnavailableError):
        inspect_file(blobs, name, kind=kind_of(name))


def test_files_are_proven_side_by_side():
    blobs = MemoryBlobs()
    for name in names():
        blobs.create(name, sample(name))
    with ThreadPoolExecutor(8) as pool:
        facts = list(pool.map(lambda name: inspect_file(blobs, name, kind=kind_of(name)), names() * 5))
    assert not [issue for found in facts for issue in found.issues]
