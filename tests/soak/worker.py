"""One process of the soak: some pipelines, each with a writer, and threads that maintain, recover and damage them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.blobs import open_blobs
from tests.soak.judge import judge
from tests.soak.maintenance import Maintenance
from tests.soak.pipeline import Pipeline
from tests.soak.tally import Tally
from tests.soak.writing import WriterLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.settings import Seat

#: Nothing in flight takes longer than this once everybody was told to stop, unless it hangs.
PATIENCE = 180.0


def run_worker(seat: Seat, mailbox: Any, stop: Any, judged: Any) -> None:
    """The process: work until told to stop, wait until the weather is fine, then judge."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What fails in bad weather is counted; the log of it would hide the failures that count.
    logging.getLogger("airflow_provider_checkpoint").setLevel(logging.CRITICAL)
    tally = Tally()
    try:
        pipelines = _work(seat, mailbox, stop, tally)
        mailbox.put(("stopped", seat.number, (tally.counts(), tally.failures())))
        while not judged.wait(1):
            _leave_if_alone(seat)
        wrong: list[str] = []
        counts: Counter[str] = Counter()
        with ThreadPoolExecutor(4) as pool:
            for found, counted in pool.map(lambda each: judge(each, seat.settings), pipelines):
                wrong += found
                counts += counted
        mailbox.put(("judged", seat.number, (dict(counts), wrong)))
    except BaseException:  # noqa: BLE001 - told by the parent
        mailbox.put(("crashed", seat.number, traceback.format_exc()))
    mailbox.close()
    mailbox.join_thread()
    os._exit(0)


def _work(seat: Seat, mailbox: Any, stop: Any, tally: Tally) -> list[Pipeline]:
    settings = seat.settings
    faulty, clean = open_blobs(seat.uri, seat.through_proxy), open_blobs(seat.uri, seat.direct)
    pipelines = [Pipeline(number, faulty, clean, Path(seat.folder), settings) for number in seat.pipelines]
    ended = threading.Event()
    hours: list[Callable[[], None]] = [WriterLoop(each, settings, tally, ended) for each in pipelines]

    def maintenance(name: str, duties: list[str], pause: float) -> Maintenance:
        return Maintenance(f"{name} {seat.number}", pipelines, duties, settings, tally, ended, pause=pause)

    hours += [
        # Several at once on the same pipelines meet each other.
        maintenance("prover", ["validate"], 0.5),
        maintenance("keeper", ["prune", "sweep"], 0.1),
        maintenance("second keeper", ["prune", "sweep"], 0.1),
        maintenance("third keeper", ["sweep", "prune"], 0.1),
        maintenance("cleaner", ["orphans", "undelete"], 0.3),
        maintenance("operator", ["recovery"], settings.recovery_every / len(pipelines)),
        maintenance("vandal", ["damage"], settings.damage_every / len(pipelines)),
    ]
    threads = [threading.Thread(target=each, daemon=True) for each in hours]
    for thread in threads:
        thread.start()
    while not stop.wait(1):
        mailbox.put(("counts", seat.number, tally.counts()))
        _leave_if_alone(seat)
    ended.set()
    deadline = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread() and not thread.name.startswith("Queue"):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                stack = traceback.format_stack(sys._current_frames()[thread.ident or 0])
                tally.fail(f"a thread does not end:\n{''.join(stack)}")
    return pipelines


def _leave_if_alone(seat: Seat) -> None:
    """Nobody is left to tell anything to."""
    if os.getppid() != seat.parent:
        os._exit(1)
