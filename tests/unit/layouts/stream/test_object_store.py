"""The same store on a real S3 server: percent signs in names, and a state too large for one request."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointConflictError
from airflow_provider_checkpoint.layouts import open_store, pipelines
from airflow_provider_checkpoint.layouts.stream import StreamStore
from airflow_provider_checkpoint.model import CheckpointId, Depth
from tests.unit.layouts.stream.making import same, state

MIB = 1024 * 1024


def test_streams_with_odd_names_do_not_meet_on_s3(seaweedfs):
    uri, options = seaweedfs.fresh(), seaweedfs.options()
    store = StreamStore(open_blobs(uri, options), 2)
    names = ["a/b", "a.b", "a%2Fb", "a b", "ж", ".."]
    for number, name in enumerate(names):
        for sequence in range(number, number + 3):
            store.save(state(sequence, stream=name))
    assert store.streams() == sorted(names)
    assert pipelines(uri, options=options) == sorted(names)
    for number, name in enumerate(names):
        assert [found.sequence for found in store.list(name)] == [number + 1, number + 2]
        assert same(store.latest(name).state, state(number + 2))
        layout = open_store(uri, pipeline=name, options=options)
        assert layout.load(CheckpointId(number + 2)).event_count == number + 2


def test_a_large_state_is_streamed_to_s3_and_back(seaweedfs):
    store = StreamStore(open_blobs(seaweedfs.fresh(), seaweedfs.options()), 2)
    large = state(1, operators={"a": bytes(40 * MIB), "b": b"\1" * (30 * MIB)}, sources={"s": 9})
    store.save(large)
    store.save(large)
    with pytest.raises(CheckpointConflictError):
        store.save(state(1, operators={"a": b"other"}))
    assert same(store.latest("orders").state, large)
    layout = store.layout("orders")
    checkpoint = layout.load(CheckpointId(1))
    assert checkpoint.sources["s"].offsets == {"offset": "9"}
    for depth in (Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE):
        assert [issue for check in layout.checks(checkpoint, depth) for issue in check.run()] == []
