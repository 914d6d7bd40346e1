"""A store through everything that happens to stores, in any order, against a small model.

Writers and zombies, damage, wrong clocks, pins, proofs, prune, undelete, sweep, orphan removal, recovery and forks.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from airflow_provider_checkpoint.exceptions import ConfirmationNeededError, NoEvidenceError, NoRecoveryPointError
from airflow_provider_checkpoint.layouts._protocol import Role
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import survey
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import Depth, Pin
from tests.crash.living_store import GUARD, PICKS, SPANS, LivingStore
from tests.crash.makers import PartitionedMaker, SidecarMaker
from tests.crash.scene import is_whole, live_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan, PrunePlan, Report, SweepPlan
    from airflow_provider_checkpoint.model import CheckpointId
    from tests.crash.model import Record

UNDO = timedelta(hours=24)

POLICIES = st.builds(RetentionPolicy, keep_last=st.integers(0, 2)) | st.builds(
    RetentionPolicy,
    keep_last=st.integers(0, 1),
    keep_within=st.none() | st.just("12h"),
    keep_daily=st.none() | st.just(2),
    every_n_epochs=st.none() | st.integers(2, 3),
    min_age=st.none() | st.sampled_from(["1h", "2d"]),
)


class StoreMachine(LivingStore):
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.prune_plan: PrunePlan | None = None
        self.sweep_plan: SweepPlan | None = None
        self.orphan_plan: OrphanPlan | None = None
        self.looked_at: dict[str, str | None] = {}
        """What was there when everything was found in order."""

    @property
    def executor(self) -> Executor:
        return Executor(self.layout, by="test", clock=self.clock)

    def _unless_refused(self, act: Callable[[], Report]) -> Report | None:
        """What was done; if the executor refuses, nothing may have changed."""
        before = self.versions()
        try:
            return act()
        except (ConfirmationNeededError, NoEvidenceError):
            assert self.versions() == before
            return None

    # -- pins and proofs -----------------------------------------------------------------------------------------

    @rule(pick=PICKS, name=st.sampled_from("ab"), span=st.none() | SPANS)
    def pin_or_unpin(self, pick: int, name: str, span: timedelta | None) -> None:
        readable = [record for record in self.model.at("live") if record.readable]
        if name in self.model.pins:
            self.executor.unpin(name)
            del self.model.pins[name]
        elif readable:
            self._pin(readable[pick % len(readable)].id, name, span)

    def _pin(self, target: CheckpointId, name: str, span: timedelta | None) -> None:
        if name in self.model.pins:
            self.executor.unpin(name)
        expires = None if span is None else self.clock() + span
        pin = Pin(name=name, checkpoint_id=target, owner="o", reason="r", created=self.clock(), expires=expires)
        self.executor.pin(pin)
        self.model.pins[name] = (target, expires)

    @rule(depth=st.sampled_from(Depth))
    def prove(self, depth: Depth) -> None:
        validate_many(self.layout, self.layout.candidates(), depth, now=self.clock)

    # -- prune, undelete, sweep ----------------------------------------------------------------------------------

    @rule(policy=POLICIES, count=st.integers(0, 2))
    def prune(self, policy: RetentionPolicy, count: int) -> None:
        self.write("none", delta=False, count=count)
        self.plan_a_prune(policy)
        self.apply_the_prune(again=False)

    @rule(policy=POLICIES)
    def plan_a_prune(self, policy: RetentionPolicy) -> None:
        self.prune_plan = plan_prune(self.layout, policy, now=self.clock(), depth=Depth.CONTENT)
        going = {item.checkpoint_id for item in self.prune_plan.removed}
        now = self.clock()
        young = timedelta(0) if policy.min_age is None else policy.min_age
        for record in self.model.at("live"):
            if record.readable and (record.created > now or now - record.created < young):
                assert record.id not in going

    @precondition(lambda self: self.prune_plan is not None)
    @rule(again=st.booleans())
    def apply_the_prune(self, again: bool) -> None:
        must_stay = self.model.pinned(self.clock()) | {
            self.model.choice(),
            self.model.forks[max(self.model.forks)].checkpoint,
        }
        report = self._unless_refused(lambda: self.executor.prune(self.prune_plan))
        for outcome in report.outcomes if report else ():
            record = self.model.records[self.layout.parse_id(outcome.subject)]
            if outcome.done and record.place == "live":
                assert record.id not in must_stay
                record.place, record.trashed = "trash", self.clock()
        if not again:
            self.prune_plan = None

    @rule(policy=POLICIES, pick=PICKS, event=st.sampled_from(["pin", "fork", "damage", "write", "prune", "undelete"]))
    def something_happens_between_plan_and_prune(self, policy: RetentionPolicy, pick: int, event: str) -> None:
        self.plan_a_prune(policy)
        going = [self.model.records[item.checkpoint_id] for item in self.prune_plan.removed]
        fit = [record for record in going if self.model.whole(record) and record.decided]
        kept = self.prune_plan.newest_restorable
        if event == "pin" and fit:
            self._pin(fit[pick % len(fit)].id, "between", None)
        elif event == "fork" and fit:
            self.open_timeline(fit[pick % len(fit)].id)
        elif event == "damage" and kept is not None:
            self.damage(min(self.model.records[kept].artifacts), "changed")
        elif event == "write":
            self.write("none", delta=True, count=1)
        elif event in ("prune", "undelete"):
            self.apply_the_prune(again=True)
            if event == "undelete" and self.model.at("trash"):
                self.undelete(pick)
        self.apply_the_prune(again=False)

    @precondition(lambda self: self.model.at("trash"))
    @rule(pick=PICKS)
    def undelete(self, pick: int) -> None:
        trashed = self.model.at("trash")
        record = trashed[pick % len(trashed)]
        self.executor.undelete(record.id)
        record.place = "live"

    @precondition(lambda self: self.model.at("trash"))
    @rule(wait=SPANS)
    def wait_and_sweep(self, wait: timedelta) -> None:
        self.wait(wait)
        self.plan_a_sweep()
        if self.sweep_plan is not None:
            self.apply_the_sweep()

    @precondition(lambda self: self.model.at("trash"))
    @rule()
    def plan_a_sweep(self) -> None:
        try:
            self.sweep_plan = plan_sweep(self.layout, now=self.clock())
        except NoEvidenceError:
            assert not all(record.readable for record in self.model.at("live"))
            return
        assert all(record.readable for record in self.model.at("live"))
        assert set(self.sweep_plan.expired) == {record.id for record in self._expired(self.clock() - UNDO)}

    def _expired(self, end: datetime) -> list[Record]:
        pinned = self.model.pinned(self.clock())
        return [record for record in self.model.at("trash") if record.trashed <= end and record.id not in pinned]

    @precondition(lambda self: self.sweep_plan is not None)
    @rule()
    def apply_the_sweep(self) -> None:
        plan, self.sweep_plan = self.sweep_plan, None
        report = self._unless_refused(lambda: self.executor.sweep(plan))
        if report is None:
            return
        gone = [record for record in self._expired(plan.undo_window_end) if record.id in plan.expired]
        for record in gone:
            record.place = "gone"
        left = {info.key for info in self.root.list()}
        for record in gone:
            if record.readable:
                assert not record.artifacts & left - self.model.needed(), "what nobody needs is still there"

    # -- orphans -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.unfinished)
    @rule(wait=SPANS)
    def wait_and_remove_orphans(self, wait: timedelta) -> None:
        self.wait(wait)
        self.plan_the_removal_of_orphans()
        if self.orphan_plan is not None:
            self.apply_the_removal_of_orphans()

    @precondition(lambda self: self.unfinished)
    @rule()
    def plan_the_removal_of_orphans(self) -> None:
        try:
            self.orphan_plan = plan_orphans(self.layout, now=self.clock())
        except NoEvidenceError:
            assert not [record for record in self.model.at("live") if record.readable]

    @precondition(lambda self: self.orphan_plan is not None)
    @rule()
    def apply_the_removal_of_orphans(self) -> None:
        plan, self.orphan_plan = self.orphan_plan, None
        before = {info.key: info.modified for info in self.root.list()}
        self._unless_refused(lambda: self.executor.remove_orphans(plan, confirmed=True))
        gone = before.keys() - {info.key for info in self.root.list()}
        assert not gone & self.model.needed()
        assert {self.layout.named(key).role for key in gone} <= {Role.ARTIFACT}
        assert all(self.clock() - before[key] >= GUARD for key in gone), "something young is gone"

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_or_half_there(self) -> None:
        type(self).steps += 1
        if self.versions() == self.looked_at:
            return
        layout = self.layout
        live = self.model.at("live")
        assert live_in(layout) == [record.id for record in live]
        assert [is_whole(layout, record.id) for record in live] == [self.model.whole(record) for record in live]
        trashed = {entry.checkpoint_id for entry in survey(layout).trash if entry.purged is None}
        assert trashed == {record.id for record in self.model.at("trash")}
        pointer = layout.read_pointer()
        assert pointer is None or self.model.records[pointer].place == "live"
        assert not self.model.seen or self.maker.next_id(self.root) > max(self.model.seen)
        self.looked_at = self.versions()

    @invariant()
    def recovery_takes_the_newest_valid_one_of_the_current_history(self) -> None:
        try:
            chosen = choose(self.layout, Wish(depth=Depth.RESTORE), now=self.clock()).chosen
        except NoRecoveryPointError:
            chosen = None
        assert chosen == self.model.choice()


class SidecarMachine(StoreMachine):
    maker_class = SidecarMaker


class PartitionedMachine(StoreMachine):
    maker_class = PartitionedMaker


@pytest.mark.parametrize("machine", [SidecarMachine, PartitionedMachine], ids=["sidecar", "partitioned"])
def test_a_store_keeps_its_promises_whatever_happens_to_it_in_whatever_order(machine, record_property):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # No shrinking: thirty steps can be read, and making them fewer takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
    record_property("state machine examples", machine.examples)
    record_property("state machine steps", machine.steps)
