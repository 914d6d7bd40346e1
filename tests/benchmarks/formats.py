"""What the formats cost beside the plainest thing that could do the job.

::

    python -m tests.benchmarks.formats

Each row is measured side by side with its yardstick: both in turn, over and over, and the medians compared. So a busy
machine slows both, and the ratio still means something; the load average is printed all the same.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, OperatorCheckpoint
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId
from tests.benchmarks._measure import MIB, Contender, load, race

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Row(NamedTuple):
    what: str
    ours: Callable[[], object]
    against: str
    yardstick: Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.formats", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--mib", type=int, default=256, help="size of the state")
    parser.add_argument("--operators", type=int, default=100_000, help="operators in the manifest")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print(f"load average before: {load()}, {os.cpu_count()} processors, {options.repeats} repeats")
    print(f"{'what':<52} {'ms':>9}   {'against':<24} {'ms':>9} {'ratio':>7}")
    for rows in (_stream_rows(options.mib), _sidecar_rows(options.operators)):
        for row in rows:
            contenders = [Contender("ours", row.ours), Contender("yardstick", row.yardstick)]
            ours, yardstick = race(contenders, options.repeats).values()
            times = f"{ours * 1000:>9.1f}   {row.against:<24} {yardstick * 1000:>9.1f}"
            print(f"{row.what:<52} {times} {ours / yardstick:>7.2f}", flush=True)
    print(f"load average after: {load()}")


def _stream_rows(mib: int) -> Iterator[Row]:
    quarter = os.urandom(mib * MIB // 4)
    state = CheckpointState(StreamCheckpointId("bench", 1, datetime.now(UTC)))
    for number in range(4):
        state.set_operator_state(f"operator-{number}", quarter)
    for number in range(100):
        state.set_source_offset(f"source-{number}", number)
    data = state.encode()
    what = f"of a state of {mib} MiB"
    yield Row(f"decode {what}", lambda: CheckpointState.decode("bench", data), "copy as bytes", lambda: _copy(data))
    yield Row(f"encode {what}", state.encode, "copy as bytes", lambda: _copy(data))
    yield Row(
        f"encode in pieces {what}", lambda: sum(1 for _ in state.iter_encode()), "copy as bytes", lambda: _copy(data)
    )


def _copy(data: bytes) -> bytes:
    return bytes(memoryview(data))


def _sidecar_rows(operators: int) -> Iterator[Row]:
    manifest = CheckpointManifest.new(1, 1, timestamp_ms=1_700_000_000_000).changed(
        operator_states={
            f"operator-{number:06}": OperatorCheckpoint.inline(b"0123456789") for number in range(operators)
        }
    )
    data = manifest.to_json()
    values = json.loads(data)
    what = f"of a sidecar manifest of {operators} operators"
    yield Row(f"load {what}", lambda: CheckpointManifest.from_json(data), "json.loads", lambda: json.loads(data))
    yield Row(f"dump {what}", manifest.to_json, "json.dumps", lambda: json.dumps(values, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
