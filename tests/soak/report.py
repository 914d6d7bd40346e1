"""What a run amounts to: one table for people, one object for programs, and whether it passed."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.soak.weather import FAULTS

if TYPE_CHECKING:
    from tests.soak.memory import Summary
    from tests.soak.settings import Settings

#: In this order; others follow by name.
_SHOWN = (
    "epochs",
    "epochs abandoned",
    "starts",
    "kills",
    "zombies",
    "zombies fenced",
    "recoveries",
    "prunes",
    "checkpoints pruned",
    "sweeps",
    "objects swept",
    "orphan searches",
    "orphans removed",
    "undeletes",
    "validations",
    "damage done",
    "damage found",
    "retries",
    "refusals",
)


#: What a soak is about: a run in which one of these never happened shows little.
EVENTS = (
    "epochs",
    "kills",
    "zombies fenced",
    "recoveries",
    "checkpoints pruned",
    "objects swept",
    "orphans removed",
    "undeletes",
    "validations",
    "damage found",
    "retries",
)


@dataclass
class Report:
    settings: Settings
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    processes: list[Summary] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "settings": asdict(self.settings),
            "seconds": round(self.seconds, 1),
            "counts": {**dict.fromkeys(_SHOWN, 0), **self.counts},
            "faults": {name: self.faults[name] for name in ("requests", *FAULTS)},
            "judged": dict(self.judged),
            "processes": [asdict(each) for each in self.processes],
            "failures": self.failures,
        }

    def lines(self) -> list[str]:
        settings = self.settings
        told = f"{settings.pipelines} pipelines, {self.seconds / 60:.1f} minutes, fault rate {settings.fault_rate:.1%}"
        lines = [
            f"{told}, seed {settings.seed}",
            "",
            "what happened",
            *_rows({name: self.counts[name] for name in _SHOWN}),
            *_rows({name: count for name, count in sorted(self.counts.items()) if name not in _SHOWN}),
            "",
            "faults injected",
            *_rows({name: self.faults[name] for name in ("requests", *FAULTS)}),
            "",
            "looked at in the end",
            *_rows(dict(sorted(self.judged.items()))),
            "",
            f"  {'process':<12} {'RSS MiB':>16} {'a minute':>9} {'growth':>8} {'descriptors':>12} {'threads':>10}",
        ]
        for each in self.processes:
            rss = f"{each.rss_start:.1f} -> {each.rss_end:.1f}"
            files, threads = (" -> ".join(map(str, pair)) for pair in (each.descriptors, each.threads))
            growth = f"{each.rss_per_minute:>+9.2f} {each.growth:>+8.1f}"
            lines.append(f"  {each.name:<12} {rss:>16} {growth} {files:>12} {threads:>10}")
        lines.append("")
        lines += [f"FAILED: {failure}" for failure in self.failures]
        lines.append("passed" if self.passed else f"failed: {len(self.failures)} things are wrong")
        return lines


def _rows(values: dict[str, int]) -> list[str]:
    return [f"  {name:<28} {count:>10,}" for name, count in values.items()]
