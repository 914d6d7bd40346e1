"""What a batch needs to be restarted from: the files, and what is already known to be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming._chains import (
    Chain,
    lineage_chain,
    pick_unique_id,
    plain_chain,
)
from airflow_provider_checkpoint.layouts.structured_streaming._directory import StoreFiles
from airflow_provider_checkpoint.layouts.structured_streaming._names import (
    DEFAULT_STORE,
    METADATA,
    OFFSETS,
    hadoop_checksum,
    schema_key,
    spark_checksum,
    state_name,
)
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import read_set
from airflow_provider_checkpoint.layouts.structured_streaming._steps import offsets_issues
from airflow_provider_checkpoint.layouts.structured_streaming._writer import writer_of
from airflow_provider_checkpoint.model import Artifact, ArtifactKind, Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_checkpoint.layouts.structured_streaming._directory import Directory
    from airflow_provider_checkpoint.layouts.structured_streaming._logs import Commit, Offsets
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

#: What cannot be told from a directory alone.
SPARSE = "not there, which is right only if the query tracks its progress asynchronously"

#: So many partitions or operators of which nothing is there are named; after that it is clear enough.
_ABSENT = 20
#: So many of the last offsets are looked at for traces of state.
_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Needs:
    """The files of a batch, and what speaks against it without looking into state."""

    artifacts: tuple[Artifact, ...]
    issues: tuple[Issue, ...]


def needs_of(view: View, batch: int, offsets: Offsets, commit: Commit) -> Needs:
    """Everything from which a query goes on after ``batch``.

    Missing files whose names are known are among the artifacts, so that a look for them finds them missing.
    """
    logs = _logs(view, batch, offsets)
    sources = _sources(view.directory, offsets)
    state = state_needs(view, batch + 1, offsets, commit, batch=batch)
    described = Needs(tuple(descriptions(view.directory, batch)), ())
    parts = (logs, sources, described, state)
    artifacts = {artifact.key: artifact for part in parts for artifact in part.artifacts}
    sidecars = _sidecars(view.directory, [*artifacts, f"commits/{batch}"])
    return Needs(
        (*artifacts.values(), *(_sized(view.directory, key) for key in sidecars)),
        tuple(issue for part in parts for issue in part.issues),
    )


def ahead_of(view: View, offsets: Offsets) -> list[Artifact]:
    """What belongs to the batches that are planned and not committed.

    After a restart Spark runs the last of them again, exactly as planned. So this is what the newest commit is
    continued with, and must not be taken for something nobody needs.

    :param offsets: those of the newest commit.
    """
    directory = view.directory
    last = directory.commits[-1] if directory.commits else -1
    keys = [f"{OFFSETS}/{number}" for number in directory.planned]
    keys += _state_ahead(view, last)
    done = {line.source: log_offset(line) for line in offsets.sources}
    for source, entries in directory.sources.items():
        taken = done.get(source)
        keys += [key for number, key in entries.items() if taken is None or number > taken]
    for described in directory.operators.values():
        keys += [key for key, name in described.items() if name.batch is not None and name.batch > last]
    return [_sized(directory, key) for key in [*keys, *_sidecars(directory, keys)]]


def _state_ahead(view: View, last: int) -> list[str]:
    """State that no commit names, where more than one batch lacks its commit: what the last of them is run from."""
    batch = max(view.directory.planned, default=-1)
    if batch <= last + 1:
        return []
    try:
        needs = state_needs(view, batch, view.offsets(batch), None, batch=batch)
    except (CorruptError, BlobNotFoundError):
        return []
    return [artifact.key for artifact in needs.artifacts if artifact.key in view.directory.files]


# -- logs --------------------------------------------------------------------------------------------------------


def _logs(view: View, batch: int, offsets: Offsets) -> Needs:
    issues: list[Issue] = []
    keys = [METADATA, f"{OFFSETS}/{batch}"]
    previous = view.directory.previous(batch)
    if previous is not None:
        keys.append(f"{OFFSETS}/{previous}")
    elif batch > 0:
        issues.append(Issue.error("offsets_missing", f"no offsets before those of batch {batch}"))
    if previous is not None and previous != batch - 1:
        issues.append(Issue.warning("logs_sparse", f"offsets/{batch - 1}: {SPARSE}"))
    before = None
    try:
        before = None if previous is None else view.offsets(previous)
        view.query_id()
    except CorruptError as error:
        issues.append(Issue.error("log_corrupt", f"{error.subject}: {error.message}"))
    except BlobNotFoundError:
        pass  # Among the artifacts, where a look for it finds it missing.
    issues.extend(offsets_issues(view.directory, batch, offsets, before))
    return Needs(tuple(_sized(view.directory, key) for key in keys), tuple(issues))


def _sources(directory: Directory, offsets: Offsets) -> Needs:
    artifacts: list[Artifact] = []
    issues: list[Issue] = []
    for line in offsets.sources:
        entries = directory.sources.get(line.source, {})
        last = log_offset(line)
        if last is None:
            # Other sources keep where they began, if anything; what is there is needed, nothing must be there.
            artifacts.extend(_sized(directory, key) for key in entries.values())
            continue
        found = read_set(entries, last)
        artifacts.extend(_sized(directory, key) for key in found.keys)
        if found.missing:
            numbers = ", ".join(map(str, found.missing[:5])) + (", ..." if len(found.missing) > 5 else "")
            issues.append(Issue.error("source_log_missing", f"sources/{line.source}: entries {numbers} are not there"))
    return Needs(tuple(artifacts), tuple(issues))


def descriptions(directory: Directory, batch: int) -> list[Artifact]:
    """Files that describe operators and stores, as far as they were written by the time of a batch."""
    return [
        _sized(directory, key)
        for described in directory.operators.values()
        for key, name in described.items()
        if name.batch is None or name.batch <= batch
    ]


# -- state -------------------------------------------------------------------------------------------------------


def state_needs(view: View, version: int, offsets: Offsets, commit: Commit | None, *, batch: int) -> Needs:
    """The files from which every store is loaded at a version.

    :param commit: names the unique ids of that version, if it has any.
    :param batch: whose description of the operators counts.
    """
    artifacts: list[Artifact] = []
    issues: list[Issue] = []
    operators = set(view.directory.stores) | set(view.directory.operators)
    expected = set() if commit is None else set(commit.unique_ids)
    # Spark numbers the operators of a query without leaving one out.
    expected |= set(range(min(max(operators, default=0), _ABSENT)))
    lost = sorted(expected - operators)
    issues.extend(Issue.error("state_missing", f"state/{operator}: not in the store") for operator in lost)
    if not operators and not lost:
        issues.extend(_state_gone(view, commit))
    for operator in sorted(operators):
        try:
            places = _places(view, operator, offsets, batch)
        except CorruptError as error:
            # What it said is taken from what is there. Spark writes one that is written once anew; it cannot do without
            # the one that each run writes.
            written_once = error.subject is None or "/v2/" not in error.subject
            issue = Issue.warning if written_once else Issue.error
            issues.append(issue("operator_metadata_corrupt", f"{error.subject}: {error.message}"))
            places = _seen_places(view, operator, offsets)
        artifacts.extend(_sized(view.directory, key) for key in _named_schemas(view, operator, batch))
        issues.extend(_undescribed(view, operator))
        issues.extend(_of_another(view, operator, batch))
        issues.extend(_left_out(view, operator, version, offsets.partitions))
        families = has_column_families(view, operator)
        for place in places:
            need = _store_need(view, place, version, offsets, commit)
            artifacts.extend(need.artifacts)
            issues.extend(need.issues)
            if families and not any(artifact.kind is ArtifactKind.SNAPSHOT for artifact in need.artifacts):
                issues.append(
                    Issue.error("snapshot_missing", f"{place.folder}: no snapshot that names column families")
                )
    return Needs(tuple(artifacts), tuple(issues))


def _named_schemas(view: View, operator: int, batch: int) -> Iterator[str]:
    """Schemas that the description of an operator names, wherever it says they are: without them it does not start."""
    try:
        described = view.operator(operator, batch)
    except CorruptError:
        return
    for path in () if described is None else described.schema_paths:
        key = schema_key(path)
        if key is not None:
            yield key


def has_column_families(view: View, operator: int) -> bool:
    """Whether the stores of an operator are divided, as those of transformWithState are.

    Only a snapshot tells which column families there are, so that Spark makes one in the first batch, and does not get
    by with the changes alone (NullPointerException). Such operators write their schemas with each run.
    """
    return any(name.batch is not None for name in view.directory.operators.get(operator, {}).values())


def _undescribed(view: View, operator: int) -> Iterator[Issue]:
    """Schemas that each run writes are named by a description that each run writes; without it nothing starts."""
    names = [name for name in view.directory.operators.get(operator, {}).values() if name.batch is not None]
    if names and all(name.schema_of is not None for name in names):
        message = f"state/{operator}/_metadata/v2: not there, although the operator has schemas that it must name"
        yield Issue.error("operator_metadata_missing", message)


def _of_another(view: View, operator: int, batch: int) -> Iterator[Issue]:
    """A description says whose it is; Spark holds it against the plan of the query."""
    try:
        described = view.operator(operator, batch)
    except CorruptError:
        return
    if described is not None and described.number not in (None, operator):
        message = f"state/{operator}/_metadata: describes operator {described.number}, {described.name}"
        yield Issue.error("operator_mismatch", message)


def _left_out(view: View, operator: int, version: int, partitions: int | None) -> Iterator[Issue]:
    """State of the version that is loaded, in partitions that the settings do not count: Spark would not look there.

    Where state was repartitioned, the partitions that are no more have only older versions.
    """
    beyond = {
        partition
        for (partition, _), files in view.directory.stores.get(operator, {}).items()
        if partitions is not None and partition >= partitions and version in files.versions
    }
    for partition in sorted(beyond)[:_ABSENT]:
        message = f"state/{operator}/{partition}: has version {version}, but the offsets count {partitions} partitions"
        yield Issue.error("state_left_out", message)


def _state_gone(view: View, commit: Commit | None) -> Iterator[Issue]:
    """A query without state and one whose state was removed look alike, but for traces in the logs."""
    if _ran_without_data(view):
        yield Issue.error("state_missing", "state: not there, although a batch without new input was run for its sake")
    elif commit is not None and commit.watermark_ms > 0:
        yield Issue.warning("state_missing", "state: not there; the log has a watermark, so that some is likely")


def _ran_without_data(view: View) -> bool:
    """Whether a batch was run although no source had anything new: only state whose time is over makes Spark do so.

    Of two entries that are the same to the millisecond one is a copy, and no batch of its own.
    """
    try:
        planned = [view.offsets(number) for number in view.directory.offsets[-_LOOKED_AT:]]
    except (CorruptError, BlobNotFoundError):
        return False
    return any(
        one.sources == other.sources and one.timestamp_ms != other.timestamp_ms for one, other in pairwise(planned)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """One store in one partition."""

    operator: int
    partition: int
    store: str
    index: int
    """Its position among the stores of its operator."""

    @property
    def folder(self) -> str:
        inner = "" if self.store == DEFAULT_STORE else f"{self.store}/"
        return f"state/{self.operator}/{self.partition}/{inner}"

    @property
    def label(self) -> str:
        return str(self.operator) if self.store == DEFAULT_STORE else f"{self.operator}/{self.store}"


def _places(view: View, operator: int, offsets: Offsets, batch: int) -> list[_Place]:
    described = view.operator(operator, batch)
    if described is None:
        return _seen_places(view, operator, offsets)
    # Spark goes by the offsets; the description may be outdated.
    partitions = offsets.partitions or described.partitions
    return _all_places(view, operator, described.stores, partitions)


def _seen_places(view: View, operator: int, offsets: Offsets) -> list[_Place]:
    """The stores that some partition has, in every partition there should be."""
    seen = view.directory.stores.get(operator, {})
    stores = tuple(sorted({store for _, store in seen}))
    highest = max((partition for partition, _ in seen), default=0)
    return _all_places(view, operator, stores, offsets.partitions or highest + 1)


def _all_places(view: View, operator: int, stores: Iterable[str], partitions: int | None) -> list[_Place]:
    seen = {partition for partition, _ in view.directory.stores.get(operator, {})}
    return [
        _Place(operator, partition, store, index)
        for index, store in enumerate(stores)
        for partition in _partitions(seen, 1 if view.one_partition(operator, store) else partitions or 1)
    ]


def _partitions(seen: set[int], count: int) -> list[int]:
    """All partitions below ``count`` of which something is there, and the first few of which nothing is.

    The count is a text that anybody may have edited; it must not decide how long this runs.
    """
    absent = (partition for partition in range(count) if partition not in seen)
    return sorted([*(partition for partition in seen if partition < count), *islice(absent, _ABSENT)])


def _store_need(view: View, place: _Place, version: int, offsets: Offsets, commit: Commit | None) -> Needs:
    files = view.directory.stores.get(place.operator, {}).get((place.partition, place.store))
    files = files or StoreFiles(place.folder)
    rocksdb = files.is_rocksdb if offsets.rocksdb is None else offsets.rocksdb
    ids = () if commit is None else commit.unique_ids.get(place.operator, ())
    if not ids:
        return _resolve(view, place, offsets, lambda below: plain_chain(files, version, rocksdb=rocksdb, below=below))
    of_partition = ids[place.partition] if place.partition < len(ids) else ()
    unique = pick_unique_id(files, version, of_partition, place.index)
    if unique is None:
        message = f"{place.folder}: the commit names no unique id for it"
        return Needs((), (Issue.error("unique_id_missing", message),))
    return _resolve(
        view,
        place,
        offsets,
        lambda below: lineage_chain(files, version, unique, lambda key: view.lineage(key, offsets.codec), below=below),
    )


def _resolve(view: View, place: _Place, offsets: Offsets, chain_below: Callable[[int | None], Chain]) -> Needs:
    """The chain of a store with the tables of its snapshot; one that cannot be read is passed over as Spark would."""
    passed: list[CorruptError] = []
    first: Chain | None = None
    below: int | None = None
    while True:
        try:
            chain = chain_below(below)
        except (CorruptError, BlobNotFoundError) as error:
            return _unresolved(view, place, first, [*passed, error])
        first = first or chain
        try:
            tables = base_tables(view, chain.base)
        except CorruptError as error:
            passed.append(error)
            name = state_name(chain.base or "")
            assert name is not None, "only a zip is looked into"
            below = name.version
        except BlobNotFoundError:
            tables = []
            break
        else:
            break
    if passed and not chain.whole:
        return _unresolved(view, place, first, passed)
    artifacts = [_state_artifact(view, place, key) for key in chain.keys] + tables
    unnamed = [key for key in chain.missing if key not in chain.changes]
    issues = [Issue.error("state_missing", f"{key}: not in the store") for key in unnamed]
    issues += [damaged_snapshot(offsets, f"{error.subject}: {error.message}") for error in passed]
    return Needs(tuple(artifacts), tuple(issues))


def _unresolved(
    view: View, place: _Place, chain: Chain | None, errors: Iterable[CorruptError | BlobNotFoundError]
) -> Needs:
    keys = () if chain is None else chain.keys
    issues = [Issue.error("state_corrupt", f"{error.subject}: {error.message}") for error in errors]
    return Needs(tuple(_state_artifact(view, place, key) for key in keys), tuple(issues))


def damaged_snapshot(offsets: Offsets, what: str) -> Issue:
    """A snapshot is damaged, but everything to do without it is there."""
    writer = writer_of(offsets.conf)
    if writer.repairs_snapshots:
        return Issue.warning(
            "snapshot_repairable",
            f"{what}; Spark 4.1 and later go back to an older snapshot and the changes since, earlier ones fail",
        )
    return Issue.error(
        "snapshot_repairable", f"{what}; Spark {writer.text} does not go back to an older snapshot by itself"
    )


def base_tables(view: View, base: str | None) -> list[Artifact]:
    """The tables that a RocksDB snapshot refers to, with the sizes it tells; raises CorruptError."""
    if base is None or not base.endswith(".zip"):
        return []
    name = state_name(base)
    assert name is not None, "chains are made of names of state files"
    metadata = view.zip_metadata(base)
    label = _Place(name.operator, name.partition, name.store, 0).label
    return [
        Artifact(f"{name.folder}{folder}/{table.dfs_name}", ArtifactKind.SNAPSHOT, label, name.partition, table.size)
        for folder, tables in (("SSTs", metadata.ssts), ("logs", metadata.logs))
        for table in tables
    ]


def _state_artifact(view: View, place: _Place, key: str) -> Artifact:
    info = view.directory.files.get(key)
    kind = ArtifactKind.SNAPSHOT if key.endswith((".snapshot", ".zip")) else ArtifactKind.DELTA
    return Artifact(key, kind, place.label, place.partition, None if info is None else info.size)


# -- shared ------------------------------------------------------------------------------------------------------


def _sized(directory: Directory, key: str) -> Artifact:
    info = directory.files.get(key)
    return Artifact(key, size=None if info is None else info.size)


def _sidecars(directory: Directory, keys: Iterable[str]) -> list[str]:
    """The checksums that lie beside files; they go where their files go."""
    if not directory.checksums:
        return []
    beside = [sidecar for key in keys for sidecar in (hadoop_checksum(key), spark_checksum(key))]
    beside += [hadoop_checksum(key) for key in beside]
    return [key for key in beside if key in directory.checksums]
