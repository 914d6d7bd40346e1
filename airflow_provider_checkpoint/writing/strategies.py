"""Three ways of taking a snapshot of keyed state: whole, in increments, and to keep.

Each writes the artifacts of one checkpoint and answers with what its manifest says of them. None of them commits.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.partitioned import (
    OperatorEntry,
    PartitionData,
    PartitionEntry,
    Slot,
    operators_of,
)
from airflow_provider_checkpoint.layouts.partitioned._saving import save_side_by_side
from airflow_provider_checkpoint.model import CheckpointId
from airflow_provider_checkpoint.writing.bases import Base, BaseRules, SnapshotKind, Write, choose_write

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from airflow_provider_checkpoint.writing.cancellation import Cancellation
    from airflow_provider_checkpoint.writing.snapshot import SnapshotOptions
    from airflow_provider_checkpoint.writing.streams import ArtifactStreams


class StateView(Protocol):
    """The state of a pipeline at one moment; what happens later does not show. Read from several threads."""

    def slots(self) -> Iterable[Slot]:
        """Every operator partition that has state."""

    def full(self, operator: str, partition: int) -> Iterable[Buffer]:
        """The whole state of a partition."""

    def changes(self, operator: str, partition: int, base: CheckpointId) -> Iterable[Buffer]:
        """Everything that makes of the partition's state in checkpoint ``base`` its state now, removals included."""

    def touched(self, operator: str, partition: int, since: CheckpointId) -> bool:
        """Whether the state may differ from that in checkpoint ``since``. True is always safe."""

    def release(self) -> None:
        """Nobody will look at this any more."""


Capture: TypeAlias = Callable[[CheckpointId], StateView]
"""Freezes the state for a checkpoint, while the pipeline stands still."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What a manifest says about state, and what it took to write it."""

    operators: Mapping[str, OperatorEntry]
    savepoint: bool = False
    written_bytes: int = 0
    counts: Mapping[Write, int] = field(default_factory=dict)
    """Operator partitions by what was written for them."""

    @property
    def total_size_bytes(self) -> int:
        """Everything a restore reads, artifacts of earlier checkpoints included."""
        return sum(entry.total_bytes for entry in self.operators.values())


@dataclass(frozen=True, slots=True)
class _Chain:
    """The state of one partition in one checkpoint: a base, and at most one delta on top of it."""

    base_id: CheckpointId
    base: PartitionEntry
    delta: PartitionEntry | None = None

    @property
    def entries(self) -> tuple[PartitionEntry, ...]:
        return (self.base,) if self.delta is None else (self.base, self.delta)


_Chains: TypeAlias = Mapping[Slot, _Chain]


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the artifacts of one checkpoint, some at a time."""

    checkpoint_id: CheckpointId
    streams: ArtifactStreams
    cancellation: Cancellation
    max_concurrent: int

    def write(self, view: StateView, plan: Mapping[Slot, Write], known: _Chains) -> tuple[_Chains, int]:
        """Do what is planned for each partition; return what the checkpoint consists of, and the bytes written."""
        items = (_data(view, slot, write, known) for slot, write in plan.items() if write is not Write.CARRY)
        saved = save_side_by_side(self._save, items, self.max_concurrent)
        written = {(operator, entry.partition_id): entry for operator, entry in saved}
        chains = {slot: self._chain(write, written.get(slot), known.get(slot)) for slot, write in plan.items()}
        return chains, sum(entry.size_bytes for entry in written.values())

    def _save(self, item: PartitionData) -> PartitionEntry:
        stream = self.streams.open(self.checkpoint_id, item.operator, item.partition, is_delta=item.is_delta)
        with self.cancellation.guard(stream):
            # A view that answers with one piece instead of several is understood.
            for piece in [item.data] if isinstance(item.data, bytes) else item.data:
                stream.write(piece)
            return stream.close()

    def _chain(self, write: Write, written: PartitionEntry | None, known: _Chain | None) -> _Chain:
        match write, written, known:
            case Write.FULL, PartitionEntry() as snapshot, _:
                return _Chain(self.checkpoint_id, snapshot)
            case Write.DELTA, PartitionEntry() as delta, _Chain() as chain:
                # The new delta holds every change since the base, so it takes the place of the old one.
                return replace(chain, delta=delta)
            case Write.CARRY, None, _Chain() as chain:
                return chain
        raise AssertionError(f"{write} cannot be planned here")


def _data(view: StateView, slot: Slot, write: Write, known: _Chains) -> PartitionData:
    if write is Write.DELTA:
        return PartitionData(*slot, view.changes(*slot, known[slot].base_id), is_delta=True)
    return PartitionData(*slot, view.full(*slot))


def _result(chains: _Chains, written: int, plan: Mapping[Slot, Write], options: SnapshotOptions) -> SnapshotResult:
    return SnapshotResult(
        operators=operators_of((slot[0], entry) for slot, chain in chains.items() for entry in chain.entries),
        savepoint=options.kind is SnapshotKind.SAVEPOINT,
        written_bytes=written,
        counts=Counter(plan.values()),
    )


# -- whole -------------------------------------------------------------------------------------------------------


class FullSnapshots:
    """Writes every partition whole, whatever is asked for: nothing depends on any other checkpoint."""

    def __init__(self, capture: Capture, *, max_concurrent: int = 4) -> None:
        self._capture = capture
        self._max_concurrent = max_concurrent

    def prepare(self, checkpoint_id: CheckpointId) -> StateView:
        return self._capture(checkpoint_id)

    def snapshot(
        self,
        resources: StateView,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,  # noqa: ARG002 - an artifact does not say when it was written
        streams: ArtifactStreams,
        options: SnapshotOptions,
    ) -> Callable[[Cancellation], SnapshotResult]:
        def write(cancellation: Cancellation) -> SnapshotResult:
            plan = dict.fromkeys(sorted(resources.slots()), Write.FULL)
            writer = _Writer(checkpoint_id, streams, cancellation, self._max_concurrent)
            return _result(*writer.write(resources, plan, {}), plan, options)

        return write


class SavepointSnapshots(FullSnapshots):
    """Writes savepoints and nothing else: self-contained, never built upon, never removed automatically.

    The manifest takes ``savepoint`` from the result; retention goes by it.
    """

    def snapshot(
        self,
        resources: StateView,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,
        streams: ArtifactStreams,
        options: SnapshotOptions,
    ) -> Callable[[Cancellation], SnapshotResult]:
        if options.kind is not SnapshotKind.SAVEPOINT:
            raise ConfigurationError(
                f"a {options.kind} was asked for, and savepoints are all this strategy takes",
                hint="Use FullSnapshots or IncrementalSnapshots for checkpoints.",
            )
        return super().snapshot(resources, checkpoint_id, timestamp_ms, streams, options)


# -- in increments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Committed:
    """The last committed checkpoint: the only one that a new one builds on."""

    checkpoint_id: CheckpointId
    chains: _Chains
    recent: tuple[CheckpointId, ...]
    """The last committed ones, this one included: as many as a base may grow old."""

    def base_of(self, slot: Slot) -> Base | None:
        chain = self.chains.get(slot)
        if chain is None:
            return None
        age = sum(each > chain.base_id for each in self.recent)
        return Base(age, chain.base.size_bytes, 0 if chain.delta is None else chain.delta.size_bytes)

    def since(self, slot: Slot) -> CheckpointId:
        """The checkpoint since which changes are remembered. A new partition may be in a newer one under way."""
        chain = self.chains.get(slot)
        return self.checkpoint_id if chain is None else chain.base_id


@dataclass(frozen=True, slots=True)
class Increment:
    """What an incremental snapshot holds on to: the state, and the checkpoint it may build on."""

    view: StateView
    last: _Committed | None

    def release(self) -> None:
        self.view.release()


class IncrementalSnapshots:
    """Writes what changed, as one delta per partition on top of its last whole snapshot.

    A checkpoint is built upon only once :meth:`committed` has said that all of it landed; until then, and after
    :meth:`aborted`, new snapshots build on the last one that did. A job that starts anew, from whatever checkpoint,
    starts with a new strategy: its first checkpoint is whole and depends on nothing that another run owns.
    """

    def __init__(
        self,
        capture: Capture,
        *,
        rules: BaseRules = BaseRules(),  # noqa: B008 - frozen
        max_concurrent: int = 4,
    ) -> None:
        self._capture = capture
        self._rules = rules
        self._max_concurrent = max_concurrent
        self._lock = threading.Lock()
        self._last: _Committed | None = None
        self._pending: dict[CheckpointId, _Chains] = {}

    # -- taking --------------------------------------------------------------------------------------------------

    def prepare(self, checkpoint_id: CheckpointId) -> Increment:
        # The view first: if a commit comes in between, the view can still tell what changed since that checkpoint. The
        # other way round, what it is asked for might be forgotten by then.
        view = self._capture(checkpoint_id)
        last = self._last
        # A checkpoint that overtook this one was frozen later: there is no going back from it.
        return Increment(view, last if last is not None and last.checkpoint_id < checkpoint_id else None)

    def snapshot(
        self,
        resources: Increment,
        checkpoint_id: CheckpointId,
        timestamp_ms: int,  # noqa: ARG002 - an artifact does not say when it was written
        streams: ArtifactStreams,
        options: SnapshotOptions,
    ) -> Callable[[Cancellation], SnapshotResult]:
        def write(cancellation: Cancellation) -> SnapshotResult:
            view, last = resources.view, resources.last
            plan = {slot: self._choose(view, last, slot, options) for slot in sorted(view.slots())}
            writer = _Writer(checkpoint_id, streams, cancellation, self._max_concurrent)
            chains, written = writer.write(view, plan, {} if last is None else last.chains)
            if options.used_by_later:
                with self._lock:
                    self._pending[checkpoint_id] = chains
            return _result(chains, written, plan, options)

        return write

    def _choose(self, view: StateView, last: _Committed | None, slot: Slot, options: SnapshotOptions) -> Write:
        base = None if last is None else last.base_of(slot)
        if last is None or base is None:
            return Write.FULL
        touched = view.touched(*slot, last.checkpoint_id)
        return choose_write(base, options.kind, touched=touched, rules=self._rules)

    # -- what became of it ---------------------------------------------------------------------------------------

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """The whole checkpoint landed: build on it from now on.

        Ignored for a savepoint, which nothing may build on, for one that was aborted or never written here, and for one
        that is older than the last: then new checkpoints build on what they built on before, which is safe.
        """
        with self._lock:
            chains = self._pending.pop(checkpoint_id, None)
            last = self._last
            if chains is None or (last is not None and checkpoint_id < last.checkpoint_id):
                return
            before = () if last is None else last.recent
            recent = deque((*before, checkpoint_id), maxlen=self._rules.max_age)
            self._last = _Committed(checkpoint_id, self._remembered(chains), tuple(recent))
            # Older ones will not be built upon any more, whatever becomes of them.
            self._pending = {each: kept for each, kept in self._pending.items() if each > checkpoint_id}

    def _remembered(self, chains: _Chains) -> _Chains:
        """Without the partitions whose changes since their base may be forgotten: those are written whole next time.

        That happens when two checkpoints were under way at once and the first one brought a new base.
        """
        last = self._last
        if last is None:
            return chains
        return {slot: chain for slot, chain in chains.items() if chain.base_id >= last.since(slot)}

    def aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint did not come about: nothing is built on it. What it wrote is for the orphan search."""
        with self._lock:
            self._pending.pop(checkpoint_id, None)

    def remember_since(self, operator: str, partition: int) -> CheckpointId | None:
        """The checkpoint since which the changes of a partition must be remembered, for views yet to be captured.

        Older changes may be forgotten. None as long as nothing was committed: then all must be remembered.
        """
        last = self._last
        return None if last is None else last.since((operator, partition))
