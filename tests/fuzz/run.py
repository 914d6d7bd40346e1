"""Coverage-guided fuzzing of everything that reads bytes from a store.

::

    python -m tests.fuzz.run --seconds 60                 every target for a minute
    python -m tests.fuzz.run --inputs 100000 stream       one target, so many inputs
    python -m tests.fuzz.run --reproduce FILE stream      one input once, with its traceback

A target is a file ``fuzz_{name}.py`` beside this one with a function ``fuzz_one(data: bytes)`` that raises only on a
defect. The vectors are what mutation starts from. Exits with 1 if an input was found that breaks a target, and says how
to run it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VECTORS = HERE.parent / "data" / "vectors"

#: What one input may cost at most; more is a defect, too.
_SECONDS_PER_INPUT = 10
_MEMORY_MB = 2048

#: Characters of what the fuzzer wrote that are shown when it found something.
_SHOWN = 6_000

_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s+(\d+)$", re.MULTILINE)


def targets(folder: Path = HERE) -> dict[str, Path]:
    """Every target by its name."""
    return {path.stem.removeprefix("fuzz_"): path for path in sorted(folder.glob("fuzz_*.py"))}


def load(path: Path) -> Callable[[bytes], None]:
    """The function of a target. Its file is run afresh, so that what it imports now can be instrumented."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fuzz_one: Callable[[bytes], None] = module.fuzz_one
    return fuzz_one


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    known = targets(options.folder)
    if unknown := set(options.targets) - set(known):
        print(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [path for name, path in known.items() if name in options.targets or not options.targets]
    if options.reproduce is not None:
        for path in chosen:
            load(path)(options.reproduce.read_bytes())
        return 0
    if options.child is not None:
        _fuzz(chosen[0], options.child.split())
    return max([_run(path, options.seconds, options.inputs) for path in chosen], default=0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"one of {', '.join(targets())}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="how long each target runs; 0: without end")
    parser.add_argument("--inputs", type=int, default=-1, help="how many inputs each target gets at most")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the targets are")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="give this one input to the target")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


def _run(path: Path, seconds: int, inputs: int) -> int:
    """Fuzz one target in a process of its own: the fuzzer never returns, and a crash must not end the others."""
    name = path.stem.removeprefix("fuzz_")
    found = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        flags = [
            f"-max_total_time={seconds}",
            f"-runs={inputs}",
            f"-timeout={_SECONDS_PER_INPUT}",
            f"-rss_limit_mb={_MEMORY_MB}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            corpus,
            str(VECTORS),
        ]
        # One word of arguments, so that the parser does not take the fuzzer's flags for its own.
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.run", name, f"--folder={path.parent}", f"--child={' '.join(flags)}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    executed = _EXECUTED.search(done.stdout)
    print(f"{name}: {executed[1] if executed else 'no'} inputs in {time.monotonic() - started:.0f} s", flush=True)
    if done.returncode == 0 and executed:
        found.rmdir()
        return 0
    print(done.stdout[-_SHOWN:])
    for reproducer in sorted(found.iterdir()):
        print(f"{name}: broken by {reproducer.read_bytes()[:200]!r}; to run it again:")
        print(f"python -m tests.fuzz.run --reproduce {reproducer} {name}")
    return 1


def _fuzz(path: Path, flags: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["airflow_provider_checkpoint"]):
        fuzz_one = load(path)
    atheris.Setup([str(path), *flags], fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
