"""Many checkpoints in increments, some aborted, some overlapping, older ones pruned: each restores exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_checkpoint.lifecycle.facts import bases_of
from airflow_provider_checkpoint.lifecycle.retention import Item, RetentionPolicy, decide
from airflow_provider_checkpoint.writing.bases import BaseRules, SnapshotKind
from airflow_provider_checkpoint.writing.snapshot import SnapshotMode, SnapshotOptions
from airflow_provider_checkpoint.writing.strategies import IncrementalSnapshots
from tests.unit.writing.keyed_state import Contents, KeyedState, Pipeline

if TYPE_CHECKING:
    from airflow_provider_checkpoint.model import CheckpointId
    from airflow_provider_checkpoint.writing.snapshot import SnapshotTask

slots = st.sampled_from([("sum", 0), ("sum", 1), ("join", 0)])
keys = st.sampled_from("abcd")
kinds = st.sampled_from([SnapshotKind.CHECKPOINT, SnapshotKind.CHECKPOINT, *SnapshotKind])


class Chains(RuleBasedStateMachine):
    """A pipeline against a copy of the state for every checkpoint that was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[CheckpointId, Contents] = {}
        self.under_way: list[tuple[CheckpointId, SnapshotTask, Contents]] = []

    @initialize(max_age=st.integers(0, 4), share=st.sampled_from([0.2, 1.0, 10.0]))
    def start(self, max_age: int, share: float) -> None:
        self.state = KeyedState()
        strategy = IncrementalSnapshots(self.state.capture, rules=BaseRules(max_age, share), max_concurrent=2)
        self.pipeline = Pipeline(state=self.state, strategy=strategy, mode=SnapshotMode.ASYNCHRONOUS)

    # -- the state changes ---------------------------------------------------------------------------------------

    @rule(slot=slots, key=keys, value=st.text("xyz", max_size=3))
    def put(self, slot: tuple[str, int], key: str, value: str) -> None:
        self.state.put(slot, key, value)

    @rule(slot=slots, key=keys)
    def remove(self, slot: tuple[str, int], key: str) -> None:
        self.state.remove(slot, key)

    @rule(slot=slots)
    def drop(self, slot: tuple[str, int]) -> None:
        self.state.drop(slot)

    # -- checkpoints come and go ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.under_way) < 3)
    @rule(kind=kinds)
    def begin(self, kind: SnapshotKind) -> None:
        checkpoint_id, task = self.pipeline.begin(SnapshotOptions(kind))
        frozen = {slot: dict(values) for slot, values in self.state.contents.items()}
        self.under_way.append((checkpoint_id, task, frozen))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        _, task, _ = data.draw(st.sampled_from(self.under_way))
        task.run()

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        checkpoint_id, task, frozen = self.under_way.pop(index)
        task.run()
        self.pipeline.commit(checkpoint_id, task.result())
        self.expected[checkpoint_id] = frozen

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), written=st.booleans())
    def abort(self, data: st.DataObject, written: bool) -> None:
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        checkpoint_id, task, _ = self.under_way.pop(index)
        task.run() if written else task.cancel()
        self.pipeline.strategy.aborted(checkpoint_id)

    @rule()
    def one_after_the_other(self) -> None:
        self.begin(SnapshotKind.CHECKPOINT)
        checkpoint_id, task, frozen = self.under_way.pop()
        task.run()
        self.pipeline.commit(checkpoint_id, task.result())
        self.expected[checkpoint_id] = frozen

    # With snapshots under way, what they build on is protected by the undo window of the trash, which is left out here.
    @precondition(lambda self: self.expected and not self.under_way)
    @rule(keep=st.integers(1, 3))
    def prune(self, keep: int) -> None:
        layout = self.pipeline.layout
        checkpoints = [layout.load(checkpoint_id) for checkpoint_id in layout.list_checkpoints()]
        increments = [each.id for each in checkpoints if not each.savepoint]
        items = [
            Item(
                each.id,
                each.created,
                bases=bases_of(layout, each),
                protected=("a savepoint",)
                if each.savepoint
                else ("the next increment builds on it",)
                if each.id == max(increments)
                else (),
            )
            for each in checkpoints
        ]
        now = max(each.created for each in checkpoints)
        gone = [verdict.id for verdict in decide(items, RetentionPolicy(keep_last=keep), now) if not verdict.keep]
        # The newest first: what needs something goes before what it needs.
        for checkpoint_id in sorted(gone, reverse=True):
            layout.delete_checkpoint(checkpoint_id)
            del self.expected[checkpoint_id]

    # -- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def every_checkpoint_restores_to_what_the_state_was(self) -> None:
        if hasattr(self, "pipeline"):
            assert self.pipeline.layout.list_checkpoints() == sorted(self.expected)
            for checkpoint_id, frozen in self.expected.items():
                assert self.pipeline.restored(checkpoint_id) == frozen

    @invariant()
    def every_chain_is_a_base_and_at_most_one_delta(self) -> None:
        for checkpoint_id in self.expected:
            manifest = self.pipeline.layout.load_manifest(checkpoint_id)
            chains = self.pipeline.layout.resolve(manifest).values()
            assert all(len(chain.deltas) <= 1 for chain in chains)

    @invariant()
    def savepoints_share_nothing(self) -> None:
        for checkpoint_id in self.expected:
            layout = self.pipeline.layout
            bases = bases_of(layout, layout.load(checkpoint_id))
            assert not any(layout.load(base).savepoint for base in bases)
            assert not (bases and layout.load(checkpoint_id).savepoint)

    def teardown(self) -> None:
        for _, task, _ in self.under_way:
            task.cancel()
        if hasattr(self, "pipeline"):
            assert all(view.releases == 1 for view in self.state.views)
            assert self.pipeline.streams.left_open() == []
            assert self.pipeline.owner.under_way == 0


TestChains = Chains.TestCase
TestChains.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
