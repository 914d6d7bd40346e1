"""What every store promises about writing: create and replace, alone and one after the other."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs._protocol import EXISTING_LIMIT, is_temporary
from airflow_provider_checkpoint.exceptions import BlobChangedError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.backends import Backend

MEGABYTE = 1024 * 1024


class BrokenSourceError(Exception):
    """What a body raises that cannot be read to its end."""


def chunks(body: bytes, size: int = 100_000) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


class Writing:
    @pytest.mark.parametrize(
        "body", [b"", b"x", b"\x00\xff" * 1000, bytes(MEGABYTE)], ids=["empty", "one", "binary", "megabyte"]
    )
    def test_created_bytes_come_back(self, store: BlobStore, body: bytes) -> None:
        creation = store.create("folder/object", body)
        assert (creation.created, creation.size, creation.existing) == (True, len(body), None)
        assert creation.sha256 == hashlib.sha256(body).hexdigest()
        assert store.read("folder/object") == body
        assert store.read_versioned("folder/object")[0] == body

    @pytest.mark.parametrize("there", [b"", b"theirs", b"theirs" * 100_000], ids=["empty", "small", "larger"])
    def test_a_conflict_shows_what_stands_there_and_changes_nothing(self, store: BlobStore, there: bytes) -> None:
        store.create("object", there)
        before = store.stat("object")
        creation = store.create("object", b"ours!")
        assert (creation.created, creation.existing) == (False, there)
        assert (creation.size, creation.sha256) == (5, hashlib.sha256(b"ours!").hexdigest())
        assert store.read("object") == there
        assert store.stat("object") == before

    @pytest.mark.parametrize("body", [b"", b"same"], ids=["empty", "small"])
    def test_creating_the_same_bytes_again_is_a_success(self, store: BlobStore, body: bytes) -> None:
        first = store.create("object", body)
        before = store.stat("object")
        assert store.create("object", body) == first
        assert store.stat("object") == before

    def test_a_longer_object_with_the_same_beginning_is_a_conflict(self, store: BlobStore) -> None:
        store.create("object", b"same and more")
        assert store.create("object", b"same").existing == b"same and more"
        store.create("other", b"same")
        assert store.create("other", b"same and more").existing == b"same"

    def test_an_object_too_large_to_hand_back_is_a_conflict_without_its_bytes(self, store: BlobStore) -> None:
        store.create("limit", bytes(EXISTING_LIMIT))
        store.create("above", bytes(EXISTING_LIMIT + 1))
        at_limit, above = store.create("limit", b"ours"), store.create("above", b"ours")
        assert not at_limit.created
        assert at_limit.existing == bytes(EXISTING_LIMIT)
        assert not above.created
        assert above.existing is None

    @pytest.mark.parametrize("kind", [bytearray, memoryview])
    def test_any_kind_of_buffer_is_taken_as_the_bytes_it_holds(self, store: BlobStore, kind: type) -> None:
        assert store.create("buffer", kind(b"abc")).size == 3
        assert store.read("buffer") == b"abc"
        store.create("pieces", [kind(b"abc"), b"def"])
        assert store.read("pieces") == b"abcdef"
        store.replace("buffer", kind(b"xyz"))
        assert store.read("buffer") == b"xyz"

    def test_a_source_may_use_its_buffer_again(self, backend: Backend) -> None:
        store = backend.staging()

        def body(count: int) -> Iterator[memoryview]:
            buffer = bytearray(100_000)
            for number in range(count):
                buffer[:] = bytes([number]) * len(buffer)
                yield memoryview(buffer)

        for key, count in (("small", 3), ("large", 40)):
            store.create(key, body(count))
            assert store.read(key) == b"".join(bytes([number]) * 100_000 for number in range(count))

    @pytest.mark.parametrize("body", ["text", [1, 2, 3], ["text"], None, 7], ids=repr)
    def test_what_is_not_bytes_is_refused_and_leaves_nothing(self, store: BlobStore, body: object) -> None:
        with pytest.raises(TypeError):
            store.create("object", body)
        assert not list(store.list())
        assert not list(store.list(temporary=True))

    # -- streamed bodies -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 5, 3 * MEGABYTE, 20 * MEGABYTE])
    def test_a_streamed_body_arrives_whole(self, backend: Backend, size: int) -> None:
        store = backend.staging()
        body = random.Random(size).randbytes(size)
        creation = store.create("folder/streamed", chunks(body))
        assert (creation.created, creation.size) == (True, size)
        assert creation.sha256 == hashlib.sha256(body).hexdigest()
        assert store.read("folder/streamed") == body
        assert not list(store.list(temporary=True))
        assert backend.unfinished_uploads() == 0

    def test_a_streamed_body_of_the_same_bytes_is_a_success_and_of_others_a_conflict(self, backend: Backend) -> None:
        store = backend.staging()
        body = random.Random(3).randbytes(3 * MEGABYTE)
        store.create("streamed", body)
        before = store.stat("streamed")
        assert store.create("streamed", chunks(body)).created
        for other in (body[:-1] + bytes([body[-1] ^ 1]), body + b"x", body[:-1]):
            creation = store.create("streamed", chunks(other))
            assert not creation.created
            assert creation.existing in (None, body)
        assert store.read("streamed") == body
        assert store.stat("streamed") == before
        assert not list(store.list(temporary=True))

    def test_a_body_may_be_the_stream_of_another_object_of_the_same_store(self, backend: Backend) -> None:
        store = backend.staging()
        body = random.Random(5).randbytes(5 * MEGABYTE)
        store.create("original", body)
        assert store.create("copy", store.stream("original")).created
        assert store.read("copy") == body

    def test_nothing_is_seen_of_a_body_under_way(self, backend: Backend) -> None:
        store, onlooker = backend.staging(), backend.open()
        store.create("before", b"1")

        def body() -> Iterator[bytes]:
            for number in range(30):
                if number % 10 == 9:
                    assert onlooker.stat("object") is None
                    assert [info.key for info in onlooker.list()] == ["before"]
                    assert all(is_temporary(info.key) for info in onlooker.list(temporary=True))
                yield bytes([number]) * 100_000

        assert store.create("object", body()).created
        assert store.read("object", start=2_900_000) == bytes([29]) * 100_000

    @pytest.mark.parametrize("good", [0, 5, 3 * MEGABYTE, 18 * MEGABYTE])
    @pytest.mark.parametrize(
        "error",
        [
            BrokenSourceError("source"),
            FileNotFoundError(2, "no source"),
            ValueError("source"),
            ConnectionError("source"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_a_body_that_breaks_leaves_nothing_and_its_own_error_arrives(
        self, backend: Backend, good: int, error: Exception
    ) -> None:
        store = backend.staging()

        def body() -> Iterator[bytes]:
            yield from chunks(bytes(good))
            raise error

        with pytest.raises(type(error)) as caught:
            store.create("folder/object", body())
        assert caught.value is error
        assert store.stat("folder/object") is None
        assert not list(store.list())
        assert not list(store.list(temporary=True))
        assert backend.unfinished_uploads() == 0

    # -- replace -------------------------------------------------------------------------------------------------

    def test_replace_writes_over_what_is_there_or_anew(self, store: BlobStore) -> None:
        for body in (b"first", b"second, longer", b"", b"3"):
            store.replace("folder/object", body)
            assert store.read("folder/object") == body
        assert [info.key for info in store.list()] == ["folder/object"]
        assert not list(store.list(temporary=True))

    def test_replace_takes_twenty_megabytes(self, store: BlobStore) -> None:
        body = random.Random(21).randbytes(20 * MEGABYTE)
        store.replace("large", b"small")
        store.replace("large", body)
        assert store.read("large") == body

    def test_a_conditional_replace_is_kept_or_refused_never_half(self, store: BlobStore) -> None:
        store.replace("object", b"one")
        version = store.read_versioned("object")[1]
        if not store.capabilities.compare_and_swap:
            with pytest.raises(UnsupportedError):
                store.replace("object", b"two", expected=version or "any")
            assert store.read("object") == b"one"
            return
        assert version is not None
        second = store.replace("object", b"two", expected=version)
        assert second != version
        assert store.read_versioned("object") == (b"two", second)
        with pytest.raises(BlobChangedError):
            store.replace("object", b"three", expected=version)
        assert store.read("object") == b"two"
        store.delete(["object"])
        with pytest.raises(BlobChangedError):
            store.replace("object", b"four", expected=second)
        assert store.stat("object") is None

    def test_no_two_writes_get_the_same_version(self, store: BlobStore) -> None:
        if not store.capabilities.compare_and_swap:
            return
        versions = [store.replace("object", f"{number:09}".encode()) for number in range(300)]
        assert None not in versions
        assert len(set(versions)) == len(versions)

    # -- names that are taken ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("verb", ["create", "replace"])
    @pytest.mark.parametrize("key", ["object/below", "folder"])
    def test_an_object_and_a_folder_share_a_name_or_it_is_refused(
        self, store: BlobStore, backend: Backend, verb: str, key: str
    ) -> None:
        store.create("object", b"1")
        store.create("folder/object", b"2")
        if (verb, key) in backend.refused:
            with pytest.raises(CheckpointError):
                getattr(store, verb)(key, b"3")
            assert sorted(info.key for info in store.list()) == ["folder/object", "object"]
        else:
            getattr(store, verb)(key, b"3")
            assert store.read(key) == b"3"
        assert store.read("object") == b"1"
        assert store.read("folder/object") == b"2"
        assert not list(store.list(temporary=True))
