"""Sources with offsets: positions come back exactly, and the same slice gives the same rows after a restart."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import CheckpointError, ConfigurationError, CorruptManifestError
from airflow_provider_checkpoint.layouts._positions import from_offsets
from airflow_provider_checkpoint.layouts._positions import to_offsets as flat
from airflow_provider_checkpoint.model import GenericPosition, KafkaPosition
from airflow_provider_checkpoint.spark.offset_source import (
    OffsetSource,
    to_offsets,
    to_position,
)
from tests.unit.spark.letters import source_of

# -- positions ---------------------------------------------------------------------------------------------------

values = st.recursive(
    st.integers() | st.text() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=6
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_offsets_come_back_from_a_manifest_exactly_as_they_were(offsets):
    position = to_position(offsets)
    stored = json.loads(json.dumps(flat(position)))
    back = to_offsets(from_offsets(*stored))
    assert back == offsets
    # True equals 1 in Python, but not for a source.
    assert json.dumps(back, sort_keys=True) == json.dumps(offsets, sort_keys=True)


@pytest.mark.parametrize(
    "offsets",
    [{"a": 1.5}, {"a": None}, {"a": [1]}, {"a": {"b": float("nan")}}, {1: 2}, {"a": b"x"}, [], "7", None],
    ids=str,
)
def test_offsets_that_would_not_come_back_as_they_were_are_refused(offsets):
    with pytest.raises(ConfigurationError, match="offsets must be names"):
        to_position(offsets)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1.5", "null", "[1]", "NaN", '{"a": [1]}', "1 2", "[" * 50_000, "9" * 5_000),
        '"' + "x" * 70_000 + '"',
        '{"a":' * 9 + "1" + "}" * 9,
    ],
    ids=lambda text: text[:10],
)
def test_a_damaged_position_is_an_error_of_ours(text):
    with pytest.raises(CorruptManifestError):
        to_offsets(GenericPosition(connector_type="python", offsets={"a": text}))


@given(st.text())
def test_no_text_in_a_position_gives_anything_but_an_offset_or_an_error_of_ours(text):
    try:
        back = to_offsets(GenericPosition(connector_type="python", offsets={"a": text}))
    except CheckpointError:
        return
    assert json.loads(text) == back["a"]


@pytest.mark.parametrize(
    ("position", "kind"), [(KafkaPosition(), "kafka"), (GenericPosition(connector_type="other"), "other")]
)
def test_a_position_of_another_kind_of_source_is_refused(position, kind):
    source = OffsetSource("numbers", Numbers(end=3))
    with pytest.raises(ConfigurationError, match=f"cannot start from a position of type {kind}"):
        source.next_slice(position)


# -- a reader of the user's --------------------------------------------------------------------------------------


class Numbers:
    """0, 1, 2 and so on."""

    def __init__(self, end: int, *, limit: int = 1000, begin: int = 0) -> None:
        self.end = end
        self._limit = limit
        self._begin = begin

    def initial(self):
        self._begin += 1
        return {"next": self._begin - 1}

    def latest(self, start):
        return {"next": min(self.end, start["next"] + self._limit)}

    def read(self, spark, start, end):
        return spark.range(start["next"], end["next"])


def test_slices_follow_one_another_up_to_the_limit_and_end_with_the_input():
    source = OffsetSource("numbers", Numbers(end=5, limit=2))
    position, ends = None, []
    while (part := source.next_slice(position)) is not None:
        position = part.end
        ends.append(to_offsets(part.end)["next"])
    assert ends == [2, 4, 5]


def test_a_beginning_that_moves_is_asked_for_once_per_fresh_start(spark):
    source = OffsetSource("numbers", Numbers(end=5, begin=2))
    part = source.next_slice(None)
    assert [row.id for row in source.read(spark, part).collect()] == [2, 3, 4]


# -- a Python data source ----------------------------------------------------------------------------------------


def rows_from(spark, source: OffsetSource, position) -> list[int]:
    found = []
    while (part := source.next_slice(position)) is not None:
        found += [row.i for row in source.read(spark, part).select("i").collect()]
        position = part.end
    return found


def test_a_python_data_source_is_read_on_executors_between_offsets(spark):
    source = source_of(10)
    part = source.next_slice(None)
    rows = source.read(spark, part)
    assert rows.rdd.getNumPartitions() == 2
    collected = rows.collect()
    assert [(row.i, row.letter) for row in collected] == [(i, "abc"[i % 3]) for i in range(10)]
    assert os.getpid() not in {row.pid for row in collected}


def test_from_any_position_in_the_middle_the_rest_is_read_and_nothing_twice(spark):
    position = None
    for done in (4, 8):
        position = source_of(11, 4).next_slice(position).end
        # Another object, as after a restart, and another limit.
        assert rows_from(spark, source_of(11, 5), position) == list(range(done, 11))
    assert rows_from(spark, source_of(11, 4), None) == list(range(11))


def test_a_data_source_written_before_spark_4_2_works_too(spark):
    assert rows_from(spark, source_of(7, old_form=True), None) == list(range(7))
