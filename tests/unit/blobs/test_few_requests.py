"""What a read, a name and a listing may cost: few requests, and no shortcut that answers otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs, _protocol, open_blobs
from airflow_provider_checkpoint.blobs._protocol import check_key, is_temporary, probe_key, temporary_key
from airflow_provider_checkpoint.exceptions import BlobNotFoundError, InvalidKeyError
from tests.contract.proxy import Proxy, Trouble

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.servers import S3Server

MEGABYTE = 1024 * 1024
BODY = bytes(range(256)) * 16 * 1024  # four megabytes


@pytest.fixture
def watched(seaweedfs: S3Server, proxy: Proxy) -> BlobStore:
    """A store whose requests the proxy counts, with one small, one large and one empty object."""
    store = open_blobs(seaweedfs.fresh(), {**seaweedfs.options(), "endpoint_url": proxy.endpoint})
    for key, body in {"small": b"manifest", "large": BODY, "empty": b""}.items():
        store.replace(key, body)
    proxy.requests.clear()
    return store


@pytest.mark.parametrize(
    ("key", "length", "wanted", "methods"),
    [
        ("small", None, b"manifest", ["GET"]),
        ("small", 256 * MEGABYTE, b"manifest", ["GET"]),
        ("small", 3, b"man", ["GET"]),
        ("small", 8, b"manifest", ["GET"]),
        ("empty", 37, b"", ["GET"]),
        ("large", 5, BODY[:5], ["GET", "GET"]),
        ("large", len(BODY) + 1, BODY, ["GET"]),
    ],
)
def test_the_beginning_of_a_small_object_is_read_by_one_request(
    watched: BlobStore, proxy: Proxy, key: str, length: int | None, wanted: bytes, methods: list[str]
):
    assert watched.read(key, length=length) == wanted
    assert [method for method, _ in proxy.requests] == methods


def test_a_beginning_that_breaks_off_is_taken_up_again_and_still_cut(watched: BlobStore, proxy: Proxy):
    order = proxy.order(Trouble.CUT_BODY, "GET", "large")
    assert watched.read("large", length=3 * MEGABYTE) == BODY[: 3 * MEGABYTE]
    assert order.done


def test_the_beginning_of_a_missing_object_is_an_error(watched: BlobStore):
    with pytest.raises(BlobNotFoundError):
        watched.read("missing", length=5)


# -- names -------------------------------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    ["a", "Z", "0", ".", "..", "/", "\\", "%2F", "é", "\n", "\x7f", " ", "-", "~", "_", "x" * 199]
)


def _verdict(key: str) -> str | None:
    try:
        check_key(key)
    except InvalidKeyError as error:
        return error.message
    return None


@given(st.lists(_PIECES, max_size=8).map("".join))
@settings(max_examples=500)
def test_a_name_that_is_told_good_at_a_glance_is_good_by_every_rule(key: str):
    quick = _verdict(key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_protocol, "_ORDINARY", _protocol.re.compile("(?!)"))
        assert _verdict(key) == quick


@pytest.mark.parametrize(
    ("key", "temporary"),
    [
        (temporary_key("a"), True),
        (temporary_key("folder/a"), True),
        (probe_key(), True),
        (f"folder/{probe_key()}", True),
        (f".folder/{'a' * 32}.tmp", False),
        (f"{temporary_key('folder')}/a", False),
        ("folder/.hidden", False),
        ("folder/a", False),
    ],
    # Not by the names themselves: they are made by chance, and every process of the run must know each test alike.
    ids=[
        "name",
        "in a folder",
        "probe",
        "probe in a folder",
        "hidden folder",
        "folder of that name",
        "hidden",
        "plain",
    ],
)
def test_a_half_written_object_is_told_by_its_last_part(key: str, *, temporary: bool):
    assert is_temporary(key) is temporary


def test_a_folder_of_a_store_lists_the_same_objects_under_their_names_in_it():
    store = MemoryBlobs()
    store.create("pipeline/a", b"1")
    store.create("beside/a", b"2")
    (inside,) = store.at("pipeline").list()
    (outside,) = store.list("pipeline")
    assert inside.key == "a"
    assert (inside.size, inside.modified, inside.version) == (outside.size, outside.modified, outside.version)


def test_folders_from_a_name_on_take_one_request_however_many_come_before(watched: BlobStore, proxy: Proxy):
    for number in range(20):
        watched.replace(f"{number:02}/object", b"1")
    proxy.requests.clear()
    assert list(watched.folders(start="18")) == ["18", "19"]
    assert len(proxy.requests) == 1
