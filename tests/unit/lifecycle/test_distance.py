"""How much a rollback does again: time, epochs, events, and records of every kind of source."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.lifecycle.distance import offset_of, offsets_of, replay_distance
from airflow_provider_checkpoint.lifecycle.plans import Distance
from airflow_provider_checkpoint.model import (
    FilePosition,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    MysqlCdcPosition,
    PostgresCdcPosition,
    SourcePosition,
)
from tests.unit.lifecycle.tiny_layout import checkpoint


def kafka(**offsets: int) -> KafkaPosition:
    """Offsets of partitions of the topic ``orders``: ``p0=17``."""
    return KafkaPosition(
        partitions=tuple(
            KafkaPartition(topic="orders", partition=int(name[1:]), offset=offset) for name, offset in offsets.items()
        )
    )


def postgres(lsn: str) -> PostgresCdcPosition:
    return PostgresCdcPosition(confirmed_flush_lsn=lsn)


# -- the numbers in a position -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        pytest.param(kafka(p0=17, p12=4), {"orders-0": 17, "orders-12": 4}, id="kafka"),
        pytest.param(KafkaPosition(), {}, id="kafka without partitions"),
        pytest.param(FilePosition(path="in/a.csv", byte_offset=512), {"in/a.csv": 512}, id="file"),
        pytest.param(postgres("0/1234ABCD"), {"lsn": 0x1234ABCD}, id="postgres"),
        pytest.param(postgres("16/B374D848"), {"lsn": 0x16_B374D848}, id="postgres, past four gigabytes"),
        pytest.param(MysqlCdcPosition(binlog_file="bin.7", binlog_position=99), {"bin.7": 99}, id="mysql binlog"),
        pytest.param(MysqlCdcPosition(binlog_position=99), {"binlog": 99}, id="mysql binlog without a name"),
        pytest.param(MysqlCdcPosition(gtid_set="3E11FA47:1-5"), {}, id="mysql transaction sets count nothing"),
        pytest.param(
            GenericPosition(offsets={"a": "7", "b": "007", "c": "x", "d": "-1", "e": "1.5", "f": "", "g": "²"}),
            {"a": 7, "b": 7},
            id="generic, whole numbers only",
        ),
        pytest.param(GenericPosition(offsets={"a": "9" * 5000}), {}, id="generic, absurdly long"),
        pytest.param(GenericPosition(offsets={"a": str(2**64 - 1)}), {"a": 2**64 - 1}, id="generic, 64 bits"),
    ],
)
def test_a_position_is_read_as_numbers_by_partition(position: SourcePosition, offsets: dict[str, int]):
    assert offsets_of(position) == offsets


@pytest.mark.parametrize(
    "lsn", ["", "/", "0/", "/1", "16", "x/y", "-1/0", "0/-1", "0x1/2", "1_0/2", " 1/2", "0/1/2", "1/123456789", "٣/1"]
)
def test_a_log_position_that_postgres_would_not_write_counts_nothing(lsn: str):
    assert offsets_of(postgres(lsn)) == {}


@pytest.mark.parametrize(
    ("position", "partition", "offset"),
    [
        (kafka(p0=17, p1=4), "orders-1", 4),
        (kafka(p0=17, p1=4), "orders-2", None),
        (kafka(p0=17, p1=4), "0", None),
        (kafka(p0=17, p1=4), None, None),
        (kafka(p0=17), None, 17),
        (KafkaPosition(), None, None),
        (FilePosition(path="a.csv", byte_offset=512), None, 512),
        (FilePosition(path="a.csv", byte_offset=512), "a.csv", 512),
        (FilePosition(path="a.csv", byte_offset=512), "b.csv", None),
    ],
)
def test_one_partition_is_found_by_name_or_by_being_the_only_one(
    position: SourcePosition, partition: str | None, offset: int | None
):
    assert offset_of(position, partition) == offset


# -- the distance ------------------------------------------------------------------------------------------------


def test_no_newer_checkpoint_is_no_distance():
    assert replay_distance(checkpoint(9, event_count=100), []) == Distance()


def test_the_distance_goes_to_the_newest_of_those_passed_over():
    chosen = checkpoint(4, event_count=400)
    newer = [checkpoint(9, event_count=950), checkpoint(7, event_count=700), checkpoint(5, event_count=500)]
    assert replay_distance(chosen, newer) == Distance(seconds=300.0, epochs=5, checkpoints=3, events=550)


@pytest.mark.parametrize(("then", "now"), [(None, 5), (5, None), (None, None)])
def test_events_are_told_only_if_both_counted_them(then: int | None, now: int | None):
    assert replay_distance(checkpoint(4, event_count=then), [checkpoint(5, event_count=now)]).events is None


def test_a_clock_or_a_count_that_went_back_makes_no_negative_distance():
    chosen = checkpoint(8, event_count=90)
    head = checkpoint(9, epoch=3, created=chosen.created - timedelta(hours=1), event_count=10)
    assert replay_distance(chosen, [head]) == Distance(seconds=0.0, epochs=0, checkpoints=1, events=0)


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [
        pytest.param(kafka(p0=10, p1=20), kafka(p0=15, p1=20), {"orders-0": 5}, id="one partition moved"),
        pytest.param(kafka(p0=10), kafka(p0=15, p1=1_000_000), {"orders-0": 5}, id="a new partition: begin unknown"),
        pytest.param(kafka(p0=10, p1=20), kafka(p0=15), {"orders-0": 5}, id="a partition that is gone"),
        pytest.param(kafka(p0=10), kafka(p0=10), {}, id="nothing moved"),
        pytest.param(kafka(p0=10), kafka(p0=3), {}, id="moved back"),
        pytest.param(postgres("0/FFFFFFFF"), postgres("1/0000000F"), {"lsn": 16}, id="bytes of a log"),
        pytest.param(postgres("broken"), postgres("1/0000000F"), {}, id="a position that cannot be read"),
        pytest.param(
            FilePosition(path="a", byte_offset=1), FilePosition(path="a", byte_offset=9), {"a": 8}, id="bytes of a file"
        ),
        pytest.param(
            FilePosition(path="a", byte_offset=1), FilePosition(path="b", byte_offset=9), {}, id="another file"
        ),
        pytest.param(
            MysqlCdcPosition(binlog_file="bin.7", binlog_position=4),
            MysqlCdcPosition(binlog_file="bin.7", binlog_position=104),
            {"bin.7": 100},
            id="bytes of a binlog",
        ),
        pytest.param(
            MysqlCdcPosition(binlog_file="bin.7", binlog_position=4),
            MysqlCdcPosition(binlog_file="bin.8", binlog_position=104),
            {},
            id="another binlog",
        ),
        pytest.param(
            GenericPosition(offsets={"v": "4"}), GenericPosition(offsets={"v": "9", "w": "x"}), {"v": 5}, id="generic"
        ),
        pytest.param(GenericPosition(offsets={"orders-0": "4"}), kafka(p0=9), {"orders-0": 5}, id="another kind"),
    ],
)
def test_what_a_source_reads_again_is_told_where_both_positions_tell(
    then: SourcePosition, now: SourcePosition, again: dict[str, int]
):
    distance = replay_distance(checkpoint(4, sources={"in": then}), [checkpoint(5, sources={"in": now})])
    assert distance.sources == ({"in": again} if again else {})


def test_sources_that_only_one_of_the_two_knows_are_left_out():
    chosen = checkpoint(4, sources={"a": kafka(p0=1), "gone": kafka(p0=1)})
    head = checkpoint(5, sources={"a": kafka(p0=3), "new": kafka(p0=7)})
    assert replay_distance(chosen, [head]).sources == {"a": {"orders-0": 2}}


OFFSETS = st.dictionaries(st.sampled_from(["p0", "p1", "p2", "p3"]), st.integers(0, 2**63))


@given(OFFSETS, OFFSETS)
def test_what_is_read_again_leads_from_the_one_position_to_the_other(then: dict[str, int], now: dict[str, int]):
    distance = replay_distance(
        checkpoint(4, sources={"in": kafka(**then)}), [checkpoint(5, sources={"in": kafka(**now)})]
    )
    again = {f"orders-{name[1]}": now[name] - then[name] for name in then.keys() & now.keys() if now[name] > then[name]}
    assert distance.sources.get("in", {}) == again
