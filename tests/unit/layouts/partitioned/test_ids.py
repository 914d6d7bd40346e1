"""Ids sort in the order in which they were given out, whatever the clock does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts._uuid7 import Uuid7
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.layouts.partitioned.samples import M1_ID, nth_id, patient

HIGHEST = CheckpointId("ffffffff-ffff-7fff-bfff-ffffffffffff")


def clock(*readings: int) -> Uuid7:
    """A generator whose clock shows the given times, one after the other, and that throws only zeros."""
    times = iter(readings)
    return Uuid7(clock_ms=lambda: next(times), random_bits=lambda _: 0)


def test_an_id_holds_its_time_version_variant_and_randomness():
    fresh = Uuid7(clock_ms=lambda: 1_729_323_386_326, random_bits=lambda bits: 2**bits - 1).fresh()
    assert str(fresh) == "0192a3b4-c5d6-7fff-bfff-ffffffffffff"
    assert (fresh.version, fresh.variant) == (7, RFC_4122)


def test_the_time_in_the_vector_is_where_we_write_ours():
    assert UUID(str(M1_ID)).int >> 80 == 1_729_323_386_326


@patient
@given(readings=st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=30), bits=st.randoms())
def test_ids_grow_even_if_the_clock_stands_or_steps_back(readings, bits):
    times = iter(readings)
    ids = Uuid7(clock_ms=lambda: next(times), random_bits=bits.getrandbits)
    given_out = [str(ids.fresh()) for _ in readings]
    assert given_out == sorted(set(given_out))
    assert all(UUID(text).version == 7 and UUID(text).variant == RFC_4122 for text in given_out)


def test_within_one_millisecond_ids_grow_past_the_end_of_the_random_bits():
    ids = Uuid7(clock_ms=lambda: 5, random_bits=lambda bits: 2**bits - 1)
    first, second = ids.fresh(), ids.fresh()
    assert second > first
    assert second.int >> 80 == 6


def test_threads_get_different_ids():
    ids = Uuid7(clock_ms=lambda: 5)
    with ThreadPoolExecutor(8) as pool:
        given_out = list(pool.map(lambda _: ids.fresh(), range(2000)))
    assert len(set(given_out)) == 2000


def test_following_lies_close_above():
    below = UUID(str(M1_ID))
    above = Uuid7().following(below)
    assert below < above
    assert above.int >> 80 in (below.int >> 80, (below.int >> 80) + 1)


def test_at_the_end_of_all_ids_there_is_an_error_and_not_a_smaller_id():
    with pytest.raises(ConfigurationError, match="far future"):
        Uuid7().following(UUID(str(HIGHEST)))
    with pytest.raises(ConfigurationError, match="clock"):
        clock(2**48).fresh()


def test_a_clock_that_recovers_is_forgiven():
    ids = clock(2**48, 5)
    with pytest.raises(ConfigurationError):
        ids.fresh()
    assert ids.fresh().int >> 80 == 5


# -- ids of a store ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        str(M1_ID).upper(),
        f" {M1_ID}",
        f"{M1_ID}\n",
        f"{{{M1_ID}}}",
        str(M1_ID).replace("-", ""),
        "0192a3b4-c5d6-4e8f-9a0b-1c2d3e4f5a6b",
        "0192a3b4-c5d6-7e8f-0a0b-1c2d3e4f5a6b",
        f"../{M1_ID}",
        "0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6g",
        "\u0660192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b",
    ],
)
def test_only_the_one_spelling_of_a_uuid7_is_an_id(layout, text):
    with pytest.raises(ConfigurationError, match="version 7"):
        layout.parse_id(text)


def test_an_id_a_person_typed_is_understood(layout):
    assert layout.parse_id(str(M1_ID)) == M1_ID


@pytest.mark.parametrize("hostile", [CheckpointId("../etc"), CheckpointId(7), CheckpointId(""), CheckpointId("trash")])
def test_an_id_that_cannot_be_here_never_becomes_a_path(layout, hostile):
    for act in (layout.load, layout.examine, layout.manifest_keys, layout.delete_checkpoint, layout.update_latest):
        with pytest.raises(ConfigurationError):
            act(hostile)


def test_candidates_are_the_folders_named_by_ids_oldest_first(layout):
    for folder in (nth_id(2), nth_id(1), "trash", "0192a3b4-c5d6-4e8f-9a0b-1c2d3e4f5a6b", str(M1_ID).upper()):
        layout.blobs.create(f"{folder}/operators/op/partition-0.snap", b"x")
    layout.blobs.create(f"trash/{nth_id(3)}/entry.json", b"{}")
    assert layout.candidates() == [nth_id(1), nth_id(2)]
    assert layout.list_checkpoints() == []


def test_the_next_id_is_of_this_moment_in_an_empty_store():
    layout = PartitionedLayout(MemoryBlobs(), ids=clock(5))
    assert UUID(str(layout.next_id())).int >> 80 == 5


def test_the_next_id_lies_above_everything_in_the_store_when_the_clock_is_behind():
    blobs = MemoryBlobs()
    blobs.create(f"{M1_ID}/operators/op/partition-0.snap", b"an aborted checkpoint counts, too")
    layout = PartitionedLayout(blobs, ids=clock(5, 5, 5))
    first, second, third = (layout.next_id() for _ in range(3))
    assert M1_ID < first < second < third


def test_the_next_id_lies_above_what_may_come_back_from_the_trash():
    blobs = MemoryBlobs()
    blobs.create(f"trash/{M1_ID}/entry.json", b"{}")
    assert PartitionedLayout(blobs, ids=clock(5)).next_id() > M1_ID


def test_one_store_in_the_far_future_does_not_push_the_ids_of_another():
    ids = clock(5, 6)
    ahead, normal = MemoryBlobs(), MemoryBlobs()
    ahead.create(f"{M1_ID}/manifest.json", b"{}")
    assert PartitionedLayout(ahead, ids=ids).next_id() > M1_ID
    assert UUID(str(PartitionedLayout(normal, ids=ids).next_id())).int >> 80 == 6


def test_no_id_is_left_above_the_highest():
    blobs = MemoryBlobs()
    blobs.create(f"{HIGHEST}/manifest.json", b"{}")
    with pytest.raises(ConfigurationError, match="far future"):
        PartitionedLayout(blobs).next_id()
