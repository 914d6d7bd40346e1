"""What a manifest is told is wrong with it."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint
from airflow_provider_checkpoint.model import Issue
from tests.unit.layouts.sidecar.making import COMMITTED, PENDING, manifest, vector

CHECKSUM = "ab" * 32


def error(code, message):
    return Issue.error(code, message)


def warning(code, message):
    return Issue.warning(code, message)


def offsets(epoch=1):
    return ConnectorCheckpoint(offsets={}, epoch=epoch)


def state(**operators):
    return {"operator_states": operators, "state_checksum": CHECKSUM}


CASES = {
    # The reference's, with its messages.
    "version 0": ({"version": 0}, warning("version_zero", "manifest version is 0")),
    "epoch 0": ({"epoch": 0}, error("epoch_zero", "epoch is 0")),
    "time 0": ({"timestamp_ms": 0}, warning("timestamp_zero", "timestamp_ms is 0 (missing creation time)")),
    "a sink without a status": (
        {"sink_epochs": {"a": 1, "b": 1}, "sink_commit_statuses": {"a": PENDING}},
        warning("sink_status_missing", "sink 'b' has epoch but no commit status"),
    ),
    "an unregistered source": (
        {"source_offsets": {"a": offsets(), "b": offsets()}, "source_names": ("a",)},
        warning("source_offsets_unregistered", "source_offsets contains 'b' not in source_names"),
    ),
    "no vnodes": ({"vnode_count": 0}, warning("vnode_count_zero", "vnode_count is 0 (missing or legacy checkpoint)")),
    # An error here, where the reference warns: keys would be looked for in the wrong shards.
    "other vnodes": (
        {"vnode_count": 128},
        error("vnode_count_mismatch", "vnode_count mismatch: checkpoint has 128, runtime expects 256"),
    ),
    # What it forgot.
    "a version from the future": (
        {"version": 2},
        error("version_unknown", "manifest version is 2, newer than 1, the last one known here"),
    ),
    "a time after all years": (
        {"timestamp_ms": 2**64 - 1},
        warning("timestamp_absurd", "timestamp_ms 18446744073709551615 lies after the year 9999"),
    ),
    "a status of a sink that is not registered": (
        {"sink_commit_statuses": {"b": COMMITTED}, "sink_names": ("a",)},
        warning("sink_unknown", "sink 'b' has a commit status but is no sink of this checkpoint"),
    ),
    "a status of a sink that has no epoch": (
        {"sink_epochs": {"a": 1}, "sink_commit_statuses": {"a": COMMITTED, "b": COMMITTED}},
        warning("sink_unknown", "sink 'b' has a commit status but is no sink of this checkpoint"),
    ),
    "an epoch of a sink that is not registered": (
        {"sink_epochs": {"b": 1}, "sink_names": ("a",)},
        warning("sink_epochs_unregistered", "sink_epochs contains 'b' not in sink_names"),
    ),
    "a watermark of a source that is not registered": (
        {"source_watermarks": {"b": 1}, "source_names": ("a",)},
        warning("source_watermarks_unregistered", "source_watermarks contains 'b' not in source_names"),
    ),
    "unsorted sources": (
        {"source_names": ("b", "a")},
        warning("source_names_unsorted", "source_names is not sorted"),
    ),
    "a source twice": (
        {"source_names": ("a", "a")},
        warning("source_names_duplicate", "source_names names something twice"),
    ),
    "unsorted sinks": ({"sink_names": ("b", "a")}, warning("sink_names_unsorted", "sink_names is not sorted")),
    "a sink twice": ({"sink_names": ("a", "a")}, warning("sink_names_duplicate", "sink_names names something twice")),
    "a source from the future": (
        {"source_offsets": {"a": offsets(2)}},
        warning("source_offsets_epoch", "source_offsets 'a' is of epoch 2, later than the checkpoint's own 1"),
    ),
    "a table from the future": (
        {"table_offsets": {"a": offsets(2)}},
        warning("table_offsets_epoch", "table_offsets 'a' is of epoch 2, later than the checkpoint's own 1"),
    ),
    "a sink from the future": (
        {"sink_epochs": {"a": 2}},
        warning("sink_epochs_epoch", "sink 'a' is of epoch 2, later than the checkpoint's own 1"),
    ),
    "a path that leads out of the store": (
        {"table_store_checkpoint_path": "../../etc/passwd"},
        warning("table_store_path_unsafe", "table_store_checkpoint_path: object name leads out of its folder"),
    ),
    "an absolute path": (
        {"table_store_checkpoint_path": "/var/tables"},
        warning("table_store_path_unsafe", "table_store_checkpoint_path: object name is absolute"),
    ),
    "state without a checksum": (
        {"operator_states": {"a": OperatorCheckpoint.inline(b"x")}},
        warning("state_unprotected", "there is state but no state_checksum: damage cannot be seen"),
    ),
    "a checksum that is none": (
        {"operator_states": {"a": OperatorCheckpoint.inline(b"x")}, "state_checksum": CHECKSUM.upper()},
        error("state_checksum_malformed", "state_checksum is not a SHA-256 in lower-case hex"),
    ),
    "a sidecar nobody claims": (
        {"state_checksum": CHECKSUM},
        warning("sidecar_unclaimed", "state_checksum covers a sidecar of which no operator claims a part"),
    ),
    "state in two places": (
        state(a=OperatorCheckpoint(state_b64="eA==", external=True, external_length=5)),
        warning("operator_ambiguous", "operator 'a' has inline state beside the sidecar's: ignored"),
    ),
    "a name that blurs the checksum": (
        state(**{"a\0b": OperatorCheckpoint.inline(b"x")}),
        error("operator_name_malformed", r"operator 'a\x00b': its name holds a NUL character"),
    ),
    "overlapping ranges": (
        state(a=OperatorCheckpoint.at(0, 10), b=OperatorCheckpoint.at(9, 10)),
        error("range_overlap", "operators 'a' and 'b' claim the same part of the sidecar"),
    ),
    "a range within a range": (
        state(a=OperatorCheckpoint.at(0, 10), b=OperatorCheckpoint.at(2, 3)),
        error("range_overlap", "operators 'a' and 'b' claim the same part of the sidecar"),
    ),
    "a range within a range, and one after both": (
        state(a=OperatorCheckpoint.at(0, 10), b=OperatorCheckpoint.at(2, 3), c=OperatorCheckpoint.at(10, 5)),
        error("range_overlap", "operators 'a' and 'b' claim the same part of the sidecar"),
    ),
    "equal ranges": (
        state(a=OperatorCheckpoint.at(0, 10), b=OperatorCheckpoint.at(0, 10)),
        error("range_overlap", "operators 'a' and 'b' claim the same part of the sidecar"),
    ),
    "a range past all numbers": (
        state(a=OperatorCheckpoint.at(2**64 - 1, 2)),
        error("range_overflow", f"operator 'a': the sidecar cannot reach {2**64 + 1} bytes"),
    ),
    "a gap at the start": (
        state(a=OperatorCheckpoint.at(5, 10)),
        warning("range_gap", "bytes 0 to 5 of the sidecar belong to no operator"),
    ),
    "a gap in between": (
        state(a=OperatorCheckpoint.at(0, 5), b=OperatorCheckpoint.at(7, 1)),
        warning("range_gap", "bytes 5 to 7 of the sidecar belong to no operator"),
    ),
}


@pytest.mark.parametrize(("values", "issue"), CASES.values(), ids=CASES)
def test_each_broken_rule_is_told_alone_and_with_its_weight(values, issue):
    assert manifest(1, **values).validate(256) == [issue]


def test_an_id_of_zero_is_an_error():
    made = manifest(1, checkpoint_id=0)
    assert made.validate(256) == [error("checkpoint_id_zero", "checkpoint_id is 0")]


def test_inline_state_that_is_not_base64_is_an_error():
    (issue,) = manifest(1, **state(a=OperatorCheckpoint(state_b64="?"))).validate(256)
    assert (issue.severity, issue.code) == ("error", "inline_state_corrupt")


def test_the_rules_of_the_reference_come_first_and_in_its_order():
    made = CheckpointManifest(
        version=0,
        checkpoint_id=0,
        epoch=0,
        timestamp_ms=0,
        source_offsets={"b": ConnectorCheckpoint(offsets={}, epoch=0)},
        sink_epochs={"x": 0, "y": 0},
        sink_commit_statuses={"y": PENDING},
        source_names=("a",),
    )
    assert [issue.message for issue in made.validate(256)] == [
        "manifest version is 0",
        "checkpoint_id is 0",
        "epoch is 0",
        "timestamp_ms is 0 (missing creation time)",
        "sink 'x' has epoch but no commit status",
        "source_offsets contains 'b' not in source_names",
        "vnode_count is 0 (missing or legacy checkpoint)",
    ]


@pytest.mark.parametrize("name", ["L1_", "L2_", "L2b_", "L3_manifest", "L4_manifest"])
def test_nothing_is_wrong_with_what_the_reference_writes(name):
    assert CheckpointManifest.from_json(vector(name)).validate(256) == []


FINE = {
    "names not recorded": {"source_offsets": {"a": offsets()}, "sink_epochs": {"s": 1}},
    "a sink without statuses at all": {"sink_epochs": {"s": 1}, "sink_names": ("s",)},
    "ranges end to end": state(b=OperatorCheckpoint.at(0, 5), a=OperatorCheckpoint.at(5, 5)),
    "an empty range": state(
        a=OperatorCheckpoint.at(0, 5), b=OperatorCheckpoint.at(5, 0), c=OperatorCheckpoint.at(5, 1)
    ),
    "an empty range inside another": state(a=OperatorCheckpoint.at(0, 5), b=OperatorCheckpoint.at(3, 0)),
    "an operator without state": state(a=OperatorCheckpoint()),
    "a range up to the last number": state(a=OperatorCheckpoint.at(0, 2**64 - 1)),
    "a path inside the store": {"table_store_checkpoint_path": "tables/snapshot-1"},
}


@pytest.mark.parametrize("values", FINE.values(), ids=FINE)
def test_what_is_unusual_but_right_is_not_told(values):
    assert manifest(1, **values).validate(256) == []


def test_a_report_stays_short_however_much_is_wrong():
    made = manifest(1, **state(**{f"{number:05d}": OperatorCheckpoint.at(0, 9) for number in range(10_000)}))
    issues = made.validate(256)
    assert len(issues) == 21
    assert {issue.code for issue in issues} == {"range_overlap"}
    assert issues[-1].message.startswith("9979 more of the kind")


def test_a_message_stays_short_however_long_a_name_is():
    made = manifest(1, source_offsets={"x" * 1_000_000: offsets()}, source_names=("a",))
    (issue,) = made.validate(256)
    assert len(issue.message) < 600


def test_the_expected_count_of_vnodes_is_the_callers():
    assert manifest(1, vnode_count=128).validate(128) == []
    assert [issue.code for issue in manifest(1).validate(128)] == ["vnode_count_mismatch"]
    assert manifest(1, vnode_count=128).validate(None) == []
    assert [issue.code for issue in manifest(1, vnode_count=0).validate(None)] == ["vnode_count_zero"]
