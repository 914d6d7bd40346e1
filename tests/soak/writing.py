"""The writer of one pipeline: commits epoch after epoch, dies, is replaced while it still runs, and starts anew."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointNotFoundError,
    CorruptError,
    FencedWriterError,
    NoRecoveryPointError,
    TransientError,
)
from tests.soak.pipeline import Run, SimulatedDeathError

if TYPE_CHECKING:
    from tests.soak.pipeline import Pipeline
    from tests.soak.settings import Settings
    from tests.soak.tally import Tally

#: Where a writer may die: between its own steps and between those of a commit.
_STEPS = ("saved", "prepared", "fenced", "manifest", "decided", "sinks", "statuses", "pointer")
#: A zombie that meets nothing but bad weather is let go.
_HAUNTINGS = 30
#: So many starts in a row may meet bad weather or be overtaken.
_STARTS = 40

End = Literal["died", "fenced", "restart", "replaced", "stopped"]


@dataclass(eq=False)
class Writer:
    """One running writer. ``replaced`` is set once another has taken over and is through with its start."""

    run: Run | None = None
    fate: str | None = None
    """The step at which it dies."""
    replaced: threading.Event = field(default_factory=threading.Event)

    def at(self, step: str) -> None:
        if step == self.fate:
            raise SimulatedDeathError(step)


class WriterLoop:
    """Keeps one pipeline going until told to stop. Runs in a thread of its own."""

    def __init__(self, pipeline: Pipeline, settings: Settings, tally: Tally, stop: threading.Event) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._tally = tally
        self._stop = stop
        self._random = random.Random(f"{settings.seed} writer {pipeline.number}")
        self._failed_starts = 0

    def __call__(self) -> None:
        before: Writer | None = None
        while not self._stop.is_set():
            writer = Writer()
            self._pipeline.rely(writer)
            if self._start(writer):
                if before is not None:
                    before.replaced.set()
                before = self._go_on(writer)
            elif not self._stop.is_set():
                self._stop.wait(self._random.uniform(0.1, 1.0))
            if before is not writer:
                self._pipeline.release(writer)

    # -- start ---------------------------------------------------------------------------------------------------

    def _start(self, writer: Writer) -> bool:
        pipeline = self._pipeline
        try:
            writer.run = Run(pipeline.store, pipeline.output, hook=writer.at, begun=pipeline.note)
        except TransientError:
            self._tally.add("retries")
        except (NoRecoveryPointError, CheckpointNotFoundError, FencedWriterError):
            # A recovery or a prune came in between.
            self._tally.add("starts overtaken")
        except CorruptError:
            # Damaged between the proof and the read.
            if pipeline.damaged:
                self._tally.add("starts overtaken")
            else:
                self._tally.unexpected(f"pipeline {pipeline.number}: start")
        except Exception:  # noqa: BLE001 - told, and fails the run
            self._tally.unexpected(f"pipeline {pipeline.number}: start")
        else:
            self._failed_starts = 0
            self._tally.add("starts")
            wrong = pipeline.check_start(writer.run)
            if wrong is not None:
                self._tally.fail(f"pipeline {pipeline.number}: {wrong}")
            return True
        self._failed_starts += 1
        if self._failed_starts == _STARTS:
            self._tally.fail(f"pipeline {pipeline.number}: {_STARTS} starts in a row have failed")
        return False

    # -- epochs --------------------------------------------------------------------------------------------------

    def _go_on(self, writer: Writer) -> Writer | None:
        """Commit until something happens. A writer that goes on although another is to take over is returned."""
        while True:
            end = self._epoch(writer)
            if end == "died":
                self._tally.add("kills")
                return None
            if end in ("fenced", "restart", "stopped"):
                return None
            if self._stop.wait(self._random.expovariate(1 / self._settings.pause)):
                return None
            if end == "replaced":
                zombie = threading.Thread(target=self._haunt, args=(writer,), daemon=True)
                self._tally.add("zombies")
                zombie.start()
                return writer

    def _epoch(self, writer: Writer) -> End | None:
        dies = self._random.random() < self._settings.kill_share
        writer.fate = self._random.choice(_STEPS) if dies else None
        end = self._step(writer)
        if end is None and self._random.random() < self._settings.zombie_share:
            return "replaced"
        return end

    def _step(self, writer: Writer) -> End | None:
        pipeline, run = self._pipeline, writer.run
        assert run is not None
        disturbances = pipeline.disturbances
        try:
            checkpoint = run.step(self._batch(run.position))
        except SimulatedDeathError:
            return "died"
        except FencedWriterError:
            self._tally.add("fenced by a recovery")
            return "fenced"
        except TransientError:
            self._tally.add("retries")
            return self._give_up(writer)
        except CheckpointNotFoundError:
            # A recovery abandoned its branch in the middle of the commit, and a prune took the rest of it.
            self._tally.add("starts overtaken")
            return "restart"
        except Exception:  # noqa: BLE001 - told, and fails the run
            self._tally.unexpected(f"pipeline {pipeline.number}: epoch")
            return "restart"
        pipeline.rely(writer)
        pipeline.acknowledge(checkpoint, run.position, disturbances=disturbances)
        self._tally.add("epochs")
        return None

    def _give_up(self, writer: Writer) -> End | None:
        """Abandon the epoch and go on with the next, as the coordinator allows, or start the writer anew."""
        run = writer.run
        assert run is not None
        if run.pending is None or self._random.random() < 0.5:
            return "restart"
        try:
            run.coordinator.abandon(run.pending)
        except TransientError:
            # Decided already, or the weather again: a start puts it in order.
            return "restart"
        except Exception:  # noqa: BLE001 - told, and fails the run
            self._tally.unexpected(f"pipeline {self._pipeline.number}: abandon")
            return "restart"
        self._tally.add("epochs abandoned")
        return None

    def _batch(self, position: int) -> range:
        return range(position + 1, position + 1 + self._random.randint(1, 3))

    # -- zombies -------------------------------------------------------------------------------------------------

    def _haunt(self, writer: Writer) -> None:
        """Go on writing while another writer takes over. Once that one has started, no epoch may succeed."""
        try:
            for _ in range(_HAUNTINGS):
                # Not before the start of the next is through: then every epoch that begins must fail.
                late = writer.replaced.is_set()
                if self._stop.is_set() or self._cut_off(writer, late=late):
                    return
                self._stop.wait(0.2)
            self._tally.add("zombies let go")
        finally:
            self._pipeline.release(writer)

    def _cut_off(self, writer: Writer, *, late: bool) -> bool:
        run = writer.run
        assert run is not None
        try:
            # Three numbers always: the loop's random numbers are not for this thread.
            run.step(range(run.position + 1, run.position + 4))
        except FencedWriterError:
            self._tally.add("zombies fenced")
            return True
        except (BlobNotFoundError, CheckpointNotFoundError):
            # What it was just writing was cleared away under its hands.
            self._tally.add("zombies cut off")
            return True
        except TransientError:
            self._tally.add("retries")
            return False
        except Exception:  # noqa: BLE001 - told, and fails the run
            self._tally.unexpected(f"pipeline {self._pipeline.number}: zombie")
            return True
        self._pipeline.rely(writer)
        if late:
            self._tally.fail(f"pipeline {self._pipeline.number}: a zombie committed after another had taken over")
            return True
        self._tally.add("epochs of zombies")
        return False
