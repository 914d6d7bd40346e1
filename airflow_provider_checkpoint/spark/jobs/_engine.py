"""Validation and orphan search on a Spark cluster: the driver decides, executors read.

Few partitions with threads inside each: what one waits for is the store, and a task costs more than a request.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_checkpoint.exceptions import TransientError
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.safety import SAFE, Safety
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.lifecycle.validation import Budget, ValidationResult, collect, not_answered
from airflow_provider_checkpoint.model import Depth
from airflow_provider_checkpoint.spark.jobs._split import balanced
from airflow_provider_checkpoint.spark.jobs._tasks import (
    Asking,
    Failure,
    Place,
    Unit,
    Work,
    examining,
    numbered,
    referring,
    run_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark import SparkContext

    from airflow_provider_checkpoint.layouts import Check, Layout
    from airflow_provider_checkpoint.lifecycle.orphans import References
    from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan
    from airflow_provider_checkpoint.lifecycle.validation import Answer
    from airflow_provider_checkpoint.model import Artifact, Checkpoint, CheckpointId, Issue

    #: Subject and claims: equal ones are the same proof.
    _Proof: TypeAlias = tuple[str, tuple[Artifact, ...]]

log = logging.getLogger(__name__)

#: A request takes about as long as reading so many bytes.
_REQUEST = 256 * 1024
#: One round holds no more new checks, and per partition no more bytes: it must fit into the driver, and between rounds
#: it is looked at the clock.
_ROUND_CHECKS = 50_000
_ROUND_BYTES = 1024**3
#: Manifests read ahead: so many at first, then as many as make up a round, but no more than this.
_FIRST_LOOK, _LONGEST_LOOK = 32, 512
#: Manifests whose references are fetched in one go.
_REFERENCES = 2_000


class Engine:
    """Runs the same validation and orphan search as the local engine, with executors to read.

    :param layout: the store, open in this driver.
    :param place: how executors open it.
    :param partitions: tasks at once; without, as many as Spark thinks right for the cluster.
    :param threads: reads at once in each.
    """

    def __init__(
        self, spark: SparkContext, layout: Layout, place: Place, *, partitions: int | None = None, threads: int = 8
    ) -> None:
        self._spark = spark
        self._layout = layout
        self._place = place.found(layout)
        self._partitions = partitions or spark.defaultParallelism
        self._threads = threads

    def validate(
        self,
        ids: Sequence[CheckpointId],
        depth: Depth,
        *,
        budget: Budget | None = None,
        record: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> list[ValidationResult]:
        """Like ``validate_many``. The driver notes in the ledger what was found out."""
        rounds = _Rounds(self, self._layout, depth, budget or Budget(), self._partitions * _ROUND_BYTES)
        return collect(self._layout, rounds.of(ids), budget=rounds.budget, record=record, now=now)

    def plan_orphans(self, *, now: datetime, safety: Safety = SAFE) -> OrphanPlan:
        """Like the function of this name. The driver lists, which is one stream anyway; executors read manifests."""
        return plan_orphans(self._layout, now=now, safety=safety, read=self._references)

    def _references(self, ids: Sequence[CheckpointId]) -> Iterator[References | None]:
        for start in range(0, len(ids), _REFERENCES):
            for found in self.map(referring, ids[start : start + _REFERENCES], lambda _: 1):
                if isinstance(found, Failure):
                    raise found.error
                yield found

    def examine(self, ids: Sequence[CheckpointId]) -> list[Any]:
        return self.map(examining, ids, lambda _: 1)

    def ask(self, checkpoints: dict[CheckpointId, Checkpoint], units: Sequence[Unit], depth: Depth) -> list[Answer]:
        """Run checks; answers in their order."""
        if not units:
            return []
        sent = self._spark.broadcast(checkpoints)
        try:
            found = self.map(Asking(sent, depth), units, lambda unit: unit.cost + _REQUEST)
        finally:
            sent.destroy()
        for each in found:
            if isinstance(each, Failure):
                raise each.error
        return found

    def map(self, work: Work, items: Sequence[Any], weight: Callable[[Any], int]) -> list[Any]:
        """What executors make of each item, in order; a :class:`Failure` where that is an error of ours."""
        parts = balanced(list(enumerate(items)), self._partitions, lambda item: weight(item[1]))
        if not parts:
            return []
        task = partial(run_part, self._place, work, self._threads)
        done = self._spark.parallelize(parts, len(parts)).map(task).collect()
        answers: dict[int, Any] = dict(answer for part in done for answer in part)
        return [answers[number] for number in range(len(items))]


@dataclass(slots=True)
class _Begun:
    """A checkpoint of a round: what its manifest says, and its checks."""

    checkpoint: Checkpoint
    issues: list[Issue]
    checks: list[tuple[Unit, Check]]
    new: list[int] = field(default_factory=list)
    """Which of its checks nobody has run yet."""
    answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return sum(self.checks[number][1].cost for number in self.new)

    def result(self, depth: Depth) -> ValidationResult:
        issues = [issue for number in range(len(self.checks)) for issue in self.answers[number].issues]
        read = sum(self.checks[number][1].cost for number in self.new if self.answers[number].complete)
        return ValidationResult(
            checkpoint_id=self.checkpoint.id, depth=depth, issues=[*self.issues, *issues], bytes_read=read
        )


class _Rounds:
    """Proves checkpoints in the order given, several per round.

    A round takes checkpoints only as long as the bytes before them leave some of the budget, just as if they were
    proven one by one. Reading can turn out to cost less than expected, never more, so that no round goes too far; what
    is left of the budget goes to the next.
    """

    def __init__(self, engine: Engine, layout: Layout, depth: Depth, budget: Budget, room: int) -> None:
        self._engine = engine
        self._layout = layout
        self._depth = depth
        self._room = room
        self._known: dict[_Proof, Answer] = {}
        self._look = _FIRST_LOOK
        self.budget = budget

    def of(self, ids: Sequence[CheckpointId]) -> Iterator[list[ValidationResult]]:
        examined: deque[tuple[CheckpointId, Any]] = deque()
        done = 0
        waiting = deque(ids)
        while (waiting or examined) and self.budget.left:
            if not examined:
                some = [waiting.popleft() for _ in range(min(self._look, len(waiting)))]
                examined.extend(zip(some, self._engine.examine(some), strict=True))
            results = self._round(examined)
            done += len(results)
            read = format_size(sum(result.bytes_read for result in results))
            log.info("%d of %d checkpoints examined, %s read in this round", done, len(ids), read)
            yield results

    def _round(self, examined: deque[tuple[CheckpointId, Any]]) -> list[ValidationResult]:
        """Take checkpoints off the queue and prove them."""
        settled: list[ValidationResult | _Begun] = []
        asked: set[_Proof] = set()
        checks = size = 0
        while examined and checks < _ROUND_CHECKS and size < self._room:
            if self.budget.room is not None and size >= self.budget.room:
                break
            checkpoint_id, found = examined[0]
            if isinstance(found, Failure) and not isinstance(found.error, TransientError):
                if settled:
                    break  # What came before it is noted first, as it would be one by one.
                raise found.error
            examined.popleft()
            one = self._begin(checkpoint_id, found, asked)
            settled.append(one)
            if isinstance(one, _Begun):
                checks += len(one.new)
                size += one.cost
        begun = [each for each in settled if isinstance(each, _Begun)]
        named = sum(len(each.checks) for each in begun) // max(1, len(begun))
        self._look = max(1, min(_LONGEST_LOOK, _ROUND_CHECKS // max(1, named)))
        self._ask(begun)
        return [each if isinstance(each, ValidationResult) else each.result(self._depth) for each in settled]

    def _begin(self, checkpoint_id: CheckpointId, found: Any, asked: set[_Proof]) -> ValidationResult | _Begun:
        """What there is to ask about a checkpoint; its result, if that is nothing."""
        if isinstance(found, Failure):
            assert isinstance(found.error, TransientError)
            return not_answered(checkpoint_id, self._depth, found.error)
        if found.checkpoint is None or self._depth is Depth.STRUCTURE:
            return ValidationResult(checkpoint_id=checkpoint_id, depth=self._depth, issues=found.issues)
        try:
            checks = self._layout.checks(found.checkpoint, self._depth)
        except TransientError as error:
            return not_answered(checkpoint_id, self._depth, error)
        begun = _Begun(found.checkpoint, found.issues, list(numbered(found.checkpoint.id, checks)))
        for number, (_, check) in enumerate(begun.checks):
            proof = (check.subject, check.claims)
            if check.claims and (proof in self._known or proof in asked):
                continue
            asked.add(proof)
            begun.new.append(number)
        return begun

    def _ask(self, begun: Sequence[_Begun]) -> None:
        """Run what is new, on the cluster, and tell every checkpoint of the round."""
        units = [each.checks[number][0] for each in begun for number in each.new]
        needed = {each.checkpoint.id: each.checkpoint for each in begun if each.new}
        found = iter(self._engine.ask(needed, units, self._depth))
        shared: dict[_Proof, Answer] = {}
        for each in begun:
            for number in each.new:
                check = each.checks[number][1]
                each.answers[number] = answer = next(found)
                if check.claims:
                    (self._known if answer.complete else shared)[check.subject, check.claims] = answer
            for number, (_, check) in enumerate(each.checks):
                if number not in each.answers:
                    proof = (check.subject, check.claims)
                    each.answers[number] = self._known.get(proof) or shared[proof]
