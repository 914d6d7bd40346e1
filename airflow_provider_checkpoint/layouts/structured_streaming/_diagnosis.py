"""A diagnosis: what Spark would say, what is really wrong, what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_COVERED = (
    "Whether the query itself fits this directory (its sources, operators and schemas, the files it still has to read,"
    " what sinks hold that were not looked into) cannot be told from the directory."
)

#: Where these are found, the log of the sink cannot be read to its end.
_SINK_LOG = frozenset({"sink_log_corrupt", "sink_log_missing"})


class Finding(BaseModel):
    """One thing that is wrong."""

    model_config = ConfigDict(frozen=True)

    code: str
    """A short stable name for programs, such as ``commit_ahead``."""
    blocking: bool
    """The query would not start, or would start and give wrong results."""
    subject: str
    """The file or folder it is about."""
    spark_says: str
    """The error class and the pattern of the message."""
    wrong: str
    fix: str = ""
    """What to do in place; empty where nothing is known to be exact."""


class Diagnosis(BaseModel):
    """What is known about one checkpoint directory."""

    model_config = ConfigDict(frozen=True)

    uri: str
    query_id: str | None
    writer: str
    """The version of Spark that wrote it, as far as can be told."""
    last_planned: int | None
    last_committed: int | None
    depth: Depth
    """How far files were looked into."""
    findings: tuple[Finding, ...]
    recoverable: tuple[int, ...]
    """Batches from which a query can go on, newest first."""
    unproven: tuple[str, ...] = ()
    """What could not be proven of the files that were read, such as content whose format has no checksum."""
    file_sink: str | None = None
    """The output of the file sink, if it was looked into; then ``recoverable`` are batches it can go back to, too."""
    not_covered: str = NOT_COVERED

    @property
    def healthy(self) -> bool:
        """Whether nothing was found that keeps the query from going on where it was."""
        return not any(finding.blocking for finding in self.findings)

    @property
    def way_back(self) -> str:
        """What to do where no fix is exact."""
        if self.healthy:
            return ""
        if not self.recoverable and all(finding.fix for finding in self.findings if finding.blocking):
            return "Take the exact fixes above, and look again."
        if not self.recoverable:
            anew = "" if self.file_sink is None else ", with a new folder for its output"
            return f"No batch here can be gone back to: start a new checkpoint at known offsets{anew}."
        batch = self.recoverable[0]
        if self.file_sink is None:
            return f"Go back to batch {batch}: restore it into a new directory and restart the query there."
        back = f"Go back to batch {batch} with the sink (--file-sink): restore it into a new directory and restart the"
        if not any(finding.code in _SINK_LOG for finding in self.findings):
            return f"{back} query there."
        return (
            f"Remove the entries of _spark_metadata above {batch}, newest first; which files are of later batches can"
            f" no longer be told in full, so they stay, unseen by readers that follow the log. {back} query there."
        )

    def document(self) -> dict[str, object]:
        """The diagnosis as JSON, with what follows from it."""
        return self.model_dump(mode="json") | {"healthy": self.healthy, "way_back": self.way_back}


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis for people."""
    return "\n".join(_lines(diagnosis))


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"{diagnosis.uri}"
    yield f"  query {diagnosis.query_id or 'unknown'}, written by Spark {diagnosis.writer}"
    if diagnosis.file_sink is not None:
        yield f"  file sink {diagnosis.file_sink}"
    yield f"  last planned batch {_number(diagnosis.last_planned)}, last committed {_number(diagnosis.last_committed)}"
    yield ""
    yield "The query can go on." if diagnosis.healthy else "The query cannot go on as it is."
    for number, finding in enumerate(diagnosis.findings, start=1):
        yield ""
        yield f"{number}. {finding.subject} ({finding.code}){'' if finding.blocking else ', harmless'}"
        yield f"   wrong:      {finding.wrong}"
        yield f"   Spark says: {finding.spark_says}"
        if finding.fix:
            yield f"   exact fix:  {finding.fix}"
        elif finding.blocking:
            yield "   exact fix:  none in place"
    yield ""
    yield f"Recoverable batches: {_spans(diagnosis.recoverable) or 'none'} (proven to depth {diagnosis.depth})"
    if diagnosis.way_back:
        yield diagnosis.way_back
    yield from (f"Not proven: {statement}" for statement in diagnosis.unproven)
    yield diagnosis.not_covered


def _number(value: int | None) -> str:
    return "none" if value is None else str(value)


def _spans(numbers: tuple[int, ...]) -> str:
    """Numbers as ranges: ``3-7, 9``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
