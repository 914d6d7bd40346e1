"""Damage to files: found, or a typed error; never a crash, never other state in silence.

What is promised, exactly. The sidecar: any change is found. The manifest: it has no checksum over itself, so a changed
epoch, position, watermark or name of an external operator can go unseen. But if nothing at all is told, the bytes of
state are those that were saved: the same inline states under the same names, and the same ranges of the same sidecar.
(To the format's checksum an inline state that is empty and one that is not there are the same.)
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, OperatorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.layouts.sidecar._manifest import with_sinks
from airflow_provider_checkpoint.model import CheckpointId, Depth
from tests.fuzz.fuzz_sidecar import fuzz_one
from tests.unit.layouts.sidecar.making import manifest, patient, put, vector

MANIFESTS = {"L2_": (42, None), "L3_manifest": (1, "L3_state"), "L4_manifest": (1, "L4_state")}


def bit_flips(data):
    for position in range(len(data)):
        for bit in range(8):
            yield data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]


def prefixes(data):
    return (data[:size] for size in range(len(data)))


def state_of(made):
    """The state a manifest leads to, but for the names of external operators."""
    inline = {name: entry.try_decode() or b"" for name, entry in made.operator_states.items() if not entry.external}
    ranges = sorted(
        (entry.external_offset, entry.external_length) for entry in made.operator_states.values() if entry.external
    )
    return inline, ranges


def store_of(name):
    number, state = MANIFESTS[name]
    blobs = MemoryBlobs()
    put(blobs, vector(name), number, None if state is None else vector(state))
    return SidecarLayout(blobs), number


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_flipped_bit_in_a_manifest_is_told_or_leaves_the_state_as_it_was(name):
    layout, number = store_of(name)
    original = layout.load_by_id(number)
    silent = 0
    for damaged in bit_flips(vector(name)):
        put(layout.blobs, damaged, number)
        result = layout.validate_checkpoint(number)
        if result.issues:
            continue
        silent += 1
        assert state_of(layout.load_by_id(number)) == state_of(original), damaged
    # Most of the text is not state; if every flip were told, this test would be looking at nothing.
    assert silent > 0


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_cut_anywhere_is_corrupt(name):
    layout, number = store_of(name)
    for damaged in prefixes(vector(name)):
        put(layout.blobs, damaged, number)
        with pytest.raises(CorruptError):
            layout.load(CheckpointId(number))
        assert not layout.validate_checkpoint(number).valid


@pytest.mark.parametrize("name", ["L3", "L4"])
def test_a_sidecar_cut_anywhere_is_found(name):
    layout, number = store_of(f"{name}_manifest")
    for damaged in prefixes(vector(f"{name}_state")):
        layout.blobs.replace("checkpoints/state-000001.bin", damaged)
        assert not layout.validate_checkpoint(number).valid


@pytest.mark.parametrize("name", ["L3", "L4"])
def test_a_flipped_bit_in_a_sidecar_is_found(name):
    layout, number = store_of(f"{name}_manifest")
    for damaged in list(bit_flips(vector(f"{name}_state")))[::37]:
        layout.blobs.replace("checkpoints/state-000001.bin", damaged)
        assert not layout.validate_checkpoint(number).valid


states = st.dictionaries(st.text(min_size=1, max_size=5).filter(lambda name: "\0" not in name), st.binary(max_size=30))


@patient
@given(states.filter(bool), st.integers(0, 20), st.data())
def test_any_one_damaged_byte_of_any_checkpoint_is_told_or_leaves_the_state_as_it_was(saved, threshold, data):
    blobs = MemoryBlobs()
    layout = SidecarLayout(blobs, inline_threshold=threshold)
    original = layout.save_operator_states(manifest(1), saved)
    assert layout.validate_checkpoint(1).issues == []
    key = data.draw(st.sampled_from(sorted(info.key for info in blobs.list() if "latest" not in info.key)))
    body = blobs.read(key)
    position = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != body[position]))
    blobs.replace(key, body[:position] + bytes([byte]) + body[position + 1 :])
    result = layout.validate_checkpoint(1)
    if "state" in key:
        assert not result.valid
    elif not result.issues:
        assert state_of(layout.load_by_id(1)) == state_of(original)


@patient
@given(states, st.integers(0, 20))
def test_any_checkpoint_comes_back_as_it_was_saved(saved, threshold):
    layout = SidecarLayout(MemoryBlobs(), inline_threshold=threshold)
    made = layout.save_operator_states(manifest(1), saved)
    assert layout.load_latest() == made
    assert {name: layout.load_operator_state(made, name) for name in made.operator_states} == saved
    checks = layout.checks(layout.load(CheckpointId(1)), Depth.RESTORE)
    assert [issue for check in checks for issue in check.run()] == []


# -- hostile manifests -------------------------------------------------------------------------------------------

HOSTILE = {
    "a range of all memory there is": {"operator_states": {"a": OperatorCheckpoint.at(0, 2**64 - 1)}},
    "a range past all numbers": {"operator_states": {"a": OperatorCheckpoint.at(2**64 - 1, 2**64 - 1)}},
    "a path out of the store": {"table_store_checkpoint_path": "../../../etc/passwd"},
    "a path with a scheme": {"table_store_checkpoint_path": "s3://other/bucket"},
    "names like paths": {"operator_states": {"../../x": OperatorCheckpoint.at(0, 1)}},
    "the end of time": {"timestamp_ms": 2**64 - 1},
}


@pytest.mark.parametrize("values", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_costs_nothing_and_reaches_nothing(layout, blobs, values):
    put(blobs, manifest(1, **values), 1, b"state")
    layout.validate_checkpoint(1)
    for artifact in layout.load(CheckpointId(1)).artifacts:
        assert artifact.key == "checkpoints/state-000001.bin"


@pytest.mark.parametrize("depth", [100, 900, 5_000, 100_000])
def test_deep_nesting_is_refused_or_ignored(depth):
    body = b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"extra":' + b"[" * depth + b"]" * depth + b"}"
    try:
        CheckpointManifest.from_json(body)
    except CorruptError:
        assert depth > 500


def test_what_is_nested_too_deep_to_be_written_again_is_a_typed_error():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(CorruptError):
        with_sinks({"extra": deep}, manifest(1))


# -- the entry for the fuzzer ------------------------------------------------------------------------------------


@patient
@given(st.binary())
@example(b"")
@example(b"{}")
@example(b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1e400}')
def test_garbage_is_read_or_refused(data):
    fuzz_one(data)


@settings(patient, max_examples=300)
@given(st.sampled_from(["L1_", "L2_", "L2b_", "L3_manifest", "L4_manifest", "L7"]), st.data())
def test_a_vector_with_a_part_replaced_is_read_or_refused(name, data):
    body = vector(name)
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, min(len(body), start + 12)))
    piece = data.draw(st.binary(max_size=8) | st.text(max_size=6).map(str.encode) | st.sampled_from(PIECES))
    fuzz_one(body[:start] + piece + body[stop:])


PIECES = [b"null", b"[]", b"{}", b"-1", b"1e999", b"99999999999999999999999", b'"\\ud800"', b"true", b'"\\u0000"', b","]
