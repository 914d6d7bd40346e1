"""Many pipelines at once for a long time on a real S3 server in bad weather, and what must hold in the end.

Every pipeline has a writer that commits epochs, dies without a word, and is replaced while it still runs. Meanwhile
checkpoints are proven, pruned, swept, undeleted, gone back to and damaged, and between all of them and the store is a
proxy that loses, delays, cuts and refuses. In the end the weather is fine, and each pipeline is judged: its output is
exact, the newest checkpoint can be restored, whatever is retained is whole, nothing is left that nothing needs, ids and
epochs were used once, timelines only grew, and the memory of the processes is flat.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import S3Server, ServerError, Servers
from tests.soak.memory import Watch
from tests.soak.report import EVENTS, Report
from tests.soak.settings import Seat, Settings
from tests.soak.weather import run_proxy
from tests.soak.worker import PATIENCE, run_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Nothing about the end takes longer, unless it hangs: per pipeline, and at least.
_JUDGING, _JUDGING_AT_LEAST = 20.0, 240.0
#: So many times as long as told a run may take in which something has not happened yet.
_PATIENCE = 6


class Soak:
    """One run, from the first process to the last."""

    def __init__(self, settings: Settings, server: S3Server, folder: Path) -> None:
        self._settings = settings
        self._server = server
        self._folder = folder
        self._uri = server.fresh()
        self._context = multiprocessing.get_context("spawn")
        self._mailbox: Any = self._context.Queue()
        self._stop, self._calm, self._judged = (self._context.Event() for _ in range(3))
        self._proxies: dict[int, Any] = {}
        self._workers: dict[int, Any] = {}
        self._endpoints: dict[int, str] = {}
        self._counts: dict[tuple[str, int], dict[str, int]] = {}
        self._ends: dict[tuple[str, int], Any] = {}
        self._watches: list[Watch] = []
        self.report = Report(settings)

    def run(self) -> Report:
        try:
            self._start()
            self._work()
            self._judge()
        finally:
            self._end()
        return self.report

    # -- phases --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for number in range(self._settings.workers):
            arguments = (self._settings, number, self._server.endpoint, self._mailbox, self._calm)
            self._proxies[number] = self._process(run_proxy, arguments, f"proxy {number}", judged=False)
        self._receive(lambda: len(self._endpoints) == len(self._proxies), patience=60)
        for number in range(self._settings.workers):
            seat = Seat(
                number=number,
                settings=self._settings,
                pipelines=tuple(range(number, self._settings.pipelines, self._settings.workers)),
                uri=self._uri,
                through_proxy=S3Server(self._endpoints[number]).options(
                    read_timeout=self._settings.client_patience, max_retries=1, retry_timeout=8.0
                ),
                direct=self._server.options(),
                folder=str(self._folder),
                parent=os.getpid(),
            )
            told = (seat, self._mailbox, self._stop, self._judged)
            self._workers[number] = self._process(run_worker, told, f"worker {number}", judged=True)
        self._watches.append(Watch("parent", os.getpid(), judged=True))

    def _process(self, target: Any, arguments: tuple[Any, ...], name: str, *, judged: bool) -> Any:
        process = self._context.Process(target=target, args=arguments, name=name, daemon=True)
        process.start()
        self._watches.append(Watch(name, process.pid or 0, judged=judged))
        return process

    def _work(self) -> None:
        began = time.monotonic()
        end = began + self._settings.seconds
        last = began + self._settings.seconds * (_PATIENCE if self._settings.at_least_once else 1)
        look_every = min(10.0, self._settings.seconds / 20)
        look, tell = began, began + 30
        while all(each.is_alive() for each in self._workers.values()):
            moment = time.monotonic()
            if moment >= end and (moment >= last or self._everything_happened()):
                break
            if moment >= look:
                look += look_every
                for watch in self._watches:
                    watch.look(moment - began)
            if moment >= tell:
                tell += 30
                print(self._progress(moment - began), flush=True)
            self._receive(lambda: False, patience=0.5)
        self.report.seconds = time.monotonic() - began
        self.report.processes = [watch.summary() for watch in self._watches]
        for summary in self.report.processes:
            self.report.failures += summary.wrong()

    def _everything_happened(self) -> bool:
        counts = self._sum("counts")
        return all(counts[name] for name in EVENTS)

    def _judge(self) -> None:
        print("told everybody to stop", flush=True)
        self._stop.set()
        self._wait_for("stopped", PATIENCE + 30)
        self._calm.set()
        for process in self._proxies.values():
            process.join(20)
        self._receive(lambda: False, patience=0.5)
        print("the weather is fine, and the pipelines are judged", flush=True)
        self._judged.set()
        self._wait_for("judged", max(_JUDGING_AT_LEAST, _JUDGING * self._settings.pipelines))
        for (kind, _), (counts, failures) in self._ends.items():
            if kind == "stopped":
                self.report.counts.update(counts)
            else:
                self.report.judged.update(counts)
            self.report.failures += failures
        self.report.faults = self._sum("weather")

    def _wait_for(self, kind: str, patience: float) -> None:
        def done() -> bool:
            return all((kind, number) in self._ends or not each.is_alive() for number, each in self._workers.items())

        self._receive(done, patience=patience)
        # A last message may still be on its way when its sender is gone.
        self._receive(lambda: False, patience=0.5)
        for number in self._workers:
            if (kind, number) not in self._ends:
                self.report.failures.append(f"worker {number} is gone or hangs: it has not {kind}")

    def _end(self) -> None:
        for process in [*self._workers.values(), *self._proxies.values()]:
            process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._mailbox.close()
        self._mailbox.cancel_join_thread()

    # -- messages ------------------------------------------------------------------------------------------------

    def _receive(self, done: Any, *, patience: float) -> None:
        """Take messages until done, or until it takes too long."""
        deadline = time.monotonic() + patience
        while not done() and (left := deadline - time.monotonic()) > 0:
            try:
                kind, number, content = self._mailbox.get(timeout=min(left, 0.5))
            except queue.Empty:
                continue
            if kind == "proxy":
                self._endpoints[number] = content
            elif kind in ("counts", "weather"):
                self._counts[kind, number] = content
            elif kind == "crashed":
                self.report.failures.append(f"worker {number} broke down:\n{content}")
            else:
                self._ends[kind, number] = content

    def _sum(self, kind: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for (told, _), counts in self._counts.items():
            if told == kind:
                total.update(counts)
        return total

    def _progress(self, seconds: float) -> str:
        counts, weather = self._sum("counts"), self._sum("weather")
        shown = (
            "epochs",
            "kills",
            "zombies fenced",
            "recoveries",
            "prunes",
            "orphans removed",
            "damage found",
            "retries",
        )
        faults = weather.total() - weather["requests"]
        rss = ", ".join(
            f"{watch.samples[-1].rss // 2**20}" for watch in self._watches if watch.samples and "worker" in watch.name
        )
        told = ", ".join(f"{counts[name]} {name}" for name in shown)
        return (
            f"{seconds:5.0f} s: {told}, {faults} faults in {weather['requests']} requests, RSS {rss} MiB,"
            f" {counts['failures']} failures"
        )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit code 0: everything holds. 1: something is wrong, and the report says what. 2: it could not be run."
        "\nThe same seed gives the same intentions; what meets what is up to the machine.",
    )
    usual = Settings()
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="how long (default: %(default)s)")
    parser.add_argument("--pipelines", type=int, default=usual.pipelines, help="how many (default: %(default)s)")
    parser.add_argument(
        "--fault-rate",
        type=float,
        default=usual.fault_rate,
        metavar="SHARE",
        help="share of requests that something happens to, 0 to 0.5 (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=usual.seed, help="of all random choices (default: %(default)s)")
    parser.add_argument(
        "--at-least-once",
        action="store_true",
        help=f"go on past the time, up to {_PATIENCE} times as long, until each kind of event has happened",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON, too")
    parser.add_argument("--spoil", choices=["output", "damage"], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.pipelines < 1 or not 0 <= options.fault_rate <= 0.5:
        parser.error("there must be some minutes, at least one pipeline, and a fault rate between 0 and 0.5")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    settings = Settings(
        minutes=options.minutes,
        pipelines=options.pipelines,
        fault_rate=options.fault_rate,
        seed=options.seed,
        at_least_once=options.at_least_once,
        workers=min(Settings().workers, options.pipelines),
        spoil=options.spoil,
    )
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-soak-"))
    servers = Servers(folder / "servers", os.getpid())
    (folder / "servers").mkdir()
    try:
        report = Soak(settings, servers.seaweedfs(), folder).run()
    except ServerError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: everything is stopped and removed, nothing was judged", file=sys.stderr)
        return 2
    finally:
        servers.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(report.lines()))
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
