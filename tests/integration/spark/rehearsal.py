"""Killing the orders job again and again, and looking whether its tables are exact in the end.

As a program, for as long as one likes::

    python -m tests.integration.spark.rehearsal --kills 40 --restores 10
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "dags" / "jobs"))

import orders  # noqa: E402 - it lives beside the job, where spark-submit finds it

from airflow_provider_checkpoint.layouts import open_store  # noqa: E402 - after the path above

STEPS = ("prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
}
DEADLINE = 300.0


@dataclass
class Stage:
    """Where a rehearsal happens."""

    folder: Path
    store: str
    output: str
    master: str = "local[2]"
    options: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    submit: tuple[str, ...] = ()
    """More arguments for spark-submit."""

    @classmethod
    def local(cls, folder: Path) -> Stage:
        return cls(folder, store=str(folder / "store"), output=str(folder / "tables"))

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def log(self) -> Path:
        return self.folder / "job.log"


class Job:
    """One run of the job, in a process group of its own, so that a kill takes the Java and Python workers along."""

    _started: ClassVar[list[Job]] = []

    def __init__(
        self,
        stage: Stage,
        *,
        recover_from: str = "latest",
        die_at: str | None = None,
        plain_python: bool = False,
        more: tuple[str, ...] = (),
    ) -> None:
        self._stage = stage
        settings = SETTINGS | stage.settings
        submit = ["--master", stage.master, *stage.submit]
        submit += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | stage.environment
        if plain_python:
            command = [sys.executable]
            environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*submit, "pyspark-shell"])
        else:
            command = ["spark-submit", *submit]
        command += [str(ROOT / "dags" / "jobs" / "orders_pipeline.py")]
        command += ["--store", stage.store, "--pipeline", "orders", "--recover-from", recover_from]
        command += ["--input", str(stage.landing), "--output", stage.output]
        command += ["--cache", str(stage.folder / "cache"), "--files-per-epoch", "1", "--vnodes", "4"]
        command += [part for name, value in stage.options.items() for part in ("--store-option", f"{name}={value}")]
        if die_at is not None:
            environment["CHECKPOINT_DIE_AT"] = die_at
        self._start = stage.log.stat().st_size if stage.log.exists() else 0
        with stage.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *more], env=environment, stdout=log, stderr=log, start_new_session=True
            )

        self._started.append(self)

    @classmethod
    def kill_all(cls) -> None:
        """End whatever still runs."""
        while cls._started:
            job = cls._started.pop()
            if job.process.poll() is None:
                job.kill()

    def wait(self) -> int:
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def output(self) -> str:
        with self._stage.log.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")

    def wait_for(self, text: str, count: int = 1) -> bool:
        """Whether the log says so before the job ends."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            if self.output().count(text) >= count:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        raise TimeoutError(f"the job did not say {text!r}:\n{self.output()[-3000:]}")


def checkpoint_ids(stage: Stage) -> list[str]:
    layout = open_store(stage.store, layout="partitioned", pipeline="orders", options=stage.options)
    return [str(each) for each in layout.list_checkpoints()]


@dataclass
class Result:
    kills: int = 0
    restores: int = 0
    at: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def rehearse(
    stage: Stage, *, kills: int, restores: int, seed: int, files: int = 12, orders_per_file: int = 200
) -> Result:
    """Kill the job at every step of the protocol and at random moments, go back now and then, and finish."""
    rng = random.Random(seed)
    orders.generate(stage.landing, files=files, orders=orders_per_file, seed=seed, customers=60)
    result = Result()
    restore_after = set(rng.sample(range(1, kills), min(restores, kills - 1)))
    for number in range(kills):
        recover_from = "latest"
        if number in restore_after:
            ids = checkpoint_ids(stage)
            if ids:
                recover_from = rng.choice(ids)
                result.restores += 1
        if number % 2 == 0:
            step = STEPS[number // 2 % len(STEPS)]
            job = Job(stage, recover_from=recover_from, die_at=f"{step}:{rng.randint(1, 2)}")
            job.wait()
            where = step
        else:
            job = Job(stage, recover_from=recover_from)
            job.wait_for("INFO checkpoint ", rng.randint(0, 2))
            pause = rng.random() * rng.choice([0.2, 1.0, 3.0])
            time.sleep(pause)
            where = f"random +{pause:.1f} s"
        if job.process.poll() is None:
            job.kill()
        if "DONE" not in job.output():
            result.kills += 1
            result.at.append(where)
    last = Job(stage)
    if last.wait() != 0:
        result.differences.append(f"the last run failed:\n{last.output()[-3000:]}")
        return result
    result.differences += orders.differences(stage.landing, Path(stage.output))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--restores", type=int, default=10)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="checkpoint-rehearsal-") as folder:
        result = rehearse(
            Stage.local(Path(folder)),
            kills=arguments.kills,
            restores=arguments.restores,
            seed=arguments.seed,
            files=arguments.files,
        )
    print(json.dumps({**vars(result), "seconds": round(time.monotonic() - began)}, indent=2))
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
