"""Records lie beside the directory; both are one store to the lifecycle."""

from __future__ import annotations

import os
from itertools import count

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, open_blobs
from airflow_provider_checkpoint.blobs._fence import probe
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts import open_store, pipelines
from airflow_provider_checkpoint.layouts.structured_streaming import (
    RecordsBeside,
    StructuredStreamingLayout,
    records_address,
    seal,
)
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.model import Pin
from tests.unit.layouts.structured_streaming.making import NOW, batch, files_of

_numbers = count()


@pytest.fixture(params=["memory", "file", "path"])
def uri(request, tmp_path):
    if request.param == "memory":
        return f"memory://beside-{next(_numbers)}"
    return tmp_path.as_uri() if request.param == "file" else str(tmp_path)


def fill(uri, folder="", kind="stateless"):
    blobs = open_blobs(uri)
    for key, body in files_of(kind).items():
        (blobs.at(folder) if folder else blobs).create(key, body)


def pin(layout):
    made = Pin(name="keep", checkpoint_id=batch(3), owner="a", reason="b", created=NOW)
    Executor(layout, by="test").pin(made)
    seal(layout, batch(11))


@pytest.mark.parametrize("pipeline", ["clicks", "team/clicks"])
def test_a_pipeline_has_its_records_in_a_folder_beside_it(uri, pipeline):
    fill(uri, pipeline)
    layout = open_store(uri, pipeline=pipeline)
    assert type(layout) is StructuredStreamingLayout
    pin(layout)
    places = {info.key.removeprefix(pipeline).partition("/")[0] for info in open_blobs(uri).list()}
    assert places == {"", ".checkpoints"}
    assert {info.key for info in open_blobs(uri).at(pipeline).list()} == set(files_of("stateless"))


def test_the_records_of_a_directory_are_found_again_however_it_is_opened(uri):
    folder = f"{uri}/clicks"
    fill(folder)
    layout = open_store(folder)
    pin(layout)
    assert layout.blobs.uri.endswith("/clicks")
    assert [info.key for info in open_store(f"{folder}/").blobs.list("pins")] == ["pins/keep.json"]
    if not uri.startswith("memory"):
        assert [info.key for info in open_store(uri, pipeline="clicks").blobs.list("pins")] == ["pins/keep.json"]
        assert [info.key for info in open_store(layout.blobs.uri).blobs.list("pins")] == ["pins/keep.json"]


def test_folders_of_records_are_no_pipelines(uri):
    for name in ("clicks", "orders"):
        fill(uri, name)
        pin(open_store(uri, pipeline=name))
    assert pipelines(uri) == ["clicks", "orders"]
    assert pipelines(uri, layout="structured_streaming") == ["clicks", "orders"]


def test_the_current_folder_has_its_records_beside_it_too(tmp_path, monkeypatch):
    fill(str(tmp_path / "clicks"))
    monkeypatch.chdir(tmp_path / "clicks")
    pin(open_store("."))
    assert sorted(os.listdir(tmp_path)) == ["clicks", "clicks.checkpoints"]
    assert set(os.listdir(".")) == {"commits", "metadata", "offsets", "sources"}


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket",
        "s3://bucket/",
        "gs://bucket",
        "/",
        "file:///",
        "file:///x/..",
        "abfss://c@a.dfs.core.windows.net/",
    ],
)
def test_a_whole_bucket_or_disk_has_nothing_beside_it(uri):
    with pytest.raises(ConfigurationError, match="whole bucket or disk"):
        records_address(uri)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b.checkpoints"),
        ("s3://bucket/a/b/", "s3://bucket/a/b.checkpoints"),
        ("file:///data/a%20b/", "file:///data/a%20b.checkpoints"),
        ("file:///data/a/../b", "file:///data/b.checkpoints"),
        ("/data/a/", "/data/a.checkpoints"),
        ("/data/a/..", "/data.checkpoints"),
        ("memory://x", "memory://x.checkpoints"),
        ("abfss://c@a.dfs.core.windows.net/p", "abfss://c@a.dfs.core.windows.net/p.checkpoints"),
    ],
)
def test_the_address_of_records(uri, expected):
    assert records_address(uri) == expected


# -- one store ---------------------------------------------------------------------------------------------------


@pytest.fixture
def both():
    return RecordsBeside(MemoryBlobs("d"), MemoryBlobs("r"))


def test_every_verb_finds_its_place(both):
    for key in ("offsets/1", "pins/a.json", "seals/1.json", "trash/1/kept/commits/1"):
        assert both.create(key, b"x").created
        assert both.read(key) == b"".join(map(bytes, both.stream(key))) == b"x"
        assert both.stat(key).key == key
        assert both.read_versioned(key)[0] == b"x"
        both.replace(key, b"y", expected=both.read_versioned(key)[1])
    assert [info.key for info in both.directory.list()] == ["offsets/1"]
    assert sorted(both.folders()) == ["offsets", "pins", "seals", "trash"]
    assert list(both.folders("trash/1")) == ["kept"]
    assert [info.key for info in both.list("seals")] == ["seals/1.json"]
    keys = ["seals/1.json", "offsets/1", "pins/a.json", "gone"]
    assert [outcome.key for outcome in both.delete(keys)] == keys
    assert [info.key for info in both.list()] == ["trash/1/kept/commits/1"]
    assert both.uri == "memory://d"


def test_what_has_a_name_of_the_other_place_is_out_of_reach(both):
    both.directory.create("audit/mine.txt", b"not a record")
    both._records.create("offsets/1", b"not an offset")
    assert list(both.list()) == list(both.folders()) == []
    assert both.stat("offsets/1") is None


def test_the_store_is_probed_beside_the_directory():
    directory = FaultyBlobs(MemoryBlobs("d"))
    assert probe(RecordsBeside(directory, MemoryBlobs("r"))).exclusive_create
    assert directory.mutations == []


def test_what_is_promised_is_what_both_promise(both):
    assert both.capabilities == MemoryBlobs().capabilities
    assert not RecordsBeside(LocalBlobs("/nowhere"), MemoryBlobs()).capabilities.durable
