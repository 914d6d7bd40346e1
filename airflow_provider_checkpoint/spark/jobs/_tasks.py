"""What executors do: read and hash. They change nothing, so Spark may run a task again, or twice at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_checkpoint.exceptions import CheckpointError, ConfigurationError
from airflow_provider_checkpoint.layouts import Layout, open_store
from airflow_provider_checkpoint.lifecycle.orphans import References, references_of
from airflow_provider_checkpoint.lifecycle.side_by_side import streaming
from airflow_provider_checkpoint.lifecycle.validation import UNPROVEN, Answer, ask
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark import Broadcast

    from airflow_provider_checkpoint.layouts import Check, Examination
    from airflow_provider_checkpoint.model import Checkpoint

AUTO = "auto"

#: Given the store once per task, answers with what is done to each item.
Work: TypeAlias = Callable[[Layout], Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """How an executor opens the store that the driver has open. No secrets: credentials come from its environment."""

    uri: str
    pipeline: str | None = None
    layout: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the layout itself."""
    meant: tuple[str, str] | None = None
    """Layout and address that the driver has found."""

    def open(self) -> Layout:
        layout = open_store(
            self.uri, layout=self.layout, pipeline=self.pipeline, options=dict(self.options), **self.settings
        )
        found = (layout.name, layout.blobs.uri)
        if self.meant not in (None, found):
            raise ConfigurationError(f"the driver sees {self.meant}, this executor {found}", subject=self.uri)
        return layout

    def found(self, layout: Layout) -> Place:
        """The same place for executors, which then need not recognise the layout again."""
        named = Place(
            self.uri, self.pipeline, layout.name, self.options, self.settings, (layout.name, layout.blobs.uri)
        )
        # A stream can be called by its name or by its folder; only whoever recognises it knows which was meant.
        same = open_store(
            self.uri, layout=layout.name, pipeline=self.pipeline, options=dict(self.options), **self.settings
        )
        if same.blobs.uri == layout.blobs.uri:
            return named
        return Place(self.uri, self.pipeline, AUTO, self.options, self.settings, named.meant)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that is the driver's to judge. It comes back as an answer: to run the task again would not help."""

    error: CheckpointError


def run_part(place: Place, work: Work, threads: int, part: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """One task: everything in one part, side by side. Each answer comes with the number of its item."""
    try:
        act = work(place.open())
    except CheckpointError as error:
        return [(number, Failure(error)) for number, _ in part]

    def one(item: tuple[int, Any]) -> tuple[int, Any]:
        try:
            return item[0], act(item[1])
        except CheckpointError as error:
            return item[0], Failure(error)

    return list(streaming(one, part, width=threads))


# -- what is done to each item -----------------------------------------------------------------------------------


def examining(layout: Layout) -> Callable[[CheckpointId], Examination]:
    return layout.examine


def referring(layout: Layout) -> Callable[[CheckpointId], References | None]:
    return lambda checkpoint_id: references_of(layout, checkpoint_id)


@dataclass(frozen=True, slots=True)
class Unit:
    """One check, as it is told to an executor: its code cannot be sent, so it is built there once more."""

    checkpoint: CheckpointId
    subject: str
    occurrence: int
    """Which one, where several checks of the checkpoint are about the same subject."""
    cost: int


def numbered(checkpoint: CheckpointId, checks: Iterable[Check]) -> Iterator[tuple[Unit, Check]]:
    """Every check of a checkpoint with the name under which it is known on both sides."""
    seen: defaultdict[str, int] = defaultdict(int)
    for check in checks:
        yield Unit(checkpoint, check.subject, seen[check.subject], check.cost), check
        seen[check.subject] += 1


@dataclass(frozen=True, slots=True)
class Asking:
    """Runs checks of checkpoints that every executor has been sent once."""

    checkpoints: Broadcast[dict[CheckpointId, Checkpoint]]
    depth: Depth

    def __call__(self, layout: Layout) -> Callable[[Unit], Answer]:
        built: dict[tuple[CheckpointId, str, int], Check] = {}
        for checkpoint_id, checkpoint in self.checkpoints.value.items():
            for unit, check in numbered(checkpoint_id, layout.checks(checkpoint, self.depth)):
                built[checkpoint_id, unit.subject, unit.occurrence] = check

        def act(unit: Unit) -> Answer:
            check = built.get((unit.checkpoint, unit.subject, unit.occurrence))
            if check is None:
                changed = f"{unit.subject}: the store changed while it was being proven"
                return Answer([Issue.error(UNPROVEN, changed)], complete=False)
            return ask(check)

        return act
