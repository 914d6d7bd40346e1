"""A diagnosis tells what Spark would say, what is really wrong, and what helps."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import Diagnosis, diagnose, render
from airflow_provider_checkpoint.model import Depth
from tests.unit.layouts.structured_streaming.making import KINDS, LAST, Scene, write_out

UUID = "c2a4ec23-e658-4144-915b-798c38fccb92"


def plan_next(scene, text=None):
    """A batch that was planned and not committed."""
    body = scene.read("offsets/11")
    scene.put("offsets/12", body if text is None else text)


def unfinished_repartition(scene):
    plan_next(scene, scene.read("offsets/11").replace(b'partitions":"2"', b'partitions":"4"'))


def with_second_line(body, line=b""):
    first, _, *rest = body.split(b"\n")
    return b"\n".join([first, line, *rest])


def go_back_by_hand(scene):
    """The remedy of the forums: remove the last entries of both logs."""
    scene.remove("(offsets|commits)/(8|9|10|11)")


#: Damage: code, a word that Spark says, whether a fix in place is exact and what it begins with.
FINDINGS = {
    "metadata missing": (lambda s: s.remove("metadata"), "metadata_missing", "MISSING_METADATA_FILE", ""),
    "metadata garbage": (lambda s: s.put("metadata", b"{"), "metadata_corrupt", "JsonEOFException", ""),
    "committed offsets empty": (lambda s: s.put("offsets/11", b""), "offsets_corrupt", "Incomplete log file", ""),
    "planned offsets empty": (
        lambda s: plan_next(s, b""),
        "offsets_corrupt",
        "Incomplete log file",
        "Remove offsets/12",
    ),
    "planned offsets cut": (
        lambda s: plan_next(s, s.read("offsets/11")[:200]),
        "offsets_corrupt",
        "JsonEOFException",
        "Remove offsets/12",
    ),
    "offsets of a newer Spark": (
        lambda s: s.put("offsets/11", s.read("offsets/11").replace(b"v1", b"v9", 1)),
        "offsets_version",
        "INVALID_LOG_VERSION",
        "",
    ),
    "offsets without their second line": (
        lambda s: s.put("offsets/11", with_second_line(s.read("offsets/11"))),
        "offsets_metadata_missing",
        "NullPointerException",
        "",
    ),
    "planned offsets without their second line": (
        lambda s: plan_next(s, with_second_line(s.read("offsets/11"))),
        "offsets_metadata_missing",
        "Batch 12 metadata not found",
        "Remove offsets/12",
    ),
    "offsets before a planned batch without their second line": (
        lambda s: (plan_next(s), s.put("offsets/11", with_second_line(s.read("offsets/11")))),
        "offsets_metadata_missing",
        "Previous batch 11 metadata not found",
        "",
    ),
    "offsets before the last gone": (
        lambda s: s.remove("offsets/10"),
        "previous_offsets_missing",
        "batch 10 doesn't exist",
        "Copy offsets/11 to offsets/10",
    ),
    "offsets before the last damaged": (
        lambda s: s.put("offsets/10", b""),
        "previous_offsets_corrupt",
        "Incomplete log file",
        "Copy offsets/11 to offsets/10",
    ),
    "offsets before a planned batch gone": (
        lambda s: (plan_next(s), s.remove("offsets/11")),
        "previous_offsets_missing",
        "batch 11 doesn't exist",
        "",
    ),
    "last offsets gone": (lambda s: s.remove("offsets/11"), "commit_ahead", "CONCURRENT_STREAM_LOG_UPDATE", ""),
    "all offsets gone": (lambda s: s.remove("offsets/.*"), "offsets_gone", "assertion failed", ""),
    "both logs gone": (lambda s: s.remove("(offsets|commits)/.*"), "logs_gone", "LOCATION_NOT_EMPTY", ""),
    "only the sources left": (lambda s: s.remove("(offsets|commits|state)/.*"), "logs_gone", "nothing", ""),
    "commit empty": (lambda s: s.put("commits/11", b""), "commit_corrupt", "Incomplete log file", "Remove commits/11"),
    "commit garbage": (lambda s: s.put("commits/11", b"v1\n{"), "commit_corrupt", "JsonEOF", "Remove commits/11"),
    "commit of a newer Spark": (lambda s: s.put("commits/11", b"v9\n{}"), "commit_version", "INVALID_LOG_VERSION", ""),
    "unfinished repartition": (
        unfinished_repartition,
        "unfinished_repartition",
        "UNFINISHED_REPARTITION",
        "Remove offsets/12",
    ),
    "last entry of a source gone": (
        lambda s: s.remove("sources/0/11"),
        "source_log_missing",
        "batch 11 doesn't exist (it is not offsets/11",
        "",
    ),
    "compaction of a source gone": (
        lambda s: s.remove("sources/0/9.compact"),
        "source_log_missing",
        "FileNotFoundException",
        "",
    ),
    "entry of a source damaged": (lambda s: s.cut("sources/0/10"), "source_log_corrupt", "Incomplete log file", ""),
    "an entry of a source that no batch has yet, damaged": (
        lambda s: s.put("sources/0/12", b"v1\n{"),
        "source_log_corrupt",
        "Incomplete log file",
        "Remove the entries of sources/0 above 11",
    ),
    "an entry of a source that no batch has yet, after a gap": (
        lambda s: s.put("sources/0/13", s.read("sources/0/11").replace(b'"batchId":11', b'"batchId":13')),
        "source_log_missing",
        "doesn't exist",
        "Remove the entries of sources/0 above 11",
    ),
    "a planned batch that goes back": (
        lambda s: plan_next(s, s.read("offsets/9")),
        "source_position_back",
        "AssertionError",
        "Remove offsets/12",
    ),
    "offsets under another name": (
        lambda s: s.put("offsets/0099", s.read("offsets/11")),
        "stray_entry",
        "FileNotFoundException: .../offsets/99",
        "Remove offsets/0099",
    ),
    "a commit under another name": (
        lambda s: s.put("commits/+12", b"v1"),
        "stray_entry",
        "FileNotFoundException: .../commits/12",
        "Remove commits/+12",
    ),
    "a delta gone": (
        lambda s: s.remove("state/0/0/12.delta"),
        "artifact_missing",
        "CANNOT_READ_DELTA_FILE_NOT_EXISTS",
        "",
    ),
    "a delta cut": (lambda s: s.cut("state/0/0/12.delta"), "state_truncated", "UNCATEGORIZED", ""),
    "schema cut": (
        lambda s: s.cut(".*/schema"),
        "state_truncated",
        "EOFException",
        "Remove state/0/0/_metadata/schema",
    ),
    "gone back by hand": (
        go_back_by_hand,
        "abandoned_state",
        "nothing",
        "Remove every state file of a version above 8",
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_each_damage_has_its_finding(name):
    damage, code, said, fix = FINDINGS[name]
    scene = Scene.of("hdfs_agg")
    damage(scene)
    diagnosis = diagnose(scene.layout)
    assert not diagnosis.healthy
    finding = next(finding for finding in diagnosis.findings if finding.code == code)
    assert finding.blocking
    assert said in finding.spark_says
    assert finding.fix.startswith(fix) if fix else finding.fix == ""


#: Kind of directory, second line, and what is said of it, which is what a start of Spark 4.3 makes of it.
SECOND_LINES = [
    ("stateless", b"", ["offsets_metadata_missing"]),
    ("hdfs_agg", b"", ["offsets_metadata_missing"]),
    ("stateless", b"{}", []),
    ("hdfs_agg", b"{}", ["settings_lost"]),
]


@pytest.mark.parametrize(("kind", "line", "codes"), SECOND_LINES)
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_without_their_second_line_are_told_once(kind, line, codes, committed):
    scene = Scene.of(kind)
    scene.put("offsets/11", with_second_line(scene.read("offsets/11"), line))
    if not committed:
        scene.remove("commits/11")
    assert [finding.code for finding in diagnose(scene.layout).findings] == codes


@pytest.mark.parametrize("line", [b"", b"{}"])
def test_the_second_line_before_a_committed_batch_is_not_needed(line):
    scene = Scene.of("hdfs_agg")
    scene.put("offsets/10", with_second_line(scene.read("offsets/10"), line))
    assert diagnose(scene.layout).findings == ()


def test_a_planned_batch_goes_on_from_settings_that_are_empty():
    scene = Scene.of("hdfs_agg")
    plan_next(scene)
    scene.put("offsets/11", with_second_line(scene.read("offsets/11"), b"{}"))
    assert diagnose(scene.layout).healthy


EXACT = {
    "planned offsets empty": lambda s: s.remove("offsets/12"),
    "planned offsets cut": lambda s: s.remove("offsets/12"),
    "planned offsets without their second line": lambda s: s.remove("offsets/12"),
    "unfinished repartition": lambda s: s.remove("offsets/12"),
    "a planned batch that goes back": lambda s: s.remove("offsets/12"),
    "an entry of a source that no batch has yet, damaged": lambda s: s.remove("sources/0/12"),
    "an entry of a source that no batch has yet, after a gap": lambda s: s.remove("sources/0/13"),
    "offsets before the last gone": lambda s: s.put("offsets/10", s.read("offsets/11")),
    "offsets before the last damaged": lambda s: s.put("offsets/10", s.read("offsets/11")),
    "offsets under another name": lambda s: s.remove("offsets/0099"),
    "a commit under another name": lambda s: s.remove("commits/[+]12"),
    "commit empty": lambda s: s.remove("commits/11"),
    "commit garbage": lambda s: s.remove("commits/11"),
    "schema cut": lambda s: s.remove("state/0/0/_metadata/schema"),
    "gone back by hand": lambda s: s.remove("state/0/[01]/(9|1[0-2])[.].*"),
}


@pytest.mark.parametrize("name", EXACT)
def test_after_the_exact_fix_the_directory_is_healthy(name):
    assert {each for each, (*_, fix) in FINDINGS.items() if fix} == set(EXACT)
    scene = Scene.of("hdfs_agg")
    FINDINGS[name][0](scene)
    EXACT[name](scene)
    assert diagnose(scene.layout).healthy


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_directory_is_healthy(kind):
    scene = Scene.of(kind)
    diagnosis = diagnose(scene.layout)
    # State of transformWithState names its schema by a path, which does not lead to a directory in memory.
    expected = {"directory_moved"} if kind == "tws" else set()
    assert {finding.code for finding in diagnosis.findings} == expected
    assert diagnosis.recoverable[0] == diagnosis.last_committed == diagnosis.last_planned == LAST[kind]
    assert len(diagnosis.recoverable) == len(scene.layout.candidates())


@pytest.mark.parametrize("name", ["my copy", "100%", "a%20b", "café", "a@b"])
def test_a_directory_is_where_its_schemas_are_whatever_it_is_called(tmp_path, name):
    folder = write_out("tws", tmp_path / name)
    described = folder / "state/0/_metadata/v2/0"
    described.write_text(described.read_text().replace("file:/data/ckpt/tws", f"file:{folder}"))
    layout = open_store(str(folder), layout="structured_streaming")
    assert {finding.code for finding in diagnose(layout).findings} == set()
    folder.rename(tmp_path / "moved")
    moved = open_store(str(tmp_path / "moved"), layout="structured_streaming")
    assert {finding.code for finding in diagnose(moved).findings} == {"directory_moved"}


def test_an_empty_directory_has_nothing_wrong_with_it():
    diagnosis = diagnose(Scene().layout)
    assert diagnosis.healthy
    assert (diagnosis.last_planned, diagnosis.recoverable, diagnosis.query_id) == (None, (), None)


def test_state_that_is_only_overwritten_is_not_abandoned():
    for kind in ("rocks", "rocks_v2"):
        scene = Scene.of(kind)
        scene.remove("(offsets|commits)/(9|10|11)")
        assert diagnose(scene.layout).healthy


def test_a_batch_that_is_planned_loads_the_state_before_it():
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/11")
    scene.remove("state/0/0/12.delta")
    assert diagnose(scene.layout).healthy
    scene.remove("state/0/0/11.*")
    diagnosis = diagnose(scene.layout)
    assert not diagnosis.healthy
    assert diagnosis.recoverable[0] == 9


def test_commits_far_behind_are_harmless_and_told():
    scene = Scene.of("hdfs_agg")
    scene.remove("commits/(9|10|11)")
    (finding,) = diagnose(scene.layout).findings
    assert (finding.code, finding.blocking) == ("commit_behind", False)


def test_litter_is_told_and_harmless():
    scene = Scene.of("hdfs_agg")
    scene.put(f"state/0/0/.13.delta.{UUID}.TID7.tmp", b"half")
    (finding,) = diagnose(scene.layout).findings
    assert (finding.code, finding.blocking) == ("litter", False)


def test_thousands_of_lost_files_are_told_in_a_few_lines():
    scene = Scene.of("hdfs_join")
    scene.remove("state/.*/[0-9]+[.](delta|snapshot)")
    diagnosis = diagnose(scene.layout)
    alike = [finding for finding in diagnosis.findings if finding.code == "artifact_missing"]
    assert len(alike) == 11
    assert "more of this kind" in alike[-1].wrong


def test_a_quick_diagnosis_reads_no_state():
    scene = Scene.of("hdfs_agg")
    scene.cut("state/0/0/12.delta")
    assert diagnose(scene.layout, depth=Depth.PRESENCE).healthy
    assert not diagnose(scene.layout).healthy


def test_what_could_not_be_proven_is_said_once():
    (statement,) = diagnose(Scene.of("zstd").layout).unproven
    assert "checksum" in statement


def test_it_is_told_as_text_and_as_json():
    scene = Scene.of("hdfs_agg")
    scene.remove("offsets/10")
    scene.remove("commits/[3-5]")
    diagnosis = diagnose(scene.layout)
    text = render(diagnosis)
    assert "The query cannot go on as it is." in text
    assert "Spark says: IllegalStateException: batch 10 doesn't exist" in text
    assert "exact fix:  Copy offsets/11 to offsets/10" in text
    assert "Recoverable batches: 0-2, 6-9 (proven to depth content)" in text
    assert "cannot be told from the directory" in text
    document = json.loads(json.dumps(diagnosis.document()))
    assert document["healthy"] is False
    assert document["way_back"].startswith("Go back to batch 9")
    assert Diagnosis.model_validate_json(diagnosis.model_dump_json()) == diagnosis


def test_a_healthy_directory_is_told_in_a_few_lines():
    text = render(diagnose(Scene.of("hdfs_agg").layout))
    assert "The query can go on." in text
    assert "Recoverable batches: 0-11" in text
