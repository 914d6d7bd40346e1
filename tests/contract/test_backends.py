"""The contract, back end by back end."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from airflow_provider_checkpoint.blobs import Capabilities
from airflow_provider_checkpoint.exceptions import StoreUnavailableError
from tests.contract import backends
from tests.contract.contract import BlobStoreContract
from tests.contract.racers import create_large_in_turns, in_threads
from tests.contract.racing import LARGE_ROUNDS

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.backends import Backend
    from tests.servers import AzureServer, S3Server


def capabilities(*names: str) -> Capabilities:
    return Capabilities(**{name: name in names for name in Capabilities.__dataclass_fields__})


OBJECT = capabilities(*Capabilities.__dataclass_fields__)


class TestLocal(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "compare_and_swap", "atomic_write", "durable", "streaming_list")

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return backends.local(tmp_path)


class TestMemory(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "compare_and_swap", "atomic_write", "bulk_delete", "streaming_list")

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.memory()


class TestObstoreLocal(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "atomic_write", "durable", "bulk_delete", "streaming_list")

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return backends.obstore_local(tmp_path)

    def test_nothing_lies_below_an_object(self, store: BlobStore) -> None:
        """This client takes such a name for a fault of the disk: told, if under another name."""
        store.create("object", b"1")
        with pytest.raises(StoreUnavailableError):
            store.stat("object/below")
        assert not store.delete(["object/below"])[0].deleted
        assert store.read("object") == b"1"


class TestObstoreMemory(BlobStoreContract):
    capabilities = OBJECT

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.obstore_memory()


class TestS3(BlobStoreContract):
    capabilities = OBJECT

    @pytest.fixture
    def backend(self, seaweedfs: S3Server) -> Backend:
        return backends.s3(seaweedfs)

    def test_of_threads_that_create_one_large_object_exactly_one_wins(self, backend: Backend) -> None:
        """SeaweedFS lets several uploads in parts take one name at the same time, whatever their condition.

        So here, and only where large objects race, all that can be shown is that one of those who were told that they
        had won did win, with all its bytes. Where an object stood before, no upload writes over it; see ``Writing``.
        """
        store = backend.staging()
        racers = in_threads(4, create_large_in_turns, store, LARGE_ROUNDS)
        for number in range(LARGE_ROUNDS):
            winners = [racer[number].body * 4096 * 20 for racer in racers if racer[number].created]
            assert store.read(f"large/{number}") in winners
        assert not list(store.list(temporary=True))


class TestS3ThroughFsspec(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "atomic_write", "durable")

    @pytest.fixture
    def backend(self, seaweedfs: S3Server) -> Backend:
        return backends.s3(seaweedfs, client="fsspec")


class TestAzure(BlobStoreContract):
    capabilities = OBJECT

    @pytest.fixture
    def backend(self, azurite: AzureServer) -> Backend:
        return backends.azure(azurite)


class TestFsspecLocal(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "atomic_write")

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return backends.fsspec_local(tmp_path)


class TestFsspecMemory(BlobStoreContract):
    capabilities = capabilities("exclusive_create", "atomic_write")

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.fsspec_memory(uuid4().hex)
