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

from airflow_provider_checkpoint.get_provider_info import get_provider_info

BASE = ["airflow.providers.apache.spark.operators.spark_submit"]
ROOMS = ("hooks", "operators", "sensors", "triggers")
TARGET = 0.2

PROGRAM = """
import importlib, json, sys, time

def importing(names):
    wall, processor = time.perf_counter(), time.process_time()
    for name in names:
        importlib.import_module(name)
    return time.perf_counter() - wall, time.process_time() - processor

print(json.dumps([importing(names) for names in json.loads(sys.argv[1])]))
"""


def ours() -> list[str]:
    info = get_provider_info()
    return [name for room in ROOMS for entry in info[room] for name in entry["python-modules"]]


def one_round(home: str) -> list[list[float]]:
    """Seconds by the clock and of the processor, for the base and for ours on top of it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([BASE, ours()])],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "AIRFLOW_HOME": home},
    )
    found: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


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
