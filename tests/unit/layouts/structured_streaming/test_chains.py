"""From the names in a listing to the files that a version is loaded from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import BlobInfo
from airflow_provider_checkpoint.layouts.structured_streaming._chains import (
    lineage_chain,
    pick_unique_id,
    plain_chain,
)
from airflow_provider_checkpoint.layouts.structured_streaming._directory import Directory, StoreFiles

FOLDER = "state/0/0/"


def uid(number):
    return f"{number:08x}-0000-4000-8000-000000000000"


def directory(*keys):
    return Directory.of(BlobInfo(key, 1, None, None) for key in keys)


def store(names):
    """Files of one store: ``"1.delta 2.delta 2.snapshot"``."""
    listed = directory(*(f"{FOLDER}{name}" for name in names.split()))
    return listed.stores.get(0, {}).get((0, "default"), StoreFiles(FOLDER))


def short(chain):
    return " ".join(key.removeprefix(FOLDER) for key in chain.keys)


PLAIN = {
    # files, version -> chain, missing
    "only deltas": ("1.delta 2.delta 3.delta", 2, "1.delta 2.delta", ""),
    "from the newest snapshot": ("1.delta 2.delta 2.snapshot 3.delta", 3, "2.snapshot 3.delta", ""),
    "a snapshot of the version itself": ("2.snapshot 2.delta", 2, "2.snapshot", ""),
    "a snapshot ahead does not count": ("1.delta 2.delta 3.snapshot", 2, "1.delta 2.delta", ""),
    "older deltas are not needed": ("5.delta 6.snapshot 7.delta", 7, "6.snapshot 7.delta", ""),
    "a delta is missing": ("2.snapshot 4.delta", 4, "2.snapshot 3.delta 4.delta", "3.delta"),
    "the last delta is missing": ("1.delta", 2, "1.delta 2.delta", "2.delta"),
    "nothing is there": ("", 2, "1.delta 2.delta", "1.delta 2.delta"),
    "files of format 2 do not count": (f"1_{uid(1)}.zip 1.delta", 1, "1.delta", ""),
}


@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("rocksdb", [False, True])
def test_a_version_is_its_newest_snapshot_and_every_change_after(case, rocksdb):
    def named(text):
        return text.replace("delta", "changelog").replace("snapshot", "zip") if rocksdb else text

    files, version, expected, missing = PLAIN[case]
    files, expected, missing = named(files), named(expected), named(missing)
    chain = plain_chain(store(files), version, rocksdb=rocksdb)
    assert short(chain) == expected
    assert " ".join(chain.missing) == " ".join(f"{FOLDER}{name}" for name in missing.split())
    assert chain.whole is (not missing)


def test_rocksdb_without_change_logs_needs_the_zip_of_the_version_itself():
    assert short(plain_chain(store("1.zip 2.zip"), 2, rocksdb=True)) == "2.zip"
    gone = plain_chain(store("1.zip"), 2, rocksdb=True)
    assert gone.missing == (f"{FOLDER}2.changelog",)


def test_a_damaged_snapshot_is_passed_over_for_an_older_one():
    files = store("1.delta 2.delta 2.snapshot 3.delta 4.delta 4.snapshot 5.delta")
    assert short(plain_chain(files, 5, rocksdb=False, below=4)) == "2.snapshot 3.delta 4.delta 5.delta"
    assert short(plain_chain(files, 5, rocksdb=False, below=2)) == "1.delta 2.delta 3.delta 4.delta 5.delta"


def test_the_number_of_a_batch_does_not_decide_how_long_it_takes():
    chain = plain_chain(store("7.delta"), 2**62, rocksdb=False)
    assert len(chain.missing) == 5
    assert chain.missing[-1] == f"{FOLDER}{2**62}.delta"


@given(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)), st.integers(1, 12))
def test_a_whole_chain_has_one_base_and_each_version_since(deltas, snapshots, version):
    names = [f"{number}.delta" for number in deltas] + [f"{number}.snapshot" for number in snapshots]
    files = store(" ".join(names))
    chain = plain_chain(files, version, rocksdb=False)
    base = max((number for number in snapshots if number <= version), default=0)
    wanted = [f"{FOLDER}{number}.delta" for number in range(base + 1, version + 1)]
    assert chain.base == (f"{FOLDER}{base}.snapshot" if base else None)
    assert chain.whole is all(number in deltas for number in range(base + 1, version + 1))
    if chain.whole:
        assert list(chain.changes) == wanted


# -- checkpoint format 2 -----------------------------------------------------------------------------------------


def logged(lineages):
    """Reads lineages: change log to the versions it says it builds on; notes which were read."""
    read = []

    def lineage(key):
        read.append(key.removeprefix(FOLDER))
        version = int(key.removeprefix(FOLDER).partition("_")[0])
        return [(number, uid(number)) for number in lineages.get(version, range(1, version))]

    return lineage, read


def named(text):
    """``"1.changelog 2.zip"`` with a unique id each."""
    return " ".join("{0}_{2}.{1}".format(*name.split("."), uid(int(name.split(".")[0]))) for name in text.split())


FORMAT_2 = {
    "a snapshot of the version itself": ("1.changelog 2.changelog 2.zip", 2, "2.zip"),
    "only change logs": ("1.changelog 2.changelog 3.changelog", 3, "1.changelog 2.changelog 3.changelog"),
    "a snapshot and change logs": ("2.zip 3.changelog 4.changelog", 4, "2.zip 3.changelog 4.changelog"),
    "the newest snapshot": ("1.zip 2.changelog 3.zip 3.changelog 4.changelog", 4, "3.zip 4.changelog"),
}


@pytest.mark.parametrize("case", FORMAT_2)
def test_in_format_2_the_lineage_leads_back_to_a_snapshot(case):
    files, version, expected = FORMAT_2[case]
    lineage, read = logged({})
    chain = lineage_chain(store(named(files)), version, uid(version), lineage)
    assert short(chain) == named(expected)
    assert chain.whole
    assert len(read) <= 1


def test_files_of_another_attempt_do_not_count():
    files = store(f"1_{uid(99)}.changelog 2_{uid(2)}.changelog")
    chain = lineage_chain(files, 2, uid(2), logged({})[0])
    assert chain.missing == (f"{FOLDER}1_{uid(1)}.changelog",)


def test_a_lineage_that_ends_too_soon_goes_on_with_that_of_an_older_log():
    lineage, read = logged({4: [3], 3: [2, 1]})
    chain = lineage_chain(store(named("1.changelog 2.changelog 3.changelog 4.changelog")), 4, uid(4), lineage)
    assert short(chain) == named("1.changelog 2.changelog 3.changelog 4.changelog")
    assert read == named("4.changelog 3.changelog").split()


def test_a_lineage_that_leads_nowhere_is_missing_its_snapshot():
    chain = lineage_chain(store(named("3.changelog 4.changelog")), 4, uid(4), logged({4: [3], 3: []})[0])
    assert chain.missing == (f"{FOLDER}2_*.zip",)
    assert not chain.whole


def test_in_format_2_a_damaged_snapshot_is_passed_over():
    files = store(named("1.changelog 2.changelog 2.zip 3.changelog 4.zip 4.changelog"))
    chain = lineage_chain(files, 4, uid(4), logged({})[0], below=4)
    assert short(chain) == named("2.zip 3.changelog 4.changelog")


def test_a_store_is_told_its_unique_id_by_its_files_or_else_by_its_place():
    files = store(f"3_{uid(7)}.changelog")
    assert pick_unique_id(files, 3, [uid(5), uid(7)], 0) == uid(7)
    assert pick_unique_id(files, 4, [uid(5), uid(6)], 1) == uid(6)
    assert pick_unique_id(files, 4, [], 0) is None


# -- the logs ----------------------------------------------------------------------------------------------------


def logs(offsets, commits, *more):
    return directory(*(f"offsets/{n}" for n in offsets), *(f"commits/{n}" for n in commits), *more)


SPARSE = {
    "asynchronous progress": ([0, 2, 5, 8], [0, 2, 5, 8], True),
    "and one planned": ([0, 2, 5, 8], [0, 2, 5], True),
    "dense": (range(10), range(10), False),
    "one entry lost": ([*range(10), 11], [*range(10), 11], False),
    "one entry lost of a few": ([0, 1, 2, 4], [0, 1, 2, 4], False),
    "left by a prune": ([4, 5, 9, 10], [5, 10], False),
    "commits lost": ([0, 2, 5, 8], [8], False),
    "no commits": ([0, 2], [], False),
}


@pytest.mark.parametrize("case", SPARSE)
def test_logs_of_asynchronous_progress_are_told_from_logs_with_losses(case):
    offsets, commits, sparse = SPARSE[case]
    assert logs(offsets, commits).is_sparse is sparse
    assert not logs(offsets, commits, "state/0/0/1.delta").is_sparse


def test_the_offsets_before_are_those_of_the_batch_before_but_in_sparse_logs():
    assert logs([3, 4], [3, 4]).previous(4) == 3
    assert logs([4], [4]).previous(4) == 3
    assert logs([0], [0]).previous(0) is None
    sparse = logs([0, 2, 5, 8], [0, 2, 5, 8])
    assert sparse.previous(8) == 5
    assert sparse.previous(0) is None


@pytest.mark.parametrize(
    ("offsets", "commits", "retired"),
    [
        ([8, 9, 10], [8, 9, 10], 8),
        ([8, 9, 10, 11], [8, 9, 10], 8),
        ([10, 11], [8, 10, 11], 8),
        ([0, 1, 2], [0, 1, 2], None),
        ([7, 8, 9], [8, 9], None),
        ([9], [9], None),
        ([], [3, 4], None),
        ([5, 6], [0, 1, 5, 6], None),
    ],
)
def test_a_batch_that_sparks_clean_up_has_reached_is_retired(offsets, commits, retired):
    assert logs(offsets, commits).retired == retired


def test_of_two_entries_of_one_number_the_compact_one_counts():
    for keys in (["sources/0/9", "sources/0/9.compact"], ["sources/0/9.compact", "sources/0/9"]):
        assert directory(*keys).sources == {"0": {9: "sources/0/9.compact"}}


@given(st.lists(st.text(alphabet="0123456789/._-abcdefstaoureSTL", max_size=40)))
def test_any_names_make_a_directory(keys):
    assert set(directory(*keys).files) == set(keys)
