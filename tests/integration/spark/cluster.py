"""A Spark standalone cluster on this machine: a master and workers whose Python has no Airflow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pyspark

HOME = Path(pyspark.__file__).parent
DEADLINE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Started on entering, stopped by process group on leaving."""

    def __init__(self, folder: Path, python: Path, *, workers: int = 2) -> None:
        self._folder = folder
        self._python = python
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        port = self.master.rpartition(":")[2]
        log = self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", str(free_port()))
        self._wait(log, "Starting Spark master")
        for number in range(self._workers):
            log = self._start(
                "worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())),
                *("--work-dir", str(self._folder / f"worker-{number}"), self.master),
            )
            self._wait(log, "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def executors(self) -> list[int]:
        """Process ids of the executors that run now: they work in a folder of their worker."""
        return [
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if b"CoarseGrainedExecutorBackend" in _read(process / "cmdline")
            and self._folder in (process / "cwd").resolve().parents
        ]

    def _start(self, what: str, *arguments: str) -> Path:
        log = self._folder / f"{what}-{len(self._processes)}.log"
        environment = os.environ | {"PYSPARK_PYTHON": str(self._python), "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments],
                    env=environment,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )
        return log

    def _wait(self, log: Path, text: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while text not in log.read_text(errors="replace"):
            if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                raise TimeoutError(f"no {text!r}:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
