"""Many checkpoints in increments, some aborted, some overlapping, older ones pruned: each restores exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.lifecycle.facts import bases_of
from airflow_provider_checkpoint.lifecycle.retention import Item, RetentionPolicy, decide
from airflow_provider_checkpoint.writing.bases import BaseRules, SnapshotKind
from airflow_provider_checkpoint.writing.snapshot import SnapshotMode, SnapshotOptions
from airflow_provider_checkpoint.writing.strategies import IncrementalSnapshots
from tests.unit.writing.keyed_state import Contents, KeyedState, Pipeline

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import Checkpoint, CheckpointId
    from airflow_provider_checkpoint.writing.snapshot import SnapshotTask

SLOTS = [("sum", 0), ("sum", 1), ("join", 0)]
KEYS = "abcd"


class History:
    """A pipeline, and a copy of its state for every checkpoint that was committed."""

    def __init__(self, rules: BaseRules) -> None:
        self.state = KeyedState()
        for slot in SLOTS:
            for key in KEYS:
                self.state.put(slot, key, "first")
        strategy = IncrementalSnapshots(self.state.capture, rules=rules, max_concurrent=2)
        self.pipeline = Pipeline(state=self.state, strategy=strategy, mode=SnapshotMode.ASYNCHRONOUS)
        self.expected: dict[CheckpointId, Contents] = {}
        self.under_way: list[tuple[CheckpointId, SnapshotTask, Contents]] = []

    # -- the state changes ---------------------------------------------------------------------------------------

    def put(self, slot: tuple[str, int], key: str, value: str) -> None:
        self.state.put(slot, key, value)

    def remove(self, slot: tuple[str, int], key: str) -> None:
        self.state.remove(slot, key)

    def drop(self, slot: tuple[str, int]) -> None:
        self.state.drop(slot)

    # -- checkpoints come and go ---------------------------------------------------------------------------------

    def begin(self, kind: SnapshotKind) -> None:
        checkpoint_id, task = self.pipeline.begin(SnapshotOptions(kind))
        frozen = {slot: dict(values) for slot, values in self.state.contents.items()}
        self.under_way.append((checkpoint_id, task, frozen))

    def write(self, which: int) -> None:
        if self.under_way:
            self.under_way[which % len(self.under_way)][1].run()

    def commit(self, which: int) -> None:
        if self.under_way:
            checkpoint_id, task, frozen = self.under_way.pop(which % len(self.under_way))
            task.run()
            self.pipeline.commit(checkpoint_id, task.result())
            self.expected[checkpoint_id] = frozen

    def abort(self, which: int, written: bool) -> None:
        if self.under_way:
            checkpoint_id, task, _ = self.under_way.pop(which % len(self.under_way))
            task.run() if written else task.cancel()
            self.pipeline.strategy.aborted(checkpoint_id)

    def checkpoint(self, kind: SnapshotKind) -> None:
        self.begin(kind)
        self.commit(-1)

    def prune(self, keep: int) -> None:
        """Remove what retention lets go, at once.

        With snapshots under way, what they build on is protected by the undo window of the trash, left out here.
        """
        if self.under_way or not self.expected:
            return
        layout = self.pipeline.layout
        checkpoints = [layout.load(checkpoint_id) for checkpoint_id in layout.list_checkpoints()]
        items = [
            Item(each.id, each.created, bases=bases_of(layout, each), protected=self._protection(each, checkpoints))
            for each in checkpoints
        ]
        now = max(each.created for each in checkpoints)
        gone = [verdict.id for verdict in decide(items, RetentionPolicy(keep_last=keep), now) if not verdict.keep]
        # The newest first: what needs something goes before what it needs.
        for checkpoint_id in sorted(gone, reverse=True):
            layout.delete_checkpoint(checkpoint_id)
            del self.expected[checkpoint_id]

    @staticmethod
    def _protection(checkpoint: Checkpoint, among: list[Checkpoint]) -> tuple[str, ...]:
        if checkpoint.savepoint:
            return ("a savepoint",)
        last = checkpoint.id == max(each.id for each in among if not each.savepoint)
        return ("the next increment builds on it",) if last else ()

    # -- what holds ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        layout = self.pipeline.layout
        assert layout.list_checkpoints() == sorted(self.expected)
        savepoints = {each for each in self.expected if layout.load(each).savepoint}
        for checkpoint_id, frozen in self.expected.items():
            assert self.pipeline.restored(checkpoint_id) == frozen
            chains = layout.resolve(layout.load_manifest(checkpoint_id)).values()
            assert all(len(chain.deltas) <= 1 for chain in chains), "more than a base and a delta"
            bases = bases_of(layout, layout.load(checkpoint_id))
            assert not bases & savepoints, "built on a savepoint"
            assert not (bases and checkpoint_id in savepoints), "a savepoint that is not self-contained"

    def end(self) -> None:
        self.pipeline.owner.close()
        assert all(view.releases == 1 for view in self.state.views)
        assert self.pipeline.streams.left_open() == []
        assert self.pipeline.owner.under_way == 0


slots, keys = st.sampled_from(SLOTS), st.sampled_from(KEYS)
which = st.integers(0, 5)
kinds = st.sampled_from([SnapshotKind.CHECKPOINT, SnapshotKind.CHECKPOINT, *SnapshotKind])


def step(name: str, *arguments: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.just(name), st.tuples(*arguments))


steps = st.one_of(
    step("put", slots, keys, st.sampled_from(["second", "third", ""])),
    step("put", slots, st.sampled_from(["new", "newer"]), st.just("value")),
    step("remove", slots, keys),
    step("drop", slots),
    step("begin", kinds),
    step("write", which),
    step("commit", which),
    step("abort", which, st.booleans()),
    step("checkpoint", kinds),
    step("prune", st.integers(1, 3)),
)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(BaseRules, st.integers(0, 4), st.sampled_from([0.2, 1.0, 10.0])),
    st.lists(steps, min_size=10, max_size=40),
)
def test_every_checkpoint_that_is_kept_restores_to_what_the_state_was(rules: BaseRules, happened: list) -> None:
    history = History(rules)
    for name, arguments in happened:
        getattr(history, name)(*arguments)
        if name in ("commit", "checkpoint", "prune"):
            history.check()
    history.check()
    history.end()
