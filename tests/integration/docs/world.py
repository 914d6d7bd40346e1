"""Runs the commands of a page, and puts the world of its readers in the place of ours: ``/data``, ``s3://bucket``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.integration.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.docs.pages import Command

#: As quiet as a page shows it, and on loopback only.
SPARK = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # Short runs: what a compiler would gain comes too late.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
#: The command itself. A page need not say where the tests have their S3.
CHECKPOINTS = """#!{python}
import os, sys
from airflow_provider_checkpoint.cli.main import main
typed = sys.argv[1:]
if any(word.startswith("s3://") for word in typed):
    typed += ["--option", "endpoint_url=" + os.environ["TEST_S3_ENDPOINT"]]
sys.exit(main(typed))
"""
PATIENCE = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    text: str
    """What was written, in the words of the page."""


@dataclass
class World:
    """One page's own folder, store and environment."""

    folder: Path
    endpoint: str = ""
    bucket: str = "bucket"
    airflow: Path | None = None
    _kept: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "dags").symlink_to(ROOT / "dags")
        (self.folder / "tests").symlink_to(ROOT / "tests")
        shim = self.folder / "bin" / "checkpoints"
        shim.parent.mkdir()
        shim.write_text(CHECKPOINTS.format(python=sys.executable))
        shim.chmod(0o755)
        (self.folder / "tmp").mkdir()
        settings = self.folder / "spark"
        settings.mkdir()
        (settings / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SPARK.items()))

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        """What a page says, and what it is here."""
        pairs = [("/data", str(self.folder / "data")), ("s3://bucket", f"s3://{self.bucket}")]
        pairs += [("spark://host:7077", "local[2]")]
        return [*pairs, ("https://s3.example.com", self.endpoint)] if self.endpoint else pairs

    def here(self, text: str) -> str:
        for theirs, ours in self._pairs:
            text = re.sub(rf"(?<![\w./-]){re.escape(theirs)}(?![\w-])|(?<=file://){re.escape(theirs)}\b", ours, text)
        return text

    def there(self, text: str) -> str:
        for theirs, ours in reversed(self._pairs):
            text = text.replace(ours, theirs)
        return text

    def run(self, command: Command) -> Outcome:
        """Run a command as a reader would, in a shell in which earlier ``export`` and ``cd`` still hold."""
        text = self._with_id(self.here(command.text))
        if re.match(r"(export|cd)\b", text):
            self._kept.append(text)
        return self._shell("\n".join([*self._kept, text]))

    def _shell(self, text: str) -> Outcome:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            written, _ = shell.communicate(timeout=PATIENCE)
        finally:
            # What it has started goes with it: Java outlives the shell.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        return Outcome(shell.returncode, self.there(written))

    def _with_id(self, text: str) -> str:
        """What a reader would fill in.

        ``ID`` is the checkpoint that recover chooses, or for undelete the newest in the trash; ``NEWEST`` the newest
        that was left behind.
        """
        word = re.search(r"\b(ID|NEWEST)\b", text)
        if word is None:
            return text
        address = re.search(r"^checkpoints \w+ (\S+)", text)
        pipeline = re.search(r"--pipeline \S+", text)
        assert address is not None, f"no store in {text}"
        store = f"{address[1]} {'' if pipeline is None else pipeline[0]} --json 2>/dev/null"
        if word[0] == "NEWEST":
            listed = json.loads(self._shell(f"checkpoints list {store}").text)["checkpoints"]
            found = next(each["checkpoint_id"] for each in listed if each["abandoned"])
        elif " undelete " in text:
            found = json.loads(self._shell(f"checkpoints list {store} --trash").text)["trash"][0]["checkpoint_id"]
        else:
            found = json.loads(self._shell(f"checkpoints recover {store}").text)["chosen"]
        return re.sub(rf"\b{word[0]}\b", str(found), text)

    def _environment(self) -> dict[str, str]:
        dropped = ("AIRFLOW", "AWS_", "SPARK_", "PYTEST", "PYTHONWARNINGS", "CHECKPOINT_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        scripts = os.path.dirname(sys.executable)
        ours = {
            "PATH": os.pathsep.join([str(self.folder / "bin"), scripts, own["PATH"]]),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(self.folder / "spark"),
        }
        s3 = {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "admin-secret", "AWS_REGION": "us-east-1"}
        return own | ours | (s3 | {"TEST_S3_ENDPOINT": self.endpoint} if self.endpoint else {}) | self._airflow()

    def _airflow(self) -> dict[str, str]:
        if self.airflow is None:
            return {}
        return airflow_environment(self.airflow)


def airflow_environment(home: Path) -> dict[str, str]:
    """For an Airflow that is a database and nothing else."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }


def agrees(answer: str, text: str) -> bool:
    """Whether a command answered as the page shows, where ``...`` stands for anything and spaces only separate."""
    expected, got = (" ".join(each.split()) for each in (answer, text))
    pattern = ".*".join(re.escape(part.strip()) for part in expected.split("..."))
    return re.search(pattern, got) is not None
