"""What importing the operators, sensors and triggers costs a DAG file: ``python -m tests.benchmarks.imports``.

Every round is a fresh process. It first imports what a DAG file with a Spark job imports anyway, then everything of
ours; the second part is what we add. Time of the processor is told besides, because it does not count other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.get_provider_info import get_provider_info
from tests.benchmarks._measure import Contender, Line, lines, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks._stage import Stage

BASE = ["airflow.providers.apache.spark.operators.spark_submit"]
ROOMS = ("hooks", "operators", "sensors", "triggers")
TARGET = 0.2
DAG = Path(__file__).resolve().parents[2] / "dags" / "checkpoint_maintenance.py"

PROGRAM = """
import importlib, json, sys, time

def importing(names):
    wall, processor = time.perf_counter(), time.process_time()
    for name in names:
        importlib.import_module(name)
    return time.perf_counter() - wall, time.process_time() - processor

print(json.dumps([importing(names) for names in json.loads(sys.argv[1])]))
"""

#: The least that a DAG file with a Spark job can be.
PLAIN_DAG = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("plain", schedule=None):
    SparkSubmitOperator(task_id="job", application="job.py")
"""


def ours() -> list[str]:
    info = get_provider_info()
    return [name for room in ROOMS for entry in info[room] for name in entry["python-modules"]]


def one_round(home: str) -> list[list[float]]:
    """Seconds by the clock and of the processor, for the base and for ours on top of it."""
    found: list[list[float]] = json.loads(_python(home, "-c", PROGRAM, json.dumps([BASE, ours()])).splitlines()[-1])
    return found


def _python(home: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "AIRFLOW_HOME": home, "PYTHONPATH": str(DAG.parent)},
    )
    return done.stdout


def rows(stage: Stage) -> Iterator[Line]:
    """Import everything of ours on top of a Spark job's imports; run a DAG file of ours and a plain one."""
    home = str(stage.folder / "airflow")
    stage.say("first round: compiles, and writes Airflow's configuration")
    one_round(home)
    repeats = stage.repeats or stage.full(5, 3)
    found = [one_round(home) for _ in range(repeats)]
    base, added = (statistics.median(each[part][1] for each in found) for part in range(2))
    what = "import all of ours, processor time"
    yield Line(what, seconds(added), f"at most {TARGET} s", seconds(TARGET), added / TARGET, 1.0)
    yield Line(what, seconds(base + added), "a Spark job's imports alone", seconds(base), (base + added) / base, 1.25)
    plain = stage.folder / "plain_dag.py"
    plain.write_text(PLAIN_DAG)
    contenders = [
        Contender("ours", lambda: _python(home, str(DAG))),
        Contender("a DAG with one Spark job", lambda: _python(home, str(plain))),
    ]
    medians = stage.race(contenders, repeats=3, warm_up=False)
    yield from lines(f"run the DAG file {DAG.name}", medians, {"a DAG with one Spark job": 1.5})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes (default: 7)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        one_round(home)  # compiles, and writes Airflow's configuration
        found = [one_round(home) for _ in range(rounds)]
    for part, name in enumerate(("Spark's own", "ours on top")):
        for kind, unit in enumerate(("by the clock", "of the processor")):
            times = [each[part][kind] for each in found]
            middle = statistics.median(times)
            print(f"{name}: median {middle:.3f} s {unit}, from {min(times):.3f} to {max(times):.3f} s")
    print(f"Meant to stay below {TARGET} s on top, on an idle machine; {rounds} rounds.")


if __name__ == "__main__":
    main()
