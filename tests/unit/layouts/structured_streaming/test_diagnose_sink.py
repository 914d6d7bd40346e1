"""A diagnosis that looks into the log of the query's file sink as well.

What Spark is said to do was seen with Spark 4.3, with the same damage done to a real output.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import NoEvidenceError
from airflow_provider_checkpoint.layouts.structured_streaming import Diagnosis, diagnose, plan_file_sink, render
from airflow_provider_checkpoint.model import Depth
from tests.unit.layouts.structured_streaming.making import Scene

LAST = 11
LOG = "_spark_metadata"


class Out(MemoryBlobs):
    """As a disk: the address is a path."""

    @property
    def uri(self) -> str:
        return "file:///data/out"


@dataclass
class Written:
    """A query after twelve batches, and its output: one file each, the log compacted with batches 3 and 7."""

    scene: Scene = field(default_factory=lambda: Scene.of("hdfs_agg"))
    out: Out = field(default_factory=Out)

    def __post_init__(self) -> None:
        for number in range(LAST + 1):
            self.out.create(f"day=1/part-{number}.json", b"{}")
            if number in (3, 7):
                self.log(f"{number}.compact", *range(number + 1))
            else:
                self.log(str(number), number)
        # What lies before a compaction goes some time after it.
        self.remove(0, 1, 2, "3.compact")

    def log(self, name: str, *numbers: int, size: int = 2, place: str = "file:///data/out") -> None:
        entries = [{"path": f"{place}/day=1/part-{number}.json", "size": size, "action": "add"} for number in numbers]
        self.out.replace(f"{LOG}/{name}", "\n".join(["v1", *map(json.dumps, entries)]).encode())

    def remove(self, *names: int | str) -> None:
        self.out.delete([f"{LOG}/{name}" for name in names])

    def lose(self, *numbers: int) -> None:
        self.out.delete([f"day=1/part-{number}.json" for number in numbers])

    def uncommit(self) -> None:
        self.scene.remove("commits/11")

    def diagnose(self, depth: Depth = Depth.CONTENT) -> Diagnosis:
        return diagnose(self.scene.layout, depth=depth, file_sink=self.out)


def go_back_by_hand(written):
    written.scene.remove("(offsets|commits)/11")
    written.scene.remove("sources/0/11")
    written.scene.remove("state/.*/12[.].*")


def start_anew(written):
    written.scene.remove(".*")


#: Damage: code, subject, a word that Spark says, what an exact fix begins with, and where one can still go back to.
FINDINGS = {
    "the last entry gone": (
        lambda w: w.remove(11),
        ("sink_behind", LOG, "BATCH_METADATA_NOT_FOUND", "Remove commits/11:"),
        [10, 9, 8, 7],
    ),
    "more than the last entry gone": (
        lambda w: w.remove(10, 11),
        ("sink_behind", LOG, "BATCH_METADATA_NOT_FOUND", ""),
        [9, 8, 7],
    ),
    "no log": (
        lambda w: w.remove(*range(4, 7), "7.compact", *range(8, 12)),
        ("sink_behind", LOG, "BATCH_METADATA_NOT_FOUND", ""),
        [],
    ),
    "an entry gone": (
        lambda w: w.remove(10),
        ("sink_log_missing", f"{LOG}/10", "FileNotFoundException: .../10 doesn't exist", ""),
        [9, 8, 7],
    ),
    "the compaction gone": (
        lambda w: w.remove("7.compact"),
        ("sink_log_missing", f"{LOG}/0", "doesn't exist", ""),
        [],
    ),
    "the last entry empty": (
        lambda w: w.out.replace(f"{LOG}/11", b""),
        ("sink_log_corrupt", f"{LOG}/11", "Incomplete log file", f"Remove {LOG}/11 and commits/11:"),
        [10, 9, 8, 7],
    ),
    "the last entry half-written, its batch not committed": (
        lambda w: (w.out.replace(f"{LOG}/11", w.out.read(f"{LOG}/11")[:50]), w.uncommit()),
        ("sink_log_corrupt", f"{LOG}/11", "JsonEOFException", f"Remove {LOG}/11:"),
        [10, 9, 8, 7],
    ),
    "an entry before the last half-written": (
        lambda w: w.out.replace(f"{LOG}/9", w.out.read(f"{LOG}/9")[:50]),
        ("sink_log_corrupt", f"{LOG}/9", "JsonEOFException", ""),
        [8, 7],
    ),
    "the compaction half-written": (
        lambda w: w.out.replace(f"{LOG}/7.compact", w.out.read(f"{LOG}/7.compact")[:100]),
        ("sink_log_corrupt", f"{LOG}/7.compact", "JsonEOFException", ""),
        [],
    ),
    "an entry of a newer Spark": (
        lambda w: w.out.replace(f"{LOG}/11", b"v9"),
        ("sink_log_corrupt", f"{LOG}/11", "INVALID_LOG_VERSION", ""),
        [10, 9, 8, 7],
    ),
    "the query went back without its sink": (
        go_back_by_hand,
        ("sink_ahead", f"{LOG}/11", "nothing", f"Remove the entries of {LOG} above 10"),
        [10, 9, 8, 7],
    ),
    "the query went back to before a compaction": (
        lambda w: w.scene.remove("(offsets|commits)/([6-9]|1.)"),
        ("sink_ahead", f"{LOG}/11", "nothing", ""),
        [],
    ),
    "a new checkpoint on an old output": (
        start_anew,
        ("sink_ahead", f"{LOG}/11", "nothing", "Give the query a new folder"),
        [],
    ),
    "a file gone": (
        lambda w: w.lose(10),
        ("sink_file_missing", f"{LOG}/10", "FAILED_READ_FILE.FILE_NOT_EXIST", "Bring"),
        [9, 8, 7],
    ),
    "an old file gone": (
        lambda w: w.lose(2, 3),
        ("sink_file_missing", f"{LOG}/7.compact", "FAILED_READ_FILE.FILE_NOT_EXIST", "Bring"),
        [],
    ),
    "a file of another size": (
        lambda w: w.out.replace("day=1/part-9.json", b"{}{}"),
        ("sink_file_changed", f"{LOG}/9", "nothing", "Bring"),
        [8, 7],
    ),
    "an output that was moved": (
        lambda w: w.log("7.compact", *range(8), place="file:///old/out"),
        ("sink_moved", f"{LOG}/7.compact", "nothing", ""),
        [],
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_each_damage_of_the_sink_has_its_finding(name):
    damage, (code, subject, said, fix), recoverable = FINDINGS[name]
    written = Written()
    damage(written)
    diagnosis = written.diagnose()
    (finding,) = [finding for finding in diagnosis.findings if finding.code.startswith("sink_")]
    assert (finding.code, finding.subject, finding.blocking) == (code, subject, True)
    assert said in finding.spark_says
    assert finding.fix.startswith(fix) if fix else finding.fix == ""
    assert list(diagnosis.recoverable) == recoverable
    assert not diagnosis.healthy


EXACT = {
    "the last entry gone": lambda w: w.scene.remove("commits/11"),
    "the last entry empty": lambda w: (w.remove(11), w.scene.remove("commits/11")),
    "the last entry half-written, its batch not committed": lambda w: w.remove(11),
    "the query went back without its sink": lambda w: (w.remove(11), w.lose(11)),
    "a file gone": lambda w: w.out.replace("day=1/part-10.json", b"{}"),
    "an old file gone": lambda w: [w.out.replace(f"day=1/part-{each}.json", b"{}") for each in (2, 3)],
    "a file of another size": lambda w: w.out.replace("day=1/part-9.json", b"{}"),
}


@pytest.mark.parametrize("name", EXACT)
def test_after_the_fix_the_sink_is_whole(name):
    written = Written()
    FINDINGS[name][0](written)
    EXACT[name](written)
    assert written.diagnose().findings == ()


def test_a_sink_that_fits_has_nothing_wrong_with_it():
    diagnosis = Written().diagnose()
    assert diagnosis.findings == ()
    # Before that, the log no longer tells which files are of which batch.
    assert diagnosis.recoverable == (11, 10, 9, 8, 7)


def test_a_batch_that_is_published_and_not_committed_is_passed_over_rightly():
    written = Written()
    written.uncommit()
    assert written.diagnose().findings == ()
    written.remove(11)
    assert written.diagnose().findings == ()


def test_a_new_query_with_a_new_output_has_nothing_wrong_with_it():
    assert diagnose(Scene().layout, file_sink=Out()).findings == ()


def test_a_file_that_the_sink_took_back_is_not_missed():
    written = Written()
    written.lose(9)
    entry = {"path": "file:///data/out/day=1/part-9.json", "size": 2, "action": "delete"}
    written.out.replace(f"{LOG}/11", f"v1\n{json.dumps(entry)}".encode())
    assert written.diagnose().findings == ()


def test_files_are_not_looked_for_if_only_logs_are_asked_for():
    written = Written()
    written.lose(9)
    assert written.diagnose(Depth.STRUCTURE).findings == ()


def test_the_way_back_takes_the_sink_along():
    written = Written()
    written.lose(10)
    assert written.diagnose().way_back.startswith("Go back to batch 9 with the sink (--file-sink)")


def test_entries_that_cannot_be_read_go_before_the_sink_can_go_back():
    written = Written()
    written.remove(10)
    assert written.diagnose().way_back.startswith(f"Remove the entries of {LOG} above 9, newest first")


@pytest.mark.parametrize("damage", [lambda w: w.remove(10), lambda w: w.out.replace(f"{LOG}/10", b"")])
def test_until_they_are_gone_the_sink_stays_as_it_is_and_after_that_it_goes_back(damage):
    written = Written()
    damage(written)
    with pytest.raises(NoEvidenceError, match="after batch 9") as caught:
        plan_file_sink(written.out, 9)
    assert "diagnose" in caught.value.hint
    written.remove(11, 10)
    assert plan_file_sink(written.out, 9).log == ()


def test_what_files_are_missing_is_told_in_a_few_words():
    written = Written()
    written.lose(*range(8))
    (finding,) = written.diagnose().findings
    assert "8 of the files" in finding.wrong
    assert "day=1/part-0.json" in finding.wrong
    text = render(written.diagnose())
    assert "  file sink file:///data/out" in text
    assert Diagnosis.model_validate_json(written.diagnose().model_dump_json()) == written.diagnose()


class Growing(Out):
    """The output of a query that runs on: a batch is published before each listing, and another right after it."""

    scene: Scene | None = None

    def list(self, folder: str = "", *, temporary: bool | None = False):
        self.grow()
        found = [*super().list(folder, temporary=temporary)]
        self.grow()
        return iter(found)

    def grow(self) -> None:
        if self.scene is None:
            return
        number = len(self.scene.layout.candidates())
        self.scene.put(f"offsets/{number}", self.scene.read("offsets/11"))
        self.create(f"{LOG}/{number}", b"v1")
        self.scene.put(f"commits/{number}", self.scene.read("commits/11"))


def test_a_query_that_publishes_meanwhile_is_neither_ahead_nor_behind():
    written = Written(Scene.of("stateless"), Growing())
    written.out.scene = written.scene
    assert not [finding for finding in written.diagnose().findings if finding.code.startswith("sink_")]
    assert len(written.scene.layout.candidates()) > LAST + 1
