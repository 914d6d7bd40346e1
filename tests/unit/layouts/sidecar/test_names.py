"""What names say, and how they are spelled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.layouts.sidecar import _names as names
from airflow_provider_checkpoint.layouts.sidecar._listing import list_manifests
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.layouts.sidecar.making import patient

U64 = 2**64 - 1

SAID = {
    "manifests/manifest-000001.json": (Role.MANIFEST, 1),
    "manifests/manifest-1.json": (Role.MANIFEST, 1),
    "manifests/manifest-0000000001.json": (Role.MANIFEST, 1),
    "manifests/manifest-1000000.json": (Role.MANIFEST, 1_000_000),
    f"manifests/manifest-{U64}.json": (Role.MANIFEST, U64),
    "manifests/manifest-000000.json": (Role.MANIFEST, 0),
    "checkpoints/state-000001.bin": (Role.ARTIFACT, 1),
    "checkpoints/state-7.bin": (Role.ARTIFACT, 7),
    "checkpoints/checkpoint_000001/manifest.json": (Role.MANIFEST, 1),
    "checkpoints/checkpoint_000001/state.bin": (Role.ARTIFACT, 1),
    "manifests/latest.json": (Role.POINTER, None),
    "checkpoints/latest.txt": (Role.POINTER, None),
    "trash/7/entry.json": (Role.HOUSEKEEPING, None),
    "trash/7/kept/manifests/manifest-000007.json": (Role.HOUSEKEEPING, None),
    "pins/release.json": (Role.HOUSEKEEPING, None),
    "manifests/manifest-.json": (Role.UNKNOWN, None),
    "manifests/manifest-abc.json": (Role.UNKNOWN, None),
    "manifests/manifest-+1.json": (Role.UNKNOWN, None),
    "manifests/manifest--1.json": (Role.UNKNOWN, None),
    "manifests/manifest-1_0.json": (Role.UNKNOWN, None),
    "manifests/manifest-\u0661.json": (Role.UNKNOWN, None),
    f"manifests/manifest-{U64 + 1}.json": (Role.UNKNOWN, None),
    "manifests/manifest-000001.json.tmp": (Role.UNKNOWN, None),
    "manifests/old/manifest-000001.json": (Role.UNKNOWN, None),
    "other/manifest-000001.json": (Role.UNKNOWN, None),
    "manifest-000001.json": (Role.UNKNOWN, None),
    "checkpoints/checkpoint_000001/other.bin": (Role.UNKNOWN, None),
    "checkpoints/checkpoint_000001/manifest.json.tmp": (Role.UNKNOWN, None),
    "checkpoints/checkpoint_x/state.bin": (Role.UNKNOWN, None),
    "checkpoint-decisions/epoch=1/commit": (Role.UNKNOWN, None),
    "manifests/latest.json\n": (Role.UNKNOWN, None),
    "manifests/manifest-000001.json\n": (Role.UNKNOWN, None),
}


@pytest.mark.parametrize(("key", "said"), SAID.items())
def test_each_name_says_its_role_and_its_checkpoint(key, said):
    role, number = said
    assert names.named(key) == Named(role, None if number is None else CheckpointId(number))


@pytest.mark.parametrize(
    ("key", "malformed"),
    [
        ("manifests/manifest-abc.json", True),
        ("checkpoints/state-.bin", True),
        ("checkpoints/checkpoint_x/state.bin", True),
        (f"manifests/manifest-{U64 + 1}.json", True),
        ("manifests/manifest-1.json", False),
        ("manifests/readme.txt", False),
        ("manifests/latest.json", False),
    ],
)
def test_a_name_of_our_shape_without_an_id_is_malformed_and_a_strange_one_is_not_ours(key, malformed):
    assert names.is_malformed(key) is malformed


@patient
@given(st.integers(0, U64))
def test_every_id_is_found_again_in_the_names_made_for_it(number):
    owner = CheckpointId(number)
    manifest, state, legacy = names.manifest_key(number), names.state_key(number), names.legacy_manifest_key(number)
    assert names.named(manifest) == names.named(legacy) == Named(Role.MANIFEST, owner)
    assert names.named(state) == Named(Role.ARTIFACT, owner)
    assert names.state_beside(manifest) == state
    assert names.named(names.state_beside(legacy)) == Named(Role.ARTIFACT, owner)


def test_exact_paths():
    assert names.manifest_key(1) == "manifests/manifest-000001.json"
    assert names.state_key(1) == "checkpoints/state-000001.bin"
    assert names.legacy_manifest_key(1) == "checkpoints/checkpoint_000001/manifest.json"
    assert names.state_beside("manifests/manifest-1.json") == "checkpoints/state-1.bin"


def test_of_manifests_that_claim_one_id_the_present_layout_and_the_usual_spelling_come_first():
    ordered = [
        "manifests/manifest-000002.json",
        "manifests/manifest-0000002.json",
        "manifests/manifest-2.json",
        "checkpoints/checkpoint_000002/manifest.json",
        "checkpoints/checkpoint_0000002/manifest.json",
        "checkpoints/checkpoint_2/manifest.json",
    ]
    blobs = MemoryBlobs()
    for key in reversed(ordered):
        blobs.create(key, b"{}")
    assert list_manifests(blobs) == {2: ordered}


@patient
@given(st.text())
def test_any_text_is_a_number_or_is_not(text):
    number = names.parse_number(text)
    assert number is None or 0 <= number <= U64


def test_very_many_digits_are_no_number_and_cost_nothing():
    assert names.parse_number("") is None
    assert names.parse_number("9" * 100_000) is None
    assert names.parse_number("0" * 100_000 + "7") == 7


@patient
@given(st.text())
def test_no_key_makes_naming_fail(key):
    assert names.named(key).role in Role
