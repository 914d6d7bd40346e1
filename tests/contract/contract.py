"""The promises of a blob store as tests. Give a ``backend`` fixture and inherit them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.listing import Listing
from tests.contract.naming import Naming
from tests.contract.racing import Racing
from tests.contract.reading import Reading
from tests.contract.writing import Writing

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore, Capabilities
    from tests.contract.backends import Backend


class BlobStoreContract(Reading, Writing, Listing, Naming, Racing):
    """Every promise of ``blobs/_protocol.py``; ``capabilities`` says which of the optional ones must hold."""

    capabilities: Capabilities

    @pytest.fixture
    def store(self, backend: Backend) -> BlobStore:
        return backend.open()

    def test_capabilities_are_stated(self, store: BlobStore) -> None:
        assert store.capabilities == self.capabilities

    def test_a_store_is_shown_by_its_address(self, store: BlobStore) -> None:
        assert store.uri in repr(store)
        assert not store.uri.endswith("/")
