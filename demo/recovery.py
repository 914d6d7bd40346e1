"""A recovery from start to end, on embedded defaults: a local store, Spark on this machine, Airflow on SQLite.

Orders arrive, a checkpointed Spark job totals them and is killed in the middle of a commit; then one byte of its newest
checkpoint flips. The DAG checkpoint_recovery finds both, chooses the point to go back to, asks a person (here: this
program), goes back and restarts the job. In the end the tables are compared with a computation without Spark.

    ./dev demo [--ui] [--folder FOLDER] [--keep]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from local_airflow import LocalAirflow
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "dags" / "jobs"))

import orders  # noqa: E402 - it lives beside the job, where spark-submit finds it

SUBMIT = ["spark-submit", "--master", "local[2]"]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Demo:
    """The story, step by step."""

    def __init__(self, folder: Path) -> None:
        self.console = Console(width=min(Console().width, 110), highlight=False)
        self.landing = folder / "landing"
        self.store = folder / "store"
        self.tables = folder / "tables"
        self.cache = folder / "cache"
        self.log = folder / "spark.log"
        self.airflow = LocalAirflow(folder / "airflow")
        self.run = ""
        self.steps: list[tuple[str, str, float]] = []

    def tell(self, *, stay: bool) -> bool:
        self.console.print(f"[bold]A recovery, start to end.[/] Everything is in {self.landing.parent}\n")
        try:
            self.step("orders arrive", self.arrive)
            self.step("the job is killed in the middle of a commit; Airflow starts", self.killed)
            self.step("one byte of the newest checkpoint flips", self.damage)
            self.step("in Airflow: checkpoint_recovery chooses a point and asks", self.ask)
            self.step("in Airflow: approved, restored, restarted, watched", self.approve)
            exact = self.verdict()
            if stay:
                self.stay()
        finally:
            self.airflow.stop_all()
        return exact

    def step(self, title: str, act: Callable[[], str]) -> None:
        self.console.rule(f"[bold]{len(self.steps) + 1}. {title}", align="left")
        began = time.monotonic()
        result = act()
        self.steps.append((title, result, time.monotonic() - began))
        self.console.print()

    # -- the steps -----------------------------------------------------------------------------------------------

    def arrive(self) -> str:
        orders.generate(self.landing, files=16, orders=500, seed=7)
        return "8,000 orders in 16 files"

    def killed(self) -> str:
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(self.airflow.__enter__)
            code = self.submit(die_at="manifest:4")
            if code == 0:
                raise SystemExit("the job was to be killed and was not")
            with self.console.status("Airflow is starting"):
                starting.result()
        self.airflow.add_connection("checkpoint_default", "checkpoint_store", host=str(self.store))
        self.airflow.add_connection("spark_default", "spark", host="local[2]")
        self.airflow.unpause("checkpoint_recovery", "orders_pipeline")
        self.console.print("SIGKILL after the manifest of epoch 4 was created and before its commit was decided.")
        self.checkpoints("list")
        return "epoch 4 has a manifest but no decision"

    def damage(self) -> str:
        newest = self.committed()[0]
        artifact = max((self.store / "orders" / newest).rglob("partition-*"), key=lambda path: path.stat().st_size)
        data = bytearray(artifact.read_bytes())
        data[len(data) // 2] ^= 1
        artifact.write_bytes(data)
        self.console.print(f"{artifact.relative_to(self.store)}: byte {len(data) // 2}")
        return f"checkpoint {newest[:8]}… is damaged, and looks as before"

    def ask(self) -> str:
        restart = {"input": str(self.landing), "output": str(self.tables)}
        conf = {"pipeline": "orders", "reason": "the driver was killed", "restart_conf": restart}
        self.run = self.airflow.trigger("checkpoint_recovery", conf)
        with self.console.status("select proves candidates, from the newest down"):
            question = self.airflow.wait_for_question("checkpoint_recovery", self.run, "approve")
        self.console.print(f"[bold]{question['subject']}[/]\n")
        self.console.print(Markdown(question["body"]))
        self.console.print(f"\nOptions: {', '.join(question['options'])}")
        return f"{len(question['options']) - 1} points offered, the broken ones explained"

    def approve(self) -> str:
        question = self.airflow.question("checkpoint_recovery", self.run, "approve")
        self.airflow.answer("checkpoint_recovery", self.run, "approve", question["options"][0])
        with self.console.status("restore, restart, watch"):
            ended = self.airflow.wait_for_run("checkpoint_recovery", self.run, patience=600)
            job = self.airflow.wait_for_run("orders_pipeline", f"recovery__{self.run}", patience=600)
        for task, state in self.airflow.tasks("checkpoint_recovery", self.run).items():
            self.console.print(f"  {task:<15} {state}")
        if (ended, job) != ("success", "success"):
            raise SystemExit(f"the recovery is {ended}, the job {job}: see {self.airflow.folder}")
        self.checkpoints("list")
        self.checkpoints("timeline")
        return "a new timeline, sinks rolled back, input replayed"

    def stay(self) -> None:
        self.console.print(f"\nAirflow is at [bold]{self.airflow.url}[/], user and password: admin")
        self.console.print(f"The run: {self.airflow.url}/dags/checkpoint_recovery/runs/{self.run}")
        self.console.print("Ctrl-C ends it.")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self.console.print("stopping")

    def verdict(self) -> bool:
        found = orders.differences(self.landing, self.tables)
        table = Table(title="What happened", title_justify="left", show_lines=False)
        for column in ("step", "result", "seconds"):
            table.add_column(column, justify="right" if column == "seconds" else "left")
        for title, result, seconds in self.steps:
            table.add_row(title, result, f"{seconds:.1f}")
        self.console.print(table)
        truth = orders.truth(self.landing)
        if found:
            self.console.print("[bold red]The tables differ from the truth:[/]", *found[:10], sep="\n")
            return False
        count = sum(orders_ for orders_, _ in truth.totals.values())
        self.console.print(
            f"[bold green]Exact.[/] {len(truth.totals)} customers, {count} orders in time, {len(truth.late)} late:"
            " each once, compared with a computation without Spark."
        )
        return True

    # -- tools ---------------------------------------------------------------------------------------------------

    def submit(self, *more: str, die_at: str | None = None) -> int:
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        job = [str(ROOT / "dags" / "jobs" / "orders_pipeline.py"), "--store", str(self.store), "--pipeline", "orders"]
        places = ["--input", str(self.landing), "--output", str(self.tables), "--cache", str(self.cache)]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        if die_at is not None:
            environment["CHECKPOINT_DIE_AT"] = die_at
        with self.console.status("Spark is running"), self.log.open("ab") as log:
            return subprocess.run(  # noqa: S603 - our own job
                [*SUBMIT, *settings, *job, *places, *more], env=environment, stdout=log, stderr=log, check=False
            ).returncode

    def checkpoints(self, verb: str, *more: str) -> None:
        self.console.print(f"[dim]$ checkpoints {verb} {self.store} --pipeline orders {' '.join(more)}[/]")
        subprocess.run([*self._command(verb), *more], check=False)  # noqa: S603 - our own command

    def answer(self, verb: str, *more: str) -> dict:
        done = subprocess.run(  # noqa: S603 - our own command
            [*self._command(verb), *more, "--json"], stdout=subprocess.PIPE, check=False
        )
        return json.loads(done.stdout)

    def committed(self) -> list[str]:
        """Checkpoints that a recovery could use, newest first."""
        plan = self.answer("recover", "--depth", "structure")
        listed = [entry["checkpoint_id"] for entry in self.answer("list")["checkpoints"]]
        return sorted((each for each in listed if each <= plan["chosen"]), reverse=True)

    def _command(self, verb: str) -> list[str]:
        command = [sys.executable, "-m", "airflow_provider_checkpoint.cli.main", verb]
        return [*command, str(self.store), "--pipeline", "orders"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--ui", action="store_true", help="leave Airflow running, with the runs to look at")
    parser.add_argument("--keep", action="store_true", help="leave the folder there to look at")
    arguments = parser.parse_args()
    if shutil.which("java") is None:
        print("Spark needs Java: install a JDK 17 or newer, then run this again.", file=sys.stderr)  # noqa: T201
        return 2
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="checkpoint-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} is not empty: the story needs a folder of its own.", file=sys.stderr)  # noqa: T201
        return 2
    exact = Demo(folder).tell(stay=arguments.ui)
    if not arguments.keep and arguments.folder is None:
        shutil.rmtree(folder)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
