"""The soak, short and small: everything it is made of happens, all holds in the end, and harm is found."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import REPOSITORY
from tests.soak.memory import Sample, Watch, slope
from tests.soak.report import EVENTS
from tests.soak.weather import FAULTS

if TYPE_CHECKING:
    from pathlib import Path

#: The least frequent fault is too rare to be met for sure in so short a time.
RARE = {"late landing", "error 409"}


def soak(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "tests.soak", "--json", str(report), *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(report.read_text()), done.stdout


@pytest.mark.stress
def test_a_short_soak_holds_and_leaves_nothing_out(tmp_path):
    small = ("--minutes", "0.35", "--pipelines", "4", "--fault-rate", "0.04", "--seed", "7")
    code, report, told = soak(tmp_path, *small, "--at-least-once")
    assert (code, report["failures"]) == (0, []), told
    assert [name for name in EVENTS if not report["counts"][name]] == [], told
    assert [name for name in FAULTS if not report["faults"][name] and name not in RARE] == [], told
    assert report["judged"]["numbers published"] > 0


@pytest.mark.parametrize(
    ("harm", "found"), [("damage", "is said to be"), ("output", "published output: lost are")], ids=["damage", "output"]
)
def test_harm_that_nobody_knows_of_is_found_in_the_end(tmp_path, harm, found):
    code, report, told = soak(tmp_path, "--minutes", "0.08", "--pipelines", "2", "--fault-rate", "0", "--spoil", harm)
    assert code == 1
    assert any(found in failure for failure in report["failures"]), told
    # Each pipeline is found out by itself.
    assert {failure.partition(":")[0] for failure in report["failures"]} == {"pipeline 0", "pipeline 1"}


@pytest.mark.parametrize(
    ("per_minute", "peaks", "flat"),
    [(0.0, 0, True), (0.5, 0, True), (0.0, 6, True), (4.0, 0, False)],
    ids=["still", "a little", "peaks", "a leak"],
)
def test_memory_that_grows_is_told_from_memory_that_has_peaks(per_minute, peaks, flat):
    watch = Watch("worker", 0, judged=True)
    for number in range(60):
        peak = 80 if peaks and number % (60 // peaks) == 5 else 0
        rss = int((100 + peak + per_minute * number / 6) * 2**20)
        watch.samples.append(Sample(10.0 * number, rss, descriptors=40, threads=30))
    assert (watch.summary().wrong() == []) == flat


def test_growth_in_the_warm_up_does_not_count():
    watch = Watch("worker", 0, judged=True)
    for number in range(60):
        rss = min(100, 20 + 8 * number) * 2**20
        watch.samples.append(Sample(10.0 * number, rss, descriptors=40, threads=30))
    assert watch.summary().wrong() == []


def test_a_run_that_is_too_short_to_warm_up_is_not_judged_by_its_memory():
    watch = Watch("worker", 0, judged=True)
    watch.samples += [Sample(float(number), 2**20 * number, descriptors=40, threads=30) for number in range(60)]
    assert watch.summary().wrong() == []


def test_descriptors_that_leak_are_told():
    watch = Watch("worker", 0, judged=True)
    watch.samples += [Sample(10.0 * number, 2**27, descriptors=40 + 3 * number, threads=30) for number in range(60)]
    assert "descriptors" in watch.summary().wrong()[0]


def test_the_slope_is_that_of_most_pairs():
    points = [(float(x), 2.0 * x) for x in range(20)]
    points[3] = (3.0, 1000.0)
    assert slope(points) == pytest.approx(2.0)
