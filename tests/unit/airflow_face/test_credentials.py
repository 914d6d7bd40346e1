"""Credentials that the connection of a cloud stands for, on real servers."""

from __future__ import annotations

import json
import socket
from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import StoreOptions, open_blobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointError,
    ConfigurationError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.hooks import credentials
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from tests.unit.airflow_face.sts import TokenService

ROLE = "arn:aws:iam::123456789012:role/checkpoints"


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch):
    """Whatever Python code connects to must be this machine."""
    connect = socket.socket.connect

    def checked(self, address):
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"), address
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", checked)


@pytest.fixture
def lake(connect, seaweedfs):
    """A hook for a fresh part of the S3 server; the fields are those of the aws connection."""

    def make(**fields) -> CheckpointHook:
        extra = {"region_name": "us-east-1", "endpoint_url": seaweedfs.endpoint, **fields.pop("extra", {})}
        connect("cloud", "aws", extra=extra, **fields)
        connect("lake", host=seaweedfs.fresh(), extra={"storage_conn_id": "cloud"})
        return CheckpointHook("lake")

    return make


# -- AWS: where the keys come from -------------------------------------------------------------------------------


def test_keys_in_the_connection(lake):
    good, message = lake(login="admin", password="admin-secret").test_connection()
    assert good, message
    assert "keeps two writers apart" in message
    assert "no pipelines yet" in message


def test_an_endpoint_in_the_connection_of_the_store(connect, seaweedfs):
    connect("cloud", "aws", login="admin", password="admin-secret", extra={"region_name": "us-east-1"})
    extra = {"storage_conn_id": "cloud", "endpoint_url": seaweedfs.endpoint}
    connect("lake", host=seaweedfs.fresh(), extra=extra)
    assert CheckpointHook("lake").test_connection()[0]


def test_a_profile_of_the_credentials_file(lake, tmp_path, monkeypatch):
    file = tmp_path / "credentials"
    file.write_text("[lake]\naws_access_key_id = admin\naws_secret_access_key = admin-secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    good, message = lake(extra={"profile_name": "lake"}).test_connection()
    assert good, message


def test_a_session_token_goes_with_the_keys(lake):
    options = lake(login="key", password="hush-hush", extra={"aws_session_token": "a-token"}).options
    assert options.credentials is not None
    found = options.credentials()
    assert (found["access_key_id"], found["secret_access_key"], found["token"]) == ("key", "hush-hush", "a-token")


def test_an_assumed_role_is_asked_for_when_the_store_is_used(lake):
    with TokenService() as service:
        hook = lake(
            login="key",
            password="hush-hush",
            extra={"role_arn": ROLE, "service_config": {"sts": {"endpoint_url": service.endpoint}}},
        )
        assert hook.options.credentials is not None
        found = hook.options.credentials()
        assert (found["access_key_id"], found["token"]) == ("admin", "token-1")
        assert service.asked == [ROLE]
        # Good for an hour: no need to ask again.
        hook.options.credentials()
        assert service.asked == [ROLE]


def test_a_role_that_is_about_to_expire_is_asked_for_again(lake):
    with TokenService(good_for=timedelta(seconds=30)) as service:
        hook = lake(
            login="key",
            password="hush-hush",
            extra={"role_arn": ROLE, "service_config": {"sts": {"endpoint_url": service.endpoint}}},
        )
        assert hook.options.credentials is not None
        tokens = [hook.options.credentials()["token"] for _ in range(3)]
        assert len(set(tokens)) == 3
        assert len(service.asked) > 3


def test_a_role_that_is_refused_is_an_error_that_names_the_connection_and_no_secret(lake):
    with TokenService() as service:
        hook = lake(
            login="key",
            password="hush-hush",
            extra={"role_arn": f"{ROLE}-denied", "service_config": {"sts": {"endpoint_url": service.endpoint}}},
        )
        good, message = hook.test_connection()
        assert not good
        assert "hush" not in message
        with pytest.raises(AccessDeniedError, match="connection cloud") as caught:
            hook.job_environment()
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("service", "kind"), [("http://127.0.0.1:9", StoreUnavailableError), (None, AccessDeniedError)]
)
def test_a_service_that_is_away_is_worth_a_retry_and_one_that_refuses_is_not(lake, service, kind):
    with TokenService() as running:
        extra = {
            "role_arn": f"{ROLE}-denied",
            "service_config": {"sts": {"endpoint_url": service or running.endpoint}},
            "config_kwargs": {"retries": {"total_max_attempts": 1}},
        }
        with pytest.raises(kind, match="connection cloud"):
            _ = lake(login="key", password="hush-hush", extra=extra).options


def test_a_role_that_is_refused_later_ends_what_is_under_way_with_an_error_of_this_package(lake, monkeypatch):
    monkeypatch.setattr(credentials, "_GOOD_FOR", timedelta(0))
    with TokenService(good_for=timedelta(seconds=30)) as service:
        extra = {"role_arn": ROLE, "service_config": {"sts": {"endpoint_url": service.endpoint}}}
        blobs = lake(login="key", password="hush-hush", extra=extra).get_conn()
        service.refuse = True
        with pytest.raises(CheckpointError) as caught:
            blobs.stat("object")
        assert "hush" not in str(caught.value)


def test_a_profile_that_is_not_there_is_an_error_that_names_it(lake):
    with pytest.raises(ConfigurationError, match=r"no-such-profile.*connection cloud"):
        _ = lake(extra={"profile_name": "no-such-profile"}).options


def test_a_store_asks_again_for_credentials_that_expire(lake, monkeypatch):
    """A long task outlives the keys it began with: they are asked for while it runs."""
    monkeypatch.setattr(credentials, "_GOOD_FOR", timedelta(0))
    hook = lake(login="admin", password="admin-secret")
    assert hook.options.credentials is not None
    asked = []

    def counted(provider=hook.options.credentials):
        asked.append(provider())
        return asked[-1]

    blobs = open_blobs(hook.settings.uri, StoreOptions.of(hook.options.model_dump() | {"credentials": counted}))
    for number in range(3):
        blobs.create(f"object-{number}", b"x")
    assert len(asked) >= 3


def test_a_connection_without_credentials_is_refused(lake):
    with pytest.raises(ConfigurationError, match="yields no credentials: connection cloud"):
        _ = lake().options
    with pytest.raises(ConfigurationError, match="yields no credentials: connection cloud"):
        lake().job_environment()


# -- AWS: what a test of the connection says ---------------------------------------------------------------------


@pytest.mark.parametrize(("login", "password"), [("admin", "hush-hush"), ("nobody", "hush-hush")])
def test_wrong_keys_are_told_without_the_secret(lake, login, password):
    good, message = lake(login=login, password=password).test_connection()
    assert not good
    assert "hush" not in message
    assert "refused access" in message
    assert "HINT" in message


def test_a_missing_bucket_is_told(connect, seaweedfs):
    extra = {"region_name": "us-east-1", "endpoint_url": seaweedfs.endpoint}
    connect("cloud", "aws", login="admin", password="admin-secret", extra=extra)
    connect("lake", host="s3://no-such-bucket/x", extra={"storage_conn_id": "cloud"})
    good, message = CheckpointHook("lake").test_connection()
    assert not good
    assert "no-such-bucket" in message


def test_whoever_may_only_read_is_told(lake):
    good, message = lake(login="reader", password="reader-secret").test_connection()
    assert not good
    assert "reader-secret" not in message


# -- for a driver ------------------------------------------------------------------------------------------------


def test_a_driver_gets_the_keys_as_they_are_now(lake):
    assert lake(login="key", password="hush-hush").job_environment() == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hush-hush",
        "AWS_REGION": "us-east-1",
    }


def test_a_driver_gets_the_token_of_a_role(lake):
    with TokenService() as service:
        extra = {"role_arn": ROLE, "service_config": {"sts": {"endpoint_url": service.endpoint}}}
        found = lake(login="key", password="hush-hush", extra=extra).job_environment()
    assert found["AWS_SESSION_TOKEN"] == "token-1"
    assert found["AWS_ACCESS_KEY_ID"] == "admin"


@pytest.mark.parametrize("kind", ["google_cloud_platform", "wasb"])
def test_other_clouds_have_their_own_way_to_give_a_driver_credentials(connect, kind):
    connect("cloud", kind, password="hush-hush")
    connect("lake", host="gs://bucket", extra={"storage_conn_id": "cloud"})
    with pytest.raises(ConfigurationError, match="cannot be handed to a Spark job") as caught:
        CheckpointHook("lake").job_environment()
    assert "hush" not in str(caught.value)


def test_without_a_storage_connection_a_driver_gets_nothing(root):
    assert CheckpointHook().job_environment() == {}


# -- the other clouds --------------------------------------------------------------------------------------------


def test_azure_by_a_wasb_connection(connect, azurite):
    connect("cloud", "wasb", login=azurite.account, password=azurite.key)
    connect("lake", host=azurite.fresh(), extra={"storage_conn_id": "cloud", "endpoint_url": azurite.endpoint})
    good, message = CheckpointHook("lake").test_connection()
    assert good, message


def test_azure_with_a_wrong_key_is_told_without_it(connect, azurite):
    wrong = "aHVzaC1odXNo"
    connect("cloud", "wasb", login=azurite.account, password=wrong)
    connect("lake", host=azurite.fresh(), extra={"storage_conn_id": "cloud", "endpoint_url": azurite.endpoint})
    good, message = CheckpointHook("lake").test_connection()
    assert not good
    assert wrong not in message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"login": "account", "password": "key"}, {"account_name": "account", "account_key": "key"}),
        (
            {"login": "account", "password": "key", "extra": {"sas_token": "sas"}},
            {"account_name": "account", "sas_token": "sas"},
        ),
        ({"extra": {"account_name": "account"}}, {"account_name": "account"}),
    ],
)
def test_what_a_wasb_connection_says(connect, fields, expected):
    connect("cloud", "wasb", **fields)
    assert credentials.options_of(CheckpointHook.get_connection("cloud")) == expected


@pytest.mark.parametrize("as_text", [True, False])
def test_a_google_connection_with_the_key_itself(connect, as_text):
    keys = {"type": "service_account", "private_key": "hush-hush"}
    connect("cloud", "google_cloud_platform", extra={"keyfile_dict": json.dumps(keys) if as_text else keys})
    connect("lake", host="gs://bucket", extra={"storage_conn_id": "cloud"})
    options = CheckpointHook("lake").options
    assert json.loads(options.extra["google_service_account_key"]) == keys
    assert "hush" not in repr(options)


def test_a_google_connection_with_the_path_of_a_key(connect):
    connect("cloud", "google_cloud_platform", extra={"key_path": "/etc/key.json"})
    assert credentials.options_of(CheckpointHook.get_connection("cloud")) == {"service_account": "/etc/key.json"}
