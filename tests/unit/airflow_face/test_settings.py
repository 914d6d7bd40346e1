"""From a connection to a store: what its fields mean, and which of two settings counts."""

from __future__ import annotations

import pickle

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_checkpoint.exceptions import ConfigurationError, InvalidKeyError
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.hooks.settings import StoreSettings
from tests.unit.cli.making import partitioned_store, sidecar_store, stream_store


@pytest.fixture
def settings(connect):
    """Settings of a connection with these fields."""

    def read(**fields) -> StoreSettings:
        return CheckpointHook(connect("lake", **fields)).settings

    return read


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": "s3://bucket/prefix"}, {"uri": "s3://bucket/prefix"}),
        ({"host": " /data "}, {"uri": "/data"}),
        ({"host": "/data", "extra": {"layout": "stream"}}, {"uri": "/data", "layout": "stream"}),
        ({"host": "/data", "extra": {"vnode_count": 256}}, {"uri": "/data", "vnode_count": 256}),
        ({"host": "/data", "extra": {"vnode_count": "256"}}, {"uri": "/data", "vnode_count": 256}),
        ({"host": "/data", "extra": {"allow_unfenced": "true"}}, {"uri": "/data", "allow_unfenced": True}),
        # As the form sends what was not filled in.
        (
            {"host": "/data", "extra": {"storage_conn_id": "", "vnode_count": None, "region": None, "layout": ""}},
            {"uri": "/data"},
        ),
    ],
)
def test_good_connections(settings, fields, expected):
    assert settings(**fields) == StoreSettings(**expected)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"conn_type": "aws", "host": "s3://bucket"}, ["'aws'", "storage_conn_id"]),
        ({}, ["no address", "host"]),
        ({"host": "  "}, ["no address"]),
        ({"host": "/data", "extra": {"layout": "parquet"}}, ["'layout'", "'sidecar'"]),
        ({"host": "/data", "extra": {"vnode_count": 0}}, ["'vnode_count'"]),
        ({"host": "/data", "extra": {"vnode_count": 65536}}, ["'vnode_count'"]),
        ({"host": "/data", "extra": {"vnode_count": "hush-hush"}}, ["'vnode_count'"]),
        ({"host": "/data", "extra": {"allow_unfenced": "hush-hush"}}, ["'allow_unfenced'"]),
        ({"host": "/data", "extra": {"region": ["hush-hush"]}}, ["'region'"]),
        # Each worker would look in a folder of its own: most likely the scheme was forgotten.
        ({"host": "hush-hush@bucket/prefix"}, ["the address", "s3://bucket/prefix"]),
        # A misspelt name, and a secret that belongs elsewhere.
        ({"host": "/data", "extra": {"layuot": "sidecar"}}, ["'layuot'", "Extras: layout"]),
        ({"host": "/data", "extra": {"secret_access_key": "hush-hush"}}, ["'secret_access_key'"]),
        ({"host": "/data", "extra": {"uri": "/other"}}, ["host"]),
        ({"host": "/data", "extra": "hush-hush"}, ["not a JSON object"]),
        ({"host": "/data", "extra": '["hush-hush"]'}, ["not a JSON object"]),
    ],
)
def test_bad_connections_are_errors_that_name_connection_and_field_and_no_value(settings, fields, words):
    with pytest.raises(ConfigurationError) as caught:
        settings(**fields)
    text = str(caught.value)
    assert "connection lake" in text
    assert "hush" not in text
    for word in words:
        assert word in text


def test_a_connection_that_does_not_exist_is_airflows_own_error_and_says_what_to_do():
    with pytest.raises(AirflowNotFoundException, match="nowhere") as caught:
        _ = CheckpointHook("nowhere").settings
    assert isinstance(caught.value, ConfigurationError)
    assert "Checkpoint Store" in caught.value.hint
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert CheckpointHook("nowhere").test_connection() == (False, str(caught.value))


def test_a_storage_connection_that_does_not_exist_is_named(connect):
    connect("lake", host="s3://bucket", extra={"storage_conn_id": "gone"})
    with pytest.raises(ConfigurationError, match=r"'gone'.*connection lake"):
        _ = CheckpointHook("lake").options
    with pytest.raises(ConfigurationError, match=r"'gone'.*connection lake"):
        CheckpointHook("lake").job_environment()
    assert CheckpointHook("lake").test_connection()[0] is False


def test_a_storage_connection_of_a_type_without_credentials_is_refused(connect):
    connect("lake", host="s3://bucket", extra={"storage_conn_id": "database"})
    connect("database", "postgres", password="hush-hush")
    with pytest.raises(ConfigurationError, match=r"'postgres'.*connection database") as caught:
        _ = CheckpointHook("lake").options
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "clouds", "counts"),
    [
        ({}, {}, {"region": None, "endpoint_url": None}),
        (
            {},
            {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:2"},
            {"region": "eu-west-1", "endpoint_url": "http://127.0.0.1:2"},
        ),
        ({"region": "us-east-2"}, {"region_name": "eu-west-1"}, {"region": "us-east-2"}),
        (
            {"endpoint_url": "http://127.0.0.1:1"},
            {"endpoint_url": "http://127.0.0.1:2"},
            {"endpoint_url": "http://127.0.0.1:1"},
        ),
        (
            {},
            {
                "endpoint_url": "http://127.0.0.1:2",
                "service_config": {"s3": {"endpoint_url": "http://127.0.0.1:3"}},
            },
            {"endpoint_url": "http://127.0.0.1:3"},
        ),
        ({"allow_unfenced": True}, {}, {"allow_unfenced": True}),
    ],
)
def test_what_the_store_connection_says_counts_more_than_what_the_clouds_says(connect, own, clouds, counts):
    connect("lake", host="s3://bucket", extra={"storage_conn_id": "cloud", **own})
    connect("cloud", "aws", login="key", password="hush-hush", extra=clouds)
    options = CheckpointHook("lake").options
    assert {name: getattr(options, name) for name in counts} == counts
    assert options.credentials is not None


def test_an_endpoint_that_holds_credentials_is_refused_without_showing_them(connect):
    connect("lake", host="s3://bucket", extra={"endpoint_url": "http://ada:hush-hush@127.0.0.1:1"})
    with pytest.raises(ConfigurationError, match="endpoint_url") as caught:
        _ = CheckpointHook("lake").options
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name"), [(sidecar_store, "sidecar"), (partitioned_store, "partitioned"), (stream_store, "stream")]
)
def test_a_pipeline_is_opened_whatever_its_layout(root, make, name):
    make(root if make is stream_store else root / "orders")
    layout = CheckpointHook().open("orders")
    assert layout.name == name
    assert len(layout.candidates()) >= 3


def test_a_layout_that_is_asked_for_counts_more_than_the_connections(root, connect):
    connect("lake", host=str(root), extra={"layout": "sidecar"})
    assert CheckpointHook("lake").open("new").name == "sidecar"
    assert CheckpointHook("lake", layout="partitioned").open("new").name == "partitioned"


def test_whoever_waits_is_told_that_there_is_nothing_yet(root, orders, connect):
    assert CheckpointHook().open_if_any("orders") is not None
    assert CheckpointHook().open_if_any("payments") is None
    with pytest.raises(ConfigurationError, match="nothing is there"):
        CheckpointHook().open("payments")


def test_whoever_waits_is_told_of_what_waiting_does_not_mend(root):
    (root / "letters").mkdir()
    (root / "letters" / "to-ada.txt").write_text("Dear Ada")
    with pytest.raises(ConfigurationError, match="unknown content"):
        CheckpointHook().open_if_any("letters")
    with pytest.raises(InvalidKeyError):
        CheckpointHook().open_if_any("../elsewhere")


def test_pipelines_are_found(root, orders):
    partitioned_store(root / "clicks")
    assert CheckpointHook().pipelines() == ["clicks", "orders"]


def test_a_local_store_is_tested_by_a_probe_that_leaves_nothing(root, orders):
    before = sorted(root.rglob("*"))
    good, message = CheckpointHook().test_connection()
    assert good
    assert "keeps two writers apart" in message
    assert "pipelines: orders" in message
    assert sorted(root.rglob("*")) == before


def test_a_job_is_told_where_its_store_is_in_words_without_secrets(connect):
    extra = {"endpoint_url": "http://127.0.0.1:1", "allow_unfenced": True, "storage_conn_id": "cloud"}
    connect("lake", host="s3://bucket/x", extra=extra)
    connect("cloud", "aws", login="key", password="hush-hush", extra={"region_name": "eu-west-1"})
    words = CheckpointHook("lake").job_arguments("orders")
    assert words == [
        *("--store", "s3://bucket/x", "--pipeline", "orders"),
        *("--store-option", "endpoint_url=http://127.0.0.1:1"),
        *("--store-option", "region=eu-west-1"),
        *("--store-option", "allow_unfenced=True"),
    ]


def test_a_job_is_told_the_account_of_an_azure_store_and_not_its_key(connect):
    connect("lake", host="az://container/x", extra={"storage_conn_id": "cloud"})
    connect("cloud", "wasb", login="acme", password="aHVzaC1odXNo")
    assert CheckpointHook("lake").job_arguments("orders") == [
        *("--store", "az://container/x", "--pipeline", "orders"),
        *("--store-option", "account_name=acme"),
    ]
