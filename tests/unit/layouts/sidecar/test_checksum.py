"""The checksum over all state, in each of its kinds."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.sidecar import (
    CheckpointManifest,
    OperatorCheckpoint,
    SidecarLayout,
    inline_checksum,
)
from airflow_provider_checkpoint.layouts.sidecar._checksum import Seal, checksum_issues, needs_sidecar
from tests.unit.layouts.sidecar.making import manifest, patient, vector

MIB = 1024 * 1024
KEY = "checkpoints/state-000001.bin"


def issues(made, state=None):
    blobs = MemoryBlobs()
    if state is not None:
        blobs.create(KEY, state)
    return [(issue.severity, issue.code) for issue in checksum_issues(blobs, made, KEY)]


# -- vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operators", "checksum"),
    [
        (
            {"a": OperatorCheckpoint.inline(b""), "b": OperatorCheckpoint.inline(b"\x01")},
            "deb62a7e84f474663ec442a3a1e3205df84a46872c333496eb02cbe0c322c654",
        ),
        ({"x": OperatorCheckpoint()}, "758d56805faf3cd54dc7a7995808137ca3ade13246ac045c28e3988fbd95900c"),
        (
            {"window-agg": OperatorCheckpoint.inline(b"hello")},
            "2591c264100adc68f26d30af55f6f1b036e9145a796f0e85700b32a54b58c07b",
        ),
        (
            {"small-op": OperatorCheckpoint.inline(b"tiny"), "big-op": OperatorCheckpoint.at(0, 4096)},
            "8e6c0b33f45750ec53a560bb8c5c57296b982f7e8025f5fa46eee7c4777f6d7c",
        ),
    ],
)
def test_the_inline_checksum_is_the_references(operators, checksum):
    assert inline_checksum(operators) == checksum


def test_names_are_sorted_by_their_bytes():
    operators = {name: OperatorCheckpoint.inline(b"") for name in ("\uffff", "\U00010000", "z", "A")}
    expected = hashlib.sha256("A\0\0z\0\0\uffff\0\0\U00010000\0\0".encode()).hexdigest()
    assert inline_checksum(operators) == expected


@pytest.mark.parametrize(
    ("name", "state"), [("L2_", None), ("L3_manifest", "L3_state"), ("L4_manifest", "L4_state")], ids=["b", "a", "c"]
)
def test_the_references_checkpoints_pass(name, state):
    made = CheckpointManifest.from_json(vector(name))
    assert issues(made, None if state is None else vector(state)) == []


def test_a_mixed_checkpoint_of_an_older_writer_passes_with_a_warning():
    plain = "769bd186841c10e5b1106b55986206c0e87fc05a7f565fdee01b5abcaff6ae78"
    made = CheckpointManifest.from_json(vector("L4_manifest")).changed(state_checksum=plain)
    assert issues(made, vector("L4_state")) == [("warning", "inline_state_unprotected")]


def test_the_older_kind_is_not_accepted_where_all_state_is_inline():
    made = CheckpointManifest.from_json(vector("L2_"))
    assert issues(made.changed(state_checksum=hashlib.sha256(b"side").hexdigest()), b"side") == [
        ("error", "checksum_mismatch")
    ]


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["L3", "L4"])
@pytest.mark.parametrize(
    "damage",
    [lambda state: state[:-1], lambda state: state + b"\0", lambda state: b"\0" + state[1:], lambda state: b""],
)
def test_a_changed_sidecar_is_found(name, damage):
    made = CheckpointManifest.from_json(vector(f"{name}_manifest"))
    assert issues(made, damage(vector(f"{name}_state"))) == [("error", "checksum_mismatch")]


@pytest.mark.parametrize("name", ["L3", "L4"])
def test_a_missing_sidecar_is_found(name):
    assert issues(CheckpointManifest.from_json(vector(f"{name}_manifest"))) == [("error", "artifact_missing")]


@pytest.mark.parametrize(
    "changed",
    [
        {"window-agg": OperatorCheckpoint.inline(b"hellO")},
        {"window-agh": OperatorCheckpoint.inline(b"hello")},
        {"window-agg": OperatorCheckpoint()},
        {"window-agg": OperatorCheckpoint.inline(b"hello"), "more": OperatorCheckpoint()},
    ],
    ids=["state", "name", "lost", "more"],
)
def test_changed_inline_state_is_found(changed):
    made = CheckpointManifest.from_json(vector("L2_")).changed(operator_states=changed)
    assert issues(made) == [("error", "checksum_mismatch")]


def test_the_message_says_what_was_expected_and_what_was_found():
    made = CheckpointManifest.from_json(vector("L3_manifest"))
    blobs = MemoryBlobs()
    blobs.create(KEY, b"other")
    (issue,) = checksum_issues(blobs, made, KEY)
    other = hashlib.sha256(b"other").hexdigest()
    assert issue.message == f"state.bin checksum mismatch: expected {made.state_checksum}, got {other}"


# -- which state is meant ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        ({}, False),
        ({"state_checksum": "0" * 64}, True),
        ({"operator_states": {"a": OperatorCheckpoint.inline(b"")}, "state_checksum": "0" * 64}, False),
        ({"operator_states": {"a": OperatorCheckpoint.at(0, 1)}}, True),
        ({"operator_states": {"a": OperatorCheckpoint.at(0, 1), "b": OperatorCheckpoint()}}, True),
    ],
)
def test_a_sidecar_is_referred_to_by_a_range_or_by_a_checksum_of_nothing_else(values, needed):
    assert needs_sidecar(manifest(1, **values)) is needed


# -- while writing -----------------------------------------------------------------------------------------------


@patient
@given(st.lists(st.binary(max_size=20), max_size=5), st.booleans())
def test_the_checksum_taken_on_the_way_is_the_one_that_is_checked(chunks, mixed):
    size = sum(map(len, chunks))
    operators = {"big": OperatorCheckpoint.at(0, size)} | ({"small": OperatorCheckpoint.inline(b"x")} if mixed else {})
    made = manifest(1, operator_states=operators)
    seal = Seal(made)
    assert b"".join(seal.over(chunks)) == b"".join(chunks)
    assert issues(made.changed(state_checksum=seal.checksum), b"".join(chunks)) == []


def test_a_sidecar_shorter_than_what_operators_claim_never_appears(any_blobs):
    layout = SidecarLayout(any_blobs)
    made = manifest(1, operator_states={"a": OperatorCheckpoint.at(0, 5), "b": OperatorCheckpoint.at(5, 5)})
    with pytest.raises(ConfigurationError, match="9 bytes, but operators claim ranges up to 10"):
        layout.save_with_state(made, iter([b"01234", b"5678"]))
    assert list(any_blobs.list()) == []


def test_proving_a_large_sidecar_needs_little_memory(tmp_path):
    layout = SidecarLayout(LocalBlobs(tmp_path))
    size = 48 * MIB
    made = manifest(1, operator_states={"big": OperatorCheckpoint.at(0, size)})
    block = bytes(MIB)
    tracemalloc.start()
    try:
        layout.save_with_state(made, (block for _ in range(size // MIB)))
        assert layout.validate_checkpoint(1).valid
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
