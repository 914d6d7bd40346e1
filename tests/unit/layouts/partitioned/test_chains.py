"""Snapshot and deltas of each operator partition, in the order in which they are applied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import CorruptArtifactError, CorruptManifestError
from airflow_provider_checkpoint.layouts.partitioned import Chain, OperatorEntry, PartitionData, resolve
from airflow_provider_checkpoint.layouts.partitioned._chains import find_chains
from airflow_provider_checkpoint.model import Artifact, ArtifactKind, Severity
from tests.unit.layouts.partitioned.samples import commit, commit_base_and_increment, entry, manifest, nth_id, patient


def snap(owner: int, partition: int = 0, operator: str = "op"):
    return operator, entry(nth_id(owner), operator, partition, b"state of %d" % owner)


def delta(owner: int, partition: int = 0, operator: str = "op"):
    return operator, entry(nth_id(owner), operator, partition, b"change in %d" % owner, is_delta=True)


def test_a_chain_may_lie_in_the_folders_of_several_checkpoints():
    chains = resolve(manifest(nth_id(4), [snap(1), delta(2), delta(3), delta(4), snap(4, 1), snap(4, 0, "other")]))
    assert {slot: [piece.key.split("/")[0] for piece in chain.artifacts] for slot, chain in chains.items()} == {
        ("op", 0): [str(nth_id(number)) for number in (1, 2, 3, 4)],
        ("op", 1): [str(nth_id(4))],
        ("other", 0): [str(nth_id(4))],
    }


def test_deltas_are_applied_in_listed_order_wherever_the_snapshot_stands():
    listed = [delta(3)[1], snap(1)[1], delta(2)[1]]
    (chain,) = resolve(manifest(nth_id(4), operators={"op": OperatorEntry.of(listed)})).values()
    assert [piece.key.split("/")[0] for piece in chain.artifacts] == [str(nth_id(number)) for number in (1, 3, 2)]


@pytest.mark.parametrize(
    ("listed", "complaint"),
    [
        ([delta(1)], "without the snapshot"),
        ([snap(1, 1), delta(1)], "without the snapshot"),
        ([snap(1), snap(2)], "2 snapshots"),
        ([snap(1), snap(1)], "2 snapshots"),
        ([snap(1), delta(2), delta(2)], "twice"),
    ],
)
def test_a_broken_chain_is_not_resolved(layout, listed, complaint):
    made = manifest(nth_id(3), listed)
    with pytest.raises(CorruptManifestError, match=complaint):
        layout.resolve(made)
    with pytest.raises(CorruptManifestError, match=complaint):
        layout.load_state(made, "op", 0)


@pytest.mark.parametrize(
    ("listed", "ending"), [([delta(1)], "change"), ([delta(1), delta(1, 1), delta(1, 2)], "(and 2 more)")]
)
def test_the_error_counts_the_broken_chains(listed, ending):
    with pytest.raises(CorruptManifestError) as caught:
        resolve(manifest(nth_id(3), listed))
    assert caught.value.message.endswith(ending)
    assert caught.value.subject == str(nth_id(3))


def test_one_partition_is_loaded_without_a_look_at_the_others(layout):
    saved = layout.save_artifact(nth_id(3), PartitionData("op", 0, b"state"))
    made = manifest(nth_id(3), [("op", saved), delta(1, 1), delta(1, 0, "other")])
    assert layout.load_state(made, "op", 0) == (b"state", [])


def test_a_manifest_without_operators_has_no_chains(layout):
    assert layout.resolve(manifest(nth_id(1))) == {}


KINDS = st.sampled_from(ArtifactKind)


@patient
@given(
    st.lists(
        st.builds(
            Artifact,
            key=st.sampled_from("abcd"),
            kind=KINDS,
            operator=st.sampled_from("xy"),
            partition=st.integers(0, 1),
        ),
        max_size=8,
    )
)
def test_every_artifact_is_in_a_whole_chain_or_in_an_error(artifacts):
    chains, issues = find_chains(artifacts)
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    slots = {(artifact.operator, artifact.partition) for artifact in artifacts}
    assert chains.keys() <= slots
    assert bool(errors) == (chains.keys() != slots)
    for slot, chain in chains.items():
        assert chain.base.kind is ArtifactKind.SNAPSHOT
        assert all(piece.kind is ArtifactKind.DELTA for piece in chain.deltas)
        assert list(chain.deltas) == [
            piece
            for piece in artifacts
            if (piece.operator, piece.partition) == slot and piece.kind is ArtifactKind.DELTA
        ]


# -- state -------------------------------------------------------------------------------------------------------


def test_state_is_loaded_from_a_base_in_another_checkpoints_folder(layout):
    _, increment = commit_base_and_increment(layout)
    assert layout.load_state(increment, "op", 0) == (b"base_state", [b"_delta"])
    assert isinstance(layout.resolve(increment)["op", 0], Chain)


def test_a_chain_does_not_lead_through_another_manifest(layout):
    _, increment = commit_base_and_increment(layout)
    layout.blobs.delete([f"{nth_id(1)}/manifest.json"])
    assert layout.load_state(increment, "op", 0) == (b"base_state", [b"_delta"])


@pytest.mark.parametrize(
    "key", [f"{nth_id(1)}/operators/op/partition-0.snap", f"{nth_id(2)}/operators/op/partition-0.delta"]
)
@pytest.mark.parametrize("damage", [None, b"", b"short", b"!base_stat", b"base_state and more"])
def test_state_that_is_not_what_the_manifest_says_is_never_handed_out(layout, key, damage):
    _, increment = commit_base_and_increment(layout)
    if damage is None:
        layout.blobs.delete([key])
    else:
        layout.blobs.replace(key, damage)
    with pytest.raises(CorruptArtifactError) as caught:
        layout.load_state(increment, "op", 0)
    assert key in str(caught.value)
    assert caught.value.hint is not None


def test_a_piece_without_a_digest_is_held_to_its_size(layout):
    made = commit(layout, nth_id(1), PartitionData("op", 0, b"12345"))
    (only,) = made.operators["op"].partitions
    unproven = manifest(nth_id(1), [("op", only.model_copy(update={"sha256": None}))])
    layout.blobs.replace(only.path, b"other")
    assert layout.load_state(unproven, "op", 0) == (b"other", [])
    layout.blobs.replace(only.path, b"others")
    with pytest.raises(CorruptArtifactError, match="more than 5"):
        layout.load_state(unproven, "op", 0)


def test_an_absurd_size_allocates_nothing(layout):
    made = commit(layout, nth_id(1), PartitionData("op", 0, b"12345"))
    (only,) = made.operators["op"].partitions
    absurd = manifest(nth_id(1), [("op", only.model_copy(update={"size_bytes": 2**64 - 1}))])
    with pytest.raises(CorruptArtifactError, match="only 5 of 18446744073709551615 bytes"):
        layout.load_state(absurd, "op", 0)
