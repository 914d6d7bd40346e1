"""What every store promises about reading: read, stream, stat, read_versioned."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import Digest, sha256_of
from airflow_provider_checkpoint.exceptions import BlobNotFoundError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.backends import Backend

ALPHABET = b"abcdefghijklmnopqrstuvwxyz"
MEGABYTE = 1024 * 1024


class Reading:
    @pytest.mark.parametrize(
        ("start", "length"),
        [
            (0, None),
            (0, 0),
            (0, 1),
            (0, 26),
            (0, 27),
            (0, 10**9),
            (1, None),
            (5, 0),
            (5, 3),
            (25, None),
            (25, 1),
            (25, 2),
            (26, None),
            (26, 0),
            (26, 1),
            (27, None),
            (1000, 5),
        ],
    )
    def test_a_range_is_cut_as_in_slicing(self, store: BlobStore, start: int, length: int | None) -> None:
        store.create("alphabet", ALPHABET)
        wanted = ALPHABET[start:] if length is None else ALPHABET[start : start + length]
        assert store.read("alphabet", start=start, length=length) == wanted
        assert b"".join(store.stream("alphabet", start=start, length=length)) == wanted
        assert sha256_of(store, "alphabet", start=start, length=length).size == len(wanted)

    @pytest.mark.parametrize(("start", "length"), [(0, None), (0, 0), (0, 5), (3, None), (3, 5)])
    def test_every_range_of_an_empty_object_is_empty(self, store: BlobStore, start: int, length: int | None) -> None:
        assert store.create("empty", b"").created
        assert store.read("empty", start=start, length=length) == b""
        assert b"".join(store.stream("empty", start=start, length=length)) == b""

    def test_an_empty_object_is_an_object(self, store: BlobStore) -> None:
        store.create("empty", b"")
        info = store.stat("empty")
        assert info is not None
        assert (info.key, info.size) == ("empty", 0)
        assert store.read_versioned("empty")[0] == b""
        assert [found.key for found in store.list()] == ["empty"]

    def test_a_missing_object_is_told_by_every_verb(self, store: BlobStore) -> None:
        store.create("there", b"1")
        assert store.stat("missing") is None
        assert store.stat("missing/deeper") is None
        for look in (
            lambda: store.read("missing"),
            lambda: store.read("missing", start=5),
            lambda: store.read("missing", length=0),
            lambda: list(store.stream("missing")),
            lambda: store.read_versioned("missing"),
            lambda: sha256_of(store, "missing"),
        ):
            with pytest.raises(BlobNotFoundError) as caught:
                look()
            assert str(caught.value.subject).endswith("/missing")

    def test_a_folder_is_not_an_object(self, store: BlobStore) -> None:
        store.create("folder/object", b"1")
        assert store.stat("folder") is None
        with pytest.raises(BlobNotFoundError):
            store.read("folder")

    def test_nothing_lies_below_an_object(self, store: BlobStore) -> None:
        store.create("object", b"1")
        assert store.stat("object/below") is None
        with pytest.raises(BlobNotFoundError):
            store.read("object/below")
        assert store.delete(["object/below"])[0].deleted
        assert store.read("object") == b"1"

    def test_stat_tells_size_and_time_and_agrees_with_the_listing(self, store: BlobStore) -> None:
        before = datetime.now(UTC) - timedelta(seconds=2)
        store.create("folder/object", ALPHABET)
        info = store.stat("folder/object")
        assert info is not None
        assert (info.key, info.size) == ("folder/object", 26)
        assert info.modified is not None
        assert info.modified.tzinfo is not None
        assert before <= info.modified <= datetime.now(UTC) + timedelta(seconds=2)
        (listed,) = store.list()
        assert (listed.key, listed.size) == (info.key, info.size)
        if store.capabilities.compare_and_swap:
            assert listed.version == info.version == store.read_versioned("folder/object")[1] is not None

    def test_twenty_megabytes_come_back_whole_and_in_pieces(self, store: BlobStore, backend: Backend) -> None:
        body = random.Random(20).randbytes(20 * MEGABYTE)
        creation = store.create("large", body)
        assert creation.created
        assert (creation.size, creation.sha256) == (len(body), hashlib.sha256(body).hexdigest())
        assert store.read("large") == body
        assert sha256_of(store, "large") == Digest(creation.sha256, creation.size)
        middle = 7 * MEGABYTE + 13
        assert store.read("large", start=middle, length=5 * MEGABYTE) == body[middle : middle + 5 * MEGABYTE]
        pieces = [len(memoryview(piece)) for piece in store.stream("large")]
        assert sum(pieces) == len(body)
        # What lives in memory anyway may come in one piece.
        assert not backend.processes or max(pieces) <= 8 * MEGABYTE

    def test_a_stream_can_be_left_early(self, store: BlobStore) -> None:
        store.create("large", bytes(3 * MEGABYTE))
        stream = store.stream("large")
        assert next(stream)
        stream.close()
        assert store.read("large", length=3) == bytes(3)

    def test_two_streams_of_one_object_do_not_disturb_each_other(self, store: BlobStore) -> None:
        body = random.Random(2).randbytes(3 * MEGABYTE)
        store.create("large", body)
        first, second = store.stream("large"), store.stream("large")
        received: tuple[list[bytes], list[bytes]] = ([], [])
        for one, other in zip(first, second, strict=True):
            received[0].append(bytes(one))
            received[1].append(bytes(other))
        assert b"".join(received[0]) == b"".join(received[1]) == body
