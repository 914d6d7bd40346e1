"""Searching a store for orphans: keys per second, and memory that does not grow with the number of keys.

The million objects come from a back end that makes them up as they are asked for, so that what is measured is the
search. Each measurement is a process of its own, for the sake of its peak of memory.

    python -m tests.benchmarks.littered ours|sets KEYS      what such a process runs
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import obstore

from airflow_provider_checkpoint.blobs import BlobInfo, MemoryBlobs
from airflow_provider_checkpoint.exceptions import BlobNotFoundError
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision
from tests.benchmarks._measure import Contender, Line, lines
from tests.benchmarks._stores import artifact_key, layout_on, manifest_bytes, nth_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks._stage import Stage

OLD = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 16, tzinfo=UTC)
PER_CHECKPOINT = 1_000
#: The same number in a small store and in a large one: a plan names each, and so has its own size.
ORPHANS = 1_000
SHA256 = "0" * 64


class MadeUpBlobs(MemoryBlobs):
    """A store of so many artifacts, named by manifests of a thousand each, and some that no manifest names."""

    def __init__(self, keys: int) -> None:
        super().__init__("made-up")
        self._checkpoints = keys // PER_CHECKPOINT

    def _keys(self) -> Iterator[str]:
        for number in range(self._checkpoints):
            each = nth_id(number)
            yield f"{each}/manifest.json"
            yield from (artifact_key(each, partition) for partition in range(PER_CHECKPOINT))
        yield from (artifact_key(nth_id(0), PER_CHECKPOINT + number) for number in range(ORPHANS))

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        return (BlobInfo(key, 10, OLD, '"1"') for key in self._keys()) if folder == "" else iter(())

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        assert not start, "a search looks at everything"
        return (str(nth_id(number)) for number in range(self._checkpoints)) if folder == "" else iter(())

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        folder, _, name = key.partition("/")
        if name != "manifest.json":
            raise BlobNotFoundError("no such object", subject=key)
        number = int(folder[-12:], 16)
        return self._template.replace(str(nth_id(0)).encode(), str(nth_id(number)).encode())

    @property
    def _template(self) -> bytes:
        if not hasattr(self, "_made"):
            parts = [(partition, 10, SHA256) for partition in range(PER_CHECKPOINT)]
            self._made = manifest_bytes(nth_id(0), 1, parts)
        return self._made


def by_search(blobs: MadeUpBlobs) -> int:
    return plan_orphans(layout_on(blobs), now=NOW).counts[OrphanDecision.DELETE]


def by_sets(blobs: MadeUpBlobs) -> int:
    """The script that people write: names of objects, less the names in manifests, both in memory."""
    there = {info.key for info in blobs.list(temporary=None)}
    for folder in blobs.folders():
        manifest = json.loads(blobs.read(f"{folder}/manifest.json"))
        for operator in manifest["operators"].values():
            there.difference_update(partition["path"] for partition in operator["partitions"])
        there.discard(f"{folder}/manifest.json")
    return len(there)


WAYS = {"ours": by_search, "sets": by_sets}


def made_up_rows(stage: Stage) -> Iterator[Line]:
    """Search a million objects that a made-up back end lists, in processes of their own."""
    few, many = stage.full((100_000, 1_000_000), (50_000, 200_000))
    wanted = [("ours", few), ("ours", many), ("sets", many)]
    found: dict[tuple[str, int], list[tuple[float, float]]] = {each: [] for each in wanted}
    repeats = stage.repeats or stage.full(2, 3)
    for number in range(repeats):
        first = number % len(wanted)
        for way, keys in (*wanted[first:], *wanted[:first]):
            seconds, mib = _in_a_process(way, keys)
            stage.say(f"round {number + 1} of {repeats}: {way}, {keys:,} keys: {seconds:.1f} s, {mib:.1f} MiB")
            found[way, keys].append((seconds, mib))
    speed = {each: each[1] / median(seconds for seconds, _ in taken) for each, taken in found.items()}
    memory = {each: median(mib for _, mib in taken) for each, taken in found.items()}
    ours, small, sets = ("ours", many), ("ours", few), ("sets", many)

    def keys_per_second(each: tuple[str, int]) -> str:
        return f"{speed[each]:,.0f} keys/s"

    def mebibytes(each: tuple[str, int]) -> str:
        return f"{memory[each]:.1f} MiB"

    what = f"search {many:,} made-up objects for orphans"
    aims: list[tuple[tuple[str, int], str, float | None]] = [
        (small, f"among {few:,}", 1.25),
        # Fast, and without a check of what it reads; here to show what the checks cost.
        (sets, "two sets in memory", None),
    ]
    for against, name, aim in aims:
        ratio = speed[against] / speed[ours]
        yield Line(what, keys_per_second(ours), name, keys_per_second(against), ratio, aim)
    for against, name, aim in ((small, f"among {few:,}", 1.5), (sets, "two sets in memory", 0.5)):
        ratio = memory[ours] / memory[against]
        yield Line(f"memory for it, {many:,} objects", mebibytes(ours), name, mebibytes(against), ratio, aim)


def _in_a_process(way: str, keys: int) -> tuple[float, float]:
    """Seconds, and MiB by which the peak of memory rose."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.littered", way, str(keys)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    return found["seconds"], found["mib"]


def s3_rows(stage: Stage) -> Iterator[Line]:
    """Search a store on S3 for orphans, against only listing it."""
    prefix = stage.many_objects
    blobs, raw = stage.bucket.ours(prefix), stage.bucket.raw(prefix)
    # A store made a minute ago is searched as of the day after tomorrow, or everything would be too young.
    now = datetime.now(UTC) + timedelta(days=2)

    def search() -> None:
        plan = plan_orphans(layout_on(blobs), now=now)
        assert plan.counts[OrphanDecision.DELETE] == 9 * stage.many // PER_CHECKPOINT, plan.counts

    def listing() -> None:
        assert sum(len(page) for page in obstore.list(raw, chunk_size=1000)) == stage.many

    contenders = [Contender("ours", search), Contender("obstore, listing only", listing)]
    medians = stage.race(contenders, repeats=3, warm_up=False)
    what = f"search {stage.many:,} objects on S3 for orphans"
    yield from lines(what, medians, {"obstore, listing only": 2.0})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("keys", type=int)
    options = parser.parse_args()
    blobs = MadeUpBlobs(options.keys)
    WAYS[options.way](MadeUpBlobs(PER_CHECKPOINT))  # imports and caches
    gc.collect()
    before = _forget_peak()
    began = time.perf_counter()
    assert WAYS[options.way](blobs) == ORPHANS
    took = time.perf_counter() - began
    print(json.dumps({"seconds": took, "mib": (_memory("VmHWM") - before) / 1024}))


def _forget_peak() -> int:
    """Let the peak of memory count from now on, and say how much is in use.

    Not by getrusage: there a process begins with the peak of the one that started it, and growth below that is unseen.
    """
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> int:
    """A figure of this process as Linux knows it, in KiB."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


if __name__ == "__main__":
    main()
