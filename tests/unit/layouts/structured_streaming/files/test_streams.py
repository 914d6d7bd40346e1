"""Codecs and records that no healthy directory holds: what is refused, and in how much memory."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_checkpoint.layouts.structured_streaming.files import FileKind, _lz4, _lzf
from tests.unit.layouts.structured_streaming.files.making import (
    END,
    lz4_block,
    lz4_end,
    lz4_stream,
    record,
    records,
    text,
)
from tests.unit.layouts.structured_streaming.files.samples import looked_at, names, sample

MEGABYTE = 1024 * 1024
PAIRS = [(b"key", b"value"), (b"gone", None), (b"", b"")]


def codes(name: str, data: bytes, **options: object) -> list[str]:
    return [issue.code for issue in looked_at(name, data, **options).issues]


def typed(kind: int, key: bytes, value: bytes | None) -> bytes:
    return bytes([kind]) + record(key, value)


LINEAGE = text(json.dumps([{"version": 1, "checkpointUniqueId": "a"}]))


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("x.delta", records(PAIRS), 3),
        ("x.delta", END, 0),
        ("x.snapshot", records([(b"k", b"v")]), 1),
        ("x.changelog", records(PAIRS), 3),
        ("x.changelog", END, 0),
        ("x.changelog", text("v2") + typed(0x01, b"k", b"v") + typed(0x10, b"k", None) + b"\0", 2),
        ("x.changelog", text("v2") + typed(0x11, b"k", b"v") + typed(0x20, b"a", b"z") + b"\0", 2),
        ("x.changelog", text("v3") + LINEAGE + records(PAIRS), 3),
        ("x.changelog", text("v4") + LINEAGE + b"\0", 0),
        ("x.delta", records([(b"k" * 70_000, b"v" * 200_000)] * 3), 3),
    ],
)
def test_sound_records_are_counted(name, content, count):
    for data, options in ((lz4_stream(content), {}), (content, {"codec": "none"})):
        facts = looked_at(name, data, **options)
        assert (facts.issues, facts.records) == ((), count)
    frames = zstandard.compress(content[:7]) + zstandard.compress(content[7:])
    assert looked_at(name, frames).records == count


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.delta", b""),
        ("x.delta", record(b"k", b"v")),
        ("x.delta", records(PAIRS) + b"\0"),
        ("x.delta", struct.pack(">i", -2)),
        ("x.delta", struct.pack(">i", 1) + b"k" + struct.pack(">i", -2) + END),
        ("x.delta", struct.pack(">i", 2**31 - 1) + b"k"),
        ("x.snapshot", records([(b"gone", None)])),
        ("x.changelog", text("v2") + typed(0x02, b"k", b"v") + b"\0"),
        ("x.changelog", text("v2") + typed(0x10, b"k", b"v") + b"\0"),
        ("x.changelog", text("v2") + typed(0x01, b"k", None) + b"\0"),
        ("x.changelog", text("v2") + typed(0x01, b"k", b"v")),
        ("x.changelog", text("v5") + records(PAIRS)),
        ("x.changelog", text("v3") + text("{}") + records(PAIRS)),
        ("x.changelog", text("v3") + text("[1]") + records(PAIRS)),
        ("x.changelog", text("v3") + text("[" * 5000) + records(PAIRS)),
        ("x.changelog", text("v3") + text('[{"version":-1,"checkpointUniqueId":"a"}]') + records(PAIRS)),
    ],
)
def test_records_that_contradict_themselves_are_an_issue(name, content):
    assert set(codes(name, lz4_stream(content))) <= {"state_truncated", "state_corrupt"}
    assert codes(name, lz4_stream(content))
    assert codes(name, zstandard.compress(content))


SOUND = lz4_block(END)


@pytest.mark.parametrize(
    "data",
    [
        SOUND,
        SOUND + lz4_end() + SOUND,
        SOUND + lz4_end(token=0x16),
        lz4_block(END, token=0x35) + lz4_end(),
        b"LZ4Block" + struct.pack("<BiiI", 0x2F, 10, 2**31 - 1, 0) + bytes(10) + lz4_end(token=0x1F),
        b"LZ4Block" + struct.pack("<BiiI", 0x2F, 2**31 - 1, 2**31 - 1, 0) + bytes(10),
        b"LZ4Block" + struct.pack("<BiiI", 0x25, -5, 4, 0),
        b"LZ4Block" + struct.pack("<BiiI", 0x15, 4, 5, 0) + bytes(4),
        b"\x82SNAPPY\0" + b"\0\0\0\x01" * 2 + b"\x7f\xff\xff\xff",
        b"\x82SNAPPY\0" + b"\0\0\0\x01" * 2 + b"\0\0\0\x05" + b"\xff\xff\xff\xff\x0f",
        b"\x82SNAPPY\0" + b"\0\0\0\x01\0\0\0\x02",
        b"ZV\x02\0\0",
        b"ZV\x01\0\x03\xff\xff\xe0\xff\xff",
        b"\x28\xb5\x2f\xfd\xff",
        b"unknown",
        b"",
    ],
)
def test_a_frame_that_contradicts_itself_is_an_issue_and_allocates_nothing(data):
    tracemalloc.start()
    try:
        assert codes("x.delta", data)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(zstandard.compress(records([(b"k", bytes(128 * MEGABYTE))])), id="zstd"),
        pytest.param(
            lz4_block(struct.pack(">i", 1) + b"k" + struct.pack(">i", 128 * MEGABYTE))
            + lz4_block(bytes(32 * 1024)) * (128 * 32)
            + lz4_block(END)
            + lz4_end(),
            id="lz4",
        ),
    ],
)
def test_a_small_file_that_becomes_huge_is_walked_and_not_held(packed):
    looked_at("x.delta", packed)  # Libraries are loaded now and not while memory is watched.
    tracemalloc.start()
    try:
        facts = looked_at("x.delta", packed)
        assert (facts.issues, facts.records) == ((), 1)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FileKind)
@given(data=st.binary(max_size=300))
def test_garbage_never_raises(kind, data):
    assert looked_at(f"x.{kind}", data).issues
    looked_at(f"x.{kind}", data, codec="none")


@given(data=st.data())
def test_a_mixture_of_real_files_never_raises_and_is_never_taken_for_whole(data):
    one, other = data.draw(st.sampled_from(names())), data.draw(st.sampled_from(names()))
    cut, start = data.draw(st.integers(0, len(sample(one)))), data.draw(st.integers(0, len(sample(other))))
    mixed = sample(one)[:cut] + sample(other)[start:]
    facts = looked_at(one, mixed)
    whole = mixed in (sample(one), sample(other))
    assert facts.issues or whole or facts.unproven


@given(st.binary(max_size=2000))
@example(bytes(1000))
def test_lz4_in_plain_python_undoes_what_the_library_made(content):
    import lz4.block

    packed = lz4.block.compress(content, store_size=False)
    assert _lz4.decompress(packed, uncompressed_size=len(content)) == content
    with pytest.raises(_lz4.LZ4BlockError):
        _lz4.decompress(packed, uncompressed_size=len(content) + 1)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_lz4_and_lzf_in_plain_python_take_any_bytes(packed, length):
    with contextlib.suppress(_lz4.LZ4BlockError):
        assert len(_lz4.decompress(packed, uncompressed_size=length)) == length
    content = _lzf.expand(packed, length)
    assert content is None or len(content) == length


def test_lzf_repeats_bytes_it_has_just_written():
    # Three literals, then nine bytes from three back.
    assert _lzf.expand(b"\x02abc\xe0\x00\x02", 12) == b"abc" * 4


def test_a_stored_member_of_a_zip_is_proven():
    content = b'v1\n{"sstFiles":[],"numKeys":-1}'
    data = _stored_zip(b"metadata", content)
    assert looked_at("x.zip", data).issues == ()
    assert looked_at("x.zip", data).num_keys is None
    assert codes("x.zip", data.replace(b"numKeys", b"numKegs")) == ["zip_corrupt"]


@pytest.mark.parametrize(
    "metadata",
    [
        "v2\n{}",
        "v1\n[]",
        "v1\n{",
        'v1\n{"sstFiles":{}}',
        'v1\n{"sstFiles":[{"localFileName":"a.sst"}]}',
        'v1\n{"sstFiles":[{"localFileName":"a.sst","dfsSstFileName":"../a.sst","sizeBytes":1}]}',
        'v1\n{"sstFiles":[{"localFileName":"a.sst","dfsSstFileName":"/a.sst","sizeBytes":1}]}',
        'v1\n{"sstFiles":[{"localFileName":"a.sst","dfsSstFileName":"s3://b/a.sst","sizeBytes":1}]}',
        'v1\n{"sstFiles":[{"localFileName":"a.sst","dfsSstFileName":"a.sst","sizeBytes":-1}]}',
    ],
)
def test_metadata_that_cannot_be_trusted_is_an_issue(metadata):
    assert codes("x.zip", _stored_zip(b"metadata", metadata.encode())) == ["zip_corrupt"]


def test_a_zip_without_metadata_is_an_issue():
    assert codes("x.zip", _stored_zip(b"other", b"{}")) == ["zip_corrupt"]


def _stored_zip(name: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(content)
    shape = struct.pack("<HHHHHIII", 20, 0, 0, 0, 0, crc, len(content), len(content))
    local = b"PK\x03\x04" + shape + struct.pack("<HH", len(name), 0) + name + content
    central = (
        b"PK\x01\x02" + struct.pack("<H", 20) + shape + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    )
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
