"""Whether the state of a partition is written whole, as a delta, or not at all. Pure.

A delta holds every change since one whole snapshot, its base, and nothing else: a single hop, so restoring reads at
most two artifacts and no chain can grow. A new base is forced while the old one is still sure to be retained, and when
a delta has grown so large that writing whole is cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SnapshotKind(StrEnum):
    """What is being taken, and with it what may be shared with other checkpoints."""

    CHECKPOINT = "checkpoint"
    """Uses artifacts of earlier checkpoints and may be used by later ones."""
    FULL_CHECKPOINT = "full_checkpoint"
    """Uses nothing of earlier ones; later ones may use it."""
    SAVEPOINT = "savepoint"
    """Self-contained: uses nothing, is used by nothing, and is never removed automatically."""


class Write(StrEnum):
    """What is written for one partition."""

    FULL = "full"
    DELTA = "delta"
    CARRY = "carry"
    """Nothing: the last checkpoint's artifacts still say it all."""


@dataclass(frozen=True, slots=True)
class Base:
    """The whole snapshot that a partition's deltas refer to."""

    age: int
    """Checkpoints committed since it was written."""
    size: int
    delta_size: int = 0
    """Size of the delta on top of it, in the last committed checkpoint."""


@dataclass(frozen=True, slots=True)
class BaseRules:
    max_age: int = 20
    """Deltas refer to a base at most so many checkpoints old. Retention keeps bases of what it keeps, so this bounds
    how much longer than asked for an old checkpoint's artifacts stay."""
    max_delta_share: float = 0.5
    """A delta larger than this share of its base is replaced by a new base."""


def choose_write(base: Base | None, kind: SnapshotKind, *, touched: bool, rules: BaseRules) -> Write:
    """Decide for one partition.

    An untouched partition is carried along for as long as its base may serve; then it is written whole although nothing
    changed, because its base is about to leave the window in which it is sure to be kept.
    """
    if base is None or kind is not SnapshotKind.CHECKPOINT:
        return Write.FULL
    if base.age >= rules.max_age:
        return Write.FULL
    if not touched:
        return Write.CARRY
    if base.delta_size > base.size * rules.max_delta_share:
        return Write.FULL
    return Write.DELTA
