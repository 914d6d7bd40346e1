"""Names: what we write leads nowhere else, what we read is judged before it is followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs, check_key
from airflow_provider_checkpoint.exceptions import CorruptManifestError, InvalidKeyError
from airflow_provider_checkpoint.layouts._protocol import HOUSEKEEPING, Named, Role
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionedLayout, operator_folder
from airflow_provider_checkpoint.layouts.partitioned._paths import artifact_key, is_ours, locate, parse_artifact_key
from airflow_provider_checkpoint.model import ArtifactKind, CheckpointId
from tests.unit.layouts.partitioned.samples import IDS, M1_ID, TEXT, U32, commit, nth_id, patient

KINDS = st.sampled_from(ArtifactKind)
SNAP = "operators/op/partition-0.snap"


# -- operators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("window-agg", "window-agg"),
        ("Window_Agg.v2", "Window_Agg.v2"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("../../etc/passwd", "%2E%2E%2F..%2Fetc%2Fpasswd"),
        (".hidden", "%2Ehidden"),
        ("trailing.", "trailing%2E"),
        ("two words", "two%20words"),
        ("опер", "%D0%BE%D0%BF%D0%B5%D1%80"),
        ("a\\b", "a%5Cb"),
        ("nul\0", "nul%00"),
        ("~", "%7E"),
        ("s3://bucket/key", "s3%3A%2F%2Fbucket%2Fkey"),
    ],
)
def test_an_operator_folder_is_one_safe_segment(name, folder):
    assert operator_folder(name) == folder


@patient
@given(one=TEXT | st.text(alphabet="a%2F/.~", max_size=6), two=TEXT | st.text(alphabet="a%2F/.~", max_size=6))
def test_different_operators_have_different_folders(one, two):
    if one and two:
        assert (operator_folder(one) == operator_folder(two)) == (one == two)


@patient
@given(
    operator=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400),
    owner=IDS,
    partition=U32,
    kind=KINDS,
)
def test_every_key_we_build_is_portable_and_reads_back(operator, owner, partition, kind):
    key = check_key(artifact_key(owner, operator, partition, kind))
    name = parse_artifact_key(key)
    assert name is not None
    assert (name.checkpoint_id, name.partition, name.kind) == (owner, partition, kind)
    assert name.is_of(operator)
    assert "/" not in name.folder


def test_long_names_that_begin_alike_stay_apart():
    one, two = (operator_folder("x" * 500 + tail) for tail in "ab")
    assert one != two
    assert max(map(len, (one, two))) <= 180


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_a_name_that_cannot_be_a_folder_is_refused(name):
    with pytest.raises(InvalidKeyError):
        operator_folder(name)


@pytest.mark.parametrize("partition", [-1, 2**32])
def test_a_partition_number_out_of_range_is_refused(layout, partition):
    with pytest.raises(InvalidKeyError, match="32-bit"):
        layout.save_snapshot(M1_ID, "op", partition, b"x")
    assert list(layout.blobs.list()) == []


@pytest.mark.parametrize(
    "operator", ["a/b", "a%2Fb", "..", ".", " ", "два слова", "100%", "~", "x" * 1000, "\u202e", "a\nb"]
)
def test_state_of_an_operator_with_an_odd_name_is_found_again(layout, operator):
    made = commit(
        layout, nth_id(1), PartitionData(operator, 0, b"state"), PartitionData(operator, 0, b"d", is_delta=True)
    )
    assert layout.load_state(layout.load_manifest(nth_id(1)), operator, 0) == (b"state", [b"d"])
    assert layout.examine(nth_id(1)).issues == []
    assert layout.load(nth_id(1)).artifacts[0].operator == operator
    assert {info.key.partition("/")[0] for info in layout.blobs.list()} == {str(made.checkpoint_id), "_latest"}


@patient
@given(
    operator=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400),
    other=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
    owner=IDS,
    partition=U32,
    kind=KINDS,
)
def test_a_path_that_is_told_ours_means_what_it_is_taken_for(operator, other, owner, partition, kind):
    key = artifact_key(owner, operator, partition, kind)
    assert is_ours(key, operator, partition, kind)
    name = locate(key, M1_ID)
    assert (name.key, name.partition, name.kind, name.is_of(operator)) == (key, partition, kind, True)
    assert is_ours(key, other, partition, kind) == (other == operator)
    for path in (f"/{key}", f"store/{key}", key.partition("/")[2], f"{key}.bak", key.upper(), key.replace("-", "_", 1)):
        assert not is_ours(path, operator, partition, kind)


# -- paths in manifests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"{nth_id(1)}/{SNAP}", f"{nth_id(1)}/{SNAP}"),
        (SNAP, f"{M1_ID}/{SNAP}"),
        (f"checkpoints/{M1_ID}/{SNAP}", f"{M1_ID}/{SNAP}"),
        (f"nodes/7/checkpoints/{nth_id(1)}/{SNAP}", f"{nth_id(1)}/{SNAP}"),
        (f"{nth_id(3)}/checkpoints/{nth_id(1)}/{SNAP}", f"{nth_id(1)}/{SNAP}"),
        (f"{M1_ID}/operators/a/b/partition-4294967295.delta", f"{M1_ID}/operators/a/b/partition-4294967295.delta"),
    ],
)
def test_the_spellings_of_the_reference_and_ours_are_understood(path, key):
    assert locate(path, M1_ID).key == key


HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../secret",
    f"../{M1_ID}/{SNAP}",
    f"/{M1_ID}/{SNAP}",
    f"{M1_ID}/../{nth_id(1)}/{SNAP}",
    f"{M1_ID}/operators/../../x/partition-0.snap",
    f"{M1_ID}/operators/./partition-0.snap",
    f"{M1_ID}//operators/op/partition-0.snap",
    f"s3://bucket/{M1_ID}/{SNAP}",
    f"file:///{M1_ID}/{SNAP}",
    f"C:\\{M1_ID}\\operators\\op\\partition-0.snap",
    f"{M1_ID}/{SNAP}\n",
    f"{M1_ID}/{SNAP}\0",
    f"{M1_ID}/{SNAP}/",
    f"{M1_ID}/manifest.json",
    "_latest",
    f"trash/{M1_ID}/entry.json",
    f"{M1_ID}/operators/partition-0.snap",
    f"{M1_ID}/operators/op/partition-00.snap",
    f"{M1_ID}/operators/op/partition-01.snap",
    f"{M1_ID}/operators/op/partition-+1.snap",
    f"{M1_ID}/operators/op/partition-٣.snap",
    f"{M1_ID}/operators/op/partition-4294967296.snap",
    f"{M1_ID}/operators/op/partition-{'9' * 100}.snap",
    f"{M1_ID}/operators/op/partition-0.SNAP",
    f"{M1_ID}/operators/op/partition-0.snap.tmp",
    f"checkpoints/{M1_ID}operators/op/partition-0.snap",
    f"{str(M1_ID).upper()}/{SNAP}",
    f"{M1_ID}/operators/{'x' * 201}/partition-0.snap",
    f"{'x/' * 600}{M1_ID}/{SNAP}",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_that_is_not_an_artifact_of_this_store_is_corrupt(layout, path):
    with pytest.raises(CorruptManifestError):
        locate(path, M1_ID)
    with pytest.raises(CorruptManifestError):
        layout.load_artifact(path)


def test_a_path_below_the_checkpoint_means_nothing_without_the_checkpoint(layout):
    with pytest.raises(CorruptManifestError):
        layout.load_artifact(SNAP)


@patient
@given(path=st.text(alphabet=f"{M1_ID}/.operatsnpdl:\\ ", max_size=120) | TEXT)
def test_no_path_leads_out(path):
    try:
        name = locate(path, M1_ID)
    except CorruptManifestError:
        return
    assert check_key(name.key) == name.key
    assert PartitionedLayout(MemoryBlobs()).named(name.key).role is Role.ARTIFACT


# -- what a name says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "role", "owner"),
    [
        ("_latest", Role.POINTER, None),
        (f"{M1_ID}/manifest.json", Role.MANIFEST, M1_ID),
        (f"{M1_ID}/{SNAP}", Role.ARTIFACT, M1_ID),
        (f"{M1_ID}/operators/a/b/partition-3.delta", Role.ARTIFACT, M1_ID),
        (f"{M1_ID}/offsets/kafka-trades.json", Role.ARTIFACT, M1_ID),
        *((f"{folder}/x/y.json", Role.HOUSEKEEPING, None) for folder in sorted(HOUSEKEEPING)),
        (f"trash/{M1_ID}/kept/{M1_ID}/manifest.json", Role.HOUSEKEEPING, None),
        ("trash", Role.UNKNOWN, None),
        ("", Role.UNKNOWN, None),
        ("_latest.bak", Role.UNKNOWN, None),
        ("README", Role.UNKNOWN, None),
        (f"{M1_ID}", Role.UNKNOWN, None),
        (f"{M1_ID}/manifest.json.bak", Role.UNKNOWN, None),
        (f"{M1_ID}/operators/op/notes.txt", Role.UNKNOWN, None),
        (f"{M1_ID}/offsets/deep/er.json", Role.UNKNOWN, None),
        (f"checkpoints/{M1_ID}/manifest.json", Role.UNKNOWN, None),
        ("0192a3b4-c5d6-4e8f-9a0b-1c2d3e4f5a6b/manifest.json", Role.UNKNOWN, None),
    ],
)
def test_a_name_says_what_an_object_is(layout, key, role, owner):
    assert layout.named(key) == Named(role, owner)


@patient
@given(key=TEXT)
def test_any_name_gets_an_answer(key):
    assert isinstance(PartitionedLayout(MemoryBlobs()).named(key), Named)


def test_the_manifest_is_what_makes_a_checkpoint_exist(layout):
    assert layout.manifest_keys(M1_ID) == [f"{M1_ID}/manifest.json"]
    assert layout.named(layout.manifest_keys(M1_ID)[0]) == Named(Role.MANIFEST, CheckpointId(str(M1_ID)))
