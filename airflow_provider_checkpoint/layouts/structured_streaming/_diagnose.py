"""Diagnosing a directory: what Spark would stumble over if the query were started now.

Spark reads little when it starts: ``metadata``, the last two entries of ``offsets``, the last of ``commits``, the logs
of the sources, and one version of each state store. Damage elsewhere does not show until somebody wants to go back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_checkpoint.exceptions import BlobNotFoundError, CorruptError
from airflow_provider_checkpoint.layouts.structured_streaming._diagnose_logs import log_findings, readable_offsets
from airflow_provider_checkpoint.layouts.structured_streaming._diagnose_sink import Progress, Sink, last_published
from airflow_provider_checkpoint.layouts.structured_streaming._diagnosis import Diagnosis, Finding
from airflow_provider_checkpoint.layouts.structured_streaming._names import is_litter, is_table
from airflow_provider_checkpoint.layouts.structured_streaming._needs import descriptions, state_needs
from airflow_provider_checkpoint.layouts.structured_streaming._proofs import (
    DOUBT,
    SEALED_FILE_CHANGED,
    Known,
    Prover,
    run_checks,
)
from airflow_provider_checkpoint.layouts.structured_streaming._seal import newest_seal, with_digests
from airflow_provider_checkpoint.layouts.structured_streaming._spark_says import SILENT, about_state
from airflow_provider_checkpoint.layouts.structured_streaming._writer import writer_of
from airflow_provider_checkpoint.model import Artifact, CheckpointId, Depth, Issue, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
    from airflow_provider_checkpoint.layouts.structured_streaming._logs import Commit, Offsets
    from airflow_provider_checkpoint.layouts.structured_streaming._view import View

#: So many findings of a kind are told each; the rest is counted.
_TOLD = 10


def diagnose(
    layout: StructuredStreamingLayout,
    *,
    depth: Depth = Depth.CONTENT,
    width: int = 8,
    file_sink: BlobStore | None = None,
) -> Diagnosis:
    """Find everything that can be seen from the directory and, if it is named, its file sink. Changes nothing.

    :param depth: how far files are looked into; ``presence`` is quick and misses what only reading finds.
    :param file_sink: the output of Spark's file sink. Then a batch is recoverable only if the sink can go back to it,
        too.
    """
    # A query that runs goes on while we look. What its sink had before is compared with what it has planned since, and
    # what it has committed with what its sink has by then.
    published = -1 if file_sink is None else last_published(file_sink)
    view = layout.look()
    seal = newest_seal(layout.blobs, view.directory.seals)
    known: Known = {}
    recoverable = tuple(_recoverable(layout, view.directory.commits, depth, width, known))
    findings = list(log_findings(view, layout.blobs, None if seal is None else seal.query_id))
    last = readable_offsets(view)
    if last is not None:
        findings += _state_findings(layout, view, last, depth, width, known)
        findings += _resealed(layout, last[0], depth, width, known)
        findings += _abandoned_state(view)
        findings += _moved(view, layout.blobs.uri, last[0])
    findings += _litter(view)
    if file_sink is not None:
        sink = Sink(file_sink, depth)
        progress = _progress(view)
        findings += [*sink.ahead(published, progress), *sink.findings(progress, recoverable)]
        recoverable = tuple(filter(sink.reaches, recoverable))
    doubts = {issue.message.partition(": ")[2] for found in known.values() for issue in found if issue.code == DOUBT}
    return Diagnosis(
        uri=layout.blobs.uri,
        query_id=_query_id(view),
        writer="unknown" if last is None else writer_of(last[1].conf).text,
        last_planned=view.directory.offsets[-1] if view.directory.offsets else None,
        last_committed=view.directory.commits[-1] if view.directory.commits else None,
        depth=depth,
        findings=tuple(_told(sorted(findings, key=lambda finding: not finding.blocking))),
        recoverable=recoverable,
        unproven=tuple(sorted(doubts)),
        file_sink=None if file_sink is None else file_sink.uri,
    )


def _progress(view: View) -> Progress:
    committed = max(view.directory.commits, default=-1)
    return Progress(planned=max([committed, *view.directory.offsets]), committed=committed)


def _recoverable(
    layout: StructuredStreamingLayout, commits: list[int], depth: Depth, width: int, known: Known
) -> Iterator[int]:
    """Batches that are whole, newest first. What they share is read once."""
    for batch in reversed(commits):
        examined = layout.examine(CheckpointId(batch))
        if examined.checkpoint is None or any(map(_is_error, examined.issues)):
            continue
        found = run_checks(layout.checks(examined.checkpoint, depth), width=width, known=known)
        if not any(_is_error(issue) for _, issues in found for issue in issues):
            yield batch


def _is_error(issue: Issue) -> bool:
    return issue.severity is Severity.ERROR


def _query_id(view: View) -> str | None:
    try:
        return view.query_id()
    except (CorruptError, BlobNotFoundError):
        return None


def _told(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each finding once, of each kind not too many: one lost folder may mean thousands of files."""
    seen: dict[str, dict[str, Finding]] = {}
    for finding in findings:
        seen.setdefault(finding.code, {}).setdefault(finding.subject, finding)
    for alike in seen.values():
        told = list(alike.values())
        yield from told[:_TOLD]
        if len(told) > _TOLD:
            rest = len(told) - _TOLD
            yield told[_TOLD].model_copy(update={"wrong": f"{told[_TOLD].wrong} (and {rest - 1} more of this kind)"})


# -- state -------------------------------------------------------------------------------------------------------


def _state_findings(
    layout: StructuredStreamingLayout,
    view: View,
    last: tuple[int, Offsets],
    depth: Depth,
    width: int,
    known: Known,
) -> Iterator[Finding]:
    """What is wrong with the state that Spark would load: after the last batch if it is committed, else before it."""
    batch, offsets = last
    loaded = batch if batch in view.directory.commits else batch - 1
    if loaded < 0:
        return
    needs = state_needs(view, loaded + 1, offsets, _commit(view, loaded), batch=batch)
    for issue in needs.issues:
        yield _state_finding(issue.message.partition(":")[0], issue)
    seal = layout.seal_of(loaded)
    artifacts = with_digests([*needs.artifacts, *descriptions(view.directory, batch)], seal)
    prover = Prover.of(layout.blobs, view, offsets, depth, view.directory.files)
    for subject, issues in run_checks(prover.checks(artifacts), width=width, known=known):
        for issue in issues:
            if issue.code != DOUBT:
                finding = _state_finding(subject, issue)
                fix = finding.fix or _table_fix(prover, subject, issue, [each.key for each in needs.artifacts])
                says = _said_of_changed(prover, subject) if issue.code == SEALED_FILE_CHANGED else finding.spark_says
                yield finding.model_copy(update={"fix": fix, "spark_says": says})


def _said_of_changed(prover: Prover, key: str) -> str:
    """A file that is not as it was sealed may be broken in itself as well: then Spark sees it."""
    broken = [issue for issue in prover.issues(Artifact(key)) if _is_error(issue)]
    return about_state(key, broken[0].code) if broken else SILENT


def _commit(view: View, batch: int) -> Commit | None:
    try:
        return view.commit(batch)
    except (CorruptError, BlobNotFoundError):
        return None


def _state_finding(subject: str, issue: Issue) -> Finding:
    if issue.code == "state_missing" and "." not in subject:
        return Finding(
            code="state_gone",
            blocking=_is_error(issue),
            subject=subject,
            spark_says="SparkRuntimeException [STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY]; nothing, if the"
            " query has no operator with state",
            wrong=issue.message.removeprefix(f"{subject}: "),
        )
    return Finding(
        code=issue.code,
        blocking=_is_error(issue),
        subject=subject,
        spark_says=about_state(subject, issue.code),
        wrong=issue.message.removeprefix(f"{subject}: "),
        fix=_state_fix(subject, issue.code),
    )


def _state_fix(subject: str, code: str) -> str:
    if code == "snapshot_repairable" and subject.endswith((".snapshot", ".zip")):
        return f"Remove {subject}: an older snapshot and every change since are whole."
    if subject.endswith("/_metadata/schema") and code != "artifact_missing":
        return f"Remove {subject}: Spark writes it anew."
    return ""


def _table_fix(prover: Prover, subject: str, issue: Issue, keys: list[str]) -> str:
    """Spark does not see a damaged table. Without the snapshot that has it, Spark must do without it, too."""
    if not is_table(subject) or not _is_error(issue):
        return ""
    folder = subject.rpartition("SSTs/")[0]
    base = next((key for key in keys if key.startswith(folder) and key.endswith(".zip")), None)
    return _state_fix(base, "snapshot_repairable") if base and prover.dispensable(Artifact(base)) else ""


def _abandoned_state(view: View) -> Iterator[Finding]:
    """Versions that no batch of the logs can have written: somebody removed entries to go back.

    A snapshot among them is taken, without a word, once the query comes by its version again: the deltas are
    overwritten by then, the snapshot is not. In checkpoint format 2 nothing refers to it; RocksDB without change logs
    overwrites it.
    """
    if not view.directory.offsets:
        return
    highest = view.directory.offsets[-1] + 1
    ahead = [
        key
        for stores in view.directory.stores.values()
        for files in stores.values()
        for versions in (files.snapshots, _logged_zips(files.zips, plain=any(u is None for _, u in files.changelogs)))
        for version, key in versions.items()
        if version > highest
    ]
    if ahead:
        yield Finding(
            code="abandoned_state",
            blocking=True,
            subject=min(ahead),
            spark_says="nothing: when the query comes to this version again, the old snapshot is taken for its state",
            wrong=f"{len(ahead)} snapshots of versions above {highest}, the highest that a batch of the logs can have:"
            " offsets and commits were removed by hand, the state was not",
            fix=f"Remove every state file of a version above {highest}.",
        )


def _logged_zips(zips: dict[tuple[int, str | None], str], *, plain: bool) -> dict[int, str]:
    return {version: key for (version, unique), key in zips.items() if unique is None and plain}


# -- the rest ----------------------------------------------------------------------------------------------------


def _resealed(
    layout: StructuredStreamingLayout, batch: int, depth: Depth, width: int, known: Known
) -> Iterator[Finding]:
    """Logs that are not what they were when the batch was sealed."""
    examined = layout.examine(CheckpointId(batch))
    if examined.checkpoint is None or not depth.includes(Depth.CONTENT):
        return
    for subject, issues in run_checks(layout.checks(examined.checkpoint, depth), width=width, known=known):
        for issue in issues:
            if issue.code == SEALED_FILE_CHANGED and not subject.startswith("state/"):
                wrong = issue.message.removeprefix(f"{subject}: ")
                yield Finding(code=issue.code, blocking=True, subject=subject, spark_says=SILENT, wrong=wrong)


def _moved(view: View, uri: str, batch: int) -> Iterator[Finding]:
    """Absolute paths that lead to where the directory was, and not to where it is."""
    here = _place(unquote(uri) if uri.startswith("file:") else uri)
    for operator in sorted(view.directory.operators):
        try:
            described = view.operator(operator, batch)
        except CorruptError:
            continue
        paths = () if described is None else described.schema_paths
        elsewhere = [path for path in paths if not _place(path).startswith(f"{here}/state/")]
        if elsewhere:
            yield Finding(
                code="directory_moved",
                blocking=True,
                subject=f"state/{operator}/_metadata",
                spark_says="java.io.FileNotFoundException; nothing, if the old directory is still there: it is used",
                wrong=f"the schema of its state is named by an absolute path, which leads to {elsewhere[0]}",
            )


def _place(address: str) -> str:
    """An address without what Spark writes in other ways than we do: ``s3a:``, ``file:/``, the account of Azure."""
    rest = address.partition(":")[2] if ":" in address else address
    first, slash, more = rest.strip("/").partition("/")
    return f"{first.partition('@')[0]}{slash}{more}"


def _litter(view: View) -> Iterator[Finding]:
    litter = sorted(filter(is_litter, view.directory.files))
    if litter:
        yield Finding(
            code="litter",
            blocking=False,
            subject=litter[0],
            spark_says="nothing, and never removes it",
            wrong=f"{len(litter)} files that a killed process had not finished; orphans removes them",
        )
