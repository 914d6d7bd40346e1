"""How fast this is, beside the plainest thing that could do the job: one command, one table.

Every row is measured side by side with its rivals, in turn, and the medians are compared. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.benchmarks import choosing, committing, imports, keeping, littered, objects, proving
from tests.benchmarks._measure import Line, Report, as_text, write_between_marks
from tests.benchmarks._stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS: dict[str, Callable[[Stage], Iterator[Line]]] = {
    "list": objects.list_rows,
    "delete": objects.delete_rows,
    "content": proving.local_rows,
    "content-s3": proving.s3_rows,
    "recovery": choosing.local_rows,
    "recovery-s3": choosing.s3_rows,
    "orphans": littered.made_up_rows,
    "orphans-s3": littered.s3_rows,
    "retention": keeping.rows,
    "commit": committing.rows,
    "imports": imports.rows,
}


def _parser() -> argparse.ArgumentParser:
    named = "\n".join(f"  {name:<12} {(rows.__doc__ or '').strip()}" for name, rows in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"rows:\n{named}\n\nA ratio below 1 means that ours is faster, or needs less. Exit code 1 if a row"
        " failed; a missed aim is\nno failure.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", choices=ROWS, metavar="NAME", help="only this row; may be given several times"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for a try: three to five minutes")
    parser.add_argument("--repeats", type=_positive, help="rounds of each row (default: 2 to 9, as the row needs)")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write the table into this file, between its two marks, with date, versions and load",
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def main() -> int:
    options = _parser().parse_args()
    # Asked to end, end as after Ctrl-C: tidy up and show what was found so far.
    signal.signal(signal.SIGTERM, _interrupt)
    repeats = f"{options.repeats} repeats" if options.repeats else "2 to 9 repeats by row"
    report = Report(repeats=f"medians of {repeats}", quick=options.quick)
    stage = Stage(Path(tempfile.mkdtemp(prefix="checkpoint-benchmarks-")), options.quick, options.repeats)
    interrupted = False
    try:
        for name in options.only or ROWS:
            _run(name, stage, report)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what was found so far:", file=sys.stderr)
    finally:
        stage.close()
        shutil.rmtree(stage.folder, ignore_errors=True)
    print(f"\n{report.text()}")
    if options.markdown is not None and report.found and not interrupted:
        write_between_marks(options.markdown, report.markdown())
    return 130 if interrupted else int(bool(report.failed))


def _run(name: str, stage: Stage, report: Report) -> None:
    print(f"{name}: {(ROWS[name].__doc__ or '').strip()}", file=sys.stderr, flush=True)
    began = time.perf_counter()
    try:
        for line in ROWS[name](stage):
            report.found.append(line)
            print(as_text([line]).splitlines()[1], file=sys.stderr, flush=True)
    except Exception as error:  # noqa: BLE001 - one row that fails must not cost the others
        traceback.print_exc()
        report.failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    print(f"  {name} took {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
