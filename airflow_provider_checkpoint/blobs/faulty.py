"""A store that fails on purpose: for tests of what happens when things go wrong.

Wrap any store, say what shall happen to which call, and run the code under test::

    blobs = FaultyBlobs(MemoryBlobs())
    blobs.inject(Fault.LOST_ANSWER, verb="create", match="manifest-")   # it happens, the caller sees a timeout
    blobs.crash_after = 3                                               # the process "dies" before mutation 4

``calls`` counts every call by verb, ``mutations`` those that change the store, so a test can run an operation once to
learn how many steps it takes and then stop it after each of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.blobs._protocol import Deletion
from airflow_provider_checkpoint.blobs._wrapper import WrapperBlobs
from airflow_provider_checkpoint.exceptions import CheckpointError, OutcomeUnknownError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.blobs._protocol import BlobInfo, BlobStore, Creation

Answer = TypeVar("Answer")

READS = frozenset({"read", "stream", "stat", "read_versioned", "list", "folders"})
MUTATIONS = frozenset({"create", "replace", "delete"})


class SimulatedCrash(BaseException):
    """The process died here. Not an Exception, so that no handler in the code under test survives its own death."""


class Fault(Enum):
    """What goes wrong with a call."""

    NONE = "nothing goes wrong; used to let some calls pass before the one that fails"
    FAIL = "the store is unreachable; nothing happened"
    LOST_ANSWER = "the call happened, but the caller sees a timeout"
    TIMEOUT = "nothing happened, and the caller sees a timeout"
    CRASH_BEFORE = "the process dies before the call"
    CRASH_AFTER = "the process dies after the call happened"


@dataclass
class _Injection:
    fault: Fault
    verb: str
    match: str
    times: int


class FaultyBlobs(WrapperBlobs):
    """Counts calls, injects faults, adds latency."""

    def __init__(
        self,
        inner: BlobStore,
        *,
        latency: float = 0.0,
        crash_after: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.mutations: list[tuple[str, str]] = []
        self.latency = latency
        self.crash_after = crash_after
        self._sleep = sleep
        self._injections: list[_Injection] = []
        self._dead = False
        self._lock = threading.Lock()

    def inject(self, fault: Fault, *, verb: str, match: str = "", times: int = 1) -> None:
        """Let the next ``times`` calls of a verb whose key holds ``match`` go wrong."""
        if verb not in READS | MUTATIONS:
            raise ValueError(f"no such verb: {verb}")
        self._injections.append(_Injection(fault, verb, match, times))

    # -- verbs ---------------------------------------------------------------------------------------------------

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._call("read", key, lambda: self._inner.read(key, start=start, length=length))

    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        yield from self._call("stream", key, lambda: self._inner.stream(key, start=start, length=length))

    def stat(self, key: str) -> BlobInfo | None:
        return self._call("stat", key, lambda: self._inner.stat(key))

    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        return self._call("read_versioned", key, lambda: self._inner.read_versioned(key))

    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        return self._call("create", key, lambda: self._inner.create(key, body))

    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        return self._call("replace", key, lambda: self._inner.replace(key, body, expected=expected))

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        yield from self._call("list", folder, lambda: self._inner.list(folder, temporary=temporary))

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        yield from self._call("folders", folder, lambda: self._inner.folders(folder, start=start))

    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        # One object at a time, so that a crash can fall between any two of them.
        return [self._delete_one(key) for key in keys]

    def _delete_one(self, key: str) -> Deletion:
        try:
            return self._call("delete", key, lambda: self._inner.delete([key])[0])
        except CheckpointError as error:
            # As every store does: a fault of one object is its own, and the others go on.
            return Deletion(key, error)

    # -- faults --------------------------------------------------------------------------------------------------

    def _call(self, verb: str, key: str, act: Callable[[], Answer]) -> Answer:
        if self.latency:
            self._sleep(self.latency)
        match self._admit(verb, key):
            case None | Fault.NONE:
                return act()
            case Fault.FAIL:
                raise StoreUnavailableError("injected fault: the store did not answer", subject=key)
            case Fault.TIMEOUT:
                raise OutcomeUnknownError("injected fault: timeout", subject=key)
            case Fault.LOST_ANSWER:
                act()
                raise OutcomeUnknownError("injected fault: the answer was lost", subject=key)
            case Fault.CRASH_BEFORE:
                self._die(f"before {verb} {key}")
            case Fault.CRASH_AFTER:
                act()
                self._die(f"after {verb} {key}")
        raise AssertionError("unreachable")

    def _admit(self, verb: str, key: str) -> Fault | None:
        """Count a call and say what shall go wrong with it. One at a time: callers may be threads."""
        with self._lock:
            if self._dead:
                raise SimulatedCrash(f"{verb} {key}: this process is dead")
            self.calls[verb] += 1
            if verb in MUTATIONS:
                if self.crash_after is not None and len(self.mutations) >= self.crash_after:
                    self._die(f"before {verb} {key}")
                self.mutations.append((verb, key))
            return self._take(verb, key)

    def _take(self, verb: str, key: str) -> Fault | None:
        for injection in self._injections:
            if injection.times > 0 and injection.verb == verb and injection.match in key:
                injection.times -= 1
                return injection.fault
        return None

    def _die(self, where: str) -> None:
        self._dead = True
        raise SimulatedCrash(where)
