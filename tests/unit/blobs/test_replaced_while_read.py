"""An object that is replaced while a connection breaks: a whole is read anew, never mixed and never given up."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import open_blobs, sha256_of
from airflow_provider_checkpoint.exceptions import BlobChangedError, TransientError
from tests.contract.proxy import Trouble

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.proxy import Proxy
    from tests.servers import S3Server

#: As a manifest: its statuses are recorded while somebody else reads it.
OLD, NEW = b'{"sink": "pending"}' * 40, b'{"sink": "committed"}' * 40


@pytest.fixture
def stores(seaweedfs: S3Server, proxy: Proxy) -> tuple[BlobStore, BlobStore]:
    address = seaweedfs.fresh()
    direct = open_blobs(address, seaweedfs.options())
    return direct, open_blobs(address, {**seaweedfs.options(max_retries=0), "endpoint_url": proxy.endpoint})


@pytest.mark.parametrize("limit", [None, 1_000_000], ids=["whole", "with a limit"])
def test_a_read_of_an_object_replaced_under_a_broken_connection_has_the_new_bytes(stores, proxy, limit):
    direct, store = stores
    direct.create("manifest", OLD)
    order = proxy.order(Trouble.CUT_BODY, "GET", "manifest", then=lambda: direct.replace("manifest", NEW))
    assert store.read("manifest", length=limit) == NEW
    assert order.done == 1


def test_so_has_a_digest(stores, proxy):
    direct, store = stores
    direct.create("manifest", OLD)
    proxy.order(Trouble.CUT_BODY, "GET", "manifest", then=lambda: direct.replace("manifest", NEW))
    assert sha256_of(store, "manifest").sha256 == hashlib.sha256(NEW).hexdigest()


def test_an_object_that_is_replaced_without_end_is_given_up(stores, proxy):
    direct, store = stores
    direct.create("manifest", OLD)
    bodies = iter(NEW + bytes([number]) for number in range(100))
    proxy.order(Trouble.CUT_BODY, "GET", "manifest", times=100, then=lambda: direct.replace("manifest", next(bodies)))
    with pytest.raises((BlobChangedError, TransientError)):
        store.read("manifest")
