from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.layouts.partitioned import PartitionedLayout

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore


@pytest.fixture(params=["memory", "local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path / "store")


@pytest.fixture
def layout(blobs: BlobStore) -> PartitionedLayout:
    return PartitionedLayout(blobs)
