"""Every fuzz target holds on the vectors and on inputs near them; the long search is ``python -m tests.fuzz.run``."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.run import ROOT, VECTORS, load, targets

INPUTS = 2_000


def vectors() -> list[bytes]:
    return [path.read_bytes() for path in sorted(VECTORS.iterdir())]


def mutated(source: random.Random, data: bytes, other: bytes) -> bytes:
    """A cut, a flip, an odd number, a repetition, or a piece of another vector: one to four of them."""
    result = bytearray(data)
    for _ in range(source.randint(1, 4)):
        place = source.randint(0, len(result))
        match source.randrange(6):
            case 0:
                del result[place:]
            case 1 if place < len(result):
                result[place] ^= 1 << source.randrange(8)
            case 2:
                result[place : place + 4] = source.choice([b"\xff" * 4, bytes(4), b"\x01\0\0\0", b"\0\0\0\x80"])
            case 3:
                result[place:place] = result[place : place + source.randint(0, 40)]
            case 4:
                result[place:place] = source.randbytes(source.randint(0, 12))
            case _:
                cut = source.randint(0, len(other))
                result[place : place + source.randint(0, 30)] = other[cut : cut + 30]
    return bytes(result)


@pytest.mark.parametrize("name", targets())
def test_a_target_holds_on_the_vectors_and_near_them(name):
    fuzz_one = load(targets()[name])
    seeds = vectors()
    source = random.Random(f"{name} 1")
    for data in seeds:
        fuzz_one(data)
    for _ in range(INPUTS):
        fuzz_one(mutated(source, source.choice(seeds), source.choice(seeds)))


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("atheris", reason="the fuzzer is built for Linux and Python before 3.14")
    command = [sys.executable, "-m", "tests.fuzz.run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_driver_counts_its_inputs():
    done = fuzz("--inputs", "300", "--seconds", "30", "stream")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("stream: 300 inputs in ")


def test_a_defect_is_found_with_an_input_that_shows_it_again(tmp_path):
    broken = "def fuzz_one(data):\n    assert data[:1] != b'M', 'found'\n"
    (tmp_path / "fuzz_broken.py").write_text(broken)
    done = fuzz("--inputs", "100000", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert "broken: " in done.stdout
    assert "AssertionError: found" in done.stdout
    command = done.stdout.splitlines()[-1].split()
    reproducer = command[command.index("--reproduce") + 1]
    try:
        again = fuzz("--folder", str(tmp_path), "--reproduce", reproducer, "broken")
    finally:
        shutil.rmtree(Path(reproducer).parent)
    assert again.returncode == 1
    assert "AssertionError: found" in again.stderr


def test_an_unknown_target_is_told():
    done = fuzz("--inputs", "1", "nothing")
    assert done.returncode == 2
    assert "no such target: nothing; there are " in done.stderr
