"""How much memory, how many descriptors and threads a process has over time, and whether that is flat."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    rss: int
    descriptors: int
    threads: int


def sample(process: int, seconds: float) -> Sample | None:
    """One look at a process; None if it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{process}/fd"))
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    rss, threads = int(values["VmRSS"].split()[0]) * 1024, int(values["Threads"])
    return Sample(seconds, rss, descriptors, threads)


def slope(points: list[tuple[float, float]]) -> float:
    """Growth per second: the median of the slopes between all pairs, so that a few peaks do not count (Theil-Sen)."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 > x1]
    return median(slopes) if slopes else 0.0


@dataclass
class Watch:
    """The samples of one process."""

    name: str
    process: int
    judged: bool
    samples: list[Sample] = field(default_factory=list)

    def look(self, seconds: float) -> None:
        seen = sample(self.process, seconds)
        if seen is not None:
            self.samples.append(seen)

    def summary(self) -> Summary:
        """What counts is what comes after a warm-up of a quarter."""
        end = self.samples[-1].seconds if self.samples else 0.0
        warm = [each for each in self.samples if each.seconds >= end / 4] or self.samples
        edge = max(1, len(warm) // 4)
        first, last = warm[:edge], warm[-edge:]
        per_second = slope([(each.seconds, each.rss) for each in warm])
        return Summary(
            name=self.name,
            judged=self.judged,
            seconds=end,
            rss_start=median(each.rss for each in first) / _MIB if first else 0.0,
            rss_end=median(each.rss for each in last) / _MIB if last else 0.0,
            rss_per_minute=per_second * 60 / _MIB,
            growth=per_second * (warm[-1].seconds - warm[0].seconds) / _MIB if warm else 0.0,
            descriptors=tuple(round(median(each.descriptors for each in part)) for part in (first, last) if part),
            threads=tuple(round(median(each.threads for each in part)) for part in (first, last) if part),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Sizes in MiB. Start and end are medians of the first and the last quarter after the warm-up."""

    name: str
    judged: bool
    seconds: float
    rss_start: float
    rss_end: float
    rss_per_minute: float
    growth: float
    """What the fitted line rises between the end of the warm-up and the end."""
    descriptors: tuple[int, ...]
    threads: tuple[int, ...]

    def wrong(self) -> list[str]:
        """Why this is not flat; empty if it is, or if nobody asks."""
        if not self.judged or self.seconds < SHORTEST:
            return []
        bound = max(GROWTH_MIB, GROWTH_SHARE * self.rss_start)
        found = []
        if self.growth > bound:
            found.append(
                f"memory of {self.name} grew by {self.growth:.1f} MiB after its warm-up"
                f" ({self.rss_per_minute:+.2f} MiB a minute); allowed are {bound:.0f}"
            )
        for what, (start, end), more in (
            ("descriptors", self.descriptors, MORE_DESCRIPTORS),
            ("threads", self.threads, MORE_THREADS),
        ):
            if end > start + more:
                found.append(f"{what} of {self.name} went from {start} to {end}; allowed are {more} more")
        return found


#: A run of fewer seconds is all warm-up: modules are still being imported, and pools filled.
SHORTEST = 90.0
#: What still counts as flat after the warm-up: so much, or such a share of what there was, whichever is more.
GROWTH_MIB = 16.0
GROWTH_SHARE = 0.10
#: Connections and short-lived threads come and go; so many more at the end are no leak yet.
MORE_DESCRIPTORS = 64
MORE_THREADS = 64
