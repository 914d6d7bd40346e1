"""Tables of shapes that Spark's settings do not produce, and hostile ones."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import cramjam
import lz4.block
import pytest
import zstandard

from airflow_provider_checkpoint.exceptions import CorruptArtifactError
from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
from airflow_provider_checkpoint.layouts.structured_streaming.files._sst_blocks import content_of
from tests.unit.layouts.structured_streaming.files.samples import looked_at
from tests.unit.layouts.structured_streaming.files.tables import (
    CRC32C,
    XXH3,
    XXH32,
    XXH64,
    Table,
    block,
    plain,
    two_level,
    varint,
)

CONTENTS = [random.Random(number).randbytes(200) for number in range(20)]
MEGABYTE = 1024 * 1024


def codes(data: bytes) -> list[str]:
    return [issue.code for issue in looked_at("x.sst", data).issues]


def every_flip_is_found(data: bytes) -> bool:
    source = random.Random(1)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << source.randrange(8)
        if not codes(bytes(changed)):
            return False
    return True


@pytest.mark.parametrize("kind", [CRC32C, XXH32, XXH64, XXH3])
def test_every_kind_of_checksum_is_proven(kind):
    data = plain(CONTENTS, kind)
    facts = looked_at("x.sst", data)
    assert (facts.issues, facts.unproven, facts.records) == ((), (), len(CONTENTS))
    assert every_flip_is_found(data)


def test_an_index_and_a_filter_in_parts_are_followed():
    data = two_level(CONTENTS)
    facts = looked_at("x.sst", data)
    assert (facts.issues, facts.unproven, facts.records) == ((), (), len(CONTENTS))
    assert every_flip_is_found(data)


def test_a_table_without_checksums_is_said_to_be_unproven():
    facts = looked_at("x.sst", plain(CONTENTS, kind=0))
    assert facts.issues == ()
    assert facts.unproven == ("the SST was written without block checksums",)


def test_an_index_of_first_keys_is_said_to_be_unproven():
    table = Table()
    handles = [table.add(content) for content in CONTENTS]
    facts = looked_at("x.sst", table.finish(table.index(handles), len(CONTENTS), index_type=3))
    assert facts.issues == ()
    assert "not proven" in facts.unproven[0]


def test_a_block_that_no_index_names_is_said_to_be_unproven():
    table = Table()
    handles = [table.add(content) for content in CONTENTS]
    facts = looked_at("x.sst", table.finish(table.index([*handles[:3], *handles[4:]]), len(CONTENTS) - 1))
    assert facts.issues == ()
    assert "no checksum covers" in facts.unproven[0]


@pytest.mark.parametrize("blocks", [0, len(CONTENTS) - 1, 2**60])
def test_another_number_of_blocks_than_the_properties_say_is_an_issue(blocks):
    table = Table()
    index = table.index([table.add(content) for content in CONTENTS])
    assert codes(table.finish(index, blocks)) == ["sst_corrupt"]


def test_blocks_that_overlap_are_an_issue():
    table = Table()
    handle = table.add(CONTENTS[0])
    assert codes(table.finish(table.index([handle, handle]), 2)) == ["sst_corrupt"]


@pytest.mark.parametrize("size", [2**62, 2**31, 10_000])
def test_a_handle_that_leads_out_of_the_table_is_an_issue_and_allocates_nothing(size):
    table = Table()
    table.add(CONTENTS[0])
    data = table.finish(table.index([varint(0) + varint(size)]), 1)
    looked_at("x.sst", data)
    tracemalloc.start()
    try:
        assert codes(data) == ["sst_corrupt"]
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [1, 2, 4, 5, 7])
def test_an_index_in_any_compression_is_read_or_refused(compression):
    content = block([(b"key", b"value")]) * 20
    deflater = zlib.compressobj(wbits=-14)
    packed = {
        1: bytes(cramjam.snappy.compress_raw(content)),
        2: varint(len(content)) + deflater.compress(content) + deflater.flush(),
        4: varint(len(content)) + lz4.block.compress(content, store_size=False),
        5: varint(len(content)) + lz4.block.compress(content, store_size=False),
        7: varint(len(content)) + zstandard.compress(content),
    }[compression]
    assert content_of(packed, compression, Doubts()) == content
    for damaged in (packed[:-3], b"\xff\xff\xff\xff\x7f" + packed, b"\xff" * 30, b"\x05" + packed[1:], b""):
        with pytest.raises(CorruptArtifactError):
            content_of(damaged, compression, Doubts())


def test_a_table_without_an_index_or_properties_is_an_issue():
    table = Table()
    table.add(CONTENTS[0])
    assert codes(table.finish(b"", 1))
    empty = Table()
    footer = bytes([XXH3]) + empty.add(block([])) + b"\0\0"
    data = bytes(empty.data) + footer.ljust(41, b"\0") + plain([])[-12:]
    assert codes(data) == ["sst_corrupt"]
