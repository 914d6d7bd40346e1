"""Learning what became of a write whose answer was lost, late or ambiguous.

No client is right alone: when the server wrote and the answer got lost, the client's own retry is told "already exists"
by the very object it created. So an answer other than plain success is never believed: the object is read back and
compared. That is decided here once, for every back end that talks over a network.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.blobs._digest import Digest, sha256_of
from airflow_provider_checkpoint.blobs._protocol import EXISTING_LIMIT, BlobStore, Creation
from airflow_provider_checkpoint.blobs._shown import first_line
from airflow_provider_checkpoint.exceptions import (
    BlobChangedError,
    BlobNotFoundError,
    OutcomeUnknownError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Outcome = TypeVar("Outcome")


class ConditionFailedError(Exception):
    """Inside a back end only: the store says the condition of a write did not hold. Not yet to be believed."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often and how patiently an idempotent call is repeated."""

    attempts: int = 4
    first: float = 0.1
    factor: float = 4.0
    longest: float = 2.0

    def pauses(self) -> Iterator[float]:
        """The pause after each attempt but the last."""
        pause = self.first
        for _ in range(self.attempts - 1):
            yield min(pause, self.longest)
            pause *= self.factor


def settle(
    write: Callable[[], Outcome],
    look: Callable[[], Outcome | None],
    backoff: Backoff,
    *,
    subject: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Send a conditional write until its outcome is known.

    After anything but success ``look`` reads the store: it answers with the outcome, raises it, or returns None if the
    write has not happened (a 409 of a busy server, a timeout); then the write is sent again. An earlier attempt that
    is still under way does no harm, because it carries the same bytes.
    """
    pauses = backoff.pauses()
    while True:
        try:
            return write()
        except (ConditionFailedError, TransientError) as error:
            trouble: Exception = error
        try:
            outcome = look()
        except TransientError as error:
            raise _unknown(subject, error) from trouble
        if outcome is not None:
            return outcome
        pause = next(pauses, None)
        if pause is None:
            raise _unknown(subject, trouble) from trouble
        sleep(pause)


def settle_create(store: BlobStore, key: str, body: bytes, put: Callable[[], object], backoff: Backoff) -> Creation:
    """Create a small object: our bytes there mean created, other bytes mean lost, nothing there means try again."""
    ours = Creation(True, len(body), hashlib.sha256(body).hexdigest())

    def write() -> Creation:
        put()
        return ours

    def look() -> Creation | None:
        try:
            existing = store.read(key, length=max(len(body), EXISTING_LIMIT) + 1)
        except BlobNotFoundError:
            return None
        if existing == body:
            return ours
        return Creation(False, ours.size, ours.sha256, existing if len(existing) <= EXISTING_LIMIT else None)

    return settle(write, look, backoff, subject=f"{store.uri}/{key}")


def settle_large_create(
    store: BlobStore, key: str, body: Digest, put: Callable[[], object], backoff: Backoff
) -> Creation:
    """Create an object too large to hold: what stands there is compared by size, then by streaming its digest."""
    ours = Creation(True, body.size, body.sha256)

    def write() -> Creation:
        put()
        return ours

    def look() -> Creation | None:
        info = store.stat(key)
        if info is None:
            return None
        same = info.size == body.size and sha256_of(store, key) == body
        return ours if same else Creation(False, ours.size, ours.sha256)

    return settle(write, look, backoff, subject=f"{store.uri}/{key}")


def settle_replace(
    put: Callable[[], str | None],
    version_and_mark: Callable[[], tuple[str | None, str | None]],
    backoff: Backoff,
    *,
    expected: str,
    mark: str,
    subject: str,
) -> str | None:
    """Compare-and-swap: our mark there means done, the expected version means try again, anything else means lost."""

    def write() -> tuple[str | None]:
        return (put(),)

    def look() -> tuple[str | None] | None:
        try:
            version, there = version_and_mark()
        except BlobNotFoundError:
            raise BlobChangedError("the object was removed by another writer", subject=subject) from None
        # The mark first: where versions are hashes of the bytes, ours may equal the one we expected.
        if there == mark:
            return (version,)
        if version == expected:
            return None
        raise BlobChangedError("the object was replaced by another writer", subject=subject)

    return settle(write, look, backoff, subject=subject)[0]


def _unknown(subject: str, cause: Exception) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "the store did not say whether the object was written",
        subject=subject,
        hint=f"Repeat the call: writing the same bytes again is safe. The last answer was: {first_line(cause)}",
    )
