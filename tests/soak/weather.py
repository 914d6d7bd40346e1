"""Bad weather between the pipelines and their store: a proxy in a process of its own that lets requests go wrong."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.contract.proxy import Proxy, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.settings import Settings

#: What can happen and how often, compared with the rest; for some methods only.
_KINDS: dict[str, tuple[int, Trouble | None, frozenset[str]]] = {
    "latency": (30, None, frozenset()),
    "error 500 after the deed": (12, Trouble.ERROR_AFTER, frozenset()),
    "error 503": (18, Trouble.BUSY_INSTEAD, frozenset()),
    "error 409": (5, Trouble.CONFLICT_INSTEAD, frozenset({"PUT"})),
    "lost answer": (12, Trouble.DROP_ANSWER, frozenset()),
    "cut body": (12, Trouble.CUT_BODY, frozenset({"GET"})),
    "cut connection": (10, Trouble.CUT_CONNECTION, frozenset()),
    "late landing": (1, None, frozenset()),
}
FAULTS = tuple(_KINDS)


class RandomWeather:
    """Picks faults at a rate, by a seed. Counts what it did."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._random = random.Random(f"{settings.seed} weather {number}")
        self._rate = settings.fault_rate
        self._patience = settings.client_patience
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __call__(self, method: str, _path: str) -> tuple[Trouble | None, Callable[[], object]]:
        with self._lock:
            self.counts["requests"] += 1
            if self._random.random() >= self._rate:
                return None, _nothing
            fitting = {name: kind for name, kind in _KINDS.items() if not kind[2] or method in kind[2]}
            (name,) = self._random.choices(list(fitting), [weight for weight, _, _ in fitting.values()])
            self.counts[name] += 1
            delay = 0.02 + self._random.expovariate(1 / 0.25)
        if name == "late landing":
            # The client gives up, goes on with other things, and only then the server gets to see the request.
            time.sleep(self._patience + delay)
        if name == "latency":
            return None, lambda: time.sleep(delay)
        return fitting[name][1], _nothing


def _nothing() -> None:
    """The answer goes back at once."""


def run_proxy(settings: Settings, number: int, upstream: str, mailbox: Any, stop: Any) -> None:
    """The process: forward until told to stop, and tell the counts now and then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    weather = RandomWeather(settings, number)
    with Proxy(upstream, weather=weather) as proxy:
        mailbox.put(("proxy", number, proxy.endpoint))
        while not stop.wait(1) and os.getppid() == parent:
            mailbox.put(("weather", number, dict(weather.counts)))
    mailbox.put(("weather", number, dict(weather.counts)))
    mailbox.close()
    mailbox.join_thread()
    # Requests that are still held back must never reach the server now.
    os._exit(0)
