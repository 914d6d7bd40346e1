"""One pipeline under load: its writer's run, and what the soak itself knows of it to judge by."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import BlobStore, WrapperBlobs
from airflow_provider_checkpoint.layouts.partitioned import PartitionData, PartitionEntry, operators_of
from airflow_provider_checkpoint.lifecycle.safety import ORPHAN_AGE_FLOOR, Safety
from airflow_provider_checkpoint.model import FilePosition
from airflow_provider_checkpoint.writing.coordinator import EpochContents
from airflow_provider_checkpoint.writing.epoch_folders import OutputFile
from tests.unit.writing.pipeline import SumPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobInfo
    from airflow_provider_checkpoint.model import Checkpoint
    from airflow_provider_checkpoint.writing.coordinator import Hook, PendingEpoch
    from tests.soak.settings import Settings

#: A chain is so long before the next whole snapshot.
_CHAIN = 4
#: The store tells times in whole seconds.
_GRAIN = 2.0


class SimulatedDeathError(BaseException):
    """The process is gone: nothing catches this, and nothing is put in order."""


class Run(SumPipeline):
    """One run of a writer. The sum is kept as a snapshot and deltas on top of it, so checkpoints share artifacts."""

    def __init__(
        self, store: BlobStore, output: BlobStore, *, hook: Hook, begun: Callable[[PendingEpoch], None]
    ) -> None:
        self._chain: list[tuple[str, PartitionEntry]] = []
        self._begun = begun
        self._at = hook
        self.pending: PendingEpoch | None = None
        super().__init__(store, output, hook=hook)

    def _restore(self, start: Checkpoint | None) -> tuple[int, int]:
        if start is None:
            return 0, 0
        manifest = self.layout.load_manifest(start.id)
        snapshot, deltas = self.layout.load_state(manifest, "sum", 0)
        self._chain = [("sum", entry) for entry in manifest.operators["sum"].partitions]
        position = start.sources["numbers"]
        assert isinstance(position, FilePosition)
        return position.byte_offset, int(snapshot) + sum(map(int, deltas))

    def step(self, batch: Sequence[int]) -> Checkpoint:
        self.pending = None
        pending = self.coordinator.begin()
        self._begun(pending)
        self.pending = pending
        total, position = self.total + sum(batch), self.position + len(batch)
        whole = not 0 < len(self._chain) < _CHAIN
        news = PartitionData("sum", 0, str(total if whole else sum(batch)).encode(), is_delta=not whole)
        count = PartitionData("count", 0, f"{position:020d}".encode())
        saved, counted = self.layout.save_partitions(pending.checkpoint_id, [news, count])
        chain = [saved] if whole else [*self._chain, saved]
        self._at("saved")  # type: ignore[arg-type] # one of our own, before those of a commit
        body = json.dumps(list(batch)).encode()
        path = f"{self.sink.folder(pending.ref)}/part-00000.json"
        self.sink.blobs.create(path, body)
        self.sink.prepare(pending.ref, [OutputFile(path=path, size=len(body), rows=len(batch))])
        checkpoint = self.coordinator.commit(
            pending,
            EpochContents(
                operators=operators_of([*chain, counted]),
                sources={"numbers": FilePosition(path="numbers", byte_offset=position)},
                event_count=position,
                vnode_count=1,
            ),
        )
        self.total, self.position, self._chain, self.pending = total, position, chain, None
        return checkpoint


@dataclass(frozen=True, slots=True)
class Promise:
    """A commit that was acknowledged: no start may fall behind it, unless something was done to the pipeline since."""

    position: int
    disturbances: int


class Pipeline:
    """What is known of one pipeline in the process that runs it. Its writers, zombies and maintenance share it."""

    def __init__(self, number: int, faulty: BlobStore, clean: BlobStore, folder: Path, settings: Settings) -> None:
        self.number = number
        self.store, self.output = faulty.at(f"store-{number:03d}"), faulty.at(f"output-{number:03d}")
        self.clean_store, self.clean_output = clean.at(f"store-{number:03d}"), clean.at(f"output-{number:03d}")
        self.journal = folder / f"pipeline-{number:03d}.txt"
        self.damaged: set[str] = set()
        """Artifacts in which a byte was changed."""
        self.quiet = Quiet()
        """Damage is done only while nothing that relies on a proof of a moment ago is under way."""
        self.committed = threading.Event()
        self._settings = settings
        self._lock = threading.Lock()
        self._relying: dict[object, float] = {}
        self._disturbances = 0
        self._disturbing = 0
        self._promise: Promise | None = None
        self._timeline = 0

    def note(self, pending: PendingEpoch) -> None:
        """Write down an epoch that begins, on disk: the memory of this process shall stay flat."""
        line = f"{pending.ref.timeline} {pending.ref.epoch} {pending.checkpoint_id}\n"
        with self._lock, open(self.journal, "a") as journal:
            journal.write(line)

    # -- what writers hold on to ---------------------------------------------------------------------------------

    def rely(self, writer: object) -> None:
        """A writer starts or has committed: it needs what is there now, until it commits again or is done."""
        with self._lock:
            self._relying[writer] = time.time()

    def release(self, writer: object) -> None:
        with self._lock:
            self._relying.pop(writer, None)

    def held_since(self) -> float:
        """When the writer that has not committed for longest did so last. A guard must be longer than that is ago."""
        with self._lock:
            return min(self._relying.values(), default=time.time())

    def safety(self) -> Safety:
        """As careless as is legal: every number just longer than any epoch takes that is under way now."""
        held = time.time() - self.held_since() + _GRAIN
        return Safety(
            orphan_age=timedelta(0),
            uncommitted_age=timedelta(0),
            undo_window=timedelta(seconds=max(self._settings.undo_window, held)),
            commit_grace=timedelta(seconds=max(self._settings.guard, held)),
        )

    def aged(self, store: BlobStore) -> AgedBlobs:
        return AgedBlobs(store, lambda: min(time.time() - self._settings.guard, self.held_since()) - _GRAIN)

    # -- what must not get lost ----------------------------------------------------------------------------------

    @contextmanager
    def disturbing(self) -> Iterator[None]:
        """Something is done after which a start may rightly fall behind what was acknowledged."""
        with self._lock:
            self._disturbances += 1
            self._disturbing += 1
        try:
            yield
        finally:
            with self._lock:
                self._disturbances += 1
                self._disturbing -= 1

    @property
    def disturbances(self) -> int:
        with self._lock:
            return self._disturbances

    def acknowledge(self, checkpoint: Checkpoint, position: int, *, disturbances: int) -> None:
        """:param disturbances: how many there had been when the epoch began; one since may have abandoned it."""
        self.committed.set()
        with self._lock:
            if not self.damaged.intersection(artifact.key for artifact in checkpoint.artifacts):
                self._promise = Promise(position, disturbances)

    def check_start(self, run: Run) -> str | None:
        """What is wrong with where a writer has started; None if nothing is."""
        with self._lock:
            timeline, before = run.coordinator.timeline, self._timeline
            self._timeline = timeline
            if timeline <= before:
                return f"timeline {timeline} was opened after timeline {before}"
            promise = self._promise
            if promise is None or self._disturbing or promise.disturbances != self._disturbances:
                return None
            if run.position < promise.position:
                return f"a start fell back to position {run.position}; {promise.position} had been acknowledged"
            return None


class Quiet:
    """Many may be busy at once; whoever wants quiet waits for all of them and holds off new ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._changed:
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextmanager
    def quiet(self, *, patience: float) -> Iterator[bool]:
        """Whether it became quiet in time."""
        with self._changed:
            yield self._changed.wait_for(lambda: not self._busy, patience)


class AgedBlobs(WrapperBlobs):
    """Lets what was written before some moment look an hour older: no run can wait for the floor of an hour."""

    def __init__(self, inner: BlobStore, before: Callable[[], float]) -> None:
        super().__init__(inner)
        self._before = before

    def stat(self, key: str) -> BlobInfo | None:
        info = super().stat(key)
        return None if info is None else self._aged(info)

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        # Taken before the listing: whoever begins meanwhile writes later than that.
        before = self._before()
        yield from (self._aged(info, before) for info in super().list(folder, temporary=temporary))

    def _aged(self, info: BlobInfo, before: float | None = None) -> BlobInfo:
        moment: datetime | None = info.modified
        if moment is None or moment.timestamp() >= (self._before() if before is None else before):
            return info
        return replace(info, modified=moment - ORPHAN_AGE_FLOOR)
