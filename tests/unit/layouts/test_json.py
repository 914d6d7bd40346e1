"""Reading JSON that may be damaged or hostile."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError, CorruptManifestError
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object, read_object

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)

#: On a busy machine any example may take its time.
patient = settings(deadline=None)


class Point(BaseModel):
    model_config = ConfigDict(strict=True)

    x: int
    y: int


@patient
@given(value=st.dictionaries(TEXT, VALUES, max_size=5), ascii_only=st.booleans())
def test_every_json_object_reads_back_as_itself(value, ascii_only):
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode(), subject="m") == value


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} x', "not valid JSON"),
        (b'{"a": 1}{"a": 1}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b"[]", "a JSON list where an object belongs"),
        (b"1", "a JSON int where an object belongs"),
        (b"null", "a JSON NoneType where an object belongs"),
        (b'"text"', "a JSON str where an object belongs"),
        (b'{"a": 1, "a": 1}', "key 'a' appears twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "key 'b' appears twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e999}', "number 1e999 is out of range"),
        (b'{"a": -1e999}', "number -1e999 is out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8 text (byte 7)"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8 text"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"\\uDFFF": 1}', "half a character"),
        (b'{"a": "\\ude00\\ud83d"}', "half a character"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_one_clean_object_is_corrupt_and_says_why(data, complaint):
    with pytest.raises(CorruptManifestError) as caught:
        parse_object(data, subject="the-file")
    assert complaint in caught.value.message
    assert caught.value.subject == "the-file"


def test_a_character_written_as_two_escapes_is_whole():
    assert parse_object(b'{"a": "\\ud83d\\ude00"}', subject="m") == {"a": "\U0001f600"}


def test_a_backslash_before_a_u_is_not_an_escape():
    assert parse_object(rb'{"a": "\\ud800"}', subject="m") == {"a": r"\ud800"}


@pytest.mark.parametrize(
    "data", [b'{"' + b"k" * 100_000 + b'": 1, "' + b"k" * 100_000 + b'": 1}', b'{"a": 1e9' + b"9" * 100_000 + b"}"]
)
def test_a_message_does_not_grow_with_the_file(data):
    with pytest.raises(CorruptManifestError) as caught:
        parse_object(data, subject="m")
    assert len(str(caught.value)) < 500


@patient
@given(data=st.binary(max_size=80))
def test_garbage_raises_nothing_but_corrupt(data):
    with contextlib.suppress(CorruptError):
        parse_object(data, subject="m")


def test_a_file_beyond_the_limit_is_refused_and_one_at_the_limit_is_read():
    blobs = MemoryBlobs()
    blobs.create("m.json", b'{"a": 1}')
    assert read_object(blobs, "m.json", limit=8) == {"a": 1}
    with pytest.raises(CorruptManifestError, match="larger than 7 bytes"):
        read_object(blobs, "m.json", limit=7)


def test_an_absent_file_is_not_a_corrupt_one():
    with pytest.raises(BlobNotFoundError):
        read_object(MemoryBlobs(), "m.json")


def test_a_model_error_names_the_first_field_and_counts_the_others():
    assert parse_model(Point, {"x": 1, "y": 2}, subject="m") == Point(x=1, y=2)
    with pytest.raises(CorruptManifestError, match=r"field x: .*integer.*\(and 1 more\)"):
        parse_model(Point, {"x": 1.0, "y": "2"}, subject="m")
    with pytest.raises(CorruptManifestError, match=r"field y: Field required: m"):
        parse_model(Point, {"x": 1}, subject="m")
