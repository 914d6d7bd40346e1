"""Where answers and messages go.

An answer goes to stdout: tables for people, or one JSON document. Messages and progress go to stderr. Every text passes
through :func:`~airflow_provider_checkpoint.cli.text.clean`, and nothing is read as markup.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from airflow_provider_checkpoint.cli.exits import answering
from airflow_provider_checkpoint.cli.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.exceptions import CheckpointError

_GAP = 2
#: Where nobody looks at columns, such as in a pipe, a row stays on its line.
_ENDLESS = 10_000
#: How far a column is narrowed that may go over several lines.
_NARROWEST = 6


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False
    whole: bool = False
    """Never broken over lines, so that it can be copied."""
    optional: bool = False
    """Left out if no row says anything."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells; one of several lines is a sequence."""

    cells: Sequence[str | Sequence[str]]
    style: str = ""


class Console:
    """One answer and any number of messages.

    :param json: the answer is for a program.
    :param now: the time at which the command began; every age in the answer is told from it.
    :param debug: errors tell where they come from.
    """

    def __init__(
        self,
        *,
        json: bool,
        now: datetime,
        debug: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self.json = json
        self.now = now
        self._debug = debug
        self._out = _rich(out or sys.stdout)
        self.err = _rich(err or sys.stderr)

    # -- the answer ----------------------------------------------------------------------------------------------

    def document(self, value: Mapping[str, Any]) -> None:
        """The answer for a program. ASCII, so that it survives every encoding and cannot steer a terminal."""
        self._write(json.dumps(value, indent=2) + "\n")

    def line(self, text: str = "", style: str = "") -> None:
        self._print(Text(clean(text), style=style))

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, "bold")

    def pairs(self, values: Iterable[tuple[str, str | Sequence[str]]]) -> None:
        """Names and what they are, below each other; what is empty is left out."""
        rows = [Row((name, value)) for name, value in values if value]
        self.table((Column("", whole=True), Column("")), rows)

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        shown = [
            index
            for index, column in enumerate(columns)
            if not column.optional or any(row.cells[index] for row in rows)
        ]
        columns = [columns[index] for index in shown]
        lines = [(row.style, [_lines(row.cells[index]) for index in shown]) for row in rows]
        titled = any(column.title for column in columns)
        if titled:
            lines.insert(0, ("bold", [[column.title] for column in columns]))
        widths = [
            max((cell_len(text) for _, cells in lines for text in cells[index]), default=0)
            for index in range(len(shown))
        ]
        if sum(widths) + _GAP * (len(widths) - 1) <= self._out.width:
            self._print(_aligned(columns, widths, lines))
        elif titled and _least_width(columns, widths) > self._out.width:
            self._print(_stacked(columns, lines[1:]))
        else:
            self._print(_folded(columns, lines))

    # -- messages ------------------------------------------------------------------------------------------------

    def note(self, text: str, style: str = "") -> None:
        self.err.print(Text(clean(text), style=style))

    def warn(self, text: str) -> None:
        self.note(f"warning: {text}", "yellow")

    def complain(self, error: CheckpointError) -> None:
        """Tell of an error in one or two lines."""
        if self._debug:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self.note(line, "dim")
        about = f": {error.subject}" if error.subject is not None else ""
        self.note(f"error: {error.message}{about}", "red")
        if error.hint is not None:
            self.note(f"HINT: {error.hint}")

    # -- underneath ----------------------------------------------------------------------------------------------

    def _print(self, content: Table | Text) -> None:
        # Also rendering writes, if only nothing.
        with answering(), self._out.capture() as captured:
            self._out.print(content)
        self._write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def _write(self, text: str) -> None:
        with answering():
            self._out.file.write(text)


def error_document(error: CheckpointError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "message": error.message, "subject": error.subject, "hint": error.hint}


# -- tables ------------------------------------------------------------------------------------------------------

_Line = tuple[str, list[list[str]]]
"""A row: its style, and the lines of each cell."""


def _lines(cell: str | Sequence[str]) -> list[str]:
    return [clean(cell)] if isinstance(cell, str) else [clean(line) for line in cell] or [""]


def _aligned(columns: Sequence[Column], widths: Sequence[int], lines: Iterable[_Line]) -> Text:
    """A table that fits as it is. Done by hand, because rich takes milliseconds for each row."""
    text = Text(no_wrap=True)
    for style, cells in lines:
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (
                f"{' ' * (width - cell_len(part))}{part}" if column.right else f"{part}{' ' * (width - cell_len(part))}"
                for column, width, part in zip(columns, widths, parts, strict=True)
            )
            text.append("\n" if text else "").append((" " * _GAP).join(padded).rstrip(), style)
    return text


def _folded(columns: Sequence[Column], lines: Iterable[_Line]) -> Table:
    """A table for a screen that is too narrow: long cells go over several lines."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    for column in columns:
        table.add_column(justify="right" if column.right else "left", no_wrap=column.whole, overflow="fold")
    for style, cells in lines:
        table.add_row(*(Text("\n".join(cell)) for cell in cells), style=style)
    return table


def _least_width(columns: Sequence[Column], widths: Sequence[int]) -> int:
    """What a folded table needs: below that, columns would be cut off or hold a few letters to the line."""
    needed = (width if column.whole else min(width, _NARROWEST) for column, width in zip(columns, widths, strict=True))
    return sum(needed) + len(columns) - 1


def _stacked(columns: Sequence[Column], lines: Iterable[_Line]) -> Text:
    """A table for a screen that is narrower still: each cell has its own line, and nothing is lost."""
    indent = max(cell_len(column.title) for column in columns) + _GAP
    text = Text()
    for style, cells in lines:
        text.append("\n\n" if text else "")
        shown = [(column.title, cell) for column, cell in zip(columns, cells, strict=True) if any(cell)]
        text.append(
            "\n".join(
                f"{title if not index else '':<{indent}}{part}"
                for title, cell in shown
                for index, part in enumerate(cell)
            ),
            style,
        )
    return text


class _Rich(RichConsole):
    def on_broken_pipe(self) -> NoReturn:
        """Say so; rich itself would leave with exit code 1, which means something else here."""
        raise BrokenPipeError


def _rich(file: TextIO) -> RichConsole:
    console = _Rich(file=file, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _ENDLESS
    return console
