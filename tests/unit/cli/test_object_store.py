"""The command on a real S3 server: secrets from the environment or a file, refusals with exit code 3."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from tests.unit.cli.making import add_sidecar


@pytest.fixture
def address(seaweedfs):
    uri = seaweedfs.fresh()
    layout = SidecarLayout(open_blobs(uri, seaweedfs.options()), inline_threshold=8)
    for number in (1, 2, 3):
        add_sidecar(layout, number, hours=4 - number)
    return uri


@pytest.fixture
def words(seaweedfs, monkeypatch):
    """How to reach the server, without its secret."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "admin-secret")
    return ["-o", f"endpoint_url={seaweedfs.endpoint}", "-o", "region=us-east-1", "-o", "access_key_id=admin"]


def test_the_secret_is_taken_from_the_environment(run, address, words):
    listed = run("list", address, *words, "--json")
    assert listed.code == 0
    assert [entry["checkpoint_id"] for entry in listed.document["checkpoints"]] == [3, 2, 1]
    assert run("validate", address, *words, "--depth", "content").code == 0


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_everything_may_come_from_the_environment(run, seaweedfs, address, monkeypatch, name):
    given = {name: seaweedfs.endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "admin"}
    for variable, value in {**given, "AWS_SECRET_ACCESS_KEY": "admin-secret"}.items():
        monkeypatch.setenv(variable, value)
    assert run("validate", address, "--depth", "content").code == 0
    monkeypatch.setenv(name, "not an address")
    assert run("list", address).code == 2


def test_the_secret_is_taken_from_a_file(run, seaweedfs, address, tmp_path):
    file = tmp_path / "options.json"
    file.write_text(json.dumps(seaweedfs.options()))
    assert run("prune", address, "--option-file", file, "--keep-last", 1, "--yes").code == 0
    assert run("undelete", address, 1, "--option-file", file).code == 0


def test_a_wrong_secret_is_refused_with_exit_code_3(run, address, words, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused = run("list", address, *words)
    assert refused.code == 3
    assert refused.err.startswith("error: ")
    assert run("list", address, *words, "--json").document["error"]["kind"] == "AccessDeniedError"


def test_a_missing_bucket_has_exit_code_3(run, words):
    refused = run("list", "s3://no-such-bucket/x", *words)
    assert refused.code == 3


def test_whoever_may_only_read_can_validate_without_a_record_and_prune_nothing(run, seaweedfs, address, tmp_path):
    file = tmp_path / "options.json"
    file.write_text(json.dumps(seaweedfs.options("reader")))
    assert run("validate", address, "--option-file", file, "--no-record").code == 0
    refused = run("prune", address, "--option-file", file, "--keep-last", 1, "--yes", "--json")
    assert refused.code == 3
    assert refused.document["applied"] is False
    assert refused.document["error"]["kind"] == "AccessDeniedError"
    assert len(run("list", address, "--option-file", file, "--json").document["checkpoints"]) == 3
