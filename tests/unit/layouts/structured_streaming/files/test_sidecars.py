"""Checksums beside a file: Hadoop's with a dot in front, Spark's without."""

from __future__ import annotations

import json
import struct
import zlib

import google_crc32c
import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.layouts.structured_streaming.files import verify_sidecars
from tests.unit.layouts.structured_streaming.files.samples import every, names, sample

BESIDE = [name for name in names() if f".{name}.crc" in every()]


def stored(name: str, data: bytes | None = None) -> MemoryBlobs:
    blobs = MemoryBlobs()
    for key in (name, f"{name}.crc", f".{name}.crc"):
        if key in every():
            blobs.create(f"state/{key}", every()[key])
    if data is not None:
        blobs.replace(f"state/{name}", data)
    return blobs


def codes(blobs: MemoryBlobs, key: str) -> list[str]:
    names = {info.key for info in blobs.list()}
    return [issue.code for issue in verify_sidecars(blobs, key, names)]


def hadoop(data: bytes, *, size: int = 512, older: bool = False) -> bytes:
    compute = zlib.crc32 if older else google_crc32c.value
    sums = [struct.pack(">I", compute(data[start : start + size])) for start in range(0, len(data), size)]
    return b"crc\0" + struct.pack(">i", size) + b"".join(sums)


@pytest.mark.parametrize("name", BESIDE)
def test_a_healthy_file_agrees_with_what_lies_beside_it(name):
    assert codes(stored(name), f"state/{name}") == []


@pytest.mark.parametrize("name", BESIDE)
def test_any_change_is_found(name):
    data = sample(name)
    for place in range(0, len(data), max(1, len(data) // 50)):
        changed = bytearray(data)
        changed[place] ^= 1
        for damaged in (bytes(changed), data[:place], data + b"x"):
            assert set(codes(stored(name, damaged), f"state/{name}")) == {"crc_mismatch"}


def test_sidecars_that_the_listing_does_not_show_are_not_asked_for():
    name = "rocksdb_format2.changelog"
    assert verify_sidecars(stored(name, b"changed"), f"state/{name}", {f"state/{name}"}) == ()


def test_a_sidecar_that_went_away_since_the_listing_says_nothing():
    blobs = MemoryBlobs()
    blobs.create("x", b"data")
    assert verify_sidecars(blobs, "x", {"x", "x.crc", ".x.crc"}) == ()


def test_a_file_that_went_away_is_missing():
    blobs = MemoryBlobs()
    blobs.create(".x.crc", hadoop(b"data"))
    assert codes(blobs, "x") == ["artifact_missing"]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000])
def test_hadoop_sums_of_both_kinds_are_known(older, size):
    data = bytes(range(256)) * 20
    blobs = MemoryBlobs()
    blobs.create("x", data[:size])
    blobs.create(".x.crc", hadoop(data[:size], older=older))
    assert codes(blobs, "x") == []
    blobs.replace("x", data[:size] + b"\0")
    assert codes(blobs, "x") == ["crc_mismatch"]


@pytest.mark.parametrize(
    ("sidecar", "content"),
    [
        (".x.crc", b""),
        (".x.crc", b"crc\0"),
        (".x.crc", b"crc\1\0\0\2\0"),
        (".x.crc", b"crc\0\0\0\0\0"),
        (".x.crc", b"crc\0\x7f\xff\xff\xff"),
        ("x.crc", b""),
        ("x.crc", b"[]"),
        ("x.crc", b'{"algorithm":"CRC32C"}'),
        ("x.crc", b'{"algorithm":"CRC32C","value":"1","mainFileSize":4}'),
        ("x.crc", b"\xff\xfe"),
    ],
)
def test_a_damaged_sidecar_is_an_issue_of_its_own(sidecar, content):
    blobs = MemoryBlobs()
    blobs.create("x", b"data")
    blobs.create(sidecar, content)
    assert codes(blobs, "x") == ["crc_corrupt"]


def test_an_unknown_algorithm_is_a_warning():
    blobs = MemoryBlobs()
    blobs.create("x", b"data")
    blobs.create("x.crc", json.dumps({"algorithm": "SHA9", "value": 1, "mainFileSize": 4}).encode())
    assert codes(blobs, "x") == ["crc_unproven"]
