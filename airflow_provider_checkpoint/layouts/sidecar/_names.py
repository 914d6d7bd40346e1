"""Names of the sidecar layout: every key is built here, and every key that was listed is judged here.

::

    manifests/manifest-000001.json              makes checkpoint 1 exist
    manifests/latest.json                       {"checkpoint_id":1}, the pointer
    checkpoints/state-000001.bin                its sidecar: the state too large for the manifest

    checkpoints/checkpoint_000001/manifest.json the same in the legacy layout, which is read and pruned, never written
    checkpoints/checkpoint_000001/state.bin
    checkpoints/latest.txt                      checkpoint_000001

Six digits are a minimum, so a million and first id has seven, and names do not sort as their ids do. An id spelled with
fewer or more zeros is understood, and its state is looked for under the same spelling.
"""

from __future__ import annotations

import re

from airflow_provider_checkpoint.layouts._protocol import HOUSEKEEPING, Named, Role
from airflow_provider_checkpoint.model import CheckpointId

MANIFESTS = "manifests"
CHECKPOINTS = "checkpoints"
POINTER = "manifests/latest.json"
LEGACY_POINTER = "checkpoints/latest.txt"
TRASH = "trash"

MAX_ID = 2**64 - 1

_MANIFEST = re.compile(r"manifests/manifest-(?P<id>[^/]*)\.json")
_STATE = re.compile(r"checkpoints/state-(?P<id>[^/]*)\.bin")
_LEGACY = re.compile(r"checkpoints/checkpoint_(?P<id>[^/]*)/(?P<file>manifest\.json|state\.bin)")
_LEGACY_FOLDER = re.compile(r"checkpoint_(?P<id>.*)", re.DOTALL)


def manifest_key(number: int) -> str:
    return f"{MANIFESTS}/manifest-{number:06d}.json"


def state_key(number: int) -> str:
    return f"{CHECKPOINTS}/state-{number:06d}.bin"


def legacy_manifest_key(number: int) -> str:
    return f"{CHECKPOINTS}/checkpoint_{number:06d}/manifest.json"


def state_beside(key: str) -> str:
    """Where the state of a manifest lies: in the same layout, its id spelled in the same way."""
    match = _MANIFEST.fullmatch(key)
    if match is not None:
        return f"{CHECKPOINTS}/state-{match['id']}.bin"
    return f"{key.rpartition('/')[0]}/state.bin"


def parse_number(text: str) -> int | None:
    """An id as it stands in names: decimal digits of an unsigned 64-bit number, with any leading zeros."""
    digits = text.lstrip("0") or "0"
    # Counted before they are converted: int() refuses thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(digits) > len(str(MAX_ID)):
        return None
    number = int(digits)
    return number if number <= MAX_ID else None


def parse_legacy_pointer(text: str) -> int | None:
    match = _LEGACY_FOLDER.fullmatch(text)
    return None if match is None else parse_number(match["id"])


def named(key: str) -> Named:
    """What an object's name says it is."""
    if key.partition("/")[0] in HOUSEKEEPING:
        return Named(Role.HOUSEKEEPING)
    if key in (POINTER, LEGACY_POINTER):
        return Named(Role.POINTER)
    role, text = _match(key)
    number = None if text is None else parse_number(text)
    return Named(Role.UNKNOWN) if number is None else Named(role, CheckpointId(number))


def is_malformed(key: str) -> bool:
    """Whether a name has the shape of ours around something that is no id."""
    _, text = _match(key)
    return text is not None and parse_number(text) is None


def precedence(number: int, key: str) -> tuple[bool, bool, str]:
    """Sorts the manifests that claim one id: the present layout before the legacy one, the usual spelling first."""
    usual = key in (manifest_key(number), legacy_manifest_key(number))
    return _MANIFEST.fullmatch(key) is None, not usual, key


def _match(key: str) -> tuple[Role, str | None]:
    if match := _MANIFEST.fullmatch(key):
        return Role.MANIFEST, match["id"]
    if match := _STATE.fullmatch(key):
        return Role.ARTIFACT, match["id"]
    if match := _LEGACY.fullmatch(key):
        return (Role.MANIFEST if match["file"] == "manifest.json" else Role.ARTIFACT), match["id"]
    return Role.UNKNOWN, None
