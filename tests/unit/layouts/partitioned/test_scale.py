"""Manifests of absurd size or shape load, or are refused, in bounded time."""

from __future__ import annotations

import json
import time

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts.partitioned import (
    PartitionedLayout,
    SourceEntry,
    decode_manifest,
    encode_manifest,
)
from airflow_provider_checkpoint.layouts.partitioned._paths import locate, operator_folder
from tests.unit.layouts.partitioned.samples import M1, M1_ID, entry, manifest

MANY = 1_000_000
#: Generous: these take seconds on a slow machine, and would take hours if something were quadratic.
BOUND = 60


@pytest.fixture(autouse=True)
def _bounded():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BOUND


def with_raw(key: str, raw: str) -> bytes:
    return M1[:-2] + f', "{key}": {raw}}}'.encode()


def test_a_million_offsets_load():
    offsets = {f"shard-{n}": str(n) for n in range(MANY)}
    made = manifest(M1_ID, source_offsets={"kinesis": SourceEntry(source_type="kinesis", offsets=offsets, epoch=1)})
    layout = PartitionedLayout(MemoryBlobs())
    layout.blobs.create(f"{M1_ID}/manifest.json", encode_manifest(made))
    assert len(layout.load(M1_ID).sources["kinesis"].offsets) == MANY


def test_tens_of_thousands_of_partitions_load_and_resolve():
    count = 50_000
    made = manifest(M1_ID, [("op", entry(M1_ID, "op", n, b"x")) for n in range(count)])
    layout = PartitionedLayout(MemoryBlobs())
    layout.save_manifest(made)
    examined = layout.examine(M1_ID)
    assert examined.issues == []
    assert examined.checkpoint is not None
    assert len(examined.checkpoint.artifacts) == len(layout.resolve(made)) == count


def test_a_million_unknown_keys_are_ignored():
    raw = "{" + ",".join(f'"k{n}": {n}' for n in range(MANY)) + "}"
    assert encode_manifest(decode_manifest(with_raw("unknown", raw), subject="m")) == M1


def test_a_million_wrong_entries_are_one_short_error():
    raw = json.dumps({"op": {"partitions": [0] * MANY}})
    data = f'{{"version": 2, "checkpoint_id": "{M1_ID}", "epoch": 1, "timestamp_ms": 1, "operators": {raw}}}'.encode()
    with pytest.raises(CorruptManifestError, match=r"operators\.op\.partitions\.0.*and 999999 more") as caught:
        decode_manifest(data, subject="m")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("key", ["unknown", "parent_id"])
def test_deep_nesting_is_refused(key, opening):
    data = M1[:-2] + f', "{key}": '.encode() + opening.encode() * MANY
    with pytest.raises(CorruptManifestError, match="nested too deeply"):
        decode_manifest(data, subject="m")


def test_a_number_of_a_million_digits_is_refused():
    data = M1.replace(b'"epoch": 10,\n  "t', b'"epoch": ' + b"9" * MANY + b',\n  "t')
    with pytest.raises(CorruptManifestError):
        decode_manifest(data, subject="m")


def test_a_path_of_a_million_segments_is_refused():
    with pytest.raises(CorruptManifestError, match="longer than"):
        locate("a/" * MANY + f"{M1_ID}/operators/op/partition-0.snap", M1_ID)


def test_an_operator_name_of_a_million_characters_is_a_short_folder():
    assert len(operator_folder("/" * MANY)) <= 180


def test_a_store_with_ten_thousand_checkpoints_is_listed_by_folders_only():
    blobs = MemoryBlobs()
    for number in range(10_000):
        blobs.create(f"0192a3b4-c5d6-7e8f-9a0b-{number:012x}/manifest.json", b"{}")
    layout = PartitionedLayout(blobs)
    assert len(layout.candidates()) == 10_000
    assert layout.next_id() > layout.candidates()[-1]
