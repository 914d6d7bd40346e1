"""UUIDs of version 7 (RFC 9562): names that sort in the order in which they were given out.

A UUIDv7 is 48 bits of Unix time in milliseconds, then 74 random bits, with version and variant in between. Python has
them from 3.14 on. Without version and variant it is one number of 122 bits, and that is how this module counts.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_checkpoint.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_RANDOM_BITS = 74
_LOW_BITS = 62
_LOW_MASK = (1 << _LOW_BITS) - 1
_LIMIT = 1 << (48 + _RANDOM_BITS)

#: When one id must follow another, it does so at a random distance, so that two processes do not choose the same.
_STEP_BITS = 32


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Uuid7:
    """Gives out UUIDs, each greater than the ones before: within a millisecond, also if the clock steps back."""

    def __init__(
        self, *, clock_ms: Callable[[], int] = _now_ms, random_bits: Callable[[int], int] = secrets.randbits
    ) -> None:
        self._clock_ms = clock_ms
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last = -1

    def fresh(self) -> UUID:
        """An id of this moment."""
        number = self._clock_ms() << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        step = self._step()
        with self._lock:
            number = max(number, self._last + step)
            uuid = _from_number(number)
            self._last = number
        return uuid

    def following(self, other: UUID) -> UUID:
        """An id a little above another one, wherever the clock stands."""
        return _from_number(_to_number(other) + self._step())

    def _step(self) -> int:
        return 1 + self._random_bits(_STEP_BITS)


#: What a process uses unless a test hands in its own.
uuid7 = Uuid7()


def _to_number(uuid: UUID) -> int:
    high, low = uuid.int >> 64, uuid.int & _LOW_MASK
    return (high >> 16) << _RANDOM_BITS | (high & 0xFFF) << _LOW_BITS | low


def _from_number(number: int) -> UUID:
    if not 0 <= number < _LIMIT:
        raise ConfigurationError(
            "no UUIDv7 is left above the last one",
            hint="Look at the clock of this machine, and for a checkpoint folder whose id lies in the far future.",
        )
    high, low = number >> _LOW_BITS, number & _LOW_MASK
    return UUID(int=(high >> 12) << 80 | 0x7 << 76 | (high & 0xFFF) << 64 | 0b10 << 62 | low)
