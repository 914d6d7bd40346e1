"""Checkpoints of many streams: saved once, read back proven, trimmed without losing the last good one."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import Deletion, LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointConflictError,
    ConfigurationError,
    CorruptArtifactError,
    CorruptManifestError,
    UnsupportedError,
)
from airflow_provider_checkpoint.layouts.stream import Skipped, StreamCheckpointId, StreamStore
from airflow_provider_checkpoint.layouts.stream._names import digest_key, state_key
from airflow_provider_checkpoint.model import CheckpointId, Pin
from tests.unit.layouts.stream.making import NOON, VECTOR_STATES, patient, same, state, vector


@pytest.fixture(params=["memory", "local"])
def blobs(request, tmp_path):
    return MemoryBlobs(clock=lambda: NOON) if request.param == "memory" else LocalBlobs(tmp_path)


@pytest.fixture
def store(blobs):
    return StreamStore(blobs, 3, clock=lambda: NOON)


def sequences(store, stream="orders"):
    return [found.sequence for found in store.list(stream)]


def folder(blobs, stream="orders"):
    return blobs.at(stream)


def spoil(blobs, sequence, data=b"rubbish"):
    folder(blobs).replace(state_key(sequence), data)


# -- the reference's own tests, under its names --------------------------------------------------------------------


def test_store_trims_6_saves_to_3_and_latest_is_5(store):
    for sequence in range(6):
        store.save(state(sequence))
    assert sequences(store) == [3, 4, 5]
    assert store.checkpoint_count("orders") == 3
    assert store.latest("orders").state.id.sequence == 5


def test_delete_before_20_of_0_10_to_40_leaves_3(blobs):
    store = StreamStore(blobs, 10)
    for sequence in range(0, 50, 10):
        store.save(state(sequence))
    assert store.delete_before("orders", 20) == [0, 10]
    assert sequences(store) == [20, 30, 40]


def test_streams_are_independent(store):
    for sequence in range(4):
        store.save(state(sequence, stream="a"))
    store.save(state(100, stream="b"))
    assert (sequences(store, "a"), sequences(store, "b")) == ([1, 2, 3], [100])
    store.delete_before("a", 100)
    assert (sequences(store, "a"), sequences(store, "b")) == ([3], [100])


def test_file_store_prunes_5_to_3(tmp_path):
    store = StreamStore(LocalBlobs(tmp_path), 3)
    for sequence in range(5):
        store.save(state(sequence))
    files = sorted(path.name for path in (tmp_path / "orders").iterdir())
    assert files == sorted(name for kept in (2, 3, 4) for name in (state_key(kept), digest_key(kept)))


def test_file_store_survives_restart(tmp_path):
    StreamStore(LocalBlobs(tmp_path), 3).save(VECTOR_STATES["C2"])
    found = StreamStore(LocalBlobs(tmp_path), 3).latest("orders")
    assert same(found.state, VECTOR_STATES["C2"])
    assert (tmp_path / "orders" / "checkpoint-00000000000000000077.ckpt").read_bytes() == vector("C2")


# -- where the reference is wrong ----------------------------------------------------------------------------------


def test_streams_whose_names_the_reference_confuses_do_not_read_each_other(store):
    names = ["a/b", "a.b", "a_b", "a%2Fb", "..", "."]
    for number, name in enumerate(names):
        store.save(state(number, stream=name))
    assert [store.latest(name).state.id.sequence for name in names] == list(range(len(names)))
    assert store.streams() == sorted(names)


def test_the_folder_of_the_reference_is_not_read_for_a_stream_of_another_name(store):
    store.save(state(1, stream="a_b"))
    assert store.latest("a/b") is None


def test_a_corrupt_newest_falls_back_to_the_newest_that_reads_and_says_so(blobs, store):
    for sequence in (1, 2, 3):
        store.save(state(sequence))
    spoil(blobs, 3, state(3).encode()[:-1])
    spoil(blobs, 2, state(9).encode())
    found = store.latest("orders")
    assert found.state.id.sequence == 1
    assert found.skipped == (
        Skipped(3, "byte 28 of 31: expected the number of sources (4 bytes), only 3 are left"),
        Skipped(2, "the state inside is of sequence 9"),
    )
    newest = store.newest("orders")
    assert newest.sequence == 1
    assert [skipped.sequence for skipped in newest.skipped] == [3, 2]


def test_a_changed_bit_in_the_state_is_found_by_the_digest(blobs, store):
    store.save(state(1, operators={"o": b"good"}))
    store.save(state(2, operators={"o": b"good"}))
    spoil(blobs, 2, state(2, operators={"o": b"gooe"}).encode())
    found = store.latest("orders")
    assert found.state.id.sequence == 1
    assert found.skipped[0].sequence == 2
    assert "SHA-256" in found.skipped[0].reason
    assert store.newest("orders").sequence == 1


def test_no_bit_of_a_saved_file_can_change_and_no_byte_can_go_without_being_seen():
    blobs = MemoryBlobs()
    store = StreamStore(blobs, 3)
    store.save(VECTOR_STATES["C2"])
    good = vector("C2")
    flipped = [
        good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :]
        for place in range(len(good))
        for bit in range(8)
    ]
    cut = [good[:length] for length in range(len(good))]
    for bad in flipped + cut:
        spoil(blobs, 77, bad)
        for ask in (store.latest, store.newest):
            with pytest.raises(CorruptArtifactError):
                ask("orders")
    spoil(blobs, 77, good)
    assert same(store.latest("orders").state, VECTOR_STATES["C2"])


def test_if_all_are_corrupt_nobody_starts_afresh_by_accident(blobs, store):
    store.save(state(1))
    spoil(blobs, 1)
    for ask in (store.latest, store.newest):
        with pytest.raises(CorruptArtifactError, match=r"none of 1 checkpoints can be read; the newest: .*byte 0 of 7"):
            ask("orders")


def test_a_stream_without_checkpoints_has_no_latest(store):
    assert store.latest("orders") is None
    assert store.newest("orders") is None
    assert store.list("orders") == []
    assert store.checkpoint_count("orders") == 0
    assert store.streams() == []


@pytest.mark.parametrize("maximum", [0, -1])
def test_a_store_that_keeps_nothing_is_refused(blobs, maximum):
    with pytest.raises(ConfigurationError, match="max_per_stream is"):
        StreamStore(blobs, maximum)


# -- saving ------------------------------------------------------------------------------------------------------


def test_saving_the_same_again_is_a_success(store):
    assert store.save(state(1)) == store.save(state(1))
    assert sequences(store) == [1]


def test_another_state_under_the_same_sequence_is_a_conflict_and_touches_nothing(blobs, store):
    store.save(state(1, event_count=7))
    with pytest.raises(CheckpointConflictError, match="another state stands under sequence 1"):
        store.save(state(1, event_count=8))
    found = store.latest("orders")
    assert (found.state.event_count, found.skipped) == (7, ())


def test_what_cannot_be_written_leaves_nothing_behind(blobs, store):
    with pytest.raises(UnsupportedError):
        store.save(state(2**64, event_count=0))
    assert list(blobs.list()) == []


def test_a_file_without_digest_is_taken_and_saving_it_again_proves_it(blobs, store):
    folder(blobs).create(state_key(77), vector("C2"))
    assert same(store.latest("orders").state, VECTOR_STATES["C2"])
    saved = store.save(VECTOR_STATES["C2"])
    assert folder(blobs).read(digest_key(77)).decode() == saved.sha256


def test_a_digest_left_behind_does_not_condemn_the_next_state(blobs, store):
    folder(blobs).create(digest_key(1), b"0" * 64)
    saved = store.save(state(1))
    assert folder(blobs).read(digest_key(1)).decode() == saved.sha256
    assert store.latest("orders").skipped == ()


class Meddling(WrapperBlobs):
    """Does something just before the digest is written: another process had its way in between."""

    def __init__(self, inner, meddle):
        super().__init__(inner)
        self._meddle = meddle

    def create(self, key, body):
        if key.endswith(".sha256"):
            self._meddle(self._inner)
        return super().create(key, body)


def test_a_writer_that_slept_while_its_checkpoint_was_replaced_does_not_spoil_the_other_digest(blobs):
    def replaced(inner):
        inner.delete([f"orders/{state_key(1)}"])
        StreamStore(inner, 3).save(state(1, event_count=8))

    with pytest.raises(CheckpointConflictError, match="in the meantime"):
        StreamStore(Meddling(blobs, replaced), 3).save(state(1, event_count=7))
    found = StreamStore(blobs, 3).latest("orders")
    assert (found.state.event_count, found.skipped) == (8, ())


def test_a_writer_whose_checkpoint_was_removed_meanwhile_leaves_no_false_digest(blobs):
    def removed(inner):
        inner.delete([f"orders/{state_key(1)}"])
        inner.create(f"orders/{digest_key(1)}", b"0" * 64)

    StreamStore(Meddling(blobs, removed), 3).save(state(1))
    assert StreamStore(blobs, 3).latest("orders") is None


def test_a_late_save_of_an_old_sequence_does_not_push_out_newer_ones(store):
    for sequence in (10, 11, 12):
        store.save(state(sequence))
    assert store.save(state(5)).trimmed == (5,)
    assert sequences(store) == [10, 11, 12]


def test_the_time_of_a_checkpoint_is_when_the_store_wrote_it():
    store = StreamStore(MemoryBlobs(clock=lambda: NOON), 3)
    store.save(state(1))
    assert store.list("orders") == [StreamCheckpointId("orders", 1, NOON)]
    assert store.latest("orders").state.id.created_at == NOON


def test_folders_that_are_no_streams_are_not_listed(blobs, store):
    store.save(state(1))
    blobs.create("not a stream/x", b"")
    assert store.streams() == ["orders"]


# -- trimming ----------------------------------------------------------------------------------------------------


def test_trimming_never_removes_the_newest_that_reads(blobs, store):
    store.save(state(1))
    for sequence in (11, 12, 13):
        folder(blobs).create(state_key(sequence), b"rubbish")
    # A late writer: what it saves is trimmed at once, but 1 and 2 are all that can be read.
    store.save(state(2))
    assert sequences(store) == [2, 11, 12, 13]
    assert store.latest("orders").state.id.sequence == 2


def test_delete_before_never_removes_the_newest_that_reads(blobs, store):
    for sequence in (1, 2, 3):
        store.save(state(sequence))
    spoil(blobs, 3)
    assert store.delete_before("orders", 1000) == [1, 3]
    assert sequences(store) == [2]


def test_nothing_is_removed_while_nothing_reads(blobs, store):
    store.save(state(1))
    store.save(state(2))
    spoil(blobs, 1)
    spoil(blobs, 2)
    assert store.delete_before("orders", 1000) == []
    assert sequences(store) == [1, 2]


def pin(sequence, expires=None):
    return Pin(name="keep", checkpoint_id=CheckpointId(sequence), owner="me", reason="", created=NOON, expires=expires)


def test_a_pinned_checkpoint_stays(blobs, store):
    store.save(state(0))
    folder(blobs).create("pins/keep.json", pin(0).model_dump_json().encode())
    for sequence in range(1, 6):
        store.save(state(sequence))
    assert sequences(store) == [0, 3, 4, 5]
    store.delete_before("orders", 5)
    assert sequences(store) == [0, 5]


def test_a_pin_that_has_expired_holds_nothing(blobs, store):
    store.save(state(0))
    folder(blobs).create("pins/keep.json", pin(0, NOON - timedelta(days=1)).model_dump_json().encode())
    for sequence in range(1, 4):
        store.save(state(sequence))
    assert sequences(store) == [1, 2, 3]


def test_a_pin_that_cannot_be_read_may_hold_anything_so_nothing_goes(blobs, store, caplog):
    folder(blobs).create("pins/keep.json", b"rubbish")
    with caplog.at_level(logging.WARNING):
        for sequence in range(5):
            store.save(state(sequence))
    assert sequences(store) == [0, 1, 2, 3, 4]
    assert "older checkpoints were not removed" in caplog.text
    with pytest.raises(CorruptManifestError):
        store.delete_before("orders", 4)


class Undeletable(WrapperBlobs):
    def delete(self, keys):
        return [Deletion(key, AccessDeniedError("no right to delete", subject=key)) for key in keys]


def test_a_checkpoint_is_saved_even_if_older_ones_cannot_be_removed(blobs, caplog):
    store = StreamStore(Undeletable(blobs), 1)
    with caplog.at_level(logging.WARNING):
        for sequence in (1, 2):
            assert store.save(state(sequence)).trimmed == ()
    assert sequences(store) == [1, 2]
    assert "no right to delete" in caplog.text
    with pytest.raises(AccessDeniedError):
        store.delete_before("orders", 2)


def test_a_state_whose_digest_cannot_be_removed_stays(blobs):
    class KeepsDigests(WrapperBlobs):
        def delete(self, keys):
            refused = AccessDeniedError("no right to delete")
            return [
                Deletion(key, refused) if key.endswith(".sha256") else super(KeepsDigests, self).delete([key])[0]
                for key in keys
            ]

    store = StreamStore(KeepsDigests(blobs), 3)
    store.save(state(1))
    store.save(state(2))
    with pytest.raises(AccessDeniedError):
        store.delete_before("orders", 2)
    assert sequences(store) == [1, 2]
    assert store.latest("orders").skipped == ()


@patient
@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=20),
    st.integers(1, 4),
    st.integers(0, 13),
)
def test_whatever_is_saved_spoilt_and_removed_the_newest_that_read_still_reads(steps, maximum, before):
    blobs = MemoryBlobs()
    store = StreamStore(blobs, maximum)
    good: set[int] = set()
    for sequence, spoilt in steps:
        if sequence in {found.sequence for found in store.list("orders")}:
            if spoilt:
                spoil(blobs, sequence)
                good.discard(sequence)
            continue
        best = max([*good, sequence])
        store.save(state(sequence))
        good = {found for found in (*good, sequence) if found in set(sequences(store))}
        assert best in good
    if good:
        store.delete_before("orders", before)
        assert max(good) in sequences(store)
        assert store.latest("orders").state.id.sequence == max(good)


# -- several at once ---------------------------------------------------------------------------------------------


def test_of_several_that_save_under_one_sequence_one_wins_and_the_others_are_told(blobs):
    start = threading.Barrier(8)

    def save(number):
        start.wait()
        try:
            StreamStore(blobs, 3).save(state(1, event_count=number))
        except CheckpointConflictError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(save, range(8)) if number is not None]
    found = StreamStore(blobs, 3).latest("orders")
    assert winners == [found.state.event_count]
    assert found.skipped == ()


def test_savers_that_trim_at_the_same_time_leave_the_newest(blobs):
    start = threading.Barrier(8)

    def save(sequence):
        start.wait()
        StreamStore(blobs, 2).save(state(sequence))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(8)))
    store = StreamStore(blobs, 2)
    assert store.latest("orders").state.id.sequence == 7
    assert store.latest("orders").skipped == ()
    assert len(sequences(store)) <= 2
