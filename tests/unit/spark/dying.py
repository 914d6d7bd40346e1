"""A database connection whose process dies at a chosen step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3


class Death(BaseException):
    """The process ends here."""


class Steps:
    def __init__(self, die_at: int | None) -> None:
        self.taken = 0
        self._die_at = die_at

    def _step(self) -> None:
        self.taken += 1
        if self._die_at == self.taken:
            raise Death

    def __enter__(self) -> None:
        self._step()

    def __exit__(self, *error: object) -> None:
        if error == (None, None, None):
            self._step()


class Dying:
    """A connection whose process dies at the n-th step: before it, or just after it was done."""

    def __init__(self, inner: sqlite3.Connection, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name not in ("execute", "executemany", "commit", "cursor"):
            return found
        if name == "cursor":
            return lambda: Dying(found(), self._steps)

        def call(*arguments):
            with self._steps:
                return found(*arguments)

        return call
