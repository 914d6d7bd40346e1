"""Flips a bit in the state of the newest checkpoint of a store; done twice, nothing has happened.

python -m tests.integration.docs.flip FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path


def flip(folder: Path) -> None:
    newest = max(path.parent.name for path in folder.glob("*/manifest.json"))
    artifact = folder / newest / "operators" / "totals" / "partition-0.delta"
    data = bytearray(artifact.read_bytes())
    data[0] ^= 1
    artifact.write_bytes(data)


if __name__ == "__main__":
    flip(Path(sys.argv[1]))
