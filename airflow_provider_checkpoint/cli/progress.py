"""How far a long validation is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.cli.text import clean, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from airflow_provider_checkpoint.cli.console import Console

Item = TypeVar("Item")

#: Seconds between two lines in a log.
EVERY = 10.0


class Watch:
    """Counts checkpoints and, within the present one, the work done. Threads may report at once."""

    def __init__(self, total: int, report: Callable[[float, str], None]) -> None:
        self.total = total
        self._report = report
        self._lock = threading.Lock()
        self._begun = 0
        self._work = 0
        self._done = 0

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """Hand the items on, and count them as they are begun."""
        for item in items:
            with self._lock:
                self._begun += 1
                self._work = self._done = 0
                self._report(self._begun - 1, "")
            yield item

    def start(self, total: int) -> None:
        """The work of the present checkpoint is known now."""
        with self._lock:
            self._work = total

    def advance(self, done: int, subject: str) -> None:
        with self._lock:
            self._done += done
            self._report(self._begun - 1 + min(1.0, self._done / max(1, self._work)), subject)


class Lines:
    """A line now and then."""

    def __init__(
        self,
        total: int,
        write: Callable[[str], None],
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._write = write
        self._every = every
        self._clock = clock
        self._last = clock()

    def __call__(self, done: float, subject: str) -> None:
        now = self._clock()
        if now - self._last < self._every:
            return
        self._last = now
        at = f", at {subject}" if subject else ""
        self._write(f"{done:.1f} of {counted(self._total, 'checkpoint')} proven ({done / self._total:.0%}){at}")


class Bar:
    """A bar that is gone when the work is done."""

    def __init__(self, progress: RichProgress, total: int) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("", total=total, subject="", about=counted(total, "checkpoint"))

    def __call__(self, done: float, subject: str) -> None:
        self._progress.update(self._task, completed=done, subject=clean(subject))


@contextmanager
def watching(console: Console, total: int) -> Iterator[Watch]:
    """Show progress on stderr while something goes on."""
    if not console.err.is_terminal or not total:
        yield Watch(total, Lines(total, console.note))
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[about]}", markup=False),
        BarColumn(),
        TaskProgressColumn(markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.fields[subject]}", markup=False),
    )
    with Progress(*columns, console=console.err, transient=True) as progress:
        yield Watch(total, Bar(progress, total))
