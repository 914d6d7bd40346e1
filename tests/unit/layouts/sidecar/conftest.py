"""Stores and a clock for the tests of the sidecar layout."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from tests.unit.layouts.sidecar.making import Clock, WithoutSwap


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def blobs(clock):
    return MemoryBlobs(clock=clock)


@pytest.fixture
def layout(blobs, clock):
    return SidecarLayout(blobs, clock=clock)


@pytest.fixture(params=["memory", "local", "without-swap"])
def any_blobs(request, tmp_path, clock):
    """Each kind of store that behaves differently towards this layout."""
    match request.param:
        case "memory":
            return MemoryBlobs(clock=clock)
        case "local":
            return LocalBlobs(tmp_path)
        case _:
            return WithoutSwap(MemoryBlobs(clock=clock))
