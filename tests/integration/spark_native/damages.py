"""Everything that is done to directories, and to which kinds it can be done.

Rows of the first group were measured before; those marked *new* came with this suite.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.integration.spark_native.directory import (
    Directory,
    append,
    edit,
    empty,
    flip,
    halve,
    remove,
    shorten,
    trade,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: What is done to logs does not depend on what kind of state there is: these stand for all.
LOG_KINDS = frozenset(
    {"file_sink", "hdfs", "join", "offset_log_v2", "rocksdb_format2", "stateless", "two_sources", "windows"}
)

_LONG = "ffffffff-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Damage:
    """One thing that happens to a directory."""

    name: str
    apply: Callable[[Directory], object]
    fits: Callable[[Directory], object] = lambda _: True
    sums: bool = False
    """Whether Hadoop's own checksums lie beside the files, as on a local disk."""
    sealed: bool = False
    """Whether each file is well-formed for itself, so that only an inventory taken before can tell."""

    @property
    def to_state(self) -> bool:
        return not re.search(r"\b(offsets|commits?|metadata|sources|in flight)\b", self.name) or "operator" in self.name

    def can_happen(self, kind: str, directory: Directory) -> bool:
        return bool((self.to_state or kind in LOG_KINDS) and self.fits(directory))


def _has(kind: str) -> Callable[[Directory], bool]:
    return lambda directory: bool(directory.state(kind))


def _chained(kind: str) -> Callable[[Directory], bool]:
    """Whether the newest version is reached by a file of this kind."""
    return lambda directory: bool(directory.state(kind, directory.version))


def _files(directory: Directory) -> bool:
    return (directory.path / "sources/0").is_dir()


def _compacted(directory: Directory) -> bool:
    return any(path.suffix == ".compact" for path in directory.log("sources/0").values())


def _compact(directory: Directory) -> Path:
    return [path for path in directory.log("sources/0").values() if path.suffix == ".compact"][-1]


def _stateful(directory: Directory) -> bool:
    return (directory.path / "state").is_dir()


def _format2(directory: Directory) -> bool:
    return "stateUniqueIds" in directory.last("commits").read_text()


def _each(paths: list[Path], change: Callable[[Path], object]) -> None:
    for path in paths:
        change(path)


def _last_delta(directory: Directory) -> Path:
    return directory.state("delta", directory.version)[-1]


def _last_changelog(directory: Directory) -> Path:
    return directory.state("changelog", directory.version)[-1]


def _before_compact(directory: Directory) -> list[Path]:
    newest = int(_compact(directory).name.partition(".")[0])
    return [path for number, path in directory.log("sources/0").items() if number < newest]


def _unneeded(directory: Directory, kind: str, snapshots: str) -> list[Path]:
    """Files of a kind that are older than the newest snapshot of every store."""
    folders = {path.parent for path in directory.state(snapshots)}
    oldest = min(max(version_of(path) for path in directory.state(snapshots) if path.parent == one) for one in folders)
    return [path for path in directory.state(kind) if version_of(path) < oldest]


def _copy_over(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _repeat_log(directory: Directory, name: str) -> None:
    last = directory.last(name)
    shutil.copyfile(last, last.with_name(str(int(last.name) + 1)))


def _litter(directory: Directory) -> None:
    last = directory.last("offsets")
    (last.parent / f".{int(last.name) + 1}.{_LONG}.tmp").write_bytes(b"v1\n{")


def _in_flight(directory: Directory, text: str | None) -> None:
    """A batch that was planned and never committed; without text, one that repeats the last."""
    last = directory.last("offsets")
    target = last.with_name(str(int(last.name) + 1))
    target.write_text(last.read_text() if text is None else text)


def _another_id(directory: Directory) -> None:
    commit = directory.last("commits")
    commit.write_text(re.sub(r"[0-9a-f]{8}-", "00000000-", commit.read_text(), count=1))


def _without_sidecars(directory: Directory) -> None:
    _each([path for path in directory.path.glob("state/**/*.crc") if not path.name.startswith(".")], remove)


DAMAGES: tuple[Damage, ...] = (
    # -- offsets
    Damage("offsets/last empty", lambda d: empty(d.last("offsets"))),
    Damage("offsets/last cut", lambda d: halve(d.last("offsets"))),
    Damage("offsets/last without sources", lambda d: _keep_lines(d.last("offsets"), 2)),
    Damage("offsets/last removed", lambda d: remove(d.last("offsets"))),
    Damage("offsets/previous removed", lambda d: remove(d.last("offsets", 1))),
    Damage("offsets/middle removed", lambda d: remove(d.last("offsets", 3))),
    Damage("offsets removed", lambda d: remove(d.path / "offsets")),
    Damage(
        "offsets and commits removed", lambda d: (remove(d.path / "offsets"), remove(d.path / "commits")), _stateful
    ),
    Damage("offsets/last of version 9", lambda d: edit(d.last("offsets"), d.last("offsets").read_text()[:2], "v9")),
    Damage(
        "offsets/last with more partitions",
        lambda d: edit(d.last("offsets"), 'shuffle.partitions":"2"', 'shuffle.partitions":"5"'),
        _stateful,
    ),
    Damage("new: offsets/previous empty", lambda d: empty(d.last("offsets", 1))),
    Damage("new: offsets/previous cut", lambda d: halve(d.last("offsets", 1))),
    Damage("new: offsets/last with a void source", lambda d: _void(d.last("offsets"))),
    Damage("new: offsets/last beyond the source log", lambda d: _beyond(d.last("offsets")), _files),
    Damage("new: offsets/last with one more source", lambda d: append(d.last("offsets"), b'\n{"logOffset":1}')),
    Damage("new: offsets/last with a trailing line end", lambda d: append(d.last("offsets"), b"\n")),
    Damage("new: offsets/last with garbage for its metadata", lambda d: _garbage_line(d.last("offsets"), 1)),
    Damage("new: offsets/last with an empty metadata line", lambda d: _garbage_line(d.last("offsets"), 1, "")),
    Damage("new: offsets/last with a byte order mark", lambda d: _prefix(d.last("offsets"), b"\xef\xbb\xbf")),
    Damage("new: offsets/last zeroed", lambda d: _zero(d.last("offsets"))),
    Damage("new: offsets/first removed", lambda d: remove(d.last("offsets", len(d.log("offsets")) - 1))),
    Damage(
        "new: offsets/last with fewer partitions",
        lambda d: edit(d.last("offsets"), 'shuffle.partitions":"2"', 'shuffle.partitions":"1"'),
        _stateful,
    ),
    Damage(
        "new: offsets/last with partitions that are no number",
        lambda d: edit(d.last("offsets"), 'shuffle.partitions":"2"', 'shuffle.partitions":"two"'),
        _stateful,
    ),
    Damage("new: offsets/last without settings", lambda d: _settings(d, lambda name: False), _stateful),
    Damage(
        "new: offsets/last without the formats of state",
        lambda d: _settings(d, lambda name: "stateFormatVersion" not in name),
        lambda d: _stateful(d) and _saves(d),
    ),
    Damage(
        "new: offsets/last with another format of state",
        lambda d: edit(d.last("offsets"), 'tion.stateFormatVersion":"2"', 'tion.stateFormatVersion":"1"'),
        lambda d: _stateful(d) and _saves(d),
    ),
    Damage("new: offsets/last with another codec", lambda d: edit(d.last("offsets"), '"lz4"', '"zstd"'), _has("delta")),
    Damage("new: offsets/last as the one before", lambda d: _copy_over(d.last("offsets", 1), d.last("offsets"))),
    Damage("new: offsets/previous as the last", lambda d: _copy_over(d.last("offsets"), d.last("offsets", 1))),
    Damage("new: offsets/last as two before", lambda d: _copy_over(d.last("offsets", 2), d.last("offsets"))),
    Damage("new: offsets/last and the one before traded", lambda d: trade(d.last("offsets"), d.last("offsets", 1))),
    Damage("new: offsets/last with a position too large", lambda d: _position(d, '"logOffset":100000000000000000000')),
    Damage("new: offsets/last with a position of text", lambda d: _position(d, '"logOffset":"4"')),
    Damage("new: offsets/last with a position of another kind", lambda d: _position(d, '"offset":4')),
    Damage("new: offsets/last with a blank in its version", lambda d: _version(d.last("offsets"), "v{} ")),
    Damage("new: offsets/last with lines of Windows", lambda d: _windows_lines(d.last("offsets"))),
    Damage(
        "new: offsets/last of the other version", lambda d: _version(d.last("offsets"), "v{}", {"1": "2", "2": "1"})
    ),
    Damage("new: offsets/0099", lambda d: _copy_over(d.last("offsets"), d.path / "offsets/0099")),
    Damage("new: offsets/+99", lambda d: _copy_over(d.last("offsets"), d.path / "offsets/+99")),
    # -- commits
    Damage("new: commits/last called version 3", lambda d: _version(d.last("commits"), "v3")),
    Damage("new: commits/last with a watermark too large", lambda d: _watermark(d.last("commits"), "9" * 20)),
    Damage("new: commits/0099", lambda d: _copy_over(d.last("commits"), d.path / "commits/0099")),
    Damage(
        "new: offsets and commits without the batch before",
        lambda d: (remove(d.last("offsets", 1)), remove(d.last("commits", 1))),
    ),
    Damage("commits/last removed", lambda d: remove(d.last("commits"))),
    Damage("commits removed", lambda d: remove(d.path / "commits")),
    Damage("commits/last three removed", lambda d: _each([d.last("commits", back) for back in range(3)], remove)),
    Damage("commits/middle removed", lambda d: remove(d.last("commits", 3))),
    Damage("commits/last empty", lambda d: empty(d.last("commits"))),
    Damage("commits/last cut", lambda d: halve(d.last("commits"))),
    Damage("commits/last of version 9", lambda d: edit(d.last("commits"), d.last("commits").read_text()[:2], "v9")),
    Damage("commit ahead of the offsets", lambda d: _repeat_log(d, "commits")),
    Damage("new: commits/last without JSON", lambda d: _keep_lines(d.last("commits"), 1), lambda d: not _format2(d)),
    Damage("new: commits/last with a watermark of text", lambda d: _watermark(d.last("commits"), '"soon"')),
    Damage("new: commits/last zeroed", lambda d: _zero(d.last("commits"))),
    Damage("new: commits/previous empty", lambda d: empty(d.last("commits", 1))),
    # -- a batch in flight
    Damage("new: batch in flight, planned as the last", lambda d: _in_flight(d, None), lambda d: not _stateful(d)),
    Damage("new: batch in flight, empty", lambda d: _in_flight(d, "")),
    Damage("new: batch in flight, cut", lambda d: _in_flight(d, 'v1\n{"batchWatermarkMs":0,"batchTime')),
    Damage("new: batch in flight, never renamed", _litter),
    # -- the query
    Damage("metadata removed", lambda d: remove(d.path / "metadata")),
    Damage("metadata empty", lambda d: empty(d.path / "metadata")),
    Damage("metadata garbage", lambda d: (d.path / "metadata").write_text('{"id"')),
    Damage("new: metadata without an id", lambda d: (d.path / "metadata").write_text("{}")),
    Damage("new: metadata with an id that is none", lambda d: (d.path / "metadata").write_text('{"id":"clicks"}')),
    Damage("new: metadata with a byte order mark", lambda d: _prefix(d.path / "metadata", b"\xef\xbb\xbf")),
    # -- sources
    Damage("new: sources/0 entry ahead empty", lambda d: _ahead(d, b""), _files),
    Damage("new: sources/0 entry ahead cut", lambda d: _ahead(d, b'v1\n{"path":"file:'), _files),
    Damage("new: sources/0 entry ahead after a gap", lambda d: _ahead(d, d.last("sources/0").read_bytes(), 2), _files),
    Damage("new: sources/0/last without a file", lambda d: d.last("sources/0").write_text("v1"), _files),
    Damage(
        "new: sources/0/last as two before", lambda d: _copy_over(d.last("sources/0", 2), d.last("sources/0")), _files
    ),
    Damage(
        "new: sources/0 newest compact called a plain one",
        lambda d: _compact(d).rename(_compact(d).with_suffix("")),
        _compacted,
    ),
    Damage("new: sources/0/0099", lambda d: _copy_over(d.last("sources/0"), d.path / "sources/0/0099"), _files),
    Damage("sources/0/last removed", lambda d: remove(d.last("sources/0")), _files),
    Damage("sources/0 removed", lambda d: remove(d.path / "sources/0"), _files),
    Damage("sources/0 newest compact removed", lambda d: remove(_compact(d)), _compacted),
    Damage("sources/0 before the compact removed", lambda d: _each(_before_compact(d), remove), _compacted),
    Damage("new: sources/0/last empty", lambda d: empty(d.last("sources/0")), _files),
    Damage("new: sources/0/last cut", lambda d: halve(d.last("sources/0")), _files),
    Damage("new: sources/0 newest compact cut", lambda d: halve(_compact(d)), _compacted),
    Damage("new: sources/0 newest compact empty", lambda d: empty(_compact(d)), _compacted),
    Damage("new: sources/0/last of version 9", lambda d: edit(d.last("sources/0"), "v1", "v9"), _files),
    Damage(
        "new: sources/0 newest compact without its last entry",
        lambda d: _keep_lines(_compact(d), -1),
        _compacted,
        sealed=True,
    ),
    # -- HDFS-backed state
    Damage("last delta removed", lambda d: remove(_last_delta(d)), _chained("delta")),
    Damage("last delta cut", lambda d: halve(_last_delta(d)), _chained("delta")),
    Damage("last delta flipped", lambda d: flip(_last_delta(d)), _chained("delta")),
    Damage("last delta empty", lambda d: empty(_last_delta(d)), _chained("delta")),
    Damage("a delta before removed", lambda d: remove(d.state("delta", d.version - 1)[0]), _has("delta")),
    Damage("the first delta removed", lambda d: remove(d.state("delta")[0]), _has("delta")),
    Damage(
        "an older copy of the last delta",
        lambda d: _copy_over(d.state("delta", d.version - 1)[-1], _last_delta(d)),
        _chained("delta"),
        sealed=True,
    ),
    Damage(
        "a stray delta of the future",
        lambda d: _copy_over(_last_delta(d), _last_delta(d).with_name(f"{d.version + 1}.delta")),
        _chained("delta"),
    ),
    Damage("newest snapshot removed", lambda d: remove(d.newest("snapshot")), _has("snapshot")),
    Damage("newest snapshot cut", lambda d: halve(d.newest("snapshot")), _has("snapshot")),
    Damage("new: newest snapshot flipped", lambda d: flip(d.newest("snapshot")), _has("snapshot")),
    Damage(
        "new: snapshots and the first delta removed",
        lambda d: _each([*d.state("snapshot"), d.state("delta", 1)[0]], remove),
        _has("snapshot"),
    ),
    Damage(
        "new: newest snapshot cut, deltas before it removed",
        lambda d: (
            halve(d.newest("snapshot")),
            _each([p for p in d.state("delta") if version_of(p) < version_of(d.newest("snapshot"))], remove),
        ),
        _has("snapshot"),
    ),
    Damage(
        "new: deltas before the snapshots removed",
        lambda d: _each(_unneeded(d, "delta", "snapshot"), remove),
        _has("snapshot"),
    ),
    Damage("new: bytes behind the last delta", lambda d: append(_last_delta(d)), _chained("delta")),
    Damage("new: last delta without its last byte", lambda d: shorten(_last_delta(d)), _chained("delta")),
    Damage(
        "new: last delta of partition 0 under partition 1",
        lambda d: _copy_over(d.state("delta", d.version)[0], _last_delta(d)),
        lambda d: len(d.state("delta", d.version)) > 1,
        sealed=True,
    ),
    Damage("new: last delta zeroed", lambda d: _zero(_last_delta(d)), _chained("delta")),
    # -- folders of state
    Damage("a partition removed", lambda d: remove(d.path / "state/0/1"), lambda d: (d.path / "state/0/1").is_dir()),
    Damage("state removed", lambda d: remove(d.path / "state"), _stateful, sealed=True),
    Damage("new: state of the first operator removed", lambda d: remove(d.path / "state/0"), _stateful, sealed=True),
    Damage(
        "schema removed", lambda d: remove(d.schema()), lambda d: list(d.path.glob("state/*/0/**/_metadata/schema"))
    ),
    Damage("schema cut", lambda d: halve(d.schema()), lambda d: list(d.path.glob("state/*/0/**/_metadata/schema"))),
    Damage(
        "new: schema empty", lambda d: empty(d.schema()), lambda d: list(d.path.glob("state/*/0/**/_metadata/schema"))
    ),
    Damage(
        "operator metadata removed",
        lambda d: remove(d.operator_metadata()),
        lambda d: list(d.path.glob("state/*/_metadata/metadata")),
    ),
    Damage(
        "operator metadata cut",
        lambda d: halve(d.operator_metadata()),
        lambda d: list(d.path.glob("state/*/_metadata/metadata")),
    ),
    Damage(
        "new: operator metadata of two operators traded",
        lambda d: trade(*(d.path / f"state/{number}/_metadata/metadata" for number in (0, 1))),
        lambda d: (d.path / "state/1/_metadata/metadata").exists(),
    ),
    Damage(
        "new: schemas of two stores traded",
        lambda d: trade(*_schemas(d)[:2]),
        lambda d: len(_schemas(d)) > 1,
        sealed=True,
    ),
    Damage(
        "new: a partition too many",
        lambda d: shutil.copytree(d.path / "state/0/0", d.path / "state/0/5"),
        _stateful,
    ),
    Damage(
        "new: more partitions than the operator's description has",
        lambda d: edit(d.last("offsets"), 'shuffle.partitions":"2"', 'shuffle.partitions":"5"'),
        lambda d: (d.path / "state/0/_metadata/v2").is_dir(),
    ),
    Damage(
        "new: operator metadata v2 removed",
        lambda d: remove(d.path / "state/0/_metadata/v2"),
        lambda d: (d.path / "state/0/_metadata/v2").is_dir(),
    ),
    Damage(
        "new: operator metadata v2 cut",
        lambda d: halve(max((d.path / "state/0/_metadata/v2").glob("*"))),
        lambda d: (d.path / "state/0/_metadata/v2").is_dir(),
    ),
    Damage(
        "new: state schemas removed",
        lambda d: remove(d.path / "state/0/_stateSchema"),
        lambda d: (d.path / "state/0/_stateSchema").is_dir(),
    ),
    Damage(
        "new: state schema cut",
        lambda d: halve(next(iter((d.path / "state/0/_stateSchema/default").glob("*")))),
        lambda d: (d.path / "state/0/_stateSchema").is_dir(),
    ),
    # -- RocksDB
    Damage("newest zip removed", lambda d: remove(d.newest("zip")), _has("zip")),
    Damage("newest zip cut", lambda d: halve(d.newest("zip")), _has("zip")),
    Damage("newest zip empty", lambda d: empty(d.newest("zip")), _has("zip")),
    Damage("new: newest zip flipped", lambda d: flip(d.newest("zip")), _has("zip")),
    Damage("new: newest zip without its directory", lambda d: shorten(d.newest("zip"), 60), _has("zip")),
    Damage("all zips removed", lambda d: _each(d.state("zip"), remove), _has("zip")),
    Damage(
        "all zips and the first changelog removed",
        lambda d: _each([*d.state("zip"), *d.state("changelog")[:1]], remove),
        _has("zip"),
    ),
    Damage("SST removed", lambda d: remove(d.ssts()[-1]), _has("zip")),
    Damage("SST cut", lambda d: halve(d.ssts()[-1]), _has("zip")),
    Damage("SST flipped in its data", lambda d: flip(d.ssts()[-1], 20), _has("zip")),
    Damage("new: SST flipped in its index", lambda d: flip(d.ssts()[-1], _index_place(d.ssts()[-1])), _has("zip")),
    Damage(
        "new: SST flipped in its properties",
        lambda d: flip(d.ssts()[-1], d.ssts()[-1].stat().st_size - 400),
        _has("zip"),
    ),
    Damage(
        "new: SST flipped in its footer", lambda d: flip(d.ssts()[-1], d.ssts()[-1].stat().st_size - 4), _has("zip")
    ),
    Damage("new: SST zeroed", lambda d: _zero(d.ssts()[-1]), _has("zip")),
    Damage(
        "new: another SST of the same size",
        lambda d: _copy_over(*_as_large(d)),
        lambda d: _has("zip")(d) and _as_large(d),
    ),
    Damage("new: SSTs removed", lambda d: remove(d.ssts()[-1].parent), _has("zip")),
    Damage("last changelog removed", lambda d: remove(_last_changelog(d)), _chained("changelog")),
    Damage("last changelog cut", lambda d: halve(_last_changelog(d)), _chained("changelog")),
    Damage("new: last changelog flipped", lambda d: flip(_last_changelog(d)), _chained("changelog")),
    Damage("new: last changelog empty", lambda d: empty(_last_changelog(d)), _chained("changelog")),
    Damage("new: bytes behind the last changelog", lambda d: append(_last_changelog(d)), _chained("changelog")),
    Damage("new: the first changelog removed", lambda d: remove(d.state("changelog")[0]), _has("changelog")),
    Damage(
        "new: an older copy of the last changelog",
        lambda d: _copy_over(_before(_last_changelog(d), d.state("changelog")), _last_changelog(d)),
        _chained("changelog"),
        sealed=True,
    ),
    Damage(
        "new: an older copy of the newest zip",
        lambda d: _copy_over(_before(d.newest("zip"), d.state("zip")), d.newest("zip")),
        lambda d: _has("zip")(d) and len([p for p in d.state("zip") if p.parent == d.newest("zip").parent]) > 1,
        sealed=True,
    ),
    # -- state format 2
    Damage("format 2: sidecars removed", _without_sidecars, _format2),
    Damage("format 2: another id in the commit", _another_id, _format2),
    Damage(
        "new: format 2: sidecar of the last changelog empty",
        lambda d: empty(_spark_sum(_last_changelog(d))),
        lambda d: _format2(d) and _chained("changelog")(d),
    ),
    Damage(
        "new: format 2: sidecar of the last changelog changed",
        lambda d: edit(_spark_sum(_last_changelog(d)), '"value":', '"value":1'),
        lambda d: _format2(d) and _chained("changelog")(d),
    ),
    # -- Hadoop's own checksums
    Damage("new: Hadoop sums kept, offsets/last flipped", lambda d: flip(d.last("offsets")), sums=True),
    Damage("new: Hadoop sums kept, nothing changed", lambda _: None, sums=True),
    Damage(
        "new: Hadoop sum of offsets/last changed",
        lambda d: flip(_hadoop(d.last("offsets")), 10),
        lambda d: _hadoop(d.last("offsets")).exists(),
        sums=True,
    ),
    Damage(
        "new: Hadoop sum of the last delta changed",
        lambda d: flip(_hadoop(_last_delta(d)), 10),
        _chained("delta"),
        sums=True,
    ),
    Damage(
        "new: Hadoop sum of offsets/last empty",
        lambda d: empty(_hadoop(d.last("offsets"))),
        lambda d: _hadoop(d.last("offsets")).exists(),
        sums=True,
    ),
)


def _settings(directory: Directory, keep: Callable[[str], bool]) -> None:
    """Leave out settings of the last offsets."""
    path = directory.last("offsets")
    head, line, *rest = path.read_text().split("\n")
    values = json.loads(line)
    values["conf"] = {name: value for name, value in values["conf"].items() if keep(name)}
    path.write_text("\n".join([head, json.dumps(values), *rest]))


def _saves(directory: Directory) -> bool:
    """Whether the first operator is an aggregation, whose state has a format of its own."""
    return '"stateStoreSave"' in directory.operator_metadata().read_text()


def _position(directory: Directory, text: str) -> None:
    path = directory.last("offsets")
    path.write_text(re.sub(r'"logOffset":\d+', text, path.read_text()))


def _version(path: Path, form: str, numbers: dict[str, str] | None = None) -> None:
    head, _, rest = path.read_text().partition("\n")
    number = head.removeprefix("v")
    path.write_text(f"{form.format((numbers or {}).get(number, number))}\n{rest}")


def _windows_lines(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def _ahead(directory: Directory, data: bytes, by: int = 1) -> None:
    """An entry of a source's log that no batch has taken yet."""
    number = max(directory.log("sources/0")) + by
    # Every fourth is a compact one.
    (directory.path / f"sources/0/{number}{'' if (number + 1) % 4 else '.compact'}").write_bytes(data)


def _schemas(directory: Directory) -> list[Path]:
    return sorted(directory.path.glob("state/*/0/**/_metadata/schema"))


def _as_large(directory: Directory) -> tuple[Path, ...]:
    """Another table, and one of the newest snapshot that has its size; nothing if there are no such two."""
    every = sorted(directory.path.glob("state/**/SSTs/*.sst"))
    pairs = ((other, one) for one in directory.ssts() for other in every if other != one)
    return next((pair for pair in pairs if pair[0].stat().st_size == pair[1].stat().st_size), ())


def _before(path: Path, files: list[Path]) -> Path:
    """The file of the same store before one."""
    beside = [each for each in files if each.parent == path.parent]
    return beside[beside.index(path) - 1]


def _spark_sum(path: Path) -> Path:
    return path.with_name(f"{path.name}.crc")


def _hadoop(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _keep_lines(path: Path, count: int) -> None:
    path.write_text("\n".join(path.read_text().split("\n")[:count]))


def _garbage_line(path: Path, number: int, text: str = "{nonsense") -> None:
    lines = path.read_text().split("\n")
    lines[number] = text
    path.write_text("\n".join(lines))


def _void(path: Path) -> None:
    lines = path.read_text().split("\n")
    name, colon, _ = lines[-1].partition(":{")
    lines[-1] = f"{name}:-" if lines[0] == "v2" and colon else "-"
    path.write_text("\n".join(lines))


def _beyond(path: Path) -> None:
    path.write_text(re.sub(r'"logOffset":(\d+)', lambda found: f'"logOffset":{int(found[1]) + 7}', path.read_text()))


def _watermark(path: Path, value: str) -> None:
    path.write_text(re.sub(r'("nextBatchWatermarkMs":)-?\d+', rf"\g<1>{value}", path.read_text()))


def _prefix(path: Path, data: bytes) -> None:
    path.write_bytes(data + path.read_bytes())


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _index_place(path: Path) -> int:
    """A byte inside the index block, which the footer points at."""
    from airflow_provider_checkpoint.layouts.structured_streaming.files._facts import Doubts
    from airflow_provider_checkpoint.layouts.structured_streaming.files._sst_blocks import read_footer

    data = path.read_bytes()
    footer = read_footer(data[-53:], len(data), Doubts())
    assert footer.index is not None
    return footer.index.offset + 2
