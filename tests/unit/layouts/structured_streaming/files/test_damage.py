"""Any cut and any flipped bit of a real file is found, wherever the format has a checksum."""

from __future__ import annotations

import contextlib
import io
import random
import zipfile

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming.files import FileKind, read_lineage, read_zip_metadata
from airflow_provider_checkpoint.layouts.structured_streaming.files._codecs import decoded
from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
from airflow_provider_checkpoint.layouts.structured_streaming.files._feed import Feed
from tests.unit.layouts.structured_streaming.files.samples import WITHOUT_CHECKSUM, kind_of, looked_at, names, sample

#: Files up to this size are tried at every place, larger ones at so many.
PLACES = 1500

CODES = {
    FileKind.DELTA: {"state_truncated", "state_corrupt"},
    FileKind.SNAPSHOT: {"state_truncated", "state_corrupt"},
    FileKind.CHANGELOG: {"state_truncated", "state_corrupt"},
    FileKind.ZIP: {"state_truncated", "zip_corrupt"},
    FileKind.SST: {"state_truncated", "sst_corrupt", "sst_block_corrupt"},
    FileKind.SCHEMA: {"state_truncated", "state_schema_corrupt"},
}

CHECKED = [name for name in names() if name not in WITHOUT_CHECKSUM and kind_of(name) is not FileKind.SCHEMA]
UNCHECKED = [name for name in names() if name not in CHECKED]

#: Fields of a zip that nobody reads and no checksum covers: who made it, attributes of members.
UNREAD_IN_DIRECTORY = ((4, 6), (34, 42))


def places(data: bytes) -> list[int]:
    if len(data) <= PLACES:
        return list(range(len(data)))
    return sorted(random.Random(len(data)).sample(range(len(data)), PLACES))


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("name", names())
def test_any_cut_is_found(name):
    data = sample(name)
    for length in places(data):
        codes = {issue.code for issue in looked_at(name, data[:length]).issues}
        assert codes, f"cut to {length} of {len(data)} bytes"
        assert codes <= CODES[kind_of(name)]


@pytest.mark.parametrize("name", names())
def test_anything_appended_is_found(name):
    for more in (b"\0", b"\xff", b"more", sample(name)):
        assert looked_at(name, sample(name) + more).issues, more


@pytest.mark.parametrize("name", CHECKED)
def test_any_flipped_bit_is_found_where_there_is_a_checksum(name):
    data = sample(name)
    source = random.Random(name)
    for place in places(data):
        changed = flipped(data, place, source.randrange(8))
        codes = {issue.code for issue in looked_at(name, changed).issues}
        assert codes or harmless(name, data, changed, place), f"byte {place} of {len(data)}"
        assert codes <= CODES[kind_of(name)]


def harmless(name: str, data: bytes, changed: bytes, place: int) -> bool:
    """Whether a reader gets the same: the bit says nothing, or says the same thing in another way."""
    if kind_of(name) is FileKind.ZIP:
        entry = data.rfind(b"PK\x01\x02", 0, place + 1)
        if entry >= 0:
            return any(first <= place - entry < end for first, end in UNREAD_IN_DIRECTORY)
        # A member ends inside a byte; the rest of that byte says nothing.
        return members(changed) == members(data)
    if kind_of(name) is FileKind.SST:
        return False
    # Inside a run of equal bytes, LZ4 may copy from one place as well as from another.
    return content(changed) == content(data)


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def content(data: bytes) -> bytes:
    return b"".join(decoded(Feed([data]), None, Doubts()))


@pytest.mark.parametrize("name", UNCHECKED)
def test_where_there_is_no_checksum_a_flipped_bit_is_found_or_was_said_to_be_unproven(name):
    data = sample(name)
    source = random.Random(name)
    found = 0
    for place in places(data):
        facts = looked_at(name, flipped(data, place, source.randrange(8)))
        found += bool(facts.issues)
        assert facts.issues or facts.unproven
        assert {issue.code for issue in facts.issues} <= CODES[kind_of(name)]
    # Lengths, marks and back references are most of what these files consist of.
    assert found > len(places(data)) * 0.1


@pytest.mark.parametrize("name", names(FileKind.ZIP))
def test_the_metadata_of_a_damaged_zip_is_right_or_refused(name):
    data = sample(name)
    blobs = MemoryBlobs()
    blobs.create(name, data)
    right = read_zip_metadata(blobs, name)
    source = random.Random(name)
    for place in places(data):
        for changed in (data[:place], flipped(data, place, source.randrange(8))):
            blobs.replace(name, changed)
            with contextlib.suppress(CorruptError):
                assert read_zip_metadata(blobs, name) == right


@pytest.mark.parametrize("name", [name for name in names(FileKind.CHANGELOG) if "zstd" not in name])
def test_the_lineage_of_a_damaged_changelog_is_right_or_refused(name):
    data = sample(name)
    blobs = MemoryBlobs()
    blobs.create(name, data)
    right = read_lineage(blobs, name)
    source = random.Random(name)
    for place in places(data):
        for changed in (data[:place], flipped(data, place, source.randrange(8))):
            blobs.replace(name, changed)
            with contextlib.suppress(CorruptError):
                assert read_lineage(blobs, name) == right
