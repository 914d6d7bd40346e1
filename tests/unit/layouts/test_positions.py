"""Source positions between the typed form and what manifests store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.layouts._positions import from_offsets, to_offsets
from airflow_provider_checkpoint.model import (
    FilePosition,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    MysqlCdcPosition,
    PostgresCdcPosition,
)

U64 = st.integers(0, 2**64 - 1)
MAYBE_TEXT = st.none() | st.text()
KAFKA = st.builds(
    KafkaPosition,
    group_id=MAYBE_TEXT,
    partitions=st.dictionaries(st.tuples(st.text(), st.integers(0, 2**31 - 1)), U64, max_size=6).map(
        lambda offsets: tuple(
            KafkaPartition(topic=topic, partition=partition, offset=offset)
            for (topic, partition), offset in sorted(offsets.items())
        )
    ),
)
POSITIONS = st.one_of(
    KAFKA,
    st.builds(PostgresCdcPosition, confirmed_flush_lsn=st.text(), write_lsn=MAYBE_TEXT, slot_name=MAYBE_TEXT),
    st.builds(MysqlCdcPosition, gtid_set=MAYBE_TEXT, binlog_file=MAYBE_TEXT, binlog_position=st.none() | U64),
    st.builds(FilePosition, path=st.text(), byte_offset=U64),
)

#: On a busy machine any example may take its time.
patient = settings(deadline=None)


@patient
@given(position=POSITIONS)
def test_a_typed_position_survives_being_stored(position):
    assert from_offsets(*to_offsets(position)) == position


@patient
@given(
    source_type=st.sampled_from(["kafka", "postgres_cdc", "mysql_cdc", "file", "", "delta"]) | st.text(),
    offsets=st.dictionaries(
        st.sampled_from(["lsn", "path", "byte_offset", "group_id", "binlog_position", "t-0", "t-1", "t-01", "-3"])
        | st.text(),
        st.text() | st.from_regex(r"[+-]?0{0,2}[0-9]{1,25}", fullmatch=True),
        max_size=5,
    ),
)
def test_whatever_a_connector_wrote_is_given_back_unchanged(source_type, offsets):
    assert to_offsets(from_offsets(source_type, offsets)) == (source_type, offsets)


@pytest.mark.parametrize(
    ("source_type", "offsets", "expected"),
    [
        (
            "kafka",
            {"group_id": "g", "my-topic-10": "7", "my-topic-9": "8"},
            KafkaPosition(
                group_id="g",
                partitions=(
                    KafkaPartition(topic="my-topic", partition=9, offset=8),
                    KafkaPartition(topic="my-topic", partition=10, offset=7),
                ),
            ),
        ),
        ("kafka", {}, KafkaPosition()),
        (
            "postgres_cdc",
            {"lsn": "0/1234ABCD", "slot_name": "s"},
            PostgresCdcPosition(confirmed_flush_lsn="0/1234ABCD", slot_name="s"),
        ),
        (
            "mysql_cdc",
            {"binlog_file": "b.000001", "binlog_position": "4"},
            MysqlCdcPosition(binlog_file="b.000001", binlog_position=4),
        ),
        (
            "file",
            {"path": "/in", "byte_offset": "18446744073709551615"},
            FilePosition(path="/in", byte_offset=2**64 - 1),
        ),
    ],
)
def test_known_connectors_become_typed(source_type, offsets, expected):
    assert from_offsets(source_type, offsets) == expected


@pytest.mark.parametrize(
    ("source_type", "offsets"),
    [
        ("unheard-of", {"a": "1"}),
        ("kafka", {"topic-0": "-1"}),
        ("kafka", {"topic-0": "007"}),
        ("kafka", {"topic-0": "٣"}),
        ("kafka", {"no partition": "1"}),
        ("kafka", {"topic-0": "9" * 5000}),
        ("kafka", {"topic-" + "9" * 5000: "1"}),
        ("postgres_cdc", {"slot_name": "s"}),
        ("postgres_cdc", {"lsn": "0/1", "new key": "x"}),
        ("mysql_cdc", {"binlog_position": "9" * 5000}),
        ("mysql_cdc", {"binlog_position": "x"}),
        ("file", {"path": "/in"}),
        ("file", {"path": "/in", "byte_offset": "9" * 5000}),
    ],
)
def test_what_a_known_connector_would_not_write_stays_generic_and_whole(source_type, offsets):
    position = from_offsets(source_type, offsets)
    assert position == GenericPosition(connector_type=source_type, offsets=offsets)
    assert to_offsets(position) == (source_type, offsets)


def test_stored_names_are_sorted():
    position = GenericPosition(connector_type="x", offsets={"b": "1", "a": "2"})
    assert list(to_offsets(position)[1]) == ["a", "b"]
