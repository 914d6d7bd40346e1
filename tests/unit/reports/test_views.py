"""What is worth what, and since when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_checkpoint.lifecycle.pruning import foresee_prune
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
from airflow_provider_checkpoint.model import (
    CheckpointId,
    Depth,
    FilePosition,
    GenericPosition,
    KafkaPartition,
    KafkaPosition,
    MysqlCdcPosition,
    PostgresCdcPosition,
)
from airflow_provider_checkpoint.reports.gather import gather
from airflow_provider_checkpoint.reports.views import Fresh, Kind, State, Windows, going, view
from tests.unit.cli import making
from tests.unit.reports.facts_made import NOW, checkpoint, facts, fork, pin, proof

WINDOWS = Windows(timedelta(hours=2), timedelta(hours=5))


def states(made):
    return {point.id: point.state for point in view(made, WINDOWS).points}


def test_a_checkpoint_is_valid_if_its_artifacts_were_seen_and_unproven_if_only_its_manifest_was():
    made = facts([checkpoint(1, hours=3), checkpoint(2, hours=2), checkpoint(3, hours=1)], proven=(1,), invalid=(3,))
    made.store.ledger[made.store.known[1].id] = proof(2, valid=True, depth=Depth.STRUCTURE)
    assert states(made) == {"1": State.VALID, "2": State.UNPROVEN, "3": State.INVALID}


def test_what_a_recovery_left_behind_is_abandoned_and_does_not_count_as_the_newest():
    points = [checkpoint(1, hours=3), checkpoint(2, hours=2), checkpoint(3, hours=1)]
    made = facts(points, proven=(1, 2, 3), timelines=(fork(2, 1, 1, owner="ada", reason="bad data"),))
    found = view(made, WINDOWS)
    assert states(made) == {"1": State.VALID, "2": State.ABANDONED, "3": State.ABANDONED}
    assert found.summary.newest.id == "1"
    [went_back] = found.forks
    assert (went_back.start, went_back.left_behind, went_back.reason) == ("1", 2, "bad data")
    assert (found.summary.incident.kind, found.summary.incident.point) == (Kind.WENT_BACK, "1")


def test_the_writer_that_starts_after_a_recovery_is_no_second_one():
    points = [checkpoint(1, hours=3), checkpoint(2, hours=2)]
    timelines = (fork(2, 1, 1, minutes=20), fork(3, 1, 1, minutes=10, writer="job"))
    assert [each.timeline for each in view(facts(points, timelines=timelines), WINDOWS).forks] == [2]


def test_a_writer_that_goes_on_where_the_last_one_ended_is_no_fork():
    made = facts([checkpoint(1, hours=2)], timelines=(fork(2, 1, 1, writer="job-2"),))
    assert view(made, WINDOWS).forks == ()


@pytest.mark.parametrize(
    ("hours", "broken", "fresh", "age"),
    [
        (1, (), Fresh.FRESH, timedelta(hours=1)),
        (3, (), Fresh.LATE, timedelta(hours=3)),
        (6, (), Fresh.STALE, timedelta(hours=6)),
        (1, (1,), Fresh.STALE, None),
        (-1, (), Fresh.FRESH, timedelta(0)),
    ],
)
def test_freshness_is_the_age_of_the_newest_that_nothing_speaks_against(hours, broken, fresh, age):
    found = view(facts([checkpoint(1, hours=hours)], invalid=broken), WINDOWS).summary
    assert (found.fresh, found.age) == (fresh, age)


def test_an_unreadable_checkpoint_has_the_place_of_its_elder_and_is_the_newest_incident():
    found = view(facts([checkpoint(1, hours=4)], broken=(2,)), WINDOWS)
    newest = found.points[0]
    assert (newest.id, newest.state, newest.at, newest.dated) == ("2", State.INVALID, found.points[1].at, False)
    assert found.summary.incident.point == "2"


def test_what_checkpoints_share_counts_once():
    first = checkpoint(1, hours=2)
    both = [first, checkpoint(2, hours=1, artifacts=first.artifacts, inline_bytes=5)]
    assert view(facts(both), WINDOWS).summary.bytes == 1205


def test_offsets_are_told_with_how_far_they_moved():
    [offset] = view(facts([checkpoint(1, hours=2), checkpoint(3, hours=1)]), WINDOWS).offsets
    assert (offset.source, offset.partition, offset.offset, offset.since_previous) == ("orders", "p0", 300, 200)


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_the_lag_of_a_watermark_is_told_if_its_unit_can_be(unit):
    made = checkpoint(1, hours=1, watermark=int((NOW - timedelta(hours=1, minutes=7)).timestamp() * unit))
    assert view(facts([made]), WINDOWS).watermark.lag == timedelta(minutes=7)


def test_a_watermark_in_no_known_unit_has_no_lag():
    assert view(facts([checkpoint(1, hours=1, watermark=42)]), WINDOWS).watermark.lag is None


def test_pins_show_while_they_hold():
    made = facts([checkpoint(1, hours=1)], pins=(pin("audit", 1),))
    assert view(made, WINDOWS).points[0].pins == ("audit",)


def test_the_preview_says_what_goes_now_what_later_and_what_stays(tmp_path):
    making.templates = tmp_path / "templates"
    making.templates.mkdir()
    layout = making.sidecar_store(tmp_path / "store", 6)
    now = gather(layout, now=NOW).store.checkpoints[-1].created + timedelta(hours=1)
    # Made an hour apart, the newest an hour ago: of those before the window the newest stays.
    policy = RetentionPolicy.model_validate({"keep_last": 1, "keep_within": "3h30m"})
    made = gather(layout, now=now, policy=policy)
    found = {within: [point.id for point in points] for within, points in going(view(made, WINDOWS).points).items()}
    assert found == {timedelta(0): ["2", "1"], timedelta(days=1): ["5", "4", "3"]}
    again = foresee_prune(layout, policy, now=now, store=made.store)
    assert {each.now.keep for each in again.values()} == {True, False}


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (PostgresCdcPosition(confirmed_flush_lsn="0/1234ABCD"), [("lsn", "0/1234ABCD")]),
        (MysqlCdcPosition(gtid_set="3E11FA47:1-5"), [("gtid set", "3E11FA47:1-5")]),
        (MysqlCdcPosition(binlog_file="bin.7", binlog_position=1234), [("bin.7", "1,234")]),
        (FilePosition(path="/in/a", byte_offset=5), [("/in/a", "5")]),
        (GenericPosition(offsets={"p0": "12345", "cursor": "eyJ2"}), [("cursor", "eyJ2"), ("p0", "12,345")]),
        (GenericPosition(), []),
        (
            KafkaPosition(partitions=tuple(KafkaPartition(topic="t", partition=n, offset=n) for n in (10, 2))),
            [("t-2", "2"), ("t-10", "10")],
        ),
    ],
)
def test_a_position_is_told_as_it_was_written(position, told):
    made = facts([checkpoint(1, hours=1, sources={"s": position})])
    assert [(each.partition, each.text) for each in view(made, WINDOWS).offsets] == told


def test_the_watermark_is_told_as_a_time_if_it_is_one():
    found = view(facts([checkpoint(1, hours=1)]), WINDOWS).watermark
    assert found.at == NOW - timedelta(hours=1, minutes=5)
    assert view(facts([checkpoint(1, hours=1, watermark=42)]), WINDOWS).watermark.at is None


def test_the_trash_is_told_newest_first():
    trash = tuple(
        TrashEntry(
            checkpoint_id=CheckpointId(number),
            trashed=NOW - timedelta(hours=hours),
            by="ada",
            run="r",
            reasons=(),
            keys=(),
            artifacts=(),
        )
        for number, hours in ((1, 2), (2, 1), (3, 3))
    )
    assert [each.id for each in view(facts([], trash=trash), WINDOWS).trash] == ["2", "1", "3"]
