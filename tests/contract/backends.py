"""Every back end the contract is run against, and how another process opens the same place."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from airflow_provider_checkpoint.blobs import BlobStore, MemoryBlobs, open_blobs, wrap_filesystem
from airflow_provider_checkpoint.blobs._object import ObjectBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.servers import AzureServer, S3Server

#: Bodies above this size are staged by the stores that ``Backend.staging`` opens.
SINGLE_PUT = 1024 * 1024

Options: TypeAlias = tuple[tuple[str, Any], ...]

#: On a disk a name is an object or a folder.
DISK = frozenset((verb, key) for verb in ("create", "replace") for key in ("object/below", "folder"))


@dataclass(frozen=True, slots=True)
class Backend:
    """One place to store things. Each ``open`` call sees the same objects."""

    open: Callable[[], BlobStore]
    staging: Callable[[], BlobStore]
    """Opens the place so that a body of more than SINGLE_PUT bytes takes the way of a large object."""
    processes: bool
    """Whether another process can open the place; ``open`` can be pickled then."""
    anew: Callable[[], BlobStore] | None = None
    """Opens the place through a client of its own, where ``open`` shares one to save time."""
    quick: Callable[[], BlobStore] | None = None
    """Opens the place through a quicker client, for tests that need thousands of objects."""
    refused: frozenset[tuple[str, str]] = frozenset()
    """The verbs that refuse a name because it is a folder, or lies below an object. A bucket takes both."""
    many: int = 2_500
    """How many objects are many."""
    lanes: int = 1
    """How many rounds of a race run side by side, for a server that lets each loser wait."""
    increments: int = 100
    """How often each of several racers counts up."""
    unfinished_uploads: Callable[[], int] = lambda: 0

    def open_anew(self) -> BlobStore:
        return (self.anew or self.open)()

    def put_all(self, keys: Iterable[str], body: Callable[[str], bytes]) -> None:
        store = (self.quick or self.open)()
        with ThreadPoolExecutor(8) as pool:
            for creation in pool.map(lambda key: store.create(key, body(key)), keys):
                assert creation.created


def local(folder: Path) -> Backend:
    opened = partial(open_blobs, str(folder / "root"))
    return Backend(opened, opened, processes=True, refused=DISK)


def memory() -> Backend:
    store = MemoryBlobs("contract")
    # So quick that threads rarely meet.
    return Backend(lambda: store, lambda: store, processes=False, increments=1500)


def obstore_local(folder: Path) -> Backend:
    opened = partial(open_obstore_local, str(folder / "root"))
    staging = partial(open_obstore_local, str(folder / "root"), single_put=SINGLE_PUT)
    return Backend(opened, staging, processes=True, refused=DISK)


def obstore_memory() -> Backend:
    from obstore.store import MemoryStore

    handle = MemoryStore()
    store = ObjectBlobs("memory://obstore", lambda: handle)
    staging = ObjectBlobs("memory://obstore", lambda: handle, single_put=SINGLE_PUT)
    return Backend(lambda: store, lambda: staging, processes=False)


def s3(server: S3Server, client: str = "obstore") -> Backend:
    folder = uuid4().hex
    address = f"s3://{server.bucket}/contract/{client}"
    options = server.options()
    theirs = {**options, "client": client}

    def unfinished_uploads() -> int:
        with contextlib.closing(server.client()) as boto:
            prefix = f"contract/{client}/{folder}"
            return len(boto.list_multipart_uploads(Bucket=server.bucket, Prefix=prefix).get("Uploads", []))

    return Backend(
        open=partial(open_below, address, _frozen(theirs), folder),
        staging=partial(open_below, address, _frozen(theirs), folder, staging=client == "obstore"),
        anew=partial(open_blobs, f"{address}/{folder}", theirs),
        quick=partial(open_blobs, f"{address}/{folder}", options),
        processes=True,
        # SeaweedFS takes a folder for an object when it looks whether a name is free.
        refused=frozenset({("create", "folder")}),
        # Through fsspec objects are deleted one by one, which takes its time; a page is a thousand objects.
        many=2_500 if client == "obstore" else 1_500,
        lanes=10,
        increments=15,
        unfinished_uploads=unfinished_uploads,
    )


def azure(server: AzureServer) -> Backend:
    folder = uuid4().hex
    address, options = f"az://{server.container}/contract", server.options()
    return Backend(
        open=partial(open_below, address, _frozen(options), folder),
        staging=partial(open_below, address, _frozen(options), folder, staging=True),
        anew=partial(open_blobs, f"{address}/{folder}", options),
        processes=True,
        # The emulator is slow, and a batch of its deletes holds 256.
        many=600,
        increments=8,
    )


def fsspec_local(folder: Path) -> Backend:
    opened = partial(open_fsspec_local, str(folder / "root"))
    return Backend(opened, opened, processes=True, refused=DISK)


def fsspec_memory(name: str) -> Backend:
    fs = fsspec.filesystem("memory", skip_instance_cache=True)
    opened = partial(wrap_filesystem, fs, f"/{name}")
    return Backend(opened, opened, processes=False, refused=DISK)


# -- what other processes call -----------------------------------------------------------------------------------


def open_obstore_local(path: str, **settings: Any) -> BlobStore:
    from obstore.store import LocalStore

    handle = partial(LocalStore, path, mkdir=True)
    return ObjectBlobs(f"file://{path}", handle, compare_and_swap=False, **settings)


def open_fsspec_local(path: str) -> BlobStore:
    return wrap_filesystem(LocalFileSystem(skip_instance_cache=True), path)


def open_below(address: str, options: Options, folder: str, *, staging: bool = False) -> BlobStore:
    """A folder of a store that is opened once per process: some clients take half a second to start."""
    return (_staging_root if staging else _root)(address, options).at(folder)


@cache
def _root(address: str, options: Options) -> BlobStore:
    return open_blobs(address, dict(options))


@cache
def _staging_root(address: str, options: Options) -> BlobStore:
    return open_staging(address, dict(options))


def open_staging(address: str, options: dict[str, Any]) -> BlobStore:
    """A store as a user opens it, but with a limit that a test can reach."""
    store: Any = open_blobs(address, options)
    store._inner._single_put = SINGLE_PUT
    return store


def _frozen(options: dict[str, Any]) -> Options:
    return tuple(sorted(options.items()))
