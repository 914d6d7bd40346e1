"""Real stores for races: places to open again and again, objects that are old without waiting, and a common start."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_provider_checkpoint.blobs import BlobStore, WrapperBlobs, open_blobs
from airflow_provider_checkpoint.exceptions import CheckpointError
from tests.crash.makers import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_checkpoint.blobs import BlobInfo

#: No round takes longer, unless something hangs.
PATIENCE = 120


@dataclass(frozen=True)
class Place:
    """Where a store can be opened by any thread or process. Can be pickled."""

    uri: str
    options: Any = None
    rounds: int = 10

    def open(self) -> BlobStore:
        return open_blobs(self.uri, self.options)

    def fresh(self) -> Place:
        """A part of it that no other round uses."""
        return replace(self, uri=f"{self.uri}/{uuid4().hex}")


class WallClock(Clock):
    """The time as it is, for makers that want a clock to move."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)

    def advance(self, by: timedelta) -> None:
        """Nobody can."""


class AgedBlobs(WrapperBlobs):
    """Lets what is there when :meth:`age` is called look days old, as long as it is not written again.

    No store takes a time of writing from its client, and no test can wait for a day.
    """

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner)
        self._old: dict[str, str | None] = {}

    def age(self) -> None:
        self._old = {info.key: info.version for info in self._inner.list()}

    def stat(self, key: str) -> BlobInfo | None:
        info = super().stat(key)
        return None if info is None else self._aged(info)

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        yield from map(self._aged, super().list(folder, temporary=temporary))

    def _aged(self, info: BlobInfo) -> BlobInfo:
        if info.modified is None or self._old.get(info.key) != info.version:
            return info
        return replace(info, modified=info.modified - timedelta(days=10))


def race(*racers: Callable[[], object]) -> list[CheckpointError | None]:
    """Run all at the same time, each in a thread of its own. What each ended with; errors of no tree are raised."""
    start = threading.Barrier(len(racers), timeout=PATIENCE)
    ends: list[BaseException | None] = [None] * len(racers)

    def run(place: int) -> None:
        start.wait()
        try:
            racers[place]()
        except BaseException as error:  # noqa: BLE001 - told below
            ends[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(racers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a racer hangs"
    told: list[CheckpointError | None] = []
    for end in ends:
        if end is not None and not isinstance(end, CheckpointError):
            raise end
        told.append(end)
    return told
