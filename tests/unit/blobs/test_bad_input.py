"""Wrong addresses, options, keys and endpoints: one clear error of our own tree, with a hint, within seconds."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, StoreOptions, open_blobs, wrap_filesystem
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointError,
    ConfigurationError,
    ContainerNotFoundError,
    InvalidKeyError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.servers import AzureServer, S3Server

CLIENTS = ["obstore", "fsspec"]
QUICK: dict[str, Any] = {"connect_timeout": 1, "read_timeout": 0.3, "max_retries": 0, "retry_timeout": 1}
VERBS: dict[str, Callable[[BlobStore], object]] = {
    "create": lambda store: store.create("object", b"1"),
    "replace": lambda store: store.replace("object", b"1"),
    "read": lambda store: store.read("object"),
    "stat": lambda store: store.stat("object"),
    "list": lambda store: list(store.list()),
    "folders": lambda store: list(store.folders()),
    "delete": lambda store: _raise_first(store.delete(["object"])),
}


def _raise_first(outcomes: Any) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


@contextmanager
def refused(*kinds: type[CheckpointError], seconds: float = 15) -> Iterator[pytest.ExceptionInfo[CheckpointError]]:
    """Exactly one of our errors, that says what to do, in a few lines and without the insides of a library."""
    began = time.monotonic()
    with pytest.raises(kinds) as caught:
        yield caught
    assert time.monotonic() - began < seconds
    assert caught.value.hint
    text = str(caught.value)
    assert text.count("HINT:") == 1
    assert len(text.splitlines()) <= 4
    assert len(text) < 1200
    for inside in ("Traceback", "Debug source", "RetryError", "reqwest", "botocore", "object at 0x", "<?xml"):
        assert inside not in text


# -- addresses ---------------------------------------------------------------------------------------------------


def test_a_filesystem_that_connects_at_once_and_finds_nobody_is_a_store_that_does_not_answer():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: every connection is refused.
        with refused(TransientError) as caught:
            open_blobs(f"ftp://127.0.0.1:{taken.getsockname()[1]}/checkpoints")
    assert "did not answer" in caught.value.message


@pytest.mark.parametrize(
    "address",
    [
        "",
        "foo://bucket/prefix",
        "://bucket",
        "s3://",
        "s3:///prefix",
        "s3:/bucket/prefix",
        "s3:bucket",
        "gs://",
        "az://",
        "abfss://@account.dfs.core.windows.net/x",
        "s3://bucket:9000/prefix",
        "s3://user@bucket/prefix",
        "s3://user:word@bucket/prefix",
        "file://server/share",
        "file://user:word@localhost/x",
        "s3://bucket/prefix?versionId=1",
        "file:///folder?query",
        "/with\x00nul",
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_address_that_makes_no_sense_is_refused_at_once(address: str, client: str) -> None:
    with refused(ConfigurationError, seconds=5):
        open_blobs(address, client=client)


@pytest.mark.parametrize(
    "address", ["s3://bucket/a/../../b", "s3://bucket/..", "gs://bucket/a//b", "az://container/a\\b"]
)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_prefix_that_leaves_its_bucket_is_refused(address: str, client: str) -> None:
    with refused(InvalidKeyError, ConfigurationError, seconds=5):
        open_blobs(address, client=client)


def test_a_filesystem_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(ConfigurationError) as caught:
        open_blobs("sftp://host/path")
    assert "sftp" in caught.value.message


@pytest.mark.parametrize("address", ["/folder", "file:///folder", "file://localhost/folder", "FILE:///folder"])
def test_local_addresses_mean_the_same_folder(address: str) -> None:
    store = open_blobs(address)
    assert isinstance(store, LocalBlobs)
    assert store.uri == "file:///folder"


def test_a_local_address_comes_back_whatever_is_in_its_name(tmp_path: Path) -> None:
    root = tmp_path / "a b%20c?d#e\u00e4"
    store = open_blobs(str(root))
    store.create("object", b"1")
    assert root.joinpath("object").read_bytes() == b"1"
    assert open_blobs(store.uri).read("object") == b"1"
    view = store.at("x y?z")
    view.create("object", b"2")
    assert open_blobs(view.uri).read("object") == b"2"


def test_memory_stores_are_shared_by_name_and_only_by_name() -> None:
    open_blobs("memory://shared-name").create("object", b"1")
    assert open_blobs("memory://shared-name").read("object") == b"1"
    assert open_blobs("memory://other-name").stat("object") is None
    assert isinstance(open_blobs("memory://other-name"), MemoryBlobs)


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused(ConfigurationError):
        open_blobs(str(tmp_path / "file"))
    store = open_blobs(str(tmp_path / "later"))
    (tmp_path / "later").write_text("x")
    for call in (VERBS["create"], VERBS["replace"]):
        with pytest.raises(CheckpointError) as caught:
            call(store)
        assert caught.value.hint
    assert (tmp_path / "later").read_text() == "x"


def test_a_root_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = open_blobs(str(tmp_path / "file" / "root"))
    with pytest.raises(CheckpointError):
        store.create("object", b"1")
    assert list(store.list()) == []


@pytest.mark.parametrize("form", ["relative", "with protocol", "trailing slash"])
def test_a_filesystem_may_be_wrapped_at_any_form_of_a_path(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    monkeypatch.chdir(tmp_path)
    path = {"relative": "root", "with protocol": f"file://{tmp_path}/root", "trailing slash": f"{tmp_path}/root/"}
    store = wrap_filesystem(LocalFileSystem(skip_instance_cache=True), path[form])
    store.create("folder/object", b"1")
    assert (tmp_path / "root" / "folder" / "object").read_bytes() == b"1"
    assert [info.key for info in store.list()] == ["folder/object"]


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"endpoint": "http://127.0.0.1"}, "endpoint"),
        ({"acces_key_id": "x"}, "acces_key_id"),
        ({"read_timeout": 0}, "read_timeout"),
        ({"read_timeout": "soon"}, "read_timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"client": "boto3"}, "client"),
        ({"anonymous": "perhaps"}, "anonymous"),
        ({"extra": "x"}, "extra"),
        *(({"endpoint_url": value}, "endpoint_url") for value in ("", "nonsense", "127.0.0.1:1", "http://", "ftp://x")),
        *(({"endpoint_url": value}, "endpoint_url") for value in ("http://user:word@host", "http://host/?a=b")),
    ],
)
@pytest.mark.parametrize("form", ["values", "keywords", "on top of options"])
def test_a_wrong_option_is_named_with_what_there_is(options: dict[str, Any], name: str, form: str) -> None:
    with refused(ConfigurationError, seconds=5) as caught:
        if form == "values":
            open_blobs("s3://bucket", options)
        elif form == "keywords":
            open_blobs("s3://bucket", **options)
        else:
            open_blobs("s3://bucket", StoreOptions(), **options)
    assert name in caught.value.message
    assert "endpoint_url" in str(caught.value.hint)


def test_single_options_go_on_top_of_given_ones() -> None:
    options = StoreOptions(region="here", secret_access_key="word")
    store: Any = open_blobs("s3://bucket", options, allow_unfenced=True)
    assert store._allow_unfenced
    assert options.allow_unfenced is False


@pytest.mark.parametrize("client", CLIENTS)
def test_an_option_the_client_does_not_know_is_refused(seaweedfs: S3Server, client: str) -> None:
    with refused(ConfigurationError):
        store = open_blobs(seaweedfs.fresh(), seaweedfs.options(client=client, extra={"no_such_option": "x"}))
        store.create("object", b"1")


# -- keys and buckets --------------------------------------------------------------------------------------------


# A question for one object has no body in its answer that could tell a missing bucket from a missing object.
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"stat"}))
def test_a_missing_bucket_is_told_by_every_verb(seaweedfs: S3Server, verb: str, client: str) -> None:
    store = open_blobs("s3://no-such-bucket/prefix", seaweedfs.options("writer", client=client))
    with refused(ContainerNotFoundError):
        VERBS[verb](store)


# Azure's bulk delete says of each object that it is not there, which it is not.
@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"stat", "delete"}))
def test_a_missing_container_is_told_by_every_verb(azurite: AzureServer, verb: str) -> None:
    store = open_blobs("az://no-such-container/prefix", azurite.options())
    with refused(ContainerNotFoundError):
        VERBS[verb](store)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", [{"secret_access_key": "wrong"}, {"access_key_id": "nobody"}], ids=["secret", "key"])
def test_wrong_keys_are_told_by_every_verb(seaweedfs: S3Server, verb: str, wrong: dict[str, str], client: str) -> None:
    store = open_blobs(seaweedfs.fresh(), seaweedfs.options(client=client, **wrong))
    with refused(AccessDeniedError):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_azure_key_is_told_by_every_verb(azurite: AzureServer, verb: str) -> None:
    store = open_blobs(azurite.fresh(), azurite.options(account_key="d3Jvbmc="))
    with refused(AccessDeniedError):
        VERBS[verb](store)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("verb", ["create", "replace", "delete"])
def test_a_missing_right_is_told_by_every_verb_that_needs_it(seaweedfs: S3Server, verb: str, client: str) -> None:
    address = seaweedfs.fresh()
    open_blobs(address, seaweedfs.options()).create("object", b"0")
    store = open_blobs(address, seaweedfs.options("reader", client=client))
    assert store.read("object") == b"0"
    assert [info.key for info in store.list()] == ["object"]
    with refused(AccessDeniedError):
        VERBS[verb](store)
    assert store.read("object") == b"0"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("count", [2, 300])
def test_of_a_delete_that_is_allowed_in_part_each_key_has_its_own_answer(
    seaweedfs: S3Server, client: str, count: int
) -> None:
    admin = open_blobs(f"s3://{seaweedfs.bucket}", seaweedfs.options())
    folder = uuid4().hex
    keys = [f"{place}/{folder}/{number}" for number in range(count) for place in ("open", "closed")]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: admin.create(key, b"1"), keys))
    store = open_blobs(f"s3://{seaweedfs.bucket}", seaweedfs.options("partial", client=client))
    outcomes = store.delete(keys)
    assert [outcome.key for outcome in outcomes] == keys
    for outcome in outcomes:
        assert outcome.deleted == outcome.key.startswith("open/")
        assert outcome.deleted or isinstance(outcome.error, AccessDeniedError)
    assert not list(admin.list(f"open/{folder}"))
    assert len(list(admin.list(f"closed/{folder}"))) == count


# -- endpoints ---------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port: int = closed.getsockname()[1]
        return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections, reads nothing, says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("port", ["closed_port", "silent_port"])
def test_an_endpoint_that_does_not_answer_is_told_by_every_verb(
    request: pytest.FixtureRequest, seaweedfs: S3Server, verb: str, port: str, client: str
) -> None:
    endpoint = f"http://127.0.0.1:{request.getfixturevalue(port)}"
    store = open_blobs("s3://bucket/prefix", seaweedfs.options(endpoint_url=endpoint, client=client, **QUICK))
    with refused(TransientError, seconds=25):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("port", ["closed_port", "silent_port"])
def test_an_azure_endpoint_that_does_not_answer_is_told_by_every_verb(
    request: pytest.FixtureRequest, azurite: AzureServer, verb: str, port: str
) -> None:
    endpoint = f"http://127.0.0.1:{request.getfixturevalue(port)}/devstoreaccount1"
    store = open_blobs("az://container/prefix", azurite.options(endpoint_url=endpoint, **QUICK))
    with refused(TransientError, seconds=25):
        VERBS[verb](store)
