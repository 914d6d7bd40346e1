"""Going back: the reference's cases for its recovery, under its names."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, SidecarLayout
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.layouts.sidecar.making import committed, manifest, pending, put, vector


@pytest.fixture
def store(any_blobs):
    return SidecarLayout(any_blobs, inline_threshold=4)


def recovered(store):
    """The manifest that a pipeline would start from."""
    chosen = store.recover_latest_validated().chosen_id
    return None if chosen is None else store.load_by_id(chosen)


def states(store, made):
    return {name: store.load_operator_state(made, name) for name in made.operator_states}


def test_no_checkpoint(store):
    assert recovered(store) is None
    assert store.recover_latest_validated().empty


def test_watermark(store):
    store.save(manifest(1, watermark=42_000, source_watermarks={"s": 41_000}))
    assert recovered(store).watermark == 42_000
    assert recovered(store).source_watermarks == {"s": 41_000}


def test_operator_states(store):
    store.save_operator_states(manifest(1), {"a": b"1", "b": b"22"})
    assert states(store, recovered(store)) == {"a": b"1", "b": b"22"}


def test_sidecar_resolved(store):
    store.save_operator_states(manifest(1), {"a": b"12345", "b": b"67890"})
    assert states(store, recovered(store)) == {"a": b"12345", "b": b"67890"}


def test_mixed(store):
    store.save_operator_states(manifest(1), {"a": b"12345", "b": b"6"})
    assert states(store, recovered(store)) == {"a": b"12345", "b": b"6"}


def test_the_references_mixed_checkpoint(store, any_blobs):
    put(any_blobs, vector("L4_manifest"), 1, vector("L4_state"))
    assert states(store, recovered(store)) == {"big-op": vector("L4_state"), "small-op": b"tiny"}


def test_missing_sidecar_strict_rejected(store, any_blobs):
    store.save(manifest(1))
    saved = store.save_operator_states(manifest(2), {"a": b"12345"})
    any_blobs.delete(["checkpoints/state-000002.bin"])
    assert recovered(store).checkpoint_id == 1
    # The reference's lenient way, an empty operator, is not offered: it would be wrong results without a word.
    with pytest.raises(CorruptError):
        store.load_operator_state(saved, "a")


@pytest.mark.parametrize("damage", [b"torn", manifest(7).to_json(), manifest(2, version=3).to_json()])
def test_corrupt_latest_previous(store, any_blobs, damage):
    store.save(manifest(1))
    store.save(manifest(2))
    put(any_blobs, damage, 2)
    assert recovered(store).checkpoint_id == 1


def test_corrupt_state_of_latest_previous(store, any_blobs):
    for number in (1, 2):
        store.save_operator_states(manifest(number), {"a": b"12345"})
    any_blobs.replace("checkpoints/state-000002.bin", b"12344")
    report = store.recover_latest_validated()
    assert report.chosen_id == 1
    assert "checksum mismatch" in report.skipped[0][1]


def test_all_corrupt_fresh_but_not_silently(store, any_blobs):
    put(any_blobs, b"torn", 1)
    assert recovered(store) is None
    assert not store.recover_latest_validated().empty


def test_pending_latest_previous_committed(store):
    store.save(pending(1))
    store.update_manifest(committed(pending(1)))
    store.save(pending(2))
    report = store.recover_latest_validated()
    assert report.chosen_id == 1
    assert report.skipped == [(2, "its commit was never decided (sinks not committed: sink)")]


@pytest.mark.parametrize(
    "marker", ["checkpoint-decisions/epoch=2/commit", "decisions/timeline-000001/epoch-000002.json"]
)
def test_pending_latest_whose_commit_was_decided_is_part_of_history(store, any_blobs, marker):
    store.save(manifest(1))
    store.save(pending(2))
    any_blobs.create(marker, b"{}")
    assert store.recover_latest_validated().chosen_id == 2


def test_what_an_abandoned_timeline_wrote_after_the_fork_is_passed_over(store, any_blobs, clock):
    store.save(manifest(1))
    store.save(manifest(2))
    start = store.load(CheckpointId(1))
    open_timeline(any_blobs, start=start, has_checkpoints=True, writer="w", now=clock())
    report = store.recover_latest_validated()
    assert report.chosen_id == 1
    assert report.skipped == [(2, "on an abandoned branch (timeline 1)")]


def test_all_pending_fresh_but_not_silently(store):
    store.save(pending(1))
    store.save(pending(2))
    report = store.recover_latest_validated()
    assert report.chosen_id is None
    assert not report.empty


def test_the_pointer_is_not_asked(store, any_blobs):
    store.save(manifest(1))
    store.save(manifest(2))
    any_blobs.replace("manifests/latest.json", b'{"checkpoint_id":1}')
    assert recovered(store).checkpoint_id == 2


def test_several_reasons_are_told_together(store, any_blobs):
    put(any_blobs, manifest(2, epoch=0, vnode_count=128), 2)
    ((number, reason),) = store.recover_latest_validated().skipped
    assert number == 2
    assert reason == "epoch is 0; vnode_count mismatch: checkpoint has 128, runtime expects 256"


def test_a_checkpoint_of_other_vnodes_is_found_by_a_store_that_has_them(store):
    wide = store.with_vnode_count(512)
    wide.save(manifest(1, vnode_count=512))
    assert recovered(store) is None
    assert recovered(wide).vnode_count == 512


def test_a_store_that_expects_no_count_of_vnodes_takes_any(any_blobs):
    store = SidecarLayout(any_blobs, vnode_count=None)
    for number, count in enumerate((256, 512), start=1):
        store.save(manifest(number, vnode_count=count))
        assert recovered(store).vnode_count == count


def test_the_time_it_took_is_told(blobs, clock):
    class Ticking:
        def __call__(self):
            clock.advance(timedelta(seconds=3))
            return clock()

    assert SidecarLayout(blobs, clock=Ticking()).recover_latest_validated().elapsed == timedelta(seconds=3)


def test_a_report_survives_json(store, any_blobs):
    put(any_blobs, b"torn", 2)
    store.save(manifest(1))
    report = store.recover_latest_validated()
    assert type(report).model_validate_json(report.model_dump_json()) == report


def test_a_checkpoint_of_the_oldest_writer_can_be_gone_back_to(store, any_blobs):
    put(any_blobs, vector("L7"), 1)
    assert recovered(store) == CheckpointManifest.from_json(vector("L7"))
