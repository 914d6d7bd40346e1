"""No name leads out of a local root: not by a link, not by one that is swapped in, not by a special file."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, sha256_of
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CheckpointError, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = b"what lies outside"

READS: dict[str, Callable[[LocalBlobs, str], Any]] = {
    "read": lambda store, key: store.read(key),
    "stream": lambda store, key: b"".join(store.stream(key)),
    "read_versioned": lambda store, key: store.read_versioned(key)[0],
    "digest": sha256_of,
}
WRITES: dict[str, Callable[[LocalBlobs, str], Any]] = {
    "create": lambda store, key: store.create(key, b"ours"),
    "create streamed": lambda store, key: store.create(key, iter([b"ours"])),
    "replace": lambda store, key: store.replace(key, b"ours"),
}


class Place:
    """A root with one honest object, and a folder outside with a secret."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        self.store = LocalBlobs(self.root)
        self.store.create("honest/object", b"1")

    def check_outside(self) -> None:
        assert [path.name for path in self.outside.iterdir()] == ["secret"]
        assert (self.outside / "secret").read_bytes() == SECRET


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


FILE_LINKS = {
    "absolute": lambda place: place.outside / "secret",
    "relative": lambda place: "../outside/secret",
    "to an object of the store": lambda place: "honest/object",
    "dangling": lambda place: place.outside / "new",
    "to itself": lambda place: "link",
}
FOLDER_LINKS = {
    "absolute": lambda place: place.outside,
    "relative": lambda place: "../outside",
    "upwards": lambda place: "..",
    "to a folder of the store": lambda place: "honest",
    "to the root of all": lambda place: "/",
    "to itself": lambda place: "link",
}


@pytest.mark.parametrize("target", FILE_LINKS)
def test_a_link_in_the_place_of_an_object_is_never_followed(place: Place, target: str) -> None:
    link = place.root / "link"
    link.symlink_to(FILE_LINKS[target](place))
    for call in READS.values():
        with pytest.raises(InvalidKeyError) as caught:
            call(place.store, "link")
        assert caught.value.hint
    with pytest.raises(InvalidKeyError):
        place.store.stat("link")
    assert [info.key for info in place.store.list()] == ["honest/object"]
    for name in ("create", "create streamed"):
        with pytest.raises(InvalidKeyError):
            WRITES[name](place.store, "link")
    assert link.is_symlink()
    # Replacing puts an object in the place of the link itself.
    place.store.replace("link", b"ours")
    assert not link.is_symlink()
    assert link.read_bytes() == b"ours"
    assert place.store.read("honest/object") == b"1"
    place.check_outside()


def test_deleting_a_link_removes_the_link(place: Place) -> None:
    (place.root / "link").symlink_to(place.outside / "secret")
    assert place.store.delete(["link"])[0].deleted
    assert not (place.root / "link").is_symlink()
    place.check_outside()


@pytest.mark.parametrize("target", FOLDER_LINKS)
@pytest.mark.parametrize("depth", ["", "honest/"], ids=["at the root", "below a folder"])
def test_a_link_in_the_place_of_a_folder_is_never_followed(place: Place, target: str, depth: str) -> None:
    (place.root / depth / "link").symlink_to(FOLDER_LINKS[target](place))
    for below in ("secret", "outside/secret", "object", "new", "new/deeper"):
        key = f"{depth}link/{below}"
        assert place.store.stat(key) is None
        for call in READS.values():
            with pytest.raises(BlobNotFoundError):
                call(place.store, key)
        for call in WRITES.values():
            with pytest.raises(InvalidKeyError):
                call(place.store, key)
        # As far as the store goes there is no such object; in any case it must not reach what is behind the link.
        place.store.delete([key])
    folder = f"{depth}link"
    assert list(place.store.list(folder)) == list(place.store.folders(folder)) == []
    assert [info.key for info in place.store.list()] == ["honest/object"]
    assert list(place.store.folders()) == ["honest"]
    assert list(place.store.folders("honest")) == []
    assert (place.root / folder).is_symlink()
    assert place.store.read("honest/object") == b"1"
    place.check_outside()


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    store = LocalBlobs(tmp_path / "root")
    store.create("folder/object", b"1")
    assert (tmp_path / "real" / "folder" / "object").read_bytes() == b"1"
    assert [info.key for info in store.list()] == ["folder/object"]


@pytest.mark.stress
@pytest.mark.parametrize("what", ["folder", "object"])
def test_a_link_swapped_in_at_any_moment_never_leads_out(place: Place, what: str) -> None:
    """A folder, or an object, turns into a link to the outside and back, while every verb is called on it."""
    place.store.create("swapped/secret", b"inside")
    swapped = place.root / "swapped" if what == "folder" else place.root / "swapped" / "secret"
    target = place.outside if what == "folder" else place.outside / "secret"
    link = place.root / "link"
    finished = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        for turn in itertools.count():
            if finished.is_set():
                return
            aside = place.root / f"aside-{turn}"
            # A writer may make the name anew while the old one is aside; then this turn fails and the next one goes on.
            with contextlib.suppress(OSError):
                os.rename(swapped, aside)
                os.symlink(target, link)
                os.rename(link, swapped)
                swaps += 1
                os.unlink(swapped)
                os.rename(aside, swapped)
            link.unlink(missing_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    deadline = time.monotonic() + 60
    try:
        for number in itertools.count():
            if time.monotonic() > deadline or (number >= 300 and swaps > 20 and b"inside" in seen):
                break
            for call in (
                lambda: seen.add(place.store.read("swapped/secret")),
                lambda: seen.add(place.store.read_versioned("swapped/secret")[0]),
                lambda: [seen.add(place.store.read(info.key)) for info in place.store.list("swapped")],
                lambda number=number: place.store.create(f"swapped/new-{number % 10}", b"new"),
                lambda: place.store.replace("swapped/secret", b"inside"),
                lambda number=number: place.store.delete([f"swapped/new-{number % 10}"]),
            ):
                with contextlib.suppress(CheckpointError):
                    call()
    finally:
        finished.set()
        thread.join()
    assert swaps > 20
    assert b"inside" in seen
    assert seen <= {b"inside", b"new"}
    place.check_outside()


# -- special files -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(30)
def test_a_fifo_does_not_hold_anyone_up(place: Place) -> None:
    os.mkfifo(place.root / "fifo")
    assert place.store.stat("fifo") is None
    for call in READS.values():
        with pytest.raises(BlobNotFoundError):
            call(place.store, "fifo")
    assert [info.key for info in place.store.list()] == ["honest/object"]
    with pytest.raises(InvalidKeyError):
        place.store.create("fifo", b"1")
    place.store.replace("fifo", b"1")
    assert place.store.read("fifo") == b"1"


@pytest.mark.timeout(30)
def test_a_socket_is_no_object(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for call in READS.values():
            with pytest.raises(InvalidKeyError):
                call(place.store, "socket")
        assert [info.key for info in place.store.list()] == ["honest/object"]


def test_names_that_are_taken_by_something_else_are_refused_with_a_hint(place: Place) -> None:
    for key in ("honest", "honest/object/below"):
        for call in WRITES.values():
            with pytest.raises(InvalidKeyError) as caught:
                call(place.store, key)
            assert caught.value.hint
    assert sorted(path.name for path in place.root.rglob("*")) == ["honest", "object"]
