"""Whatever is typed: a message with a hint, the right exit code, no traceback, and a store that is as it was."""

from __future__ import annotations

import json

import pytest

from airflow_provider_checkpoint import exceptions
from airflow_provider_checkpoint.cli.exits import exit_code
from airflow_provider_checkpoint.cli.opening import SECRETS, store_options
from tests.unit.cli.making import everything_in, sidecar_store, stream_store


@pytest.fixture
def store(tmp_path):
    sidecar_store(tmp_path / "store", count=2)
    stream_store(tmp_path / "streams", count=1)
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "photo.jpg").write_bytes(b"")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        # addresses
        (["list", ""], "the address is empty"),
        (["list", "nosuch://bucket/x"], "unknown kind of store 'nosuch'"),
        (["list", "s3://"], "names no bucket"),
        (["list", "s3://user:hunter2@bucket/x"], "must not hold a user, secret or port"),
        (["list", "s3://bucket/../x"], "leads out of its folder"),
        (["list", "file://host/x"], "cannot name another host"),
        (["list", "{root}/missing"], "nothing is there"),
        (["list", "{root}/unknown"], "unknown content"),
        (["list", "{root}"], "pipelines below"),
        (["list", "{root}", "--pipeline", "missing"], "nothing is there"),
        (["list", "{root}", "--pipeline", "../x"], "nothing is there"),
        (["list", "{root}", "--layout", "sidecar", "--pipeline", "../x"], "not the name of a pipeline"),
        # options
        (["list", "{store}", "--layout", "csv"], "invalid choice: 'csv'"),
        (["list", "{store}", "--layout", "stream"], "this looks like sidecar (manifests/"),
        (["list", "{root}", "--layout", "sidecar"], "pipelines below"),
        (["list", "{store}", "-o", "colour=blue"], "unknown storage option 'colour'"),
        (["list", "{store}", "-o", "path_style=perhaps"], "storage option 'path_style'"),
        (["list", "{store}", "-o", "hunter2"], "not a setting"),
        (["list", "{store}", "-o", "secret_access_key=hunter2"], "does not belong on a command line"),
        (["list", "{store}", "-o", "extra=hunter2"], "does not belong on a command line"),
        (["list", "{store}", "-o", "credentials=hunter2"], "can only be given in Python"),
        (["list", "{store}", "--option-file", "{root}/missing.json"], "cannot read the option file"),
        (["list", "{store}", "--option-file", "{root}"], "cannot read the option file"),
        (["list", "{store}", "--option-file", "{root}/broken.json"], "is not JSON"),
        (["list", "{store}", "--option-file", "{root}/list.json"], "holds no JSON object"),
        (["list", "{root}/streams", "--pipeline", "orders", "--vnode-count", "4"], "does not take these options"),
        # ids
        (["show", "{store}", "abc"], "id"),
        (["show", "{store}", "77"], "there is no checkpoint 77"),
        (["validate", "{store}", "77"], "there is no checkpoint 77"),
        (["validate", "{store}", "1", "abc"], "id"),
        (["undelete", "{store}", "1"], "is not in the trash"),
        (["undelete", "{store}", "../1"], "id"),
        (["pin", "{store}", "77", "--name", "x", "--reason", "y"], "77"),
        (["unpin", "{store}", "gold"], "no pin named 'gold'"),
        (["recover", "{store}", "--pin", "gold"], "no pin named 'gold'"),
        (["recover", "{store}", "--skip", "abc"], "id"),
        (["restore", "{store}", "77"], "77"),
        # policies, spans, times
        (["prune", "{store}"], "no rule says what to keep"),
        (["prune", "{store}", "--min-age", "24h"], "no rule says what to keep"),
        (["prune", "{store}", "--keep-last", "-1"], "not a whole number, zero or more"),
        (["prune", "{store}", "--keep-last", "many"], "not a whole number"),
        (["prune", "{store}", "--keep-within", "7"], "not a span of time"),
        (["prune", "{store}", "--keep-within", "99999999d"], "span too long"),
        (["prune", "{store}", "--keep-last", "1", "--time-zone", "Mars/Base"], "unknown time zone"),
        (["prune", "{store}", "--keep-last", "1", "--time-zone", "Europe"], "unknown time zone"),
        (["prune", "{store}", "--keep-last", "1", "--time-zone", "../../etc/passwd"], "unknown time zone"),
        (["prune", "{store}", "--keep-last", "1", "--depth", "soul"], "invalid choice: 'soul'"),
        (["prune", "{store}", "--keep-l", "1"], "unrecognized arguments: --keep-l 1"),
        (["recover", "{store}", "--at", "14:05"], "not a time"),
        (["recover", "{store}", "--at", "2026-11-15T14:05"], "without a zone"),
        (["recover", "{store}", "--max-rollback", "far"], "not a span of time"),
        (["recover", "{store}", "--strategy", "before_time"], "needs at"),
        (["recover", "{store}", "--strategy", "latest", "--epoch", "3"], "does not look at epoch"),
        (["recover", "{store}", "--epoch", "3", "--pin", "gold"], "ask for different points"),
        (["recover", "{store}", "--offset", "3"], "needs source"),
        (["orphans", "{store}", "--max-share", "2"], "not a share"),
        (["sweep", "{store}", "--undo-window", "-1d"], "expected one argument"),
        (["pin", "{store}", "1", "--name", "", "--reason", "x"], "a pin needs a name"),
        (["pin", "{store}", "1", "--name", "x", "--reason", "y", "--expires", "0s"], "would expire at once"),
        (["pin", "{store}", "1", "--reason", "y"], "--name"),
        # combinations and verbs
        (["validate", "{store}", "1", "--rolling"], "exclude each other"),
        (["validate", "{store}", "--all", "--sample", "1"], "exclude each other"),
        (["validate", "{store}", "--sample", "0"], "at least 1"),
        (["destroy", "{store}"], "invalid choice: 'destroy'"),
        (["list"], "URI"),
        (["list", "{store}", "extra"], "unrecognized arguments: extra"),
    ],
)
def test_wrong_usage_is_told_and_changes_nothing(run, store, words, told):
    before = everything_in(store)
    typed = [word.format(store=store / "store", root=store) for word in words]
    refused = run(*typed)
    assert refused.code == 2
    assert refused.out == ""
    assert told in refused.err
    assert "Traceback" not in refused.err
    assert "error: " in refused.err
    assert "hunter2" not in refused.err
    as_json = run(*typed, "--json")
    assert as_json.code == 2
    assert told in as_json.document["error"]["message"] + str(as_json.document["error"]["subject"])
    assert {"kind", "message", "subject", "hint"} == as_json.document["error"].keys()
    assert "hunter2" not in as_json.out
    assert everything_in(store) == before


EXITS = {
    0: [],
    1: [
        exceptions.NoRecoveryPointError,
        exceptions.ConfirmationNeededError,
        exceptions.NoEvidenceError,
        exceptions.CorruptManifestError,
        exceptions.CorruptArtifactError,
        exceptions.CheckpointConflictError,
        exceptions.CheckpointInUseError,
        exceptions.FencedWriterError,
        exceptions.BlobChangedError,
    ],
    2: [
        exceptions.ConfigurationError,
        exceptions.CheckpointNotFoundError,
        exceptions.InvalidKeyError,
        exceptions.UnsupportedError,
    ],
    3: [
        exceptions.StoreUnavailableError,
        exceptions.OutcomeUnknownError,
        exceptions.AccessDeniedError,
        exceptions.ContainerNotFoundError,
        exceptions.UnfencedStoreError,
        exceptions.ForkedProcessError,
    ],
}


@pytest.mark.parametrize(("code", "kind"), [(code, kind) for code, kinds in EXITS.items() for kind in kinds])
def test_each_kind_of_error_has_its_exit_code(code, kind):
    assert exit_code(kind("x")) == code


def test_secrets_are_known_by_their_type():
    assert {"secret_access_key", "session_token", "account_key", "sas_token"} == SECRETS


def test_a_file_may_hold_secrets_and_what_is_typed_goes_before_it(tmp_path):
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"secret_access_key": "s", "region": "a", "extra": {"x": 1}, "max_retries": 1}))
    options = store_options([("region", "b"), ("max_retries", "0")], str(file))
    assert options.secret_access_key is not None
    assert options.secret_access_key.get_secret_value() == "s"
    assert (options.region, options.max_retries, options.extra) == ("b", 0, {"x": 1})


def test_a_secret_in_a_broken_file_is_not_repeated(run, store):
    (store / "broken.json").write_text('{"secret_access_key": "hunter2"')
    refused = run("list", store / "store", "--option-file", store / "broken.json")
    assert refused.code == 2
    assert "hunter2" not in refused.err


def test_debug_shows_where_an_error_comes_from_and_keeps_the_exit_code(run, store):
    told = run("show", store / "store", 77, "--debug")
    assert told.code == 2
    assert "Traceback" in told.err
    assert "error: there is no checkpoint 77" in told.err


def test_a_bug_is_no_finding(run, store, monkeypatch):
    monkeypatch.setattr("airflow_provider_checkpoint.cli.verbs.listing.survey", lambda _layout: 1 / 0)
    told = run("list", store / "store", "--json")
    assert told.code == 70
    assert "error: ZeroDivisionError" in told.err
    assert "Traceback" not in told.err
    assert told.document["error"]["kind"] == "ZeroDivisionError"
    assert "Traceback" in run("list", store / "store", "--debug").err
