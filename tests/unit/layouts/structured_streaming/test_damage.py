"""Damage, as Spark was seen to react to it: what we say of the newest batch, and how deep one must look to see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.layouts.structured_streaming import diagnose
from airflow_provider_checkpoint.model import Depth, Severity
from tests.unit.layouts.structured_streaming.making import LAST, Scene, batch

if TYPE_CHECKING:
    from collections.abc import Callable

STRUCTURE, PRESENCE, CONTENT = Depth.STRUCTURE, Depth.PRESENCE, Depth.CONTENT
UUID = r"[0-9a-f-]{36}"


@dataclass(frozen=True)
class Case:
    kind: str
    damage: Callable[[Scene], None]
    depth: Depth
    """The shallowest depth at which it is found."""
    code: str
    recoverable: int | None
    """The newest batch that can be gone back to; None if there is none."""


def edit(key, old, new):
    """Put other text into a file, which must have held the old."""

    def change(scene):
        body = scene.read(key)
        assert old in body
        scene.put(key, body.replace(old, new))

    return change


def trade(one, other):
    """Two files that change places."""

    def change(scene):
        ours, theirs = scene.read(one), scene.read(other)
        scene.put(one, theirs)
        scene.put(other, ours)

    return change


def without_settings(scene):
    head, line, *positions = scene.read("offsets/11").split(b"\n")
    values = json.loads(line) | {"conf": {}}
    scene.put("offsets/11", b"\n".join([head, json.dumps(values).encode(), *positions]))


def swap_old_copy(scene):
    scene.put("state/0/0/12.delta", scene.read("state/0/0/11.delta"))


CASES = {
    # -- logs
    "metadata missing": Case("hdfs_agg", lambda s: s.remove("metadata"), PRESENCE, "artifact_missing", None),
    "metadata empty": Case("hdfs_agg", lambda s: s.put("metadata", b""), STRUCTURE, "log_corrupt", None),
    "metadata garbage": Case("hdfs_agg", lambda s: s.put("metadata", b'{"id":'), STRUCTURE, "log_corrupt", None),
    "offsets of it empty": Case("hdfs_agg", lambda s: s.put("offsets/11", b""), STRUCTURE, "manifest_corrupt", 10),
    "offsets of it cut": Case("hdfs_agg", lambda s: s.cut("offsets/11"), STRUCTURE, "manifest_corrupt", 10),
    "offsets of it gone": Case("hdfs_agg", lambda s: s.remove("offsets/11"), STRUCTURE, "manifest_corrupt", 10),
    "offsets before it gone": Case("hdfs_agg", lambda s: s.remove("offsets/10"), PRESENCE, "artifact_missing", 9),
    "offsets before it cut": Case("hdfs_agg", lambda s: s.cut("offsets/10"), STRUCTURE, "log_corrupt", 9),
    "offsets and commit before it gone": Case(
        "stateless", lambda s: s.remove("(offsets|commits)/10"), PRESENCE, "artifact_missing", 9
    ),
    "a source less": Case(
        "union_two",
        lambda s: s.put("offsets/11", s.read("offsets/11").rpartition(b"\n")[0]),
        STRUCTURE,
        "source_count",
        10,
    ),
    "commit empty": Case("hdfs_agg", lambda s: s.put("commits/11", b""), STRUCTURE, "manifest_corrupt", 10),
    "commit of a newer Spark": Case(
        "hdfs_agg", lambda s: s.put("commits/11", b"v9\n{}"), STRUCTURE, "manifest_corrupt", 10
    ),
    "metadata with an id that is none": Case(
        "hdfs_agg", lambda s: s.put("metadata", b'{"id":"clicks"}'), STRUCTURE, "log_corrupt", None
    ),
    "version with a blank behind it": Case(
        "hdfs_agg", edit("offsets/11", b"v1\n", b"v1 \n"), STRUCTURE, "manifest_corrupt", 10
    ),
    "offsets of log version 1 called 2": Case(
        "hdfs_agg", edit("offsets/11", b"v1\n", b"v2\n"), STRUCTURE, "manifest_corrupt", 10
    ),
    "position too large for a number": Case(
        "hdfs_agg", edit("offsets/11", b'":11}', b'":100000000000000000000}'), STRUCTURE, "source_position_corrupt", 10
    ),
    "position that is text": Case(
        "hdfs_agg", edit("offsets/11", b'":11}', b'":"11"}'), STRUCTURE, "source_position_corrupt", 10
    ),
    "position under another name": Case(
        "hdfs_agg", edit("offsets/11", b'"logOffset":11', b'"offset":11'), STRUCTURE, "source_position_corrupt", 10
    ),
    "position lost": Case(
        "hdfs_agg", edit("offsets/11", b'{"logOffset":11}', b"-"), STRUCTURE, "source_position_lost", 10
    ),
    "offsets of an older batch": Case(
        "hdfs_agg",
        lambda s: s.put("offsets/11", s.read("offsets/9")),
        STRUCTURE,
        "source_position_back",
        10,
    ),
    "offsets of the batch before": Case(
        "hdfs_agg", lambda s: s.put("offsets/11", s.read("offsets/10")), STRUCTURE, "offsets_repeated", 10
    ),
    "no settings": Case("hdfs_agg", without_settings, STRUCTURE, "settings_lost", 10),
    "settings that are no number": Case(
        "hdfs_agg", edit("offsets/11", b'partitions":"2"', b'partitions":"two"'), STRUCTURE, "settings_changed", 10
    ),
    "another format of state": Case(
        "hdfs_agg",
        edit("offsets/11", b'aggregation.stateFormatVersion":"2"', b'aggregation.stateFormatVersion":"1"'),
        STRUCTURE,
        "settings_changed",
        10,
    ),
    "a setting lost": Case(
        "hdfs_agg", edit("offsets/11", b"aggregation.stateFormatVersion", b"another"), STRUCTURE, "settings_changed", 10
    ),
    "offsets of two batches traded": Case(
        "stateless", trade("offsets/10", "offsets/11"), STRUCTURE, "source_position_back", 10
    ),
    "commit of log version 3 without its sinks": Case(
        "hdfs_agg", edit("commits/11", b"v1\n", b"v3\n"), STRUCTURE, "manifest_corrupt", 10
    ),
    "last entry of a source's log gone": Case(
        "hdfs_agg", lambda s: s.remove("sources/0/11"), STRUCTURE, "source_log_missing", 10
    ),
    "compaction of a source's log gone": Case(
        "hdfs_agg", lambda s: s.remove("sources/0/9.compact"), STRUCTURE, "source_log_missing", 8
    ),
    "sources gone": Case("hdfs_agg", lambda s: s.remove("sources/.*"), STRUCTURE, "source_log_missing", None),
    "entry of a source's log empty": Case("hdfs_agg", lambda s: s.put("sources/0/11", b""), CONTENT, "log_corrupt", 10),
    "entry of a source's log cut": Case("hdfs_agg", lambda s: s.cut("sources/0/11"), CONTENT, "log_corrupt", 10),
    "entry of a source's log without a file": Case(
        "hdfs_agg", lambda s: s.put("sources/0/11", b"v1"), CONTENT, "log_corrupt", 10
    ),
    "entry of a source's log that is an older one": Case(
        "hdfs_agg", lambda s: s.put("sources/0/11", s.read("sources/0/10")), CONTENT, "log_corrupt", 10
    ),
    "compaction of a source's log without its last entry": Case(
        "hdfs_agg",
        lambda s: s.put("sources/0/9.compact", s.read("sources/0/9.compact").rpartition(b"\n")[0]),
        CONTENT,
        "log_corrupt",
        8,
    ),
    # -- state, HDFS
    "last delta gone": Case("hdfs_agg", lambda s: s.remove("state/0/0/12.delta"), PRESENCE, "artifact_missing", 10),
    "a delta in between gone": Case(
        "dedup", lambda s: s.remove("state/0/1/(9.delta|11.snapshot)"), PRESENCE, "artifact_missing", 7
    ),
    "delta cut": Case("hdfs_agg", lambda s: s.cut("state/0/0/12.delta"), CONTENT, "state_truncated", 10),
    "delta empty": Case("hdfs_agg", lambda s: s.put("state/0/0/12.delta", b""), CONTENT, "state_truncated", 10),
    "delta flipped": Case("hdfs_agg", lambda s: s.flip("state/0/0/12.delta", 0.7), CONTENT, "state_corrupt", 10),
    "a partition gone": Case("hdfs_agg", lambda s: s.remove("state/0/1/.*"), PRESENCE, "artifact_missing", None),
    "all but the descriptions gone": Case(
        "hdfs_agg", lambda s: s.remove("state/0/[01]/[0-9].*"), PRESENCE, "artifact_missing", None
    ),
    "state of a second operator gone": Case(
        "two_ops", lambda s: s.remove("state/1/[01]/.*"), PRESENCE, "artifact_missing", None
    ),
    "one store of a join gone": Case(
        "hdfs_join", lambda s: s.remove("state/0/1/left-keyToNumValues/13.*"), PRESENCE, "artifact_missing", 11
    ),
    "state gone after batches without data": Case(
        "hdfs_join", lambda s: s.remove("state/.*"), STRUCTURE, "state_missing", None
    ),
    "state gone in format 2": Case("rocks_v2", lambda s: s.remove("state/.*"), STRUCTURE, "state_missing", None),
    "an operator gone": Case("two_ops", lambda s: s.remove("state/0/.*"), STRUCTURE, "state_missing", None),
    "more partitions than there are": Case(
        "hdfs_agg",
        lambda s: s.put("offsets/11", s.read("offsets/11").replace(b'partitions":"2"', b'partitions":"5"')),
        PRESENCE,
        "artifact_missing",
        10,
    ),
    "more partitions than the operator's description has": Case(
        "tws", edit("offsets/11", b'partitions":"2"', b'partitions":"5"'), STRUCTURE, "snapshot_missing", 10
    ),
    "fewer partitions than there are": Case(
        "hdfs_agg", edit("offsets/11", b'partitions":"2"', b'partitions":"1"'), STRUCTURE, "state_left_out", 10
    ),
    "fewer partitions than there are, in format 2": Case(
        "rocks_v2", edit("offsets/11", b'partitions":"2"', b'partitions":"1"'), STRUCTURE, "state_left_out", 10
    ),
    "descriptions of two operators traded": Case(
        "two_ops",
        trade("state/0/_metadata/metadata", "state/1/_metadata/metadata"),
        STRUCTURE,
        "operator_mismatch",
        None,
    ),
    "schema cut": Case("hdfs_agg", lambda s: s.cut("state/0/0/_metadata/schema"), CONTENT, "state_truncated", None),
    "schema that a description names gone": Case(
        "tws", lambda s: s.remove("state/0/_stateSchema/.*"), PRESENCE, "artifact_missing", None
    ),
    # -- state, RocksDB
    "zip gone": Case("rocks", lambda s: s.remove("state/0/0/12.zip"), PRESENCE, "artifact_missing", 10),
    "zip cut": Case("rocks", lambda s: s.cut("state/0/0/12.zip"), STRUCTURE, "state_corrupt", 10),
    "zip empty": Case("rocks", lambda s: s.put("state/0/0/12.zip", b""), STRUCTURE, "state_corrupt", 10),
    "change log gone": Case(
        "rocks_changelog", lambda s: s.remove("state/0/0/12.(changelog|zip)"), PRESENCE, "artifact_missing", 10
    ),
    "tables gone": Case("rocks", lambda s: s.remove("state/0/0/SSTs/.*"), PRESENCE, "artifact_missing", None),
    # -- state, format 2
    "format 2: another unique id": Case(
        "rocks_v2",
        lambda s: s.put("commits/11", s.read("commits/11").replace(b'["', b'["00000000', 1).replace(b"-", b"-", 1)),
        STRUCTURE,
        "manifest_corrupt",
        10,
    ),
    "format 2: an older unique id": Case(
        "rocks_v2", lambda s: s.put("commits/11", s.read("commits/9")), PRESENCE, "artifact_missing", 10
    ),
    "format 2: everything of a version gone": Case(
        "rocks_v2", lambda s: s.remove(f"state/0/0/12_{UUID}.(zip|changelog)"), PRESENCE, "artifact_missing", 10
    ),
}


def codes(issues):
    return {issue.code for issue in issues if issue.severity is Severity.ERROR}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_found_at_its_depth(name):
    case = CASES[name]
    scene = Scene.of(case.kind)
    case.damage(scene)
    newest = batch(LAST[case.kind])
    depths = [depth for depth in Depth if case.depth.includes(depth)]
    for depth in depths[:-1]:
        assert codes(scene.layout.prove(newest, depth)) == set(), f"already at {depth}"
    assert case.code in codes(scene.layout.prove(newest, case.depth))
    assert case.code in codes(scene.layout.prove(newest, Depth.RESTORE))


@pytest.mark.parametrize("name", CASES)
def test_a_diagnosis_tells_of_it_and_of_the_way_back(name):
    case = CASES[name]
    scene = Scene.of(case.kind)
    case.damage(scene)
    before = {key: scene.read(key) for key in scene.keys}
    diagnosis = diagnose(scene.layout)
    assert not diagnosis.healthy
    assert next(iter(diagnosis.recoverable), None) == case.recoverable
    blocking = [finding for finding in diagnosis.findings if finding.blocking]
    assert all(finding.spark_says and finding.wrong and finding.subject for finding in blocking)
    assert ("Go back to batch" in diagnosis.way_back) is (case.recoverable is not None)
    assert {key: scene.read(key) for key in scene.keys} == before
    assert list(scene.records.list()) == []


# -- every table, every change -----------------------------------------------------------------------------------


def newest_table(scene):
    layout = scene.layout
    tables = [a.key for a in layout.load(layout.candidates()[-1]).artifacts if a.key.endswith(".sst")]
    return max(tables)


@pytest.mark.parametrize("at", [0.05, 0.3, 0.6, 0.95])
def test_a_flipped_bit_in_a_table_is_found_though_spark_passes_over_it(at):
    scene = Scene.of("rocks")
    key = newest_table(scene)
    body = bytearray(scene.read(key))
    body[int(len(body) * at)] ^= 1
    scene.put(key, bytes(body))
    newest = batch(11)
    assert codes(scene.layout.prove(newest, PRESENCE)) == set()
    assert codes(scene.layout.prove(newest, CONTENT)) & {"sst_block_corrupt", "sst_corrupt"}
    finding = next(f for f in diagnose(scene.layout).findings if f.subject == key)
    assert finding.spark_says.startswith("nothing")


@pytest.mark.parametrize("kind", ["rocks", "rocks_changelog", "rocks_join_v2", "rocks_v2"])
def test_another_table_is_found_though_it_is_whole_and_as_large(kind):
    scene = Scene.of(kind)
    (ours, theirs) = equal_tables(scene)
    scene.put(ours, scene.read(theirs))
    newest = batch(LAST[kind])
    assert codes(scene.layout.prove(newest, PRESENCE)) == set()
    assert codes(scene.layout.prove(newest, CONTENT)) == {"sst_foreign"}
    finding = next(f for f in diagnose(scene.layout).findings if f.subject == ours)
    assert "Mismatch in unique ID" in finding.spark_says


def equal_tables(scene):
    """A table that the newest batch needs, and another that is as large: of the same store, or in a join of another."""
    needed = [a.key for a in scene.layout.load(scene.layout.candidates()[-1]).artifacts if a.key.endswith(".sst")]
    tables = {key: scene.read(key) for key in scene.keys if key.endswith(".sst")}
    return next(
        (one, other) for one in needed for other in tables if one != other and len(tables[one]) == len(tables[other])
    )


def test_a_table_that_was_cut_is_found_by_its_size():
    scene = Scene.of("rocks")
    key = newest_table(scene)
    scene.put(key, scene.read(key)[:-1])
    assert codes(scene.layout.prove(batch(11), PRESENCE)) == {"size_mismatch"}
    (finding,) = [f for f in diagnose(scene.layout).findings if f.subject == key]
    assert "UNEXPECTED_FILE_SIZE" in finding.spark_says


# -- damage that does not matter ---------------------------------------------------------------------------------

HARMLESS = {
    "middle of the logs gone": ("hdfs_agg", lambda s: s.remove("(offsets|commits)/[2-7]")),
    "commits gone": ("hdfs_agg", lambda s: s.remove("commits/[0-9]$|commits/10")),
    "entries before the compaction gone": ("hdfs_agg", lambda s: s.remove("sources/0/[0-8]")),
    "operator metadata gone": ("hdfs_agg", lambda s: s.remove("state/0/_metadata/metadata")),
    "operator metadata damaged": ("hdfs_agg", lambda s: s.cut("state/0/_metadata/metadata")),
    "schema gone": ("hdfs_agg", lambda s: s.remove("state/0/0/_metadata/schema")),
    "a future delta": ("hdfs_agg", lambda s: s.put("state/0/0/14.delta", b"stray")),
    "snapshot gone, deltas there": ("dedup", lambda s: s.remove("state/0/0/.*snapshot")),
    "where a rate source began gone": ("rate", lambda s: s.remove("sources/.*")),
    "Spark's checksums gone": ("rocks_v2", lambda s: s.remove(".*crc")),
    "all zips gone, all change logs there": ("rocks_changelog", lambda s: s.remove("state/.*zip")),
    "offsets before a copy of the last": ("hdfs_agg", lambda s: s.put("offsets/10", s.read("offsets/11"))),
    "offsets before a copy of the last, without state": (
        "stateless",
        lambda s: s.put("offsets/10", s.read("offsets/11")),
    ),
    "settings that only a newer Spark writes gone": (
        "hdfs_agg",
        edit("offsets/11", b"stateStore.encodingFormat", b"another"),
    ),
    "an old entry under another name": ("hdfs_agg", lambda s: s.put("offsets/007", b"copy")),
    "a copy with an ending": ("hdfs_agg", lambda s: s.put("offsets/12.compact", b"copy")),
    "litter": (
        "hdfs_agg",
        lambda s: s.put("offsets/.12.c2a4ec23-e658-4144-915b-798c38fccb92.tmp", b"half"),
    ),
}


def test_sparse_logs_are_told_because_a_query_that_is_not_asynchronous_fails_on_them():
    scene = Scene.of("stateless")
    scene.remove("(offsets|commits)/(1|3|4|7|9|10)")
    issues = scene.layout.prove(batch(11))
    assert codes(issues) == set()
    assert {issue.code for issue in issues} == {"logs_sparse"}
    diagnosis = diagnose(scene.layout)
    assert diagnosis.healthy
    (finding,) = diagnosis.findings
    assert "batch 10 doesn't exist" in finding.spark_says


@pytest.mark.parametrize("name", HARMLESS)
def test_what_spark_does_without_is_no_error(name):
    kind, damage = HARMLESS[name]
    scene = Scene.of(kind)
    damage(scene)
    assert codes(scene.layout.prove(batch(LAST[kind]))) == set()
    assert diagnose(scene.layout).healthy


SNAPSHOTS = {
    "HDFS, snapshot cut": ("dedup", lambda s: s.cut("state/0/0/(10|11|12).snapshot"), "state/0/0/.*snapshot"),
    "RocksDB with change logs, zip cut": ("rocks_changelog", lambda s: s.cut("state/0/0/12.zip"), ".*12.zip"),
    "format 2, zip cut": ("rocks_v2", lambda s: s.cut(f"state/0/0/12_{UUID}.zip"), ".*12_.*zip"),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_damaged_snapshot_is_a_warning_while_everything_to_do_without_it_is_whole(name):
    kind, damage, _ = SNAPSHOTS[name]
    scene = Scene.of(kind)
    damage(scene)
    issues = scene.layout.prove(batch(LAST[kind]))
    assert codes(issues) == set()
    assert "snapshot_repairable" in {issue.code for issue in issues}
    diagnosis = diagnose(scene.layout)
    assert diagnosis.healthy
    finding = next(f for f in diagnosis.findings if f.code == "snapshot_repairable")
    assert finding.fix.startswith("Remove state/0/0/")


def test_a_damaged_snapshot_is_an_error_for_a_spark_that_does_not_repair_it():
    scene = Scene.of("rocks_changelog")
    scene.cut("state/0/0/12.zip")
    for number in (10, 11):
        lines = scene.read(f"offsets/{number}").split(b"\n")
        conf = b'{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.stateStore.compression.codec":"lz4",'
        conf += b'"spark.sql.streaming.stateStore.providerClass":"RocksDBStateStoreProvider"}'
        scene.put(f"offsets/{number}", b"\n".join([lines[0], b'{"conf":' + conf + b"}", *lines[2:]]))
    assert codes(scene.layout.prove(batch(11))) == {"snapshot_repairable"}
    finding = next(f for f in diagnose(scene.layout).findings if f.blocking)
    assert finding.fix == "Remove state/0/0/12.zip: an older snapshot and every change since are whole."


def test_a_damaged_snapshot_is_an_error_if_a_change_is_damaged_too():
    scene = Scene.of("rocks_changelog")
    scene.cut("state/0/0/12.zip")
    scene.flip("state/0/0/12.changelog")
    assert codes(scene.layout.prove(batch(11)))


def test_a_lost_table_is_a_warning_while_change_logs_make_up_for_it():
    scene = Scene.of("rocks_changelog")
    scene.directory.delete([newest_table(scene)])
    issues = scene.layout.prove(batch(11))
    assert codes(issues) == set()
    assert "snapshot_repairable" in {issue.code for issue in issues}


def test_a_flipped_bit_in_a_table_stays_an_error_because_spark_does_not_see_it_and_so_repairs_nothing():
    scene = Scene.of("rocks_changelog")
    key = newest_table(scene)
    body = bytearray(scene.read(key))
    body[len(body) // 3] ^= 1
    scene.put(key, bytes(body))
    assert codes(scene.layout.prove(batch(11))) & {"sst_block_corrupt", "sst_corrupt"}
    finding = next(f for f in diagnose(scene.layout).findings if f.subject == key)
    zipped = finding.fix.removeprefix("Remove ").partition(":")[0]
    scene.directory.delete([zipped])
    assert codes(scene.layout.prove(batch(11))) == set()
    assert diagnose(scene.layout).healthy


# -- checksums beside files --------------------------------------------------------------------------------------


def test_the_checksum_that_a_disk_keeps_finds_a_change_that_is_still_well_formed():
    scene = Scene.of("hdfs_agg", hadoop_checksums=True)
    scene.put("offsets/10", scene.read("offsets/10").replace(b'"logOffset":10', b'"logOffset":11'))
    assert codes(scene.layout.prove(batch(11), PRESENCE)) == set()
    assert codes(scene.layout.prove(batch(11), CONTENT))


def test_sparks_own_checksum_finds_a_swapped_change_log():
    scene = Scene.of("rocks_v2")
    scene.remove("state/0/0/12_.*zip")
    old, new = scene.find(f"state/0/0/11_{UUID}.changelog"), scene.find(f"state/0/0/12_{UUID}.changelog")
    assert codes(scene.layout.prove(batch(11), CONTENT)) == set()
    scene.put(new, scene.read(old))
    assert codes(scene.layout.prove(batch(11), CONTENT))


def test_an_older_copy_of_a_delta_is_not_found_without_a_seal():
    scene = Scene.of("hdfs_agg")
    swap_old_copy(scene)
    assert codes(scene.layout.prove(batch(11), CONTENT)) == set()
