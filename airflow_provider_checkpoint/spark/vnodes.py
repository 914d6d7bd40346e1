"""Where the state of each vnode lies, as of the last checkpoint, and what to write next. Kept on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError
from airflow_provider_checkpoint.spark.operators import VnodePlan
from airflow_provider_checkpoint.writing.bases import Base, BaseRules, SnapshotKind, Write, choose_write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_checkpoint.layouts.partitioned import OperatorEntry, PartitionedLayout, PartitionEntry
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId

Slot = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VnodeRefs:
    """The artifacts that make up one vnode's state."""

    snapshot: PartitionEntry
    delta: PartitionEntry | None
    base_epoch: int | None
    """The epoch that wrote the snapshot; None if it cannot be told any more, which counts as long ago."""


class VnodeBook:
    """The artifacts of every vnode. Immutable: a committed epoch makes a new book, an abandoned one leaves it alone."""

    def __init__(self, refs: Mapping[Slot, VnodeRefs], epoch: int) -> None:
        self._refs = dict(refs)
        self._epoch = epoch

    @classmethod
    def of(cls, layout: PartitionedLayout, checkpoint: Checkpoint | None) -> VnodeBook:
        """The book as a checkpoint has it."""
        if checkpoint is None:
            return cls({}, 0)
        epochs = _Epochs(layout, checkpoint)
        refs = {}
        manifest = layout.load_manifest(checkpoint.id)
        for operator, entry in manifest.operators.items():
            for vnode, (snapshot, delta) in _slots(entry).items():
                owner = layout.named(snapshot.path).checkpoint_id
                # Nothing builds on a savepoint: what follows it is written whole.
                base = None if owner is None or checkpoint.savepoint else epochs.of(owner)
                refs[operator, vnode] = VnodeRefs(snapshot, delta, base)
        return cls(refs, checkpoint.epoch)

    def plans(self, operator: str, rules: BaseRules, kind: SnapshotKind) -> dict[int, VnodePlan]:
        """For each vnode that has state: what a task starts from, and how it writes if rows touch it."""
        return {
            vnode: VnodePlan(refs.snapshot, refs.delta, choose_write(self._base(refs), kind, touched=True, rules=rules))
            for (name, vnode), refs in self._refs.items()
            if name == operator
        }

    def carried(self, operator: str, touched: set[int]) -> list[PartitionEntry]:
        """The entries of vnodes that no row touched."""
        return [
            entry
            for (name, vnode), refs in sorted(self._refs.items())
            if name == operator and vnode not in touched
            for entry in (refs.snapshot, refs.delta)
            if entry is not None
        ]

    def outdated(self, operator: str, touched: set[int], rules: BaseRules, kind: SnapshotKind) -> list[int]:
        """Vnodes that no row touched and that must be written whole all the same."""
        return [
            vnode
            for (name, vnode), refs in sorted(self._refs.items())
            if name == operator
            and vnode not in touched
            and choose_write(self._base(refs), kind, touched=False, rules=rules) is Write.FULL
        ]

    def committed(self, epoch: int, operators: Mapping[str, OperatorEntry]) -> VnodeBook:
        """The book after an epoch."""
        refs = {}
        for operator, entry in operators.items():
            for vnode, (snapshot, delta) in _slots(entry).items():
                before = self._refs.get((operator, vnode))
                same = before is not None and before.snapshot.path == snapshot.path
                refs[operator, vnode] = VnodeRefs(snapshot, delta, before.base_epoch if before and same else epoch)
        return VnodeBook(refs, epoch)

    def _base(self, refs: VnodeRefs) -> Base:
        # The epoch about to be written is one later than the book's.
        age = 2**31 if refs.base_epoch is None else self._epoch + 1 - refs.base_epoch
        return Base(age, refs.snapshot.size_bytes, 0 if refs.delta is None else refs.delta.size_bytes)


class _Epochs:
    """Epochs of checkpoints, each looked up once."""

    def __init__(self, layout: PartitionedLayout, checkpoint: Checkpoint) -> None:
        self._layout = layout
        self._known: dict[CheckpointId, int | None] = {checkpoint.id: checkpoint.epoch}

    def of(self, checkpoint_id: CheckpointId) -> int | None:
        if checkpoint_id not in self._known:
            try:
                self._known[checkpoint_id] = self._layout.load(checkpoint_id).epoch
            except CheckpointNotFoundError:
                self._known[checkpoint_id] = None
        return self._known[checkpoint_id]


def _slots(entry: OperatorEntry) -> dict[int, tuple[PartitionEntry, PartitionEntry | None]]:
    """Snapshot and delta per vnode. The runtime writes at most one delta: it holds everything since the snapshot."""
    found: dict[int, tuple[PartitionEntry, PartitionEntry | None]] = {}
    for part in entry.partitions:
        if part.is_delta:
            found[part.partition_id] = (found[part.partition_id][0], part)
        else:
            found[part.partition_id] = (part, None)
    return found
