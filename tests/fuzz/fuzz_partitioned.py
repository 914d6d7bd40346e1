"""Any bytes as a manifest of the partitioned layout: understood, and then written and read again alike, or corrupt."""

from __future__ import annotations

import contextlib

from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts._json import parse_object
from airflow_provider_checkpoint.layouts.partitioned import decode_manifest, encode_manifest, resolve
from airflow_provider_checkpoint.layouts.partitioned._checkpoint import as_checkpoint
from airflow_provider_checkpoint.layouts.partitioned._manifest import with_sinks
from airflow_provider_checkpoint.layouts.partitioned._rules import identity_issues, rule_issues
from airflow_provider_checkpoint.model import SinkState, SinkStatus


def fuzz_one(data: bytes) -> None:
    try:
        manifest = decode_manifest(data, subject="fuzz")
    except CorruptError:
        return
    written = encode_manifest(manifest)
    assert decode_manifest(written, subject="fuzz") == manifest
    assert encode_manifest(decode_manifest(written, subject="fuzz")) == written

    values = parse_object(data, subject="fuzz")
    changed = with_sinks(values, {"sink": SinkStatus(SinkState.FAILED, message="why")}, {"sink": 1}, subject="fuzz")
    assert changed is None or decode_manifest(changed, subject="fuzz").sink_epochs["sink"] == 1

    identity_issues(manifest, manifest.checkpoint_id)
    rule_issues(manifest, expected_vnodes=256)
    with contextlib.suppress(CorruptError):
        checkpoint = as_checkpoint(manifest)
        assert sum(len(chain.artifacts) for chain in resolve(manifest).values()) == len(checkpoint.artifacts)
