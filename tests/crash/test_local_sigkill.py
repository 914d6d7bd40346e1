"""A writer killed at any moment leaves only whole objects, keeps what it was told was written, and the next goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, is_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS = 50

#: Forks one writer per line it reads, so that a writer is there within a millisecond. A writer creates numbered objects
#: and replaces one, for ever, and says each time what it was told is written.
NURSERY = """
import hashlib, os, random, sys

from airflow_provider_checkpoint.blobs import LocalBlobs


def body(seed):
    filling = random.Random(seed).randbytes(random.Random(seed).randrange(1, 300_000))
    return hashlib.sha256(filling).hexdigest().encode() + b" %d\\n" % len(filling) + filling


def write(root):
    store = LocalBlobs(root)
    number = sum(1 for _ in store.list("objects"))
    while True:
        whole = body(number)
        pieces = (whole[start : start + 20_000] for start in range(0, len(whole), 20_000))
        key = f"objects/{number % 5}/{number:06}"
        created = store.create(key, pieces if number % 2 else whole).created
        os.write(1, f"created {created} {key}\\n".encode())
        store.replace("latest", whole)
        os.write(1, f"replaced {number}\\n".encode())
        number += 1


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        write(sys.argv[1])
    os.write(1, f"started {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


class Nursery:
    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._reports = self._process.stdin, self._process.stdout

    def run_and_kill(self, seconds: float) -> list[str]:
        """Let a writer live for a moment; what it reported in its life."""
        self._orders.write("go\n")
        # The writer may report before the nursery does.
        heard = []
        while not (line := self._reports.readline()).startswith("started"):
            heard.append(line)
        # This is no waiting for something: the moment of death is to be any.
        time.sleep(seconds)
        os.kill(int(line.split()[1]), signal.SIGKILL)
        while (line := self._reports.readline()) != "ended\n":
            assert line, "the nursery has died"
            heard.append(line)
        return heard

    def close(self) -> None:
        self._orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        self._reports.close()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    running = Nursery(tmp_path / "root")
    yield running
    running.close()


def check_whole(body: bytes) -> None:
    header, _, filling = body.partition(b"\n")
    sha256, size = header.split()
    assert len(filling) == int(size)
    assert hashlib.sha256(filling).hexdigest().encode() == sha256


def test_after_every_kill_each_object_is_whole_and_the_next_writer_goes_on(nursery: Nursery, tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path / "root")
    moment = random.Random(50)
    written: list[str] = []
    litter = 0
    replaced = -1
    for _ in range(KILLS):
        for report in nursery.run_and_kill(moment.uniform(0, 0.05)):
            words = report.split()
            if words[0] == "created":
                assert words[1] == "True"
                written.append(words[2])
            else:
                replaced = int(words[1])
        keys = {info.key for info in store.list()}
        # Nothing that was reported is lost; at most one object more has landed than its writer lived to tell.
        assert set(written) <= keys
        assert len(keys - set(written) - {"latest"}) <= 1
        written = sorted(keys - {"latest"})
        for key in keys:
            check_whole(store.read(key))
        if replaced >= 0:
            assert "latest" in keys
        # Besides objects there are only temporary names.
        files = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
        left = [path.name for path in files if path.relative_to(tmp_path / "root").as_posix() not in keys]
        assert all(is_temporary(name) for name in left)
        litter = len(left)
    assert len(written) > KILLS / 2, "the writers did not live long enough to write"
    assert litter, "no writer was ever killed in the middle of a write"
    shown = [info.key for info in store.list(temporary=True)]
    assert len(shown) == litter
    assert all(outcome.deleted for outcome in store.delete(shown))
    assert not list(store.list(temporary=True))
