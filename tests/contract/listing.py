"""What every store promises about listing and deleting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs._protocol import probe_key

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.contract.backends import Backend


def keys(store: BlobStore, folder: str = "") -> list[str]:
    return sorted(info.key for info in store.list(folder))


class Listing:
    def test_an_empty_store_lists_nothing(self, store: BlobStore) -> None:
        assert keys(store) == []
        assert list(store.folders()) == []
        assert keys(store, "no/such/folder") == []
        assert list(store.folders("no/such/folder")) == []

    def test_a_listing_goes_down_to_every_depth_below_its_folder_only(self, store: BlobStore) -> None:
        names = ["a/1", "a/2", "a/b/1", "a/b/c/1", "ab/1", "b/a/1", "top"]
        for name in names:
            store.create(name, name.encode())
        assert keys(store) == names
        assert keys(store, "a") == keys(store, "a/") == ["a/1", "a/2", "a/b/1", "a/b/c/1"]
        assert keys(store, "a/b") == ["a/b/1", "a/b/c/1"]
        assert keys(store, "b") == ["b/a/1"]
        assert keys(store, "a/1") == keys(store, "top") == keys(store, "c") == []
        assert {info.key: info.size for info in store.list("a/b")} == {"a/b/1": 5, "a/b/c/1": 7}

    def test_folders_are_those_directly_below(self, store: BlobStore) -> None:
        for name in ("a/1", "a/b/1", "a/b/c/1", "a/d/e/1", "ab/1", "top"):
            store.create(name, b"1")
        assert sorted(store.folders()) == ["a", "ab"]
        assert sorted(store.folders("a")) == sorted(store.folders("a/")) == ["b", "d"]
        assert sorted(store.folders("a/b")) == ["c"]
        assert list(store.folders("a/b/c")) == list(store.folders("top")) == list(store.folders("missing")) == []

    def test_folders_from_a_name_on_come_in_order(self, store: BlobStore) -> None:
        names = ["a1", "a2", "b0", "c-", "zz"]
        for name in names:
            store.create(f"f/{name}/x/1", b"1")
            store.create(f"f/{name}/y", b"1")
        store.create("f/a3", b"1")
        store.create("g/other/1", b"1")
        for start in ["00", *names, "a3", "ba", "zzz"]:
            assert list(store.folders("f", start=start)) == [name for name in names if name >= start], start
        assert list(store.folders("missing", start="a")) == []
        assert list(store.folders(start="g")) == ["g"]
        assert list(store.at("f").folders(start="b0")) == ["b0", "c-", "zz"]

    def test_a_folder_is_gone_or_empty_with_its_last_object(self, store: BlobStore) -> None:
        store.create("a/b/1", b"1")
        store.create("a/2", b"1")
        store.delete(["a/b/1"])
        assert list(store.folders()) == ["a"]
        # A disk may keep an empty folder; LocalBlobs does not, which its own tests say.
        assert list(store.folders("a")) in ([], ["b"])
        assert keys(store, "a/b") == []

    def test_what_was_written_is_listed_at_once_and_what_was_deleted_is_not(self, backend: Backend) -> None:
        writer, reader = backend.open(), backend.open_anew()
        for number in range(10):
            writer.create(f"f/{number}", b"1")
            assert len(keys(reader, "f")) == number + 1
        for number in range(10):
            writer.delete([f"f/{number}"])
            assert reader.stat(f"f/{number}") is None
            assert len(keys(reader, "f")) == 9 - number

    def test_temporary_objects_are_shown_only_on_request(self, store: BlobStore) -> None:
        litter = [probe_key(), f"deep/{probe_key()}"]
        for key in litter:
            store.create(key, b"litter")
        store.create("deep/object", b"1")
        assert keys(store) == keys(store, "deep") == ["deep/object"]
        assert sorted(info.key for info in store.list(temporary=True)) == sorted(litter)
        assert [info.key for info in store.list("deep", temporary=True)] == [litter[1]]
        assert sorted(info.key for info in store.list(temporary=None)) == sorted([*litter, "deep/object"])
        assert all(outcome.deleted for outcome in store.delete(litter))
        assert not list(store.list(temporary=True))

    def test_thousands_of_objects_are_listed_and_deleted_page_by_page(self, store: BlobStore, backend: Backend) -> None:
        # Most in one folder, for clients that list folder by folder.
        folder = ["a", "a", "a", "a0", "a", "a", "a", "c"]
        names = [f"many/{folder[number % 8]}/{number:05}" for number in range(backend.many)]
        backend.put_all(names, lambda key: key.encode() * (int(key[-1]) + 1))
        listed = {info.key: info.size for info in store.list("many")}
        assert listed == {name: len(name) * (int(name[-1]) + 1) for name in names}
        assert sorted(store.folders("many")) == ["a", "a0", "c"]
        assert list(store.folders("many", start="a")) == ["a", "a0", "c"]
        assert list(store.folders(start="many")) == ["many"]
        # Some were never there, at the beginning, in the middle and at the end.
        middle = len(names) // 2
        wanted = ["many/missing", *names[:middle], "missing", *names[middle:-1], "many/b/missing"]
        outcomes = store.delete(wanted)
        assert [outcome.key for outcome in outcomes] == wanted
        assert [outcome for outcome in outcomes if not outcome.deleted] == []
        assert keys(store) == [names[-1]]

    def test_deleting_nothing_asks_for_nothing(self, store: BlobStore) -> None:
        assert list(store.delete([])) == []

    def test_deletes_are_answered_in_order_and_missing_objects_count_as_deleted(self, store: BlobStore) -> None:
        for name in ("a/1", "a/2", "b/1", "c"):
            store.create(name, b"1")
        wanted = ["c", "missing", "a/2", "b/missing", "a/1", "missing/folder/1", "a/2"]
        outcomes = store.delete(iter(wanted))
        assert [(outcome.key, outcome.deleted, outcome.error) for outcome in outcomes] == [
            (key, True, None) for key in wanted
        ]
        assert keys(store) == ["b/1"]

    def test_deleting_a_folder_by_name_leaves_what_is_in_it(self, store: BlobStore) -> None:
        store.create("folder/object", b"1")
        store.delete(["folder"])
        assert store.read("folder/object") == b"1"

    def test_deletes_may_come_from_a_listing_of_the_same_store(self, store: BlobStore) -> None:
        for number in range(50):
            store.create(f"f/{number}", b"1")
        outcomes = store.delete(info.key for info in store.list("f"))
        assert len(outcomes) == 50
        assert keys(store) == []
