"""Killing the orders job again and again, and looking whether its tables are exact in the end.

As a program, for as long as one likes::

    python -m tests.integration.spark.rehearsal --kills 40 --restores 10
    python -m tests.integration.spark.rehearsal --kills 14 --restores 4 --s3
    python -m tests.integration.spark.rehearsal --kills 4 --restores 2 --executor-kills 8 --cluster
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "dags" / "jobs"))

import orders  # noqa: E402 - it lives beside the job, where spark-submit finds it

from airflow_provider_checkpoint.blobs import open_blobs  # noqa: E402 - after the path above
from airflow_provider_checkpoint.exceptions import NoRecoveryPointError  # noqa: E402
from airflow_provider_checkpoint.layouts import open_store  # noqa: E402
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose  # noqa: E402
from airflow_provider_checkpoint.lifecycle.timelines import lineage, read_timelines  # noqa: E402
from airflow_provider_checkpoint.spark.runtime_zip import spark_runtime_zip  # noqa: E402
from tests.integration.spark.cluster import Cluster  # noqa: E402
from tests.servers import Servers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import S3Server

BARE_PYTHON = ROOT / ".tools" / "executor" / "bin" / "python"
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
#: How a killed job ends: by the signal itself, or as spark-submit says it of its driver.
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@dataclass
class Stage:
    """Where a rehearsal happens."""

    folder: Path
    store: str
    output: str
    master: str = "local[2]"
    options: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    """Secrets of the store. A job gets them as an executor does: through its environment."""
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    submit: tuple[str, ...] = ()
    """More arguments for spark-submit."""
    cluster: Cluster | None = None

    @classmethod
    def local(cls, folder: Path) -> Stage:
        return cls(folder, store=str(folder / "store"), output=str(folder / "tables"))

    @classmethod
    def on_s3(cls, folder: Path, server: S3Server) -> Stage:
        """Checkpoints and tables on S3; the input is on local disk."""
        options = server.options()
        keys = {name: options.pop(name) for name in ("access_key_id", "secret_access_key")}
        root = server.fresh()
        stage = cls(folder, store=f"{root}/store", output=f"{root}/tables", options=options, keys=keys)
        stage.environment = {f"AWS_{name.upper()}": value for name, value in keys.items()}
        return stage

    @classmethod
    def on_cluster(cls, folder: Path, cluster: Cluster, python: Path) -> Stage:
        """Two executors whose Python has no Airflow; the driver's Python is ours."""
        stage = cls.local(folder)
        stage.cluster = cluster
        stage.master = cluster.master
        stage.submit = ("--py-files", str(spark_runtime_zip(folder)))
        stage.settings = {
            "spark.pyspark.python": str(python),
            "spark.executor.memory": "600m",
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
        }
        stage.environment = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
        return stage

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def log(self) -> Path:
        return self.folder / "job.log"

    def tables(self) -> Path:
        """The tables as local files, copied from where they are."""
        if not self.keys:
            return Path(self.output)
        blobs = open_blobs(self.output, self.options | self.keys)
        copy = Path(tempfile.mkdtemp(dir=self.folder, prefix="tables-"))
        for info in blobs.list():
            path = copy / info.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blobs.read(info.key))
        return copy

    def differences(self) -> list[str]:
        return orders.differences(self.landing, self.tables())


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

    def wait(self, deadline: float = DEADLINE) -> int:
        return self.process.wait(deadline)

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
    layout = open_store(stage.store, layout="partitioned", pipeline="orders", options=stage.options | stage.keys)
    return [str(each) for each in layout.list_checkpoints()]


def restorable_ids(stage: Stage) -> list[str]:
    """Checkpoints one may go back to: of the current history, and decided."""
    layout = open_store(stage.store, layout="partitioned", pipeline="orders", options=stage.options | stage.keys)
    history = lineage(read_timelines(layout.blobs))
    found = []
    for each in layout.list_checkpoints():
        checkpoint = layout.load(each)
        with contextlib.suppress(NoRecoveryPointError):
            if history.contains(checkpoint.timeline, checkpoint.epoch):
                choose(layout, Wish(strategy=Strategy.ID, checkpoint_id=each), now=datetime.now(UTC))
                found.append(str(each))
    return found


@dataclass
class Result:
    kills: int = 0
    executor_kills: int = 0
    restores: int = 0
    at: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def ended(self, job: Job, where: str) -> str:
        """Count a run that was killed; one that failed by itself is a finding. Says how it ended."""
        if job.process.returncode in KILLED:
            self.kills += 1
            self.at.append(where)
            return f"killed, {where}"
        if job.process.returncode != 0:
            self.differences.append(f"a run failed by itself:\n{job.output()[-3000:]}")
            return "FAILED by itself"
        return f"done before it could be killed, {where}"

    def counts(self) -> str:
        return (
            f"{self.kills} kills, {self.executor_kills} of executors, {self.restores} restores,"
            f" {len(self.differences)} findings"
        )


def rehearse(
    stage: Stage,
    *,
    kills: int,
    restores: int,
    seed: int,
    files: int = 12,
    orders_per_file: int = 200,
    executor_kills: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Result:
    """Kill the job at every step of the protocol and at random moments, go back now and then, and finish.

    :param tell: hears a line after each run.
    """
    rng = random.Random(seed)
    orders.generate(stage.landing, files=files, orders=orders_per_file, seed=seed, customers=60)
    result = Result()
    restore_after = set(rng.sample(range(1, kills), min(restores, kills - 1)))
    for number in range(kills):
        recover_from = "latest"
        ids = restorable_ids(stage) if number in restore_after else []
        if ids:
            recover_from = rng.choice(ids)
            result.restores += 1
        if number % 2 == 0:
            step = STEPS[number // 2 % len(STEPS)]
            job = Job(stage, recover_from=recover_from, die_at=f"{step}:{rng.randint(1, 2)}")
            job.wait()
            how = result.ended(job, step)
        else:
            job = Job(stage, recover_from=recover_from, more=("--tolerable-failures", "3"))
            # Spread what is left over the runs like this one that are to come.
            share = math.ceil((executor_kills - result.executor_kills) / math.ceil((kills - number) / 2))
            result.executor_kills += kill_executors(stage, job, rng, share)
            job.wait_for("INFO checkpoint ", rng.randint(0, 2))
            pause = rng.random() * rng.choice([0.2, 1.0, 3.0])
            time.sleep(pause)
            if job.process.poll() is None:
                job.kill()
            how = result.ended(job, f"random +{pause:.1f} s")
        tell(f"run {number + 1} of {kills} from {recover_from}: {how}; {result.counts()}")
    last = Job(stage)
    # It reads all that is left, on a machine that may be loaded.
    if last.wait(4 * DEADLINE) != 0:
        result.differences.append(f"the last run failed:\n{last.output()[-3000:]}")
    else:
        result.differences += stage.differences()
    tell(f"last run, tables compared; {result.counts()}")
    return result


def kill_executors(stage: Stage, job: Job, rng: random.Random, count: int) -> int:
    """Kill executors one after another while the job goes on; how many died."""
    killed = 0
    while stage.cluster is not None and killed < count:
        if not job.wait_for("INFO checkpoint ", killed + 1):
            break
        time.sleep(rng.random())
        victims = stage.cluster.executors()
        if victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
            killed += 1
    return killed


@contextlib.contextmanager
def stage_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Stage]:
    if arguments.s3:
        (folder / "servers").mkdir()
        servers = Servers(folder / "servers", os.getpid())
        try:
            yield Stage.on_s3(folder, servers.seaweedfs())
        finally:
            servers.stop()
    elif arguments.cluster:
        with Cluster(folder, BARE_PYTHON) as cluster:
            yield Stage.on_cluster(folder, cluster, BARE_PYTHON)
    else:
        yield Stage.local(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="of the driver")
    parser.add_argument("--restores", type=int, default=10)
    parser.add_argument("--executor-kills", type=int, default=0, help="on top, with --cluster")
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--s3", action="store_true", help="checkpoints and tables on SeaweedFS")
    where.add_argument("--cluster", action="store_true", help="on a standalone cluster of two workers")
    arguments = parser.parse_args()
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.0f} s  {line}", file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="checkpoint-rehearsal-") as folder,
        stage_of(arguments, Path(folder)) as stage,
    ):
        try:
            result = rehearse(
                stage,
                kills=arguments.kills,
                restores=arguments.restores,
                executor_kills=arguments.executor_kills,
                seed=arguments.seed,
                files=arguments.files,
                tell=tell,
            )
        finally:
            Job.kill_all()
    print(json.dumps({**vars(result), "seconds": round(time.monotonic() - began)}, indent=2))
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
