"""What the rows of one run share: sizes, a folder, a server, and a place to say how far they are."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tests.benchmarks._measure import Contender, race
from tests.benchmarks._stores import Bucket, QuickServers, artifact_key, manifest_bytes, nth_id, put_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Size = TypeVar("Size")

#: Artifacts per checkpoint where there are many.
PER_CHECKPOINT = 1000


@dataclass
class Stage:
    folder: Path
    quick: bool
    repeats: int | None

    def full(self, full: Size, quick: Size) -> Size:
        """A size, or a smaller one for a try."""
        return quick if self.quick else full

    def race(self, contenders: Sequence[Contender], repeats: int, *, warm_up: bool = True) -> dict[str, float]:
        """Medians by name; the number of rounds is the row's own unless the user names one."""
        return race(contenders, self.repeats or self.full(repeats, 3), warm_up=warm_up, said=self.say)

    @staticmethod
    def say(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    # -- the server ----------------------------------------------------------------------------------------------

    @cached_property
    def _servers(self) -> QuickServers:
        home = self.folder / "servers"
        home.mkdir()
        return QuickServers(home, os.getpid())

    @cached_property
    def bucket(self) -> Bucket:
        self.say("starting SeaweedFS")
        return Bucket(self._servers.seaweedfs())

    def close(self) -> None:
        if "_servers" in self.__dict__:
            self._servers.stop()

    # -- many objects, shared by two rows ------------------------------------------------------------------------

    @property
    def many(self) -> int:
        return self.full(100_000, 5_000)

    @cached_property
    def many_objects(self) -> str:
        """A prefix with so many tiny artifacts, and a manifest per thousand that names all but the last ten."""
        prefix = "many"
        self.say(f"making {self.many:,} objects")
        put_all(self.bucket.raw(prefix), self._many())
        return prefix

    def _many(self) -> Iterator[tuple[str, bytes]]:
        body = b"tiny state"
        sha256 = hashlib.sha256(body).hexdigest()
        for number in range(self.many // PER_CHECKPOINT):
            each = nth_id(number)
            for partition in range(PER_CHECKPOINT - 1):
                yield artifact_key(each, partition), body
            named = ((partition, len(body), sha256) for partition in range(PER_CHECKPOINT - 10))
            yield f"{each}/manifest.json", manifest_bytes(each, number + 1, named)
