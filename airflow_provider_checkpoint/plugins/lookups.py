"""Looks at stores for pages: one at a time for each thing, remembered for seconds, and never waited for too long.

A store may be slow, dead, or answer after minutes. Each look has a thread of its own, so that none waits for another;
a store has few of them at once, so that a dead one cannot use them up for the others; and a page that finds a look
under way joins it. Threads are daemons: a look that hangs does not keep the api-server from ending.

Changes go the same way, but what came of one is told once: whoever wants it again wants it done again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_checkpoint.exceptions import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")
#: Looks at one store at once, and as many changes: long proofs do not keep its pages from being read.
PER_STORE = 4
#: Looks at all stores at once.
AT_ONCE = 64


class SlowStoreError(StoreUnavailableError):
    """The store has not answered yet; the look goes on, and whoever comes back later finds its result."""


@dataclass(eq=False)
class _Look:
    store: str
    change: bool
    began: float
    future: Future[Any] = field(default_factory=Future)
    ended: float | None = None

    def remembered(self, now: float, keep: float) -> bool:
        if self.ended is None:
            return True
        # What took long to read is shown for as long as that at least, or a page would never get to see it.
        return now - self.ended < max(keep, self.ended - self.began)


class Lookups:
    """Runs looks and remembers what they found.

    :param keep: seconds for which a finding is shown.
    """

    def __init__(self, keep: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep = keep
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[tuple[str, tuple[str, ...]], _Look] = {}
        self._running: Counter[tuple[str, bool]] = Counter()

    async def ask(
        self, store: str, thing: tuple[str, ...], work: Callable[[], Value], *, patience: float, change: bool = False
    ) -> Value:
        """What ``work`` finds, or has found a moment ago.

        Raises SlowStoreError if there is no answer within ``patience`` seconds, and whatever ``work`` raises.

        :param thing: what is looked at; whoever asks for the same joins.
        :param change: what came of it is told to whoever waits, and then no more.
        """
        look = self._join(store, thing, work, change=change)
        with suppress(Exception):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(look.future)), patience)
        if not look.future.done():
            raise SlowStoreError(f"no answer within {round(patience, 1):g} s", subject=store)
        if change:
            self._drop(look, thing)
        # Raises what the work has raised, a timeout too.
        found: Value = look.future.result()
        return found

    def forget(self, store: str) -> None:
        """Read everything of a store anew: something was changed. What is under way has begun before the change."""
        with self._lock:
            for key in [key for key, look in self._looks.items() if key[0] == store and not look.change]:
                del self._looks[key]

    def _drop(self, look: _Look, thing: tuple[str, ...]) -> None:
        with self._lock:
            if self._looks.get((look.store, thing)) is look:
                del self._looks[look.store, thing]

    def _join(self, store: str, thing: tuple[str, ...], work: Callable[[], Any], *, change: bool) -> _Look:
        with self._lock:
            now = self._clock()
            self._looks = {key: each for key, each in self._looks.items() if each.remembered(now, self._keep)}
            look = self._looks.get((store, thing))
            if look is not None:
                return look
            if self._running[store, change] >= PER_STORE or self._running.total() >= AT_ONCE:
                raise SlowStoreError("earlier questions have not been answered yet", subject=store)
            look = self._looks[store, thing] = _Look(store, change, now)
            self._running[store, change] += 1
        threading.Thread(target=self._run, args=(look, work), name=f"checkpoints-{store}", daemon=True).start()
        return look

    def _run(self, look: _Look, work: Callable[[], Any]) -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._end(look)
            look.future.set_exception(error)
        else:
            self._end(look)
            look.future.set_result(found)

    def _end(self, look: _Look) -> None:
        with self._lock:
            look.ended = self._clock()
            running = (look.store, look.change)
            self._running[running] -= 1
            if not self._running[running]:
                del self._running[running]
