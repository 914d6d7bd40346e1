"""A checkpoint directory as the damages see it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(?:delta|snapshot|changelog|zip)")


@dataclass(frozen=True)
class Directory:
    """Finds files by what they are to Spark."""

    path: Path

    def log(self, name: str) -> dict[int, Path]:
        """Entries of ``offsets``, ``commits`` or ``sources/0`` by number."""
        found = (path for path in (self.path / name).glob("*") if re.fullmatch(r"\d+(\.compact)?", path.name))
        return {int(path.name.partition(".")[0]): path for path in sorted(found)}

    def last(self, name: str, back: int = 0) -> Path:
        entries = self.log(name)
        return entries[sorted(entries)[-1 - back]]

    @property
    def version(self) -> int:
        """The version of the state after the last commit."""
        return max(self.log("commits")) + 1

    def state(self, kind: str, version: int | None = None) -> list[Path]:
        """State files of a kind (``delta``, ``snapshot``, ``changelog``, ``zip``), oldest first."""
        found = [path for path in self.path.glob(f"state/**/*.{kind}") if not path.name.startswith(".")]
        return sorted(
            (path for path in found if version in (None, version_of(path))),
            key=lambda path: (version_of(path), path.as_posix()),
        )

    def newest(self, kind: str) -> Path:
        return self.state(kind)[-1]

    def ssts(self) -> list[Path]:
        """The SSTs that the newest zip names, the largest last."""
        import zipfile

        newest = self.newest("zip")
        with zipfile.ZipFile(newest) as archive:
            told = json.loads(archive.read("metadata").partition(b"\n")[2])
        found = [newest.parent / "SSTs" / item["dfsSstFileName"] for item in told["sstFiles"]]
        return sorted(found, key=lambda path: path.stat().st_size)

    def schema(self) -> Path:
        return next(iter(sorted((self.path / "state").glob("*/0/**/_metadata/schema"))))

    def operator_metadata(self) -> Path:
        return next(iter(sorted((self.path / "state").glob("*/_metadata/metadata"))))


def version_of(path: Path) -> int:
    match = _VERSION.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


# -- what can happen to a file -----------------------------------------------------------------------------------


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def shorten(path: Path, by: int = 1) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def layout_of(directory: Path) -> StructuredStreamingLayout:
    """A directory as the package sees it."""
    layout = open_store(str(directory), layout="structured_streaming")
    assert isinstance(layout, StructuredStreamingLayout)
    return layout


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit: in the middle, or at a place."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 0x10
    path.write_bytes(data)


def append(path: Path, data: bytes = b"more") -> None:
    path.write_bytes(path.read_bytes() + data)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path}: no {old}"
    path.write_text(text.replace(old, new))


def trade(one: Path, other: Path) -> None:
    """Two files change places."""
    ours, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(ours)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
