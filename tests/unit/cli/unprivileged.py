"""Runs commands as somebody whom the modes of files bind, also where the tests run as root.

Reads from stdin a JSON list of ``[path, mode, words]``: the path gets the mode while the command runs. Answers with a
list of ``[exit code, stdout, stderr]``, or with exit code 77 if root cannot give up its rights here.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

CANNOT = 77
#: From linux/prctl.h and linux/capability.h: what root may do whatever the modes say.
_DROP_FROM_BOUNDING_SET = 24
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


def _give_up_rights() -> None:
    if os.geteuid() != 0 or "GAVE_UP_RIGHTS" in os.environ:
        return
    libc = ctypes.CDLL(None)
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        if libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) != 0:
            sys.exit(CANNOT)
    # A program that root starts has what is left in this set.
    os.environ["GAVE_UP_RIGHTS"] = "yes"
    os.execv(sys.executable, [sys.executable, "-m", "tests.unit.cli.unprivileged"])


def _run(path: str, mode: int, words: list[str]) -> tuple[int, str, str]:
    from airflow_provider_checkpoint.cli.main import main

    usual = os.stat(path).st_mode
    out, err = io.StringIO(), io.StringIO()
    os.chmod(path, mode)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
    finally:
        os.chmod(path, usual)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    _give_up_rights()
    print(json.dumps([_run(*case) for case in json.load(sys.stdin)]))
