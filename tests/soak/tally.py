"""What happened in one worker process, counted, and what should not have happened, told in full."""

from __future__ import annotations

import threading
import traceback
from collections import Counter

#: So many failures are told in full; more of them tell nothing new.
_TOLD = 20


class Tally:
    """Counts and failures, shared by all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._failures: list[str] = []

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def fail(self, what: str) -> None:
        """Something that must not happen has happened."""
        with self._lock:
            self._counts["failures"] += 1
            if len(self._failures) < _TOLD:
                self._failures.append(what)

    def unexpected(self, where: str) -> None:
        """To be called while the error is handled."""
        self.fail(f"{where}\n{traceback.format_exc()}")

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def failures(self) -> list[str]:
        with self._lock:
            return list(self._failures)
