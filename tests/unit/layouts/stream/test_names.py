"""Names of files and folders: one stream, one folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import check_key
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.stream import stream_folder, stream_name
from airflow_provider_checkpoint.layouts.stream._names import parse_state_key, state_key
from tests.unit.layouts.stream.making import patient

FOLDERS = {
    "orders": "orders",
    "Orders_2-x": "Orders_2-x",
    "a/b": "a%2Fb",
    "a.b": "a%2Eb",
    "a_b": "a_b",
    ".": "%2E",
    "..": "%2E%2E",
    "%2E": "%252E",
    " ": "%20",
    "\n": "%0A",
    "ж": "%D0%B6",
    "x" * 200: "x" * 200,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_folder_of_a_stream(name):
    assert stream_folder(name) == FOLDERS[name]
    assert stream_name(FOLDERS[name]) == name


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("", "is empty"), ("x" * 201, "201 characters, 200 are allowed"), ("ж" * 34, "204"), ("\ud800", "Unicode")],
)
def test_a_name_that_has_no_folder_is_refused(name, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        stream_folder(name)


@pytest.mark.parametrize("folder", ["", "a.b", "a b", "%2e", "%41", "%", "%F", "%FF", "x" * 201, "ж", "a/b"])
def test_a_folder_that_no_stream_has_is_not_taken_for_one(folder):
    assert stream_name(folder) is None


@patient
@given(st.text(min_size=1, max_size=16))
def test_every_name_comes_back_from_its_folder_and_is_safe(name):
    folder = stream_folder(name)
    assert stream_name(folder) == name
    assert check_key(folder) == folder
    assert "/" not in folder


def test_files_sort_as_their_sequences_do():
    sequences = [0, 9, 10, 2**32, 2**64 - 1]
    assert sorted(map(state_key, sequences)) == list(map(state_key, sequences))
    assert [parse_state_key(state_key(sequence)) for sequence in sequences] == sequences


@pytest.mark.parametrize(
    "key",
    [
        "checkpoint-42.ckpt",
        "checkpoint-00000000000000000042.ckpt.sha256",
        "checkpoint-00000000000000000042.ckpt.tmp",
        "checkpoint-18446744073709551616.ckpt",
        "checkpoint-٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.ckpt",
        "checkpoint-00000000000000000042.ckpt\n",
        "trash/42/kept/checkpoint-00000000000000000042.ckpt",
    ],
)
def test_a_file_of_another_name_is_no_checkpoint(key):
    assert parse_state_key(key) is None
