"""Stores that do not keep two writers apart are found out before anything relies on them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from airflow_provider_checkpoint.blobs import (
    BlobStore,
    LocalBlobs,
    MemoryBlobs,
    WrapperBlobs,
    open_blobs,
    probe,
    wrap_filesystem,
)
from airflow_provider_checkpoint.blobs._fence import FencedBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import AccessDeniedError, OutcomeUnknownError, UnfencedStoreError
from tests.contract import backends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import Creation
    from tests.servers import AzureServer, S3Server


class UnheardOf(MemoryFileSystem):
    """A filesystem of a kind nothing is known about."""

    protocol = "unheard-of"
    store: dict[str, Any] = {}  # noqa: RUF012 - of its own, not the one all memory filesystems share
    pseudo_dirs = [""]  # noqa: RUF012 - as above


class Blind(MemoryFileSystem):
    """A filesystem of a known kind that does not see what is there."""

    def exists(self, path: str, **kwargs: Any) -> bool:
        return False


def everything(store: BlobStore) -> list[str]:
    return sorted(info.key for info in store.list(temporary=None))


# -- a server that ignores conditions ----------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_a_server_that_ignores_conditions_is_refused_and_left_as_it_was(rclone: S3Server, client: str) -> None:
    store = open_blobs(rclone.fresh(), rclone.options(client=client))
    for _ in range(2):
        with pytest.raises(UnfencedStoreError) as caught:
            store.create("object", b"1")
        assert "allow_unfenced" in str(caught.value.hint)
        assert caught.value.subject == store.uri
    assert everything(store) == []


def test_a_conditional_replace_on_such_a_server_is_refused_and_a_plain_one_is_not(rclone: S3Server) -> None:
    store = open_blobs(rclone.fresh(), rclone.options())
    version = store.replace("object", b"1")
    with pytest.raises(UnfencedStoreError):
        store.replace("object", b"2", expected=version or "any")
    assert store.read("object") == b"1"
    assert everything(store) == ["object"]


def test_such_a_server_is_used_with_a_warning_if_the_user_says_so(
    rclone: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_blobs(rclone.fresh(), rclone.options(allow_unfenced=True))
    with caplog.at_level(logging.WARNING):
        assert store.create("object", b"1").created
        assert store.create("object", b"1").created
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert store.uri in warnings[0]
    assert "unfenced" in warnings[0]
    assert everything(store) == ["object"]


def test_what_such_a_server_does_not_keep_is_no_longer_promised(rclone: S3Server) -> None:
    store = open_blobs(rclone.fresh(), rclone.options(allow_unfenced=True))
    store.create("object", b"1")
    assert not store.capabilities.exclusive_create
    assert not store.capabilities.compare_and_swap


def test_the_word_of_one_user_does_not_open_the_store_to_another(rclone: S3Server) -> None:
    address = rclone.fresh()
    open_blobs(address, rclone.options(allow_unfenced=True)).create("object", b"1")
    with pytest.raises(UnfencedStoreError):
        open_blobs(address, rclone.options()).create("other", b"1")


def test_a_probe_of_one_endpoint_says_nothing_about_another(rclone: S3Server, seaweedfs: S3Server) -> None:
    """The same address, bucket and prefix included, on a good server and on a bad one."""
    address = seaweedfs.fresh()
    for good, bad in (
        (seaweedfs.options(), rclone.options()),
        (
            seaweedfs.options(client="fsspec", endpoint_url=None, extra={"endpoint_url": seaweedfs.endpoint}),
            rclone.options(client="fsspec", endpoint_url=None, extra={"endpoint_url": rclone.endpoint}),
        ),
    ):
        assert open_blobs(address, good).create("object", b"1").created
        with pytest.raises(UnfencedStoreError):
            open_blobs(address, bad).create("object", b"1")


# -- stores that pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_seaweedfs_passes_and_the_probe_leaves_nothing_behind(seaweedfs: S3Server, client: str) -> None:
    store = open_blobs(seaweedfs.fresh(), seaweedfs.options(client=client))
    assert store.create("object", b"1").created
    assert everything(store) == ["object"]


def test_azurite_passes_and_the_probe_leaves_nothing_behind(azurite: AzureServer) -> None:
    store = open_blobs(azurite.fresh(), azurite.options())
    assert store.create("object", b"1").created
    assert everything(store) == ["object"]


@pytest.mark.parametrize("kind", ["local", "memory", "obstore_memory", "fsspec_local", "fsspec_memory"])
def test_a_probe_tells_what_a_store_does_and_cleans_up(kind: str, tmp_path: Path) -> None:
    makers: dict[str, Callable[[], backends.Backend]] = {
        "local": lambda: backends.local(tmp_path),
        "memory": backends.memory,
        "obstore_memory": backends.obstore_memory,
        "fsspec_local": lambda: backends.fsspec_local(tmp_path),
        "fsspec_memory": lambda: backends.fsspec_memory(tmp_path.name),
    }
    store = makers[kind]().open()
    seen = probe(store)
    assert seen.exclusive_create
    assert seen.compare_and_swap == store.capabilities.compare_and_swap
    assert seen.deletes
    assert seen.clock_skew is not None
    assert abs(seen.clock_skew) < 5
    assert everything(store) == []


def test_a_store_is_probed_once_per_process_and_reading_never_probes() -> None:
    inner = FaultyBlobs(MemoryBlobs("once"))
    store = FencedBlobs(inner, endpoint="once")
    list(store.list())
    store.stat("object")
    store.replace("object", b"1")
    assert inner.calls["create"] == 0
    for number in range(3):
        store.create(f"new/{number}", b"1")
    # Two of the probe, then our own.
    assert inner.calls["create"] == 5
    FencedBlobs(inner, endpoint="once").create("new/3", b"1")
    assert inner.calls["create"] == 6


# -- stores that lie in other ways -------------------------------------------------------------------------------


class Forgetful(WrapperBlobs):
    """Says it compares versions, and does not."""

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        return self._inner.replace(key, body)


class Overwriting(WrapperBlobs):
    """Says it creates exclusively, and writes over what is there."""

    def create(self, key: str, body: Any) -> Creation:
        self._inner.delete([key])
        return self._inner.create(key, body)


@pytest.mark.parametrize("kind", [Forgetful, Overwriting])
def test_a_store_that_breaks_one_of_its_promises_is_refused(kind: type[WrapperBlobs]) -> None:
    inner = MemoryBlobs()
    store = FencedBlobs(kind(inner), endpoint=kind.__name__)
    with pytest.raises(UnfencedStoreError):
        store.create("object", b"1")
    assert everything(inner) == []


def test_a_probe_that_breaks_cleans_up_and_tells_why() -> None:
    for fault, verb in ((Fault.LOST_ANSWER, "create"), (Fault.TIMEOUT, "replace")):
        inner = FaultyBlobs(MemoryBlobs())
        inner.inject(fault, verb=verb)
        store = FencedBlobs(inner, endpoint=f"breaks {verb}")
        with pytest.raises(OutcomeUnknownError):
            store.create("object", b"1")
        assert everything(inner) == []
        # Nothing was learnt, so nothing is remembered.
        assert store.create("object", b"1").created


def test_a_store_that_may_only_be_read_says_so_instead_of_unfenced(seaweedfs: S3Server) -> None:
    store = open_blobs(seaweedfs.fresh(), seaweedfs.options("reader"))
    with pytest.raises(AccessDeniedError) as caught:
        store.create("object", b"1")
    assert caught.value.hint


# -- fsspec ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unknown protocol", "folder of a known one"])
def test_a_filesystem_nothing_is_known_about_is_refused_unless_the_user_insists(kind: str, tmp_path: Path) -> None:
    fs = UnheardOf() if kind == "unknown protocol" else DirFileSystem(path=str(tmp_path), target_protocol="file")
    store = wrap_filesystem(fs, "/root")
    assert not store.capabilities.exclusive_create
    with pytest.raises(UnfencedStoreError):
        store.create("object", b"1")
    assert everything(store) == []

    insisting = wrap_filesystem(fs, "/root", allow_unfenced=True)
    assert insisting.create("folder/object", b"1").created
    assert insisting.create("folder/object", b"2").existing == b"1"
    assert insisting.create("folder/object", b"1").created
    insisting.replace("folder/object", b"3")
    assert insisting.read("folder/object") == b"3"
    assert everything(insisting) == ["folder/object"]
    with pytest.raises(UnfencedStoreError):
        wrap_filesystem(fs, "/root").create("other", b"1")


def test_a_filesystem_is_judged_by_itself_not_by_its_place_in_memory() -> None:
    """A new object may get the number of one that is gone; what was learnt of the old one must not carry over."""
    numbers = set()
    for _ in range(100):
        good = MemoryFileSystem(skip_instance_cache=True)
        wrap_filesystem(good, "/judged").create("object", b"1")
        numbers.add(id(good))
        del good
        bad = Blind(skip_instance_cache=True)
        with pytest.raises(UnfencedStoreError):
            wrap_filesystem(bad, "/judged").create("object", b"1")
        if id(bad) in numbers:
            return
    pytest.fail("no number was given twice, so this test has shown nothing")


def test_a_local_folder_needs_no_probe(tmp_path: Path) -> None:
    store = open_blobs(str(tmp_path / "root"))
    assert isinstance(store, LocalBlobs)
    store.create("object", b"1")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["object"]
