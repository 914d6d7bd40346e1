"""Orders to try the pipeline with: any amount, the same for the same seed, and what the tables must hold in the end.

python dags/jobs/orders.py generate /data/landing --files 20 --orders 1000 --seed 7
python dags/jobs/orders.py check /data/landing /data/tables
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

START = 1_700_000_000_000
DELAY = 60_000


def generate(folder: Path, *, files: int, orders: int, seed: int, customers: int = 500, first: int = 0) -> None:
    """Write files of JSON lines. Times go forward with some disorder; a few orders are very late."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        rng = random.Random(f"{seed}-{number}")
        lines = []
        for index in range(orders):
            late = rng.randrange(600_000) if rng.random() < 0.03 else 0
            order = {
                "order": number * orders + index,
                "customer": f"customer-{rng.randrange(customers):06d}",
                "cents": rng.randrange(1, 100_000),
                "time": START + number * 30_000 + rng.randrange(30_000) - late,
            }
            lines.append(json.dumps(order))
        # Whole at once: a reader must never see half a file.
        temporary = folder / f".orders-{number:06d}.tmp"
        temporary.write_text("\n".join(lines) + "\n")
        temporary.rename(folder / f"orders-{number:06d}.jsonl")


@dataclass
class Truth:
    """What the tables must hold."""

    totals: dict[str, tuple[int, int]]
    late: set[int]


def truth(folder: Path, *, delay: int = DELAY) -> Truth:
    """Work it out without Spark: file by file, in order of their names."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    late: set[int] = set()
    watermark = -(2**62)
    for path in sorted(folder.glob("*.jsonl")):
        orders = [json.loads(line) for line in path.read_text().splitlines()]
        for order in orders:
            if order.get("time") is not None and order["time"] < watermark:
                late.add(order["order"])
            else:
                totals[order["customer"]][0] += 1
                totals[order["customer"]][1] += order["cents"]
        watermark = max([watermark, *(order["time"] - delay for order in orders if order.get("time") is not None)])
    return Truth({customer: (count, cents) for customer, (count, cents) in totals.items()}, late)


def read_tables(output: Path) -> tuple[dict[str, tuple[int, int]], list[int]]:
    """The tables as any reader of parquet sees them: the newest total per customer, and all late orders."""
    import pyarrow.parquet as pq

    totals: dict[str, tuple[int, int]] = {}
    for path in sorted(_parts(output / "totals"), key=_epoch):
        for row in pq.read_table(output / "totals" / path, partitioning=None).to_pylist():
            totals[row["customer"]] = (row["orders"], row["cents"])
    late = [
        row["order"]
        for path in _parts(output / "late_orders")
        for row in pq.read_table(output / "late_orders" / path, partitioning=None).to_pylist()
    ]
    return totals, late


def differences(landing: Path, output: Path, *, delay: int = DELAY) -> list[str]:
    """How the tables differ from the truth; empty if they are exact."""
    wanted = truth(landing, delay=delay)
    totals, late = read_tables(output)
    found = [
        f"{customer}: {totals.get(customer)} instead of {wanted.totals.get(customer)}"
        for customer in sorted(wanted.totals.keys() | totals.keys())
        if wanted.totals.get(customer) != totals.get(customer)
    ]
    if sorted(late) != sorted(wanted.late):
        found.append(f"late orders: {len(late)} rows, {len(set(late))} distinct, instead of {len(wanted.late)}")
    return found


def _parts(table: Path) -> list[Path]:
    """The files of a table, as seen from its folder: how the folders above are called is no matter."""
    found = [path.relative_to(table) for path in table.rglob("*.parquet")]
    return [path for path in found if not any(part.startswith(("_", ".")) for part in path.parts)]


def _epoch(path: Path) -> tuple[int, int]:
    numbers = dict(part.split("=") for part in path.parts if "=" in part)
    return int(numbers["epoch"]), int(numbers["timeline"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("generate", help="write orders")
    make.add_argument("folder", type=Path)
    make.add_argument("--files", type=int, default=20)
    make.add_argument("--first", type=int, default=0)
    make.add_argument("--orders", type=int, default=1000)
    make.add_argument("--customers", type=int, default=500)
    make.add_argument("--seed", type=int, default=7)
    check = verbs.add_parser("check", help="compare the tables with the truth")
    check.add_argument("folder", type=Path)
    check.add_argument("output", type=Path)
    check.add_argument("--delay", type=int, default=DELAY, help="the same as that of the pipeline")
    arguments = parser.parse_args()
    if arguments.verb == "generate":
        generate(
            arguments.folder,
            files=arguments.files,
            orders=arguments.orders,
            seed=arguments.seed,
            customers=arguments.customers,
            first=arguments.first,
        )
        return 0
    found = differences(arguments.folder, arguments.output, delay=arguments.delay)
    customers = len(truth(arguments.folder, delay=arguments.delay).totals)
    print("\n".join(found) if found else f"exact: {customers} customers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
