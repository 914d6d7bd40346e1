"""No secret is shown: not in an error, not in what led to it, not in options, not in a store."""

from __future__ import annotations

import base64
import logging
import socket
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.blobs import BlobStore, StoreOptions, open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import AzureServer, S3Server

MARK = "Tr0ub4dor-and-3-horses"
MARK_BASE64 = base64.b64encode(MARK.encode()).decode()
QUICK: dict[str, Any] = {"connect_timeout": 0.3, "read_timeout": 0.3, "max_retries": 0, "retry_timeout": 1}
SAS = f"sv=2021-12-02&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00:00:00Z&sig={MARK}"


def shown(error: BaseException) -> str:
    """All that a log would hold: the error, its parts, and everything that led to it."""
    parts = [str(error), repr(error), *traceback.format_exception(error)]
    if isinstance(error, CheckpointError):
        parts += [error.message, str(error.subject), str(error.hint)]
    return "\n".join(parts)


def try_everything(store: BlobStore) -> Iterator[BaseException]:
    calls: list[Callable[[], object]] = [
        lambda: store.create("object", b"1"),
        lambda: store.replace("object", b"1"),
        lambda: store.read("object"),
        lambda: store.read_versioned("object"),
        lambda: store.stat("object"),
        lambda: list(store.list()),
        lambda: list(store.folders()),
    ]
    for call in calls:
        try:
            call()
        except CheckpointError as error:
            yield error
    for outcome in store.delete(["object"]):
        if outcome.error is not None:
            yield outcome.error


@pytest.fixture
def dead_endpoints() -> Iterator[list[str]]:
    """One that refuses connections and one that takes them and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        yield [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{silent.getsockname()[1]}"]


@pytest.mark.parametrize("name", ["secret_access_key", "session_token", "account_key", "sas_token", "extra"])
def test_options_do_not_show_their_secrets(name: str) -> None:
    value: Any = {"password": MARK} if name == "extra" else MARK
    for options in (
        StoreOptions.of({name: value}),
        StoreOptions().model_copy(update={name: StoreOptions.of({name: value}).__dict__[name]}),
    ):
        assert MARK not in repr(options)
        assert MARK not in str(options)


@pytest.mark.parametrize("wrong", [{"max_retries": MARK}, {"client": MARK}, {MARK[:5]: MARK}, {"endpoint_url": MARK}])
def test_a_wrong_option_is_named_without_its_value(wrong: dict[str, str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        StoreOptions.of({"secret_access_key": MARK, **wrong})
    assert MARK not in shown(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        f"s3://user:{MARK}@bucket/prefix",
        f"s3a://{MARK}@bucket/prefix",
        f"gs://user:{MARK}@bucket",
        f"az://container/prefix?{SAS}",
        f"abfss://container@account.dfs.core.windows.net/prefix?{SAS}",
        f"https://account.blob.core.windows.net/container?{SAS}",
        f"foo://user:{MARK}@host/path",
        f"foo://host/path?token={MARK}",
        f"sftp://user:{MARK}@host/path",
        f"file://user:{MARK}@localhost/x",
        f"file:///x?{MARK}",
    ],
)
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_a_secret_in_an_address_is_refused_without_showing_it(address: str, client: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_blobs(address, client=client)
    assert MARK not in shown(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_s3_secrets_stay_hidden_whatever_goes_wrong(
    seaweedfs: S3Server, dead_endpoints: list[str], client: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    errors = []
    for endpoint in (seaweedfs.endpoint, *dead_endpoints):
        options = seaweedfs.options(
            endpoint_url=endpoint, secret_access_key=MARK, session_token=MARK, client=client, **QUICK
        )
        store = open_blobs(seaweedfs.fresh(), options)
        assert MARK not in repr(store) + store.uri
        errors += list(try_everything(store))
    assert len(errors) >= 18
    for error in errors:
        assert MARK not in shown(error)
    assert MARK not in caplog.text


@pytest.mark.parametrize(("kind", "secret"), [("sas_token", SAS), ("account_key", MARK_BASE64), ("account_key", MARK)])
def test_azure_secrets_stay_hidden_whatever_goes_wrong(
    azurite: AzureServer, dead_endpoints: list[str], kind: str, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    errors = []
    for endpoint in (azurite.endpoint, *(f"{endpoint}/devstoreaccount1" for endpoint in dead_endpoints)):
        options = {"endpoint_url": endpoint, "account_name": azurite.account, kind: secret, **QUICK}
        store = open_blobs(azurite.fresh(), options)
        assert MARK not in repr(store) + store.uri
        errors += list(try_everything(store))
    assert len(errors) >= 18
    for error in errors:
        assert MARK not in shown(error)
        assert MARK_BASE64 not in shown(error)
    assert MARK not in caplog.text


def test_a_credential_provider_that_fails_is_told_as_such(seaweedfs: S3Server) -> None:
    def provider() -> dict[str, Any]:
        raise RuntimeError("the vault is closed")

    options = {"endpoint_url": seaweedfs.endpoint, "region": "us-east-1", "credentials": provider, **QUICK}
    store = open_blobs(seaweedfs.fresh(), options)
    errors = list(try_everything(store))
    assert len(errors) == 8
    assert all("the vault is closed" in str(error) for error in errors)


def test_credentials_are_asked_for_when_they_are_needed(seaweedfs: S3Server) -> None:
    asked = []

    def provider() -> dict[str, Any]:
        asked.append(1)
        return {"access_key_id": "admin", "secret_access_key": "admin-secret", "token": None, "expires_at": None}

    options = {"endpoint_url": seaweedfs.endpoint, "region": "us-east-1", "credentials": provider}
    store = open_blobs(seaweedfs.fresh(), options)
    assert not asked
    assert store.create("object", b"1").created
    assert asked
