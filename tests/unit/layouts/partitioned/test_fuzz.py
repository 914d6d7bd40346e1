"""The fuzz target on inputs that a search by single bytes does not reach: whole manifests, and tokens of JSON."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.layouts.partitioned import encode_manifest
from tests.fuzz.fuzz_partitioned import fuzz_one
from tests.unit.layouts.partitioned.samples import M1, MANIFESTS, patient


@patient
@given(data=MANIFESTS.map(encode_manifest))
def test_every_manifest_is_used_to_the_end(data):
    fuzz_one(data)


TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"0",
    b"\\ud800",
    b"\xff",
    b"..",
    b"/",
    b"99999999999999999999",
]


@settings(max_examples=300, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, len(M1)), st.integers(0, 40), st.sampled_from(TOKENS)), max_size=3))
def test_the_vector_with_tokens_pasted_in_is_understood_or_corrupt(edits):
    data = M1
    for start, cut, token in edits:
        data = data[:start] + token + data[start + cut :]
    fuzz_one(data)
