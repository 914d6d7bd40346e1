"""A store as it lives without a lifecycle: writers come and go, some as zombies, and things break.

The rules of a state machine, and a model that is told of everything that happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import FencedWriterError
from airflow_provider_checkpoint.lifecycle.facts import decision_key
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import Depth
from tests.crash.makers import COMMITTED, HOUR, PENDING, Clock, Draft
from tests.crash.model import Fork, Model, Record

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.lifecycle.timelines import TimelineHolder
    from airflow_provider_checkpoint.model import CheckpointId
    from tests.crash.makers import Maker

#: An artifact may take so long from being written to being named by a manifest.
GUARD = timedelta(hours=24)

PICKS = st.integers(0, 10**6)
SPANS = st.sampled_from([timedelta(minutes=5), HOUR, timedelta(hours=13), timedelta(hours=25), timedelta(days=4)])
#: Mostly onwards: while everything is dated in the future nothing goes, and nothing is learnt.
JUMPS = SPANS | st.sampled_from([timedelta(hours=30), timedelta(minutes=-20), -HOUR, timedelta(hours=-26)])
SINKS = st.sampled_from(["none", "none", "committed", "decided", "undecided"])
GARBAGE = (b"", b"{", b"\x00\xff", b"{}", b"[1]")


@dataclass
class Writer:
    """A process that commits; its right to do so may be over without its knowing."""

    holder: TimelineHolder
    epoch: int
    base: CheckpointId | None = None
    """The last checkpoint it knows with a snapshot of its own."""

    @property
    def timeline(self) -> int:
        return self.holder.timeline.number


@dataclass(frozen=True)
class Unfinished:
    """Artifacts whose manifest is still to come."""

    writer: Writer
    draft: Draft
    began: datetime


class LivingStore(RuleBasedStateMachine):
    maker_class: ClassVar[type[Maker]]
    examples: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).examples += 1
        self.clock = Clock()
        self.maker = self.maker_class(self.clock)
        self.root = MemoryBlobs(clock=self.clock)
        self.model = Model()
        self.writer: Writer | None = None
        self.zombies: list[Writer] = []
        self.unfinished: list[Unfinished] = []
        self.latest = self.clock()
        """The furthest the clock ever stood: what was old then may have been taken for an orphan."""

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        return self.maker.layout(self.root)

    def versions(self) -> dict[str, str | None]:
        """Everything that is there, but for records of who did what."""
        return {info.key: info.version for info in self.root.list() if not info.key.startswith("audit/")}

    # -- writers -------------------------------------------------------------------------------------------------

    @initialize(count=st.integers(1, 4))
    def begin(self, count: int) -> None:
        self.open_timeline(None)
        self.write("none", delta=False, count=count)

    def open_timeline(self, start: CheckpointId | None) -> None:
        chosen = None if start is None else self.layout.load(start)
        holder = open_timeline(
            self.root, start=chosen, has_checkpoints=bool(self.model.seen), writer="w", now=self.clock()
        )
        if self.writer is not None:
            self.zombies.append(self.writer)
        if chosen is None:
            self.model.forks[holder.timeline.number] = Fork(None)
            self.writer = Writer(holder, 0)
        else:
            self.model.forks[holder.timeline.number] = Fork(chosen.timeline, chosen.epoch, chosen.id)
            self.writer = Writer(holder, chosen.epoch)
            self.layout.move_pointer(chosen.id)

    def _draft(self, writer: Writer, sinks: str, *, delta: bool) -> Draft:
        writer.epoch += 1
        base = writer.base if delta and self.maker.has_bases else None
        known = None if base is None else self.model.records[base]
        if known is None or known.place != "live" or not known.readable:
            base = None
        states = {"none": {}, "committed": {"out": COMMITTED}}.get(sinks, {"out": PENDING})
        return Draft(self.maker.next_id(self.root), writer.epoch, writer.timeline, base, states)

    def _commit(self, writer: Writer, draft: Draft, sinks: str) -> None:
        self.maker.write(self.root, draft)
        if sinks == "decided":
            self.root.create(decision_key(draft.timeline, draft.epoch), b"{}")
        written = self.layout.load(draft.id)
        self.model.seen.add(draft.id)
        self.model.records[draft.id] = Record(
            draft.id,
            draft.epoch,
            draft.timeline,
            written.created,
            frozenset(artifact.key for artifact in written.artifacts),
            decided=sinks != "undecided",
            full=draft.base is None,
        )
        if draft.base is None:
            writer.base = draft.id

    @rule(sinks=SINKS, delta=st.booleans(), count=st.integers(1, 3))
    def write(self, sinks: str, delta: bool, count: int) -> None:
        for _ in range(count):
            self.writer.holder.check()
            self._commit(self.writer, self._draft(self.writer, sinks, delta=delta), sinks)
            self.wait(timedelta(minutes=30))

    @rule(delta=st.booleans(), wait=SPANS)
    def begin_to_write(self, delta: bool, wait: timedelta) -> None:
        """It may finish, or be a process that died."""
        draft = self._draft(self.writer, "none", delta=delta)
        self.maker.write_artifacts(self.root, draft)
        self.model.seen.add(draft.id)
        self.unfinished.append(Unfinished(self.writer, draft, self.clock()))
        self.wait(wait)

    @precondition(lambda self: self.unfinished)
    @rule(pick=PICKS)
    def finish_writing(self, pick: int) -> None:
        """A writer that takes as long as the guard, by any clock there was meanwhile, is taken for dead."""
        chosen = self.unfinished.pop(pick % len(self.unfinished))
        base = None if chosen.draft.base is None else self.model.records[chosen.draft.base]
        without_base = base is not None and (base.place != "live" or not base.readable)
        if self.latest - chosen.began >= GUARD or without_base:
            return
        try:
            chosen.writer.holder.check()
        except FencedWriterError:
            assert chosen.writer in self.zombies
        else:
            self._commit(chosen.writer, chosen.draft, "none")

    @precondition(lambda self: self.zombies)
    @rule(pick=PICKS, sinks=SINKS)
    def a_zombie_comes_back(self, pick: int, sinks: str) -> None:
        """It is fenced; but one that had checked just before the fork still writes."""
        zombie = self.zombies[pick % len(self.zombies)]
        with pytest.raises(FencedWriterError):
            zombie.holder.check()
        self._commit(zombie, self._draft(zombie, sinks, delta=False), sinks)

    # -- damage and time -----------------------------------------------------------------------------------------

    @rule(pick=PICKS, kind=st.sampled_from(["lost", "cut", "changed", "manifest"]))
    def something_is_damaged(self, pick: int, kind: str) -> None:
        live = self.model.at("live")
        keys = sorted(key for record in live for key in record.artifacts)
        if kind == "manifest" and live:
            record = live[pick % len(live)]
            self.root.replace(self.layout.manifest_keys(record.id)[-1], GARBAGE[pick % len(GARBAGE)])
            record.readable = False
        elif keys:
            self.damage(keys[pick % len(keys)], kind)

    def damage(self, key: str, kind: str) -> None:
        if kind == "lost" or self.root.stat(key) is None:
            self.root.delete([key])
        else:
            body = self.root.read(key)
            self.root.replace(key, body[:-1] if kind == "cut" else bytes(len(body)))
        self.model.damaged.add(key)

    @rule(by=JUMPS)
    def the_clock_jumps(self, by: timedelta) -> None:
        self.wait(by)

    def wait(self, by: timedelta) -> None:
        self.clock.advance(by)
        self.latest = max(self.latest, self.clock())

    # -- recovery ------------------------------------------------------------------------------------------------

    @rule(pick=PICKS, how=st.sampled_from(["latest", "latest", "id", "id", "fresh"]))
    def recover(self, pick: int, how: str) -> None:
        usable = self._usable()
        if how == "latest" and self.model.choice() is not None:
            self.open_timeline(choose(self.layout, Wish(depth=Depth.RESTORE), now=self.clock()).chosen)
        elif how == "id" and usable:
            wanted = usable[pick % len(usable)].id
            wish = Wish(strategy=Strategy.ID, checkpoint_id=wanted, depth=Depth.RESTORE)
            assert choose(self.layout, wish, now=self.clock()).chosen == wanted
            self.open_timeline(wanted)
        elif how == "fresh":
            self.open_timeline(None)

    def _usable(self) -> list[Record]:
        return [record for record in self.model.at("live") if self.model.whole(record) and record.decided]
