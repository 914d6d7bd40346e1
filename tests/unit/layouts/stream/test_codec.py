"""The bytes of a checkpoint state: exact, strict, and never copied more often than said."""

from __future__ import annotations

import mmap
import struct
import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import CorruptArtifactError, UnsupportedError
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId
from airflow_provider_checkpoint.layouts.stream._codec import MAX_ENTRIES, MAX_NAME_BYTES, PIECE
from tests.unit.layouts.stream.making import NOON, VECTOR_STATES, patient, same, state, vector

MIB = 1024 * 1024

u64 = st.integers(0, 2**64 - 1)
names = st.text(max_size=12)
states = st.builds(
    lambda sequence, watermark, count, operators, sources: state(
        sequence, watermark_ns=watermark, event_count=count, operators=operators, sources=sources
    ),
    u64,
    u64,
    u64,
    st.dictionaries(names, st.binary(max_size=40), max_size=5),
    st.dictionaries(names, u64, max_size=5),
)


# -- the vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(VECTOR_STATES))
def test_a_vector_of_the_reference_is_written_byte_for_byte(name):
    assert VECTOR_STATES[name].encode() == vector(name)
    assert b"".join(VECTOR_STATES[name].iter_encode()) == vector(name)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("name", sorted(VECTOR_STATES))
def test_a_vector_of_the_reference_is_read(name, lenient):
    assert same(CheckpointState.decode("orders", vector(name), lenient=lenient), VECTOR_STATES[name])


# -- the reference's own tests, under its names --------------------------------------------------------------------


def test_round_trip_empty():
    read = CheckpointState.decode("s", state(42, watermark_ns=999_000_000).encode())
    assert (read.id.sequence, read.watermark_ns, read.event_count) == (42, 999_000_000, 42)
    assert (read.operator_states, read.source_offsets) == ({}, {})


def test_round_trip_with_operator_states():
    written = state(1)
    written.set_operator_state("agg_op", bytes([1, 2, 3, 4]))
    written.set_operator_state("filter_op", bytes([9, 8]))
    read = CheckpointState.decode("s", written.encode())
    assert read.operator_states == {"agg_op": b"\1\2\3\4", "filter_op": b"\x09\x08"}


def test_round_trip_with_source_offsets():
    written = state(1)
    written.set_source_offset("source-0", 1_234_567)
    written.set_source_offset("source-1", 4_096)
    assert CheckpointState.decode("s", written.encode()).source_offsets == {"source-0": 1_234_567, "source-1": 4_096}


def test_truncated_to_10_bytes_is_an_error():
    with pytest.raises(CorruptArtifactError, match=r"byte 0 of 10: expected the header \(24 bytes\), only 10 are left"):
        CheckpointState.decode("s", vector("C2")[:10])


@pytest.mark.parametrize("lenient", [False, True])
def test_empty_is_an_error(lenient):
    with pytest.raises(CorruptArtifactError, match="byte 0 of 0: expected the header"):
        CheckpointState.decode("s", b"", lenient=lenient)


def test_full_round_trip_drops_metadata_and_time_of_creation():
    written = VECTOR_STATES["C2"]
    written.metadata["owner"] = "me"
    read = CheckpointState.decode("elsewhere", written.encode(), created_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert same(read, written)
    assert read.metadata == {}
    assert read.id == StreamCheckpointId("elsewhere", 77, datetime(2030, 1, 1, tzinfo=UTC))


def test_ids_sort_by_stream_then_sequence_then_time():
    later = NOON.replace(hour=13)
    ordered = [
        StreamCheckpointId("a", 2, later),
        StreamCheckpointId("b", 1, NOON),
        StreamCheckpointId("b", 1, later),
        StreamCheckpointId("b", 10, NOON),
    ]
    shuffled = ordered[2:] + ordered[:2]
    assert sorted(shuffled) == ordered


# -- strictness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(VECTOR_STATES))
def test_every_proper_prefix_is_an_error(name):
    data = vector(name)
    for length in range(len(data)):
        with pytest.raises(CorruptArtifactError, match=rf"of {length}: .*expected|cannot fit"):
            CheckpointState.decode("s", data[:length])


def test_the_lenient_reader_takes_exactly_the_prefixes_that_the_reference_takes():
    data = vector("C2")
    taken = []
    for length in range(len(data)):
        try:
            read = CheckpointState.decode("s", data[:length], lenient=True)
        except CorruptArtifactError:
            continue
        taken.append(length)
        assert read.operator_states == {"window_op": b"window_state_data"}
        assert read.source_offsets == {}
    assert taken == [62, 63, 64, 65]


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


HEADER = bytes(24)

# Name: bytes, where and what the strict reader complains about, what the lenient one reads (None: it complains too).
MALFORMED = {
    "trailing byte": (vector("C1") + b"\0", "byte 32 of 33: expected the end, 1 bytes are left over", ({}, {})),
    "operator twice": (
        HEADER + u32(2) + 2 * (u32(1) + b"a" + u32(1) + b"x") + u32(0),
        "byte 38 of 52: the operator 'a' appears twice",
        ({"a": b"x"}, {}),
    ),
    "source twice": (
        HEADER + u32(0, 2) + (u32(1) + b"a" + bytes(8)) + (u32(1) + b"a" + b"\7" + bytes(7)),
        "byte 45 of 58: the source 'a' appears twice",
        ({}, {"a": 7}),
    ),
    "operator name not UTF-8": (
        HEADER + u32(1, 2) + b"a\xff" + u32(0, 0),
        "byte 33 of 42: expected the operator name in UTF-8",
        None,
    ),
    "source name is a surrogate": (
        HEADER + u32(0, 1, 3) + b"\xed\xa0\x80" + bytes(8),
        "byte 36 of 47: expected the source name in UTF-8",
        None,
    ),
    "more operators than bytes": (
        HEADER + u32(2**32 - 1) + bytes(64),
        "byte 24 of 92: 4294967295 operators cannot fit into the 64 bytes that are left",
        None,
    ),
    "more sources than bytes": (
        HEADER + u32(0, 2) + u32(1) + b"a" + bytes(8),
        "byte 28 of 45: 2 sources cannot fit into the 13 bytes that are left",
        None,
    ),
    "operator name over the end": (
        HEADER + u32(1, 2**32 - 1) + bytes(9),
        "byte 28 of 41: a name of 4294967295 bytes, the limit is 1048576",
        None,
    ),
    "state over the end": (
        HEADER + u32(1, 1) + b"a" + u32(2**31) + bytes(9),
        "byte 37 of 46: expected the operator state (2147483648 bytes), only 9 are left",
        None,
    ),
    "name over the limit": (
        HEADER + u32(0, 1, MAX_NAME_BYTES + 1) + b"n" * (MAX_NAME_BYTES + 1) + bytes(8),
        f"byte 32 of {44 + MAX_NAME_BYTES + 1}: a name of 1048577 bytes, the limit is 1048576",
        ({}, {"n" * (MAX_NAME_BYTES + 1): 0}),
    ),
}


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_what_is_malformed_is_refused_with_place_and_expectation(case):
    data, complaint, _ = MALFORMED[case]
    with pytest.raises(CorruptArtifactError) as caught:
        CheckpointState.decode("s", data, subject="file.ckpt")
    assert caught.value.message == complaint
    assert caught.value.subject == "file.ckpt"
    assert caught.value.hint


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_the_lenient_reader_takes_what_the_reference_takes_and_no_more(case):
    data, _, content = MALFORMED[case]
    if content is None:
        with pytest.raises(CorruptArtifactError):
            CheckpointState.decode("s", data, lenient=True)
    else:
        read = CheckpointState.decode("s", data, lenient=True)
        assert (read.operator_states, read.source_offsets) == content


def test_a_count_over_the_limit_is_refused_before_anything_is_read():
    data = HEADER + u32(0, MAX_ENTRIES + 1) + bytes(12 * (MAX_ENTRIES + 1))
    with pytest.raises(CorruptArtifactError, match=r"byte 28 of \d+: 1000001 sources, the limit is 1000000"):
        CheckpointState.decode("s", data)


# -- what cannot be written ---------------------------------------------------------------------------------------

UNWRITABLE = {
    "negative sequence": (state(-1, event_count=0), "sequence is -1"),
    "sequence over u64": (state(2**64, event_count=0), "sequence is 18446744073709551616"),
    "watermark over u64": (state(1, watermark_ns=2**64), "watermark_ns is"),
    "negative watermark": (state(1, watermark_ns=-5), "watermark_ns is -5"),
    "event count over u64": (state(1, event_count=2**64), "event_count is"),
    "fraction": (state(1, watermark_ns=1.5), "watermark_ns is 1.5"),
    "offset over u64": (state(1, sources={"kafka": 2**64}), "the offset of source 'kafka' is"),
    "negative offset": (state(1, sources={"kafka": -1}), "the offset of source 'kafka' is -1"),
    "half a character": (state(1, operators={"\ud800": b""}), "not valid Unicode"),
    "name over the limit": (state(1, sources={"n" * (MAX_NAME_BYTES + 1): 0}), "a name of 1048577 bytes"),
}


@pytest.mark.parametrize("case", sorted(UNWRITABLE))
@pytest.mark.parametrize("write", [CheckpointState.encode, CheckpointState.iter_encode])
def test_what_the_format_cannot_hold_is_refused_and_never_cut(case, write):
    unwritable, complaint = UNWRITABLE[case]
    with pytest.raises(UnsupportedError, match=complaint):
        write(unwritable)


def test_more_entries_than_the_limit_are_refused():
    sources = dict.fromkeys(map(str, range(MAX_ENTRIES + 1)), 0)
    with pytest.raises(UnsupportedError, match="the number of sources is 1000001"):
        state(1, sources=sources).encode()


def test_a_state_of_4_gib_is_refused_and_never_cut():
    # Pages that nobody touches take no memory.
    with mmap.mmap(-1, 2**32) as huge, pytest.raises(UnsupportedError, match="operator 'join' is 4294967296"):
        state(1, operators={"join": huge}).encode()


# -- properties --------------------------------------------------------------------------------------------------


@patient
@given(states)
def test_what_was_written_is_read(written):
    data = written.encode()
    assert b"".join(written.iter_encode()) == data
    for lenient in (False, True):
        assert same(CheckpointState.decode("s", data, lenient=lenient), written)


@patient
@given(states)
def test_equal_states_have_equal_bytes_whatever_the_order_in_which_they_were_filled(written):
    shuffled = state(
        written.id.sequence,
        watermark_ns=written.watermark_ns,
        event_count=written.event_count,
        operators=dict(reversed(written.operator_states.items())),
        sources=dict(reversed(written.source_offsets.items())),
    )
    assert shuffled.encode() == written.encode()


def test_names_are_sorted_by_their_utf_8_bytes():
    written = state(1, sources={"ж": 0, "z": 0, "a": 0, "\U0001f600": 0, "￿": 0}).encode()
    assert list(CheckpointState.decode("s", written).source_offsets) == ["a", "z", "ж", "￿", "\U0001f600"]


@patient
@given(states, st.data())
def test_any_truncation_is_an_error(written, data):
    encoded = written.encode()
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptArtifactError):
        CheckpointState.decode("s", encoded[:length])


@patient
@given(states, st.data())
def test_a_bit_flip_is_an_error_or_changes_what_is_read_but_never_passes_unseen(written, data):
    encoded = bytearray(written.encode())
    place = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[place // 8] ^= 1 << place % 8
    try:
        read = CheckpointState.decode("s", encoded)
    except CorruptArtifactError:
        return
    # The format has no checksum: such a flip is found by the digest beside the file.
    assert not same(read, written)


def reference(data: bytes) -> tuple[object, ...] | None:
    """The reference's reader, written down as plainly as it was described; None for its errors."""
    try:
        sequence, watermark, count, operators = struct.unpack_from("<QQQI", data)
        place, states, sources = 28, {}, {}
        for _ in range(operators):
            name, place = _text(data, place)
            (length,) = struct.unpack_from("<I", data, place)
            states[name] = _slice(data, place + 4, length)
            place += 4 + length
        if len(data) - place >= 4:
            (number,) = struct.unpack_from("<I", data, place)
            place += 4
            for _ in range(number):
                name, place = _text(data, place)
                (sources[name],) = struct.unpack_from("<Q", data, place)
                place += 8
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return sequence, watermark, count, states, sources


def _text(data: bytes, place: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", data, place)
    return _slice(data, place + 4, length).decode(), place + 4 + length


def _slice(data: bytes, start: int, length: int) -> bytes:
    if start + length > len(data):
        raise IndexError
    return data[start : start + length]


@st.composite
def damaged(draw):
    data = bytearray(draw(states).encode())
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=5))
    return bytes(data)


@patient
@given(damaged() | st.binary(max_size=120))
def test_the_lenient_reader_agrees_with_the_reference_on_any_bytes(data):
    expected = reference(data)
    try:
        read = CheckpointState.decode("s", data, lenient=True)
    except CorruptArtifactError:
        assert expected is None
    else:
        said = (read.id.sequence, read.watermark_ns, read.event_count, read.operator_states, read.source_offsets)
        assert said == expected


@patient
@given(damaged() | st.binary(max_size=120))
def test_what_the_strict_reader_takes_the_lenient_one_reads_alike(data):
    try:
        read = CheckpointState.decode("s", data)
    except CorruptArtifactError:
        return
    assert same(CheckpointState.decode("s", data, lenient=True), read)
    assert len(read.encode()) == len(data)


# -- memory ------------------------------------------------------------------------------------------------------


def peak_of(act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def large():
    return state(1, operators={"a": bytes(24 * MIB), "b": bytes(8 * MIB), "c": b"small"}, sources={"s": 1})


def test_encoding_copies_the_state_once(large):
    assert peak_of(large.encode) < 33 * MIB


def test_decoding_copies_the_state_once(large):
    data = large.encode()
    assert peak_of(lambda: CheckpointState.decode("s", data)) < 33 * MIB


def test_streaming_never_holds_a_second_copy(large):
    assert peak_of(lambda: [None for _ in large.iter_encode()]) < 2 * MIB
    assert max(memoryview(piece).nbytes for piece in large.iter_encode()) <= PIECE


def test_small_states_leave_together():
    many = state(1, operators={f"operator-{number}": b"x" * 100 for number in range(1000)})
    assert len(list(many.iter_encode())) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_state_may_be_any_buffer(kind):
    written = state(1, operators={"a": kind(b"1234")})
    assert CheckpointState.decode("s", kind(written.encode())).operator_states == {"a": b"1234"}


def test_a_buffer_of_wide_items_counts_in_bytes():
    wide = memoryview(struct.pack("<4I", 1, 2, 3, 4)).cast("I")
    written = state(1, operators={"a": wide})
    assert b"".join(written.iter_encode()) == written.encode()
    assert CheckpointState.decode("s", written.encode()).operator_states == {"a": bytes(wide)}
