"""Programs in fresh processes, where what is imported, and when, can be told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def run_program(text: str, home: Path, **environment: str) -> Any:
    """Run a program with an Airflow home of its own; answers with the JSON document on the last line of its output."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "AIRFLOW_HOME": str(home), **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
