"""A forked child of a process that used the object store client is told so; in every other case it works."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.servers import S3Server

#: Runs in a process of its own: the parent part, a fork, the child part. The child answers by a pipe and by its end.
PROGRAM = """
import json, os, select, signal, sys, time

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointError

case = json.loads(sys.argv[1])
PLACE = {"uri": case["address"], "options": case["options"]}


def use(store):
    creation = store.create(f"object-{os.getpid()}", b"1")
    return [creation.created, store.read(f"object-{os.getpid()}").decode(), len(list(store.list())) > 0]


store = open_blobs(case["address"], {**case["options"], "client": case["parent"]})
if case["used"]:
    assert use(store) == [True, "1", True]
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(reader)
    try:
        if case["child"] != "inherited":
            store = open_blobs(case["address"], {**case["options"], "client": case["child"]})
        answer = ["done", use(store)]
    except CheckpointError as error:
        answer = [type(error).__name__, str(error)]
    except BaseException as error:
        answer = ["raw " + type(error).__name__, str(error)]
    os.write(writer, json.dumps(answer).encode())
    os._exit(0)
os.close(writer)
ready, _, _ = select.select([reader], [], [], case["patience"])
answer = json.loads(os.read(reader, 65536)) if ready else ["hung", ""]
if not ready:
    os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(json.dumps(answer))
"""


def fork(server: S3Server, *, parent: str, used: bool, child: str) -> tuple[str, Any]:
    case = {
        "address": server.fresh(),
        "options": server.options(),
        "parent": parent,
        "used": used,
        "child": child,
        "patience": 30,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(case)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    outcome, detail = json.loads(done.stdout)
    return outcome, detail


@pytest.mark.parametrize("child", ["inherited", "obstore"], ids=["with the store it inherited", "with a new store"])
def test_a_child_of_a_process_that_used_the_client_is_told_at_once(seaweedfs: S3Server, child: str) -> None:
    outcome, text = fork(seaweedfs, parent="obstore", used=True, child=child)
    assert outcome == "ForkedProcessError"
    assert "HINT" in text


@pytest.mark.parametrize(
    ("parent", "used", "child"),
    [
        ("obstore", False, "inherited"),
        ("obstore", False, "obstore"),
        ("obstore", True, "fsspec"),
        ("fsspec", True, "obstore"),
        ("fsspec", True, "fsspec"),
        ("fsspec", False, "fsspec"),
    ],
)
def test_a_child_works_if_its_client_is_its_own(seaweedfs: S3Server, parent: str, used: bool, child: str) -> None:
    assert fork(seaweedfs, parent=parent, used=used, child=child) == ("done", [True, "1", True])


def test_a_child_that_inherits_a_filesystem_in_use_is_told_at_once(seaweedfs: S3Server) -> None:
    outcome, text = fork(seaweedfs, parent="fsspec", used=True, child="inherited")
    assert outcome == "ForkedProcessError"
    assert "HINT" in text
