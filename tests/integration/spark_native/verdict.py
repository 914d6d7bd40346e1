"""What this package says of a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout, diagnose, seal
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth, Severity

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Verdict:
    """What is said of the newest committed batch, and of going on in this directory as it is."""

    errors: tuple[str, ...] = ()
    """Codes of what speaks against the batch."""
    warnings: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    """Codes of what keeps the query from going on: a batch that was planned after the commit may be damaged, too."""
    reason: str = ""

    @property
    def valid(self) -> bool:
        """The batch can be gone back to."""
        return not self.errors

    @property
    def accepted(self) -> bool:
        """The query can go on here."""
        return self.valid and not self.blocking


def open_directory(directory: Path) -> StructuredStreamingLayout:
    layout = open_store(f"file://{directory}", layout="structured_streaming")
    assert isinstance(layout, StructuredStreamingLayout)
    return layout


def verdict(directory: Path) -> Verdict:
    """Validate the newest committed batch to the depth of its content, and diagnose the directory."""
    layout = open_directory(directory)
    blocking = sorted({finding.code for finding in diagnose(layout, width=2).findings if finding.blocking})
    candidates = layout.candidates()
    if not candidates:
        return Verdict(errors=("no_checkpoint",), blocking=tuple(blocking))
    result = validate(layout, candidates[-1], Depth.CONTENT, width=2)
    errors, warnings = (
        tuple(sorted({issue.code for issue in result.issues if issue.severity is severity}))
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    return Verdict(errors, warnings, tuple(blocking), result.reason)


def seal_newest(directory: Path) -> None:
    layout = open_directory(directory)
    seal(layout, layout.candidates()[-1])
