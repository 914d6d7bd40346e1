"""Proofs at each depth: what is damaged is found, what is whole is not accused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import CorruptArtifactError, StoreUnavailableError
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout
from airflow_provider_checkpoint.layouts.partitioned._checkpoint import as_checkpoint
from airflow_provider_checkpoint.model import Depth
from tests.unit.layouts.partitioned.samples import commit, commit_base_and_increment, entry, manifest, nth_id

STATE = bytes(range(64))
KEY = f"{nth_id(1)}/operators/op/partition-0.snap"
DEEP = [Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE]


def issues(layout, checkpoint, depth):
    return [issue.code for check in layout.checks(checkpoint, depth) for issue in check.run()]


@pytest.fixture
def one(layout):
    commit(layout, nth_id(1), PartitionData("op", 0, STATE))
    return layout.load(nth_id(1))


@pytest.mark.parametrize("depth", Depth)
def test_a_whole_checkpoint_has_no_issues(layout, depth):
    commit_base_and_increment(layout)
    assert issues(layout, layout.load(nth_id(2)), depth) == []


@pytest.mark.parametrize("depth", DEEP)
def test_a_missing_artifact_is_found(layout, one, depth):
    layout.blobs.delete([KEY])
    assert issues(layout, one, depth) == ["artifact_missing"]


def test_structure_looks_at_no_artifact(layout, one):
    layout.blobs.delete([KEY])
    assert issues(layout, one, Depth.STRUCTURE) == []


@pytest.mark.parametrize("depth", DEEP)
@pytest.mark.parametrize("length", [0, 1, 63, 65, 1000])
def test_every_other_size_is_found(layout, one, depth, length):
    layout.blobs.replace(KEY, (STATE * 20)[:length])
    assert issues(layout, one, depth) == ["size_mismatch"]


@pytest.mark.parametrize("depth", [Depth.CONTENT, Depth.RESTORE])
def test_every_flipped_bit_is_found_at_depth_content(depth):
    layout = PartitionedLayout(MemoryBlobs())
    commit(layout, nth_id(1), PartitionData("op", 0, STATE))
    checkpoint = layout.load(nth_id(1))
    for position in range(len(STATE) * 8):
        damaged = bytearray(STATE)
        damaged[position // 8] ^= 1 << position % 8
        layout.blobs.replace(KEY, bytes(damaged))
        assert issues(layout, checkpoint, depth) == ["checksum_mismatch"]


def test_presence_does_not_read_and_content_does_not_hold(layout, one):
    blobs = FaultyBlobs(layout.blobs)
    counting = PartitionedLayout(blobs)
    assert issues(counting, one, Depth.PRESENCE) == []
    assert blobs.calls == {"stat": 1}
    assert issues(counting, one, Depth.CONTENT) == []
    assert blobs.calls == {"stat": 1, "stream": 1}


@pytest.mark.parametrize("depth", Depth)
def test_building_checks_asks_the_store_nothing(layout, depth):
    _, increment = commit_base_and_increment(layout)
    blobs = FaultyBlobs(layout.blobs)
    PartitionedLayout(blobs).checks(as_checkpoint(increment), depth)
    assert not blobs.calls


def test_costs_and_subjects_say_what_will_be_read(layout):
    _, increment = commit_base_and_increment(layout)
    base, delta = (f"{nth_id(1)}/operators/op/partition-0.snap", f"{nth_id(2)}/operators/op/partition-0.delta")
    seen = {depth: [(c.subject, c.cost) for c in layout.checks(as_checkpoint(increment), depth)] for depth in DEEP}
    assert seen == {
        Depth.PRESENCE: [(base, 0), (delta, 0)],
        Depth.CONTENT: [(base, 10), (delta, 6)],
        Depth.RESTORE: [(f"{base} + {delta}", 16)],
    }


def test_chains_on_one_base_are_different_proofs(layout):
    """Whoever remembers what was proven by subject must not take one chain for another that shares its base."""
    base, increment = commit_base_and_increment(layout)
    subjects = {
        check.subject for made in (base, increment) for check in layout.checks(as_checkpoint(made), Depth.RESTORE)
    }
    assert len(subjects) == 2


@pytest.mark.parametrize("depth", DEEP)
def test_a_store_that_cannot_be_asked_proves_nothing(layout, one, depth):
    blobs = FaultyBlobs(layout.blobs)
    for verb in ("read", "stat", "stream"):
        blobs.inject(Fault.FAIL, verb=verb)
    (check,) = PartitionedLayout(blobs).checks(one, depth)
    with pytest.raises(StoreUnavailableError):
        check.run()


# -- restore -----------------------------------------------------------------------------------------------------


def test_a_broken_chain_is_an_issue_of_the_restore_drill(layout):
    layout.save_delta(nth_id(1), "op", 0, b"d")
    orphaned = manifest(nth_id(1), [("op", entry(nth_id(1), "op", 0, b"d", is_delta=True))])
    assert issues(layout, as_checkpoint(orphaned), Depth.CONTENT) == []
    assert issues(layout, as_checkpoint(orphaned), Depth.RESTORE) == ["chain_without_base"]


def test_decode_is_given_every_chain_whole_and_in_order(layout):
    commit_base_and_increment(layout)
    seen = []
    drill = PartitionedLayout(layout.blobs, decode=lambda *state: seen.append(state))
    assert issues(drill, layout.load(nth_id(2)), Depth.RESTORE) == []
    assert seen == [("op", 0, b"base_state", [b"_delta"])]


def test_decode_is_asked_at_depth_restore_only(layout, one):
    drill = PartitionedLayout(layout.blobs, decode=lambda *_: pytest.fail("not at this depth"))
    for depth in (Depth.STRUCTURE, Depth.PRESENCE, Depth.CONTENT):
        assert issues(drill, one, depth) == []


def test_state_that_does_not_decode_is_an_issue(layout, one):
    def decode(operator, partition, base, deltas):
        raise CorruptArtifactError("not an Arrow file")

    (check,) = PartitionedLayout(layout.blobs, decode=decode).checks(one, Depth.RESTORE)
    (issue,) = check.run()
    assert issue.code == "state_undecodable"
    assert issue.message == "operator 'op', partition 0: not an Arrow file"


def test_damaged_bytes_are_not_given_to_decode(layout, one):
    layout.blobs.replace(KEY, STATE[::-1])
    drill = PartitionedLayout(layout.blobs, decode=lambda *_: pytest.fail("damaged"))
    assert issues(drill, one, Depth.RESTORE) == ["checksum_mismatch"]


def test_a_mistake_in_decode_is_not_taken_for_damage(layout, one):
    def decode(operator, partition, base, deltas):
        raise KeyError("a bug")

    (check,) = PartitionedLayout(layout.blobs, decode=decode).checks(one, Depth.RESTORE)
    with pytest.raises(KeyError):
        check.run()


@settings(max_examples=50, deadline=None)
@given(
    state=st.binary(min_size=1, max_size=200),
    deltas=st.lists(st.binary(max_size=50), max_size=3),
    data=st.data(),
)
def test_any_damage_to_any_piece_is_found(state, deltas, data):
    layout = PartitionedLayout(MemoryBlobs())
    reused = []
    for number, (body, is_delta) in enumerate([(state, False), *((each, True) for each in deltas)], start=1):
        saved = layout.save_artifact(nth_id(number), PartitionData("op", 0, body, is_delta=is_delta))
        reused.append(("op", saved))
    last = nth_id(len(reused))
    made = manifest(last, reused)
    layout.save_manifest(made)
    assert layout.load_state(made, "op", 0) == (state, deltas)

    _, victim = data.draw(st.sampled_from(reused))
    whole = layout.load_artifact(victim.path)
    start = data.draw(st.integers(0, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=3)) + whole[start + data.draw(st.integers(0, 3)) :]
    layout.blobs.replace(victim.path, damaged)
    found = issues(layout, layout.load(last), data.draw(st.sampled_from([Depth.CONTENT, Depth.RESTORE])))
    assert (found == []) == (damaged == whole)
    if damaged != whole:
        with pytest.raises(CorruptArtifactError):
            layout.load_state(made, "op", 0)
