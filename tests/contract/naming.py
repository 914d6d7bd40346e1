"""What every store promises about names: what is kept apart, what is refused, and views of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs._protocol import temporary_key
from airflow_provider_checkpoint.exceptions import InvalidKeyError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

#: Each a different object, also the ones that look alike or decode to one another.
NAMES = [
    "space in name",
    " leading and trailing ",
    "a b",
    "a%20b",
    "a%2520b",
    "a+b",
    "percent%",
    "%",
    "%2F",
    "%2e%2e",
    "hash#tag",
    "question?mark",
    "amp&ersand",
    "equals=sign",
    "batch=7/part=x y/file",
    "colon:name",
    "double::colon",
    "at@sign",
    "tilde~",
    "~",
    "~root",
    "star*",
    "[bracket]",
    "{brace}",
    "quote'\"",
    "<tag>",
    "comma,semi;",
    "dollar$exclaim!",
    "pipe|caret^",
    "back`tick",
    "...",
    "..a",
    "a..",
    ".hidden",
    "trailing.dot.",
    "upper/Case",
    "upper/case",
    "umlaut-\u00e4-composed",
    "umlaut-a\u0308-decomposed",
    "漢字/كتاب/emoji-\U0001f600",
    "nbsp\u00a0",
    "line\u2028separator",
    "x" * 200,
    "/".join(["d" * 9] * 90),
]
BAD = {
    "parent": "..",
    "parent inside": "a/../b",
    "parent at the end": "a/..",
    "this": ".",
    "this inside": "a/./b",
    "absolute": "/etc/passwd",
    "empty part": "a//b",
    "backslash": "a\\b",
    "nul": "a\x00b",
    "newline": "a\nb",
    "delete": "a\x7fb",
    "too long": "/".join(["x" * 100] * 11),
    "part too long": "x" * 201,
    "part too long in bytes": "ä" * 101,
    "lone surrogate": "a\ud800b",
}
BAD_KEYS = {**BAD, "empty": "", "trailing slash": "a/"}

READS = {
    "read": lambda store, key: store.read(key),
    "stream": lambda store, key: list(store.stream(key)),
    "stat": lambda store, key: store.stat(key),
    "read_versioned": lambda store, key: store.read_versioned(key),
}
WRITES = {
    "create": lambda store, key: store.create(key, b"1"),
    "create streamed": lambda store, key: store.create(key, iter([b"1"])),
    "replace": lambda store, key: store.replace(key, b"1"),
}
FOLDERS = {
    "list": lambda store, key: list(store.list(key)),
    "list temporary": lambda store, key: list(store.list(key, temporary=True)),
    "folders": lambda store, key: list(store.folders(key)),
    "at": lambda store, key: store.at(key),
}


class Naming:
    def test_names_are_kept_apart_letter_by_letter(self, store: BlobStore) -> None:
        for name in NAMES:
            assert store.create(name, name.encode()).created, name
        for name in NAMES:
            assert store.read(name) == name.encode()
            info = store.stat(name)
            assert info is not None
            assert (info.key, info.size) == (name, len(name.encode()))
        assert sorted(info.key for info in store.list()) == sorted(NAMES)
        assert sorted(store.folders("漢字/كتاب")) == []
        assert sorted(store.folders("漢字")) == ["كتاب"]
        assert [info.key for info in store.list("batch=7/part=x y")] == ["batch=7/part=x y/file"]
        for name in NAMES:
            store.replace(name, b"new " + name.encode())
            assert store.read(name) == b"new " + name.encode()
        gone = NAMES[::2]
        assert [outcome.key for outcome in store.delete(gone) if outcome.deleted] == gone
        assert sorted(info.key for info in store.list()) == sorted(NAMES[1::2])

    @pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS.keys())
    def test_bad_names_are_refused_by_every_verb(self, store: BlobStore, key: str) -> None:
        store.create("a/good", b"1")
        store.create("good", b"1")
        for verb, call in (READS | WRITES).items():
            with pytest.raises(InvalidKeyError) as caught:
                call(store, key)
            assert caught.value.hint, verb
        # A bad name is a mistake of the caller: it is told before anything is gone.
        with pytest.raises(InvalidKeyError):
            store.delete(["a/good", "good", key])
        assert sorted(info.key for info in store.list()) == ["a/good", "good"]

    @pytest.mark.parametrize("folder", [*BAD.values(), "/", "a//"], ids=[*BAD.keys(), "root slash", "two slashes"])
    def test_bad_folders_are_refused_by_every_verb(self, store: BlobStore, folder: str) -> None:
        for call in FOLDERS.values():
            with pytest.raises(InvalidKeyError):
                call(store, folder)

    def test_names_of_temporary_objects_cannot_be_written(self, store: BlobStore) -> None:
        key = temporary_key("folder/object")
        for call in WRITES.values():
            with pytest.raises(InvalidKeyError):
                call(store, key)
        assert not list(store.list(temporary=True))

    def test_a_view_of_a_folder_is_a_store_of_its_own(self, store: BlobStore) -> None:
        store.create("beside", b"0")
        store.create("part of/name", b"0")
        view = store.at("part")
        assert view.uri == f"{store.uri}/part"
        assert view.capabilities == store.capabilities
        assert view.create("of/name", b"1").created
        assert view.create("of/name", b"2").existing == b"1"
        view.replace("other", b"3")
        assert store.read("part/of/name") == view.read("of/name") == b"1"
        assert view.read_versioned("other")[0] == b"3"
        assert b"".join(view.stream("of/name", start=0, length=1)) == b"1"
        info = view.stat("of/name")
        assert info is not None
        assert info.key == "of/name"
        assert view.stat("beside") is None
        assert sorted(info.key for info in view.list()) == ["of/name", "other"]
        assert [info.key for info in view.list("of")] == ["of/name"]
        assert list(view.folders()) == ["of"]
        assert list(view.folders("of")) == []
        inner = view.at("of")
        assert inner.uri == f"{store.uri}/part/of"
        assert inner.read("name") == b"1"
        outcomes = view.delete(["other", "missing", "of/name"])
        assert [(outcome.key, outcome.deleted) for outcome in outcomes] == [
            ("other", True),
            ("missing", True),
            ("of/name", True),
        ]
        assert sorted(info.key for info in store.list()) == ["beside", "part of/name"]

    @pytest.mark.parametrize("key", ["..", "../beside", "of/../../beside", "/beside", ""])
    def test_a_view_does_not_reach_what_lies_beside_it(self, store: BlobStore, key: str) -> None:
        store.create("beside", b"0")
        view = store.at("part")
        for call in (READS | WRITES).values():
            with pytest.raises(InvalidKeyError):
                call(view, key)
        with pytest.raises(InvalidKeyError):
            view.delete([key])
        assert store.read("beside") == b"0"
