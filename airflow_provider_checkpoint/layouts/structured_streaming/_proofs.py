"""Proofs of the files of a batch: there, of the right size, whole, and what the seal says they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError
from airflow_provider_checkpoint.layouts._checks import digest_issues, missing, presence_issues
from airflow_provider_checkpoint.layouts._protocol import Check
from airflow_provider_checkpoint.layouts.structured_streaming._chains import lineage_chain, plain_chain
from airflow_provider_checkpoint.layouts.structured_streaming._logs import (
    Offsets,
    parse_commit,
    parse_offsets,
    parse_query_id,
)
from airflow_provider_checkpoint.layouts.structured_streaming._names import (
    COMMITS,
    METADATA,
    OFFSETS,
    guarded_by,
    is_table,
    log_number,
    operator_name,
    seal_number,
    source_name,
    state_name,
)
from airflow_provider_checkpoint.layouts.structured_streaming._needs import (
    base_tables,
    damaged_snapshot,
    has_column_families,
)
from airflow_provider_checkpoint.layouts.structured_streaming._operators import parse_operator
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import prove_source_entry
from airflow_provider_checkpoint.layouts.structured_streaming._text import read_small
from airflow_provider_checkpoint.layouts.structured_streaming.files import (
    FileKind,
    inspect_file,
    read_origins,
    verify_sidecars,
)
from airflow_provider_checkpoint.model import Artifact, Depth, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._chains import Chain
    from airflow_provider_checkpoint.layouts.structured_streaming._names import StateName
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

SEALED_FILE_CHANGED = "sealed_file_changed"

FOREIGN_TABLE = "sst_foreign"

#: Damage that Spark does not see, and so does not repair: it goes on with less state, or with another one. A foreign
#: table it sees; whether it repairs that is not known.
UNSEEN = frozenset({SEALED_FILE_CHANGED, FOREIGN_TABLE, "sst_block_corrupt", "sst_corrupt"})

#: The code of an issue that says what could not be proven.
DOUBT = "partly_proven"


@dataclass(frozen=True, slots=True)
class Prover:
    """Makes the checks of one batch."""

    blobs: BlobStore
    view: View
    offsets: Offsets
    depth: Depth
    names: frozenset[str]
    """Every file the batch has, checksums beside files included."""
    file_sources: frozenset[str]
    origins: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Of each snapshot that was asked: where each of its tables must come from."""

    @classmethod
    def of(cls, blobs: BlobStore, view: View, offsets: Offsets, depth: Depth, names: Iterable[str]) -> Prover:
        sources = frozenset(line.source for line in offsets.sources if log_offset(line) is not None)
        return cls(blobs, view, offsets, depth, frozenset(names), sources)

    def checks(self, artifacts: Iterable[Artifact]) -> list[Check]:
        """One check per file. Checksums beside files are read along with their files, seals with their batch."""
        proven = [each for each in artifacts if guarded_by(each.key) is None and seal_number(each.key) is None]
        bases = {folder: each for each in proven if (folder := _snapshot_folder(each.key)) is not None}
        return [self._check(artifact, bases.get(_snapshot_of(artifact.key) or "")) for artifact in proven]

    def _check(self, artifact: Artifact, base: Artifact | None) -> Check:
        cost = (artifact.size or 0) if self.depth.includes(Depth.CONTENT) else 0
        if base is None:
            return Check(artifact.key, cost, lambda: self.issues(artifact), (artifact,))
        # The verdict on a part of a snapshot depends on what there is instead of it, which the snapshot alone decides.
        return Check(artifact.key, cost, lambda: self._snapshot_issues(artifact, base), (artifact, base))

    # -- one file ------------------------------------------------------------------------------------------------

    def issues(self, artifact: Artifact, base: Artifact | None = None) -> list[Issue]:
        """What is wrong with a file.

        :param base: the snapshot that it is a table of.
        """
        if not self.depth.includes(Depth.CONTENT):
            return presence_issues(self.blobs, artifact)
        if artifact.sha256 is not None:
            return [_since_sealed(issue) for issue in digest_issues(self.blobs, artifact)]
        found = presence_issues(self.blobs, artifact)
        if found:
            return found
        try:
            return [*verify_sidecars(self.blobs, artifact.key, self.names), *self._content(artifact, base)]
        except BlobNotFoundError:
            return [missing(artifact)]

    def _content(self, artifact: Artifact, base: Artifact | None) -> list[Issue]:
        key = artifact.key
        kind = _kind(key)
        if kind is not None:
            facts = inspect_file(self.blobs, key, kind=kind, size=artifact.size, codec=self.offsets.codec)
            # That a schema has no checksum is so in every directory: said once, in the documentation of the decoders.
            unproven = () if kind is FileKind.SCHEMA else facts.unproven
            doubts = [Issue.warning(DOUBT, f"{key}: {statement}") for statement in unproven]
            return [*facts.issues, *self._foreign(key, base, facts.origin), *doubts]
        try:
            self._parse(key)
        except CorruptError as error:
            # A description of an operator that is written once is written anew; Spark stumbles over every other log.
            described = operator_name(key)
            issue = Issue.warning if described is not None and described.batch is None else Issue.error
            return [issue("log_corrupt", f"{key}: {error.message}")]
        return []

    def _foreign(self, key: str, base: Artifact | None, origin: tuple[int, int] | None) -> list[Issue]:
        """A table that is whole, but not the one that its snapshot means: RocksDB does not open it."""
        if origin is None or base is None or not base.key.endswith(".zip"):
            return []
        if base.key not in self.origins:
            self.origins[base.key] = read_origins(self.blobs, base.key)
        if self.origins[base.key].get(key.rpartition("/")[2], origin) == origin:
            return []
        return [Issue.error(FOREIGN_TABLE, f"{key}: whole, but not the table that {base.key} means")]

    def _parse(self, key: str) -> None:
        """Read a log through; raises CorruptError."""
        source = source_name(key)
        if source is not None:
            if source.source in self.file_sources:
                prove_source_entry(self.blobs, key)
        elif log_number(key, OFFSETS) is not None:
            parse_offsets(read_small(self.blobs, key), subject=key)
        elif log_number(key, COMMITS) is not None:
            parse_commit(read_small(self.blobs, key), subject=key)
        elif key == METADATA:
            parse_query_id(read_small(self.blobs, key), subject=key)
        elif operator_name(key) is not None:
            parse_operator(read_small(self.blobs, key), subject=key)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def _snapshot_issues(self, artifact: Artifact, base: Artifact) -> list[Issue]:
        """What is wrong with a snapshot or a table of it; no error if Spark sees it and all to do without is whole."""
        issues = self.issues(artifact, base)
        errors = [issue for issue in issues if issue.severity is Severity.ERROR and issue.code not in UNSEEN]
        if not errors or not self.dispensable(base):
            return issues
        softened = [damaged_snapshot(self.offsets, issue.message) for issue in errors]
        return [*softened, *(issue for issue in issues if issue not in errors)]

    def dispensable(self, base: Artifact) -> bool:
        """Whether an older snapshot and the changes since, or all changes there ever were, are whole."""
        name = state_name(base.key)
        if name is None:
            return False
        try:
            chain = self._chain_before(name)
            tables = base_tables(self.view, chain.base)
        except (CorruptError, BlobNotFoundError):
            return False
        if not chain.whole or (chain.base is None and has_column_families(self.view, name.operator)):
            return False
        older = [self._artifact(key) for key in chain.keys if key == chain.base] + tables
        changes = [self._artifact(key) for key in chain.keys if key != chain.base]
        found = [issue for each in changes for issue in self.issues(each)]
        found += [issue for each in older for issue in self._snapshot_issues(each, older[0])]
        return all(issue.severity is not Severity.ERROR for issue in found)

    def _chain_before(self, name: StateName) -> Chain:
        files = self.view.directory.stores[name.operator][name.partition, name.store]
        if name.unique_id is None:
            return plain_chain(files, name.version, rocksdb=name.extension == "zip", below=name.version)
        return lineage_chain(
            files,
            name.version,
            name.unique_id,
            lambda key: self.view.lineage(key, self.offsets.codec),
            below=name.version,
        )

    def _artifact(self, key: str) -> Artifact:
        info = self.view.directory.files.get(key)
        return Artifact(key, size=None if info is None else info.size)


Known: TypeAlias = dict[tuple[str, tuple[Artifact, ...]], list[Issue]]
"""What checks have found, by what they looked at."""


def run_checks(checks: Iterable[Check], *, width: int, known: Known | None = None) -> list[tuple[str, list[Issue]]]:
    """Run checks side by side; what each is about and what it found.

    :param known: what earlier runs found, so that files that batches share are read once; added to.
    """
    found: Known = {} if known is None else known
    wanted = {(check.subject, check.claims): check for check in checks}
    new = [(token, check) for token, check in wanted.items() if token not in found]
    with ThreadPoolExecutor(width) as pool:
        answers = pool.map(lambda each: each[1].run(), new)
        found |= {token: issues for (token, _), issues in zip(new, answers, strict=True)}
    return [(token[0], found[token]) for token in wanted]


def _kind(key: str) -> FileKind | None:
    """How a file is decoded, going by its name; None for the logs, which are text."""
    name = state_name(key)
    if name is not None:
        return FileKind(name.extension)
    if is_table(key):
        return FileKind.SST
    described = operator_name(key)
    return FileKind.SCHEMA if described is not None and described.schema_of is not None else None


def _snapshot_folder(key: str) -> str | None:
    name = state_name(key)
    return name.folder if name is not None and name.extension in ("zip", "snapshot") else None


def _snapshot_of(key: str) -> str | None:
    """The folder in which the snapshot lies that a file is, or is a table of."""
    return key.rpartition("SSTs/")[0] if is_table(key) else _snapshot_folder(key)


def _since_sealed(issue: Issue) -> Issue:
    if issue.code not in ("checksum_mismatch", "size_mismatch"):
        return issue
    return Issue.error(SEALED_FILE_CHANGED, issue.message.replace("the manifest says", "when it was sealed it was"))
