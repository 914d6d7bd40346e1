"""What only local folders promise: durability, folders that come and go, clear words for the faults of a disk."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import traceback
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.blobs._local import _raise_for
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobNotFoundError,
    CheckpointError,
    InvalidKeyError,
    StoreUnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEGABYTE = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "root")


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# -- folders -----------------------------------------------------------------------------------------------------


def test_opening_and_reading_make_nothing(tmp_path: Path) -> None:
    store = open_blobs(str(tmp_path / "deep" / "root"))
    assert list(store.list()) == []
    assert store.stat("object") is None
    assert files(tmp_path) == []
    store.create("object", b"1")
    assert files(tmp_path) == ["deep", "deep/root", "deep/root/object"]


def test_deleting_removes_the_folders_it_empties_and_no_others(store: LocalBlobs, tmp_path: Path) -> None:
    for key in ("a/b/c/1", "a/b/2", "d/1"):
        store.create(key, b"1")
    store.delete(["a/b/c/1"])
    assert files(tmp_path / "root") == ["a", "a/b", "a/b/2", "d", "d/1"]
    store.delete(["a/b/2", "d/1"])
    assert files(tmp_path) == ["root"]


@pytest.mark.stress
def test_creating_while_others_delete_the_folder_never_fails_and_never_loses(store: LocalBlobs) -> None:
    failures: list[str] = []

    def work(me: int) -> None:
        try:
            for number in range(150):
                key = f"shared/{number % 2}/deep/{me}-{number}"
                assert store.create(key, key.encode()).created
                assert store.read(key) == key.encode()
                store.replace(key, b"new")
                assert store.read(key) == b"new"
                # With the last object its folders go, under the feet of the others.
                assert store.delete([key])[0].deleted
                assert store.stat(key) is None
        except BaseException:  # noqa: BLE001 - told below
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert list(store.list(temporary=None)) == []
    assert list(store.folders()) == []


@pytest.mark.stress
def test_looking_for_what_is_not_there_disturbs_nobody_elses_files(store: LocalBlobs) -> None:
    """A descriptor closed once too often is, a moment later, the descriptor of another thread."""
    store.create("there", b"1")
    finished = threading.Event()
    failures: list[str] = []

    def look() -> None:
        while not finished.is_set():
            store.stat("missing/deeper/object")
            store.stat("there/below")

    def write() -> None:
        try:
            for number in range(150):
                store.create(f"f/{number}", bytes(100_000))
                assert store.read(f"f/{number}") == bytes(100_000)
        except BaseException:  # noqa: BLE001 - told below
            failures.append(traceback.format_exc())

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    write()
    finished.set()
    for looker in lookers:
        looker.join()
    assert not failures, failures[0]


def test_no_call_leaves_a_file_open(store: LocalBlobs, tmp_path: Path) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, "source")
        yield b""

    store.create("a/b/object", bytes(3 * MEGABYTE))
    (tmp_path / "root" / "link").symlink_to("a")
    calls: list[Callable[[], object]] = [
        lambda: store.create("a/b/object", b"other"),
        lambda: store.create("a/b/new", broken()),
        lambda: store.create("a/b/object/below", b""),
        lambda: store.create("a", b""),
        lambda: store.replace("a", b""),
        lambda: store.replace("a/b/object", bytes(3 * MEGABYTE), expected="other"),
        lambda: store.read("a/b/missing"),
        lambda: store.read("missing/missing"),
        lambda: store.read("link/b/object"),
        lambda: next(store.stream("a/b/object")),
        lambda: next(store.list()),
        lambda: list(store.list("a/b/object")),
        lambda: list(store.folders("a/b/object")),
        lambda: store.delete(["missing/1", "a/missing", "a/b/object/below"]),
    ]
    before = len(os.listdir("/proc/self/fd"))
    for call in calls * 3:
        try:
            call()
        except (CheckpointError, OSError):
            continue
    assert len(os.listdir("/proc/self/fd")) == before


# -- durability --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["create", "replace"])
def test_an_object_gets_its_name_after_its_bytes_are_on_disk_and_then_the_name_is_put_there_too(
    store: LocalBlobs, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("folder/before", b"1")
    steps: list[str] = []
    fsync, link, rename = os.fsync, os.link, os.rename

    def watched_fsync(fd: int) -> None:
        fsync(fd)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("bytes" if name.startswith(".object.") else name)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", lambda *args, **kwargs: (link(*args, **kwargs), steps.append("named")))
    monkeypatch.setattr(os, "rename", lambda *args, **kwargs: (rename(*args, **kwargs), steps.append("named")))
    getattr(store, verb)("folder/object", b"2")
    assert steps[steps.index("bytes") :] == ["bytes", "named", "folder"]


def test_a_new_folder_is_put_on_disk_in_the_one_above_it(store: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched_fsync(fd: int) -> None:
        fsync(fd)
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(os, "fsync", watched_fsync)
    store.create("outer/inner/object", b"1")
    assert [name for name in synced if not name.startswith(".")][-3:] == ["root", "outer", "inner"]


# -- what a disk can do wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, BlobNotFoundError),
        (errno.ENOTDIR, BlobNotFoundError),
        (errno.EISDIR, BlobNotFoundError),
        (errno.ELOOP, InvalidKeyError),
        (errno.ENXIO, InvalidKeyError),
        (errno.ENAMETOOLONG, InvalidKeyError),
        (errno.EACCES, AccessDeniedError),
        (errno.EPERM, AccessDeniedError),
        (errno.EROFS, AccessDeniedError),
        (errno.ENOSPC, StoreUnavailableError),
        (errno.EDQUOT, StoreUnavailableError),
        (errno.EIO, StoreUnavailableError),
        (errno.ESTALE, StoreUnavailableError),
        (errno.EMFILE, StoreUnavailableError),
    ],
)
def test_each_fault_of_the_disk_has_its_error(number: int, kind: type[CheckpointError]) -> None:
    cause = OSError(number, os.strerror(number))
    with pytest.raises(CheckpointError) as caught:
        _raise_for(cause, "file:///root/object")
    assert type(caught.value) is kind
    assert caught.value.subject == "file:///root/object"
    assert caught.value.__cause__ is cause
    assert "Errno" not in str(caught.value)


FULL_DISK = """
import resource, signal, sys

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.exceptions import StoreUnavailableError

store = LocalBlobs(sys.argv[1])
store.create("folder/old", b"old")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
for act in (
    lambda: store.create("folder/new", bytes(3_000_000)),
    lambda: store.create("folder/new", (bytes(100_000) for _ in range(30))),
    lambda: store.create("other/new", bytes(3_000_000)),
    lambda: store.replace("folder/old", bytes(3_000_000)),
    lambda: store.replace("folder/new", bytes(3_000_000)),
):
    try:
        act()
    except StoreUnavailableError as error:
        print(error.message)
store.create("folder/fits", bytes(900_000))
"""


def test_a_disk_that_takes_no_more_leaves_no_part_of_an_object(store: LocalBlobs, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: writing fails half way through."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "root")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
    assert sorted((info.key, info.size) for info in store.list(temporary=None)) == [
        ("folder/fits", 900_000),
        ("folder/old", 3),
    ]


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_short_answer(store: LocalBlobs, tmp_path: Path) -> None:
    store.create("object", bytes(3 * MEGABYTE))
    stream = store.stream("object")
    next(stream)
    os.truncate(tmp_path / "root" / "object", MEGABYTE + 1)
    with pytest.raises(StoreUnavailableError):
        list(stream)


def test_without_folder_locks_compare_and_swap_is_refused_and_the_rest_works(
    store: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.replace("object", b"1")

    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(UnsupportedError) as caught:
        store.replace("object", b"2", expected=version)
    assert caught.value.hint
    assert store.read("object") == b"1"
    store.replace("object", b"3")
    assert store.read("object") == b"3"
    assert store.delete(["object"])[0].deleted
    assert list(store.list(temporary=None)) == []
