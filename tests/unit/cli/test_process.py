"""The command as its users run it: a process with pipes, signals and a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time

import pytest

from airflow_provider_checkpoint.layouts.partitioned import CheckpointManifestV2, OperatorEntry, PartitionEntry
from tests.unit.cli.making import corrupt_sidecar, hours_ago, partitioned_store, sidecar_store

COMMAND = [sys.executable, "-m", "airflow_provider_checkpoint.cli.main"]


def checkpoints(*words: object, **more) -> subprocess.CompletedProcess:
    # Python's view of the environment: the readline library, which pytest loads, puts a width into the C one alone.
    more.setdefault("env", dict(os.environ))
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=60, **more)


@pytest.fixture
def store(tmp_path):
    sidecar_store(tmp_path)
    return tmp_path


# -- the story ---------------------------------------------------------------------------------------------------


def test_a_corrupted_store_is_validated_recovered_pruned_and_undeleted(store):
    corrupt_sidecar(store, 5)

    validated = checkpoints("validate", store, "--depth", "content")
    assert validated.returncode == 1
    assert "5   INVALID  checksum_mismatch" in validated.stdout

    recovered = checkpoints("recover", store)
    assert recovered.returncode == 0
    assert "Recover from checkpoint 4" in recovered.stdout
    assert "checksum mismatch" in recovered.stdout

    planned = checkpoints("prune", store, "--keep-last", 2)
    assert planned.returncode == 0
    assert "3 of 5 checkpoints would go to the trash" in planned.stdout
    assert "this is a dry run" in planned.stdout
    assert len(json.loads(checkpoints("list", store, "--json").stdout)["checkpoints"]) == 5

    pruned = checkpoints("prune", store, "--keep-last", 2, "--yes")
    assert pruned.returncode == 0
    assert "3 checkpoints moved to the trash" in pruned.stdout
    left = json.loads(checkpoints("list", store, "--json").stdout)["checkpoints"]
    assert [entry["checkpoint_id"] for entry in left] == [4, 3]

    back = checkpoints("undelete", store, 2)
    assert (back.returncode, back.stdout, back.stderr) == (0, "Checkpoint 2 is back.\n", "")
    assert checkpoints("validate", store, "--depth", "restore").returncode == 0

    told = json.loads(checkpoints("audit", store, "--json").stdout)["runs"]
    assert [run["verb"] for run in told] == ["undelete", "prune"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list", "{store}"], 0),
        (["show", "{store}", "77"], 2),
        (["prune", "{store}"], 2),
        (["recover", "{store}", "--epoch", "1"], 1),
        ([], 2),
        (["--version"], 0),
    ],
)
def test_exit_codes(store, words, code):
    done = checkpoints(*(word.format(store=store) for word in words))
    assert done.returncode == code
    assert "Traceback" not in done.stderr


# -- stores that do not answer -----------------------------------------------------------------------------------


def closed_port() -> int:
    with contextlib.closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def test_a_store_that_does_not_answer():
    words = ["-o", f"endpoint_url=http://127.0.0.1:{closed_port()}", "-o", "region=us-east-1", "-o", "max_retries=0"]
    secrets = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"}
    for verb, *rest in (["list"], ["prune", "--keep-last", "1", "--yes"]):
        done = checkpoints(verb, "s3://bucket/prefix", *rest, *words, env=os.environ | secrets)
        assert done.returncode == 3
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
    told = checkpoints("list", "s3://bucket/prefix", *words, "--json", env=os.environ | secrets)
    assert told.returncode == 3
    assert json.loads(told.stdout)["error"]["kind"] == "StoreUnavailableError"


# -- pipes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["list", "{store}"], ["list", "{store}", "--json"], ["--help"], ["show", "--help"]])
def test_a_reader_that_has_gone_is_no_error_worth_a_word(store, words):
    reading, writing = os.pipe()
    os.close(reading)
    typed = [word.format(store=store) for word in words]
    done = subprocess.run([*COMMAND, *typed], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141


def test_also_if_messages_go_into_the_same_pipe(store):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, "validate", store], stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == 141


def test_head_gets_its_line(store):
    line = f"{sys.executable} -m airflow_provider_checkpoint.cli.main list {store} | head -1"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ID ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_full_disk_is_told(store):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "list", store], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 74
    assert done.stderr == "error: the answer could not be written: No space left on device\n"


def test_closed_streams_are_no_error(store):
    line = f"{sys.executable} -m airflow_provider_checkpoint.cli.main list {store} >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", line], check=False).returncode == 0


def test_names_are_written_in_every_encoding(store):
    checkpoints("pin", store, 5, "--name", "größe", "--reason", "x")
    shown = checkpoints("list", store, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert shown.returncode == 0
    assert r"gr\xf6\xdfe" in shown.stdout
    assert "größe" in checkpoints("list", store, env=os.environ | {"PYTHONIOENCODING": "utf-8"}).stdout


# -- a terminal --------------------------------------------------------------------------------------------------


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, *words: object, **environment: str) -> None:
        self._screen, other = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment},
        )
        os.close(other)
        self.seen = b""

    def read_until(self, wanted: bytes | None) -> None:
        """Read until something is seen; None: until the process ends."""
        while wanted is None or wanted not in self.seen:
            try:
                piece = os.read(self._screen, 4096)
            except OSError:
                break
            if not piece:
                break
            self.seen += piece

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def start(*words: object, **environment: str) -> Terminal:
            made = Terminal(*words, **environment)
            stack.callback(made.close)
            return made

        yield start


def test_on_a_terminal_there_are_colours_and_a_bar_that_goes_away(terminal, store):
    corrupt_sidecar(store, 5)
    shown = terminal("validate", store, "--depth", "content")
    shown.read_until(None)
    assert shown.process.wait(10) == 1
    assert b"\x1b[31m" in shown.seen
    assert "━".encode() in shown.seen
    # The cursor is hidden while there is a bar, and shown again.
    assert shown.seen.count(b"\x1b[?25l") == shown.seen.count(b"\x1b[?25h") >= 1


def test_no_color_is_respected_on_a_terminal(terminal, store):
    corrupt_sidecar(store, 5)
    shown = terminal("list", store, NO_COLOR="1")
    shown.read_until(None)
    assert shown.process.wait(10) == 0
    assert b"ID" in shown.seen
    assert b"\x1b[31m" not in shown.seen


def huge_store(folder) -> None:
    """A checkpoint whose one artifact takes minutes to read, and no room on the disk."""
    layout = partitioned_store(folder, count=0)
    new = layout.next_id()
    sha256 = layout.save_snapshot(new, "window", 0, b"")
    (path,) = folder.rglob("*.snap")
    os.truncate(path, 500 * 10**9)
    entry = PartitionEntry(
        partition_id=0, is_delta=False, path=str(path.relative_to(folder)), size_bytes=500 * 10**9, sha256=sha256
    )
    layout.save_manifest(
        CheckpointManifestV2(
            checkpoint_id=new, epoch=1, timestamp_ms=hours_ago(1), operators={"window": OperatorEntry.of([entry])}
        )
    )


@pytest.fixture
def usual_interrupt():
    """As a process begins at a terminal.

    A session of Spark in the same process has put a handler of its own in the place, and what a shell starts in the
    background ignores interrupts, as do its children.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupt")
def test_an_interrupt_ends_even_a_long_read_soon_with_one_line(terminal, tmp_path):
    huge_store(tmp_path)
    shown = terminal("validate", tmp_path, "--depth", "content")
    shown.read_until(b"checkpoint")
    began = time.monotonic()
    shown.process.send_signal(signal.SIGINT)
    shown.read_until(None)
    assert shown.process.wait(30) == 130
    assert time.monotonic() - began < 15
    assert shown.seen.count(b"interrupted; whatever was under way can be run again") == 1
    assert b"Traceback" not in shown.seen
    assert shown.seen.count(b"\x1b[?25l") <= shown.seen.count(b"\x1b[?25h")


#: An interrupt in the one moment when a pool does not know yet of the thread that it starts.
AT_A_START = """
import signal, threading
from airflow_provider_checkpoint.cli.main import command
start = threading.Thread.start

def interrupted(thread):
    start(thread)
    if thread.name.startswith("ThreadPoolExecutor"):
        signal.raise_signal(signal.SIGINT)

threading.Thread.start = interrupted
command()
"""


@pytest.mark.usefixtures("usual_interrupt")
def test_an_interrupt_while_a_thread_starts_does_not_wait_for_its_read(tmp_path):
    huge_store(tmp_path)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", AT_A_START, "validate", str(tmp_path), "--depth", "content"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130
    assert time.monotonic() - began < 15
    assert done.stderr == b"interrupted; whatever was under way can be run again\n"


@pytest.mark.usefixtures("usual_interrupt")
def test_an_interrupt_of_a_quick_verb(capfd, store, monkeypatch):
    from airflow_provider_checkpoint.cli.main import main

    def interrupt(_layout):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("airflow_provider_checkpoint.cli.verbs.listing.survey", interrupt)
    assert main(["list", str(store)]) == 130
    assert capfd.readouterr().err == "interrupted; whatever was under way can be run again\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
