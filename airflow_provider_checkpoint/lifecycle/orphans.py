"""Finding objects that nothing needs.

The race this defends against: a writer uploads artifacts, then creates the manifest that names them. Whoever reads the
manifests first and lists the objects after sees artifacts of a checkpoint that was committed in between, and finds no
manifest for them. So objects are listed first and manifests read after: what was listed and is needed by then has a
manifest by then. What is still being written is protected by its age.

A million objects pass through a file on disk, not through memory. What is needed is kept as eight bytes per artifact;
two names that share them keep an orphan, never the other way round.
"""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeAlias

from airflow_provider_checkpoint.blobs import check_key, is_temporary
from airflow_provider_checkpoint.exceptions import InvalidKeyError, NoEvidenceError
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.lifecycle.facts import look_at
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision, OrphanPlan, PathItem
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.side_by_side import streaming
from airflow_provider_checkpoint.lifecycle.spans import format_size, format_span
from airflow_provider_checkpoint.lifecycle.trash import TrashReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import CheckpointId

#: Examples of objects that are not deleted, per decision, so that a plan explains itself.
_EXAMPLES = 5
_BATCH = 5_000
_PARTS = 64
_NO_ARTIFACT = {Role.HOUSEKEEPING: "a record of the lifecycle"}

#: One object of a listing that waits on disk: key, size, time, version, and whether its name is that of an artifact.
_Listed: TypeAlias = "tuple[str, int, datetime | None, str | None, bool]"


# -- pure --------------------------------------------------------------------------------------------------------


class KeySet:
    """A set of names in eight bytes each. May claim to hold a name it does not; never denies one it does."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._parts = [array("Q") for _ in range(_PARTS)]
        self._sorted = True
        self.add(map(_hash, keys))

    def add(self, hashes: Iterable[int]) -> None:
        """Names by their eight bytes."""
        self._sorted = False
        for value in hashes:
            self._parts[value % _PARTS].append(value)

    def __contains__(self, key: str) -> bool:
        wanted = _hash(key)
        part = self._in_order()[wanted % _PARTS]
        index = bisect_left(part, wanted)
        return index < len(part) and part[index] == wanted

    def __len__(self) -> int:
        return sum(map(len, self._in_order()))

    def _in_order(self) -> list[array[int]]:
        if not self._sorted:
            # Part by part: while it is sorted, each number takes five times the room.
            for place, part in enumerate(self._parts):
                self._parts[place] = array("Q", sorted(set(part)))
            self._sorted = True
        return self._parts


def _hash(key: str) -> int:
    # A name from a disk need not be text; it must not stop the search.
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an object being needed."""

    needed: KeySet
    """Artifacts that a live manifest or one in the trash names."""
    manifests: int
    """How many live manifests could be read."""
    trashed: frozenset[CheckpointId]
    newest: CheckpointId | None
    """The highest committed id."""
    unreadable: CheckpointId | None
    """The highest id whose manifest cannot be read; it may name any artifact made before it."""


def judge(
    named: Named, modified: datetime | None, key: str, evidence: Evidence, *, now: datetime, safety: Safety
) -> tuple[OrphanDecision, str]:
    """What happens to one object, and why."""
    age = safety.effective_orphan_age()
    if is_temporary(key):
        reason = "half-written object"
    elif named.role is Role.UNKNOWN:
        return OrphanDecision.SKIP_UNKNOWN, "not a name of this layout"
    elif named.role is not Role.ARTIFACT:
        return OrphanDecision.KEEP_ACTIVE, _NO_ARTIFACT.get(named.role, f"a {named.role}")
    else:
        active = _active(named, key, evidence)
        if active is not None:
            return OrphanDecision.KEEP_ACTIVE, active
        reason = "no manifest names it"
        owner = named.checkpoint_id
        if owner is not None and (evidence.newest is None or evidence.newest < owner):
            age = max(age, safety.uncommitted_age)
    if modified is None:
        return OrphanDecision.DEFER, "the store does not tell its age"
    if modified > now - age:
        return OrphanDecision.DEFER, f"younger than {format_span(age)}"
    if not _is_key(key):
        return OrphanDecision.SKIP_UNKNOWN, "not a name of this layout"
    return OrphanDecision.DELETE, reason


def _is_key(key: str) -> bool:
    """Whether a name found on a disk is one that a store takes: it may hold what is not even text."""
    try:
        check_key(key)
    except InvalidKeyError:
        return False
    return True


def _active(named: Named, key: str, evidence: Evidence) -> str | None:
    if key in evidence.needed:
        return "a manifest names it"
    owner = named.checkpoint_id
    if owner is not None and owner in evidence.trashed:
        return f"checkpoint {owner} is in the trash"
    if evidence.unreadable is not None and (owner is None or not evidence.unreadable < owner):
        return f"the manifest of {evidence.unreadable} cannot be read and may name it"
    return None


def question_about(deletions: int, size: int, artifacts: int, safety: Safety) -> str:
    """Why a person should confirm; empty if nothing is unusual."""
    if artifacts and deletions / artifacts > safety.max_orphan_share and deletions > safety.few_orphans:
        share = f"{deletions / artifacts:.0%}"
        return (
            f"{share} of all artifacts would be removed; more than {safety.max_orphan_share:.0%} looks like a mistake"
        )
    if safety.max_orphan_bytes is not None and size > safety.max_orphan_bytes:
        return f"{format_size(size)} would be removed; the cap is {format_size(safety.max_orphan_bytes)}"
    return ""


# -- on the store ------------------------------------------------------------------------------------------------


def plan_orphans(
    layout: Layout, *, now: datetime, safety: Safety = SAFE, read: ReadReferences | None = None
) -> OrphanPlan:
    """Search a store for orphans. Changes nothing.

    :param read: reads the manifests, if not this process shall.
    """
    with tempfile.TemporaryFile() as spool:
        seen = _list_into(spool, layout)
        evidence = gather_evidence(layout, read=read)
        if seen[Role.ARTIFACT] and not evidence.manifests:
            raise NoEvidenceError(
                f"{seen[Role.ARTIFACT]} artifacts but not one readable manifest",
                subject=layout.blobs.uri,
                hint="Either the manifests were lost or this is not the root of a store. Nothing will be removed.",
            )
        return _plan(layout, _read_from(spool), evidence, seen[Role.ARTIFACT], now=now, safety=safety)


@dataclass(frozen=True, slots=True)
class References:
    """What one manifest names."""

    checkpoint_id: CheckpointId
    hashes: array[int] | None
    """The artifacts, eight bytes each; None if the manifest cannot be read."""


#: From ids to what their manifests name, in the same order; None for an id without a manifest. Raises if the store
#: could not be asked: what could not be read must not count as naming nothing.
ReadReferences: TypeAlias = "Callable[[Sequence[CheckpointId]], Iterable[References | None]]"


def references_of(layout: Layout, checkpoint_id: CheckpointId) -> References | None:
    """Read one manifest; None if there is none."""
    known = look_at(layout, checkpoint_id)
    if known is None or known.checkpoint is None:
        return None if known is None else References(known.id, None)
    return References(known.id, array("Q", (_hash(artifact.key) for artifact in known.checkpoint.artifacts)))


def gather_evidence(layout: Layout, *, read: ReadReferences | None = None) -> Evidence:
    """Read every manifest, live and in the trash. Call after the objects were listed, never before.

    A checkpoint may be pruned or undeleted meanwhile. The trash is read before and after the live manifests, so it is
    seen in one place or the other.
    """
    needed = KeySet()
    trashed: set[CheckpointId] = set()
    live: set[CheckpointId] = set()
    manifests = 0
    newest: CheckpointId | None = None
    unreadable: CheckpointId | None = None

    trash = TrashReader(layout)

    def look_into_trash() -> None:
        for entry in trash.read():
            if entry.purged is None:
                trashed.add(entry.checkpoint_id)
                needed.add(map(_hash, entry.artifacts))

    look_into_trash()
    ids = layout.candidates()
    for found in streaming(lambda each: references_of(layout, each), ids) if read is None else read(ids):
        if found is None:
            continue
        newest = found.checkpoint_id
        live.add(newest)
        if found.hashes is None:
            unreadable = newest
        else:
            manifests += 1
            needed.add(found.hashes)
    look_into_trash()
    # What was put back has left the trash, though its entry has not.
    return Evidence(needed, manifests, frozenset(trashed - live), newest, unreadable)


def _plan(
    layout: Layout,
    objects: Iterator[_Listed],
    evidence: Evidence,
    artifacts: int,
    *,
    now: datetime,
    safety: Safety,
) -> OrphanPlan:
    items: list[PathItem] = []
    counts: Counter[OrphanDecision] = Counter()
    size = 0
    named = 0
    for key, length, modified, version, is_artifact in objects:
        if is_artifact and named >= _EXAMPLES and key in evidence.needed:
            # As judge() says first of an artifact; in a healthy store nearly all objects are of this kind.
            named += 1
            continue
        decision, reason = judge(layout.named(key), modified, key, evidence, now=now, safety=safety)
        counts[decision] += 1
        named += decision is OrphanDecision.KEEP_ACTIVE
        limit = safety.max_orphan_items if decision is OrphanDecision.DELETE else _EXAMPLES
        if counts[decision] <= limit:
            size += length if decision is OrphanDecision.DELETE else 0
            items.append(PathItem(path=_text(key), action=decision, reasons=(reason,), bytes=length, version=version))
    if named:
        counts[OrphanDecision.KEEP_ACTIVE] = named
    return OrphanPlan(
        uri=layout.blobs.uri,
        layout=layout.name,
        made=now,
        cutoff=now - safety.effective_orphan_age(),
        items=tuple(items),
        counts=dict(counts),
        artifacts_seen=artifacts,
        truncated=counts[OrphanDecision.DELETE] > safety.max_orphan_items,
        question=question_about(counts[OrphanDecision.DELETE], size, artifacts, safety),
    )


def _text(key: str) -> str:
    """A name that can be shown and goes through JSON; for every name that a store takes, the name itself."""
    return key.encode("utf-8", "backslashreplace").decode()


def _list_into(spool: IO[bytes], layout: Layout) -> Counter[Role]:
    """Write the listing to disk in batches and count what it holds."""
    seen: Counter[Role] = Counter()
    batch: list[_Listed] = []
    for info in layout.blobs.list(temporary=None):
        role = Role.UNKNOWN if is_temporary(info.key) else layout.named(info.key).role
        seen[role] += 1
        batch.append((info.key, info.size, info.modified, info.version, role is Role.ARTIFACT))
        if len(batch) == _BATCH:
            pickle.dump(batch, spool, pickle.HIGHEST_PROTOCOL)
            batch.clear()
    pickle.dump(batch, spool, pickle.HIGHEST_PROTOCOL)
    return seen


def _read_from(spool: IO[bytes]) -> Iterator[_Listed]:
    end = spool.tell()
    spool.seek(0)
    while spool.tell() < end:
        # Our own file, nameless and never shared: nobody else can have written into it.
        yield from pickle.load(spool)  # noqa: S301
