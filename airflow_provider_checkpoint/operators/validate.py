"""Proving checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import push
from airflow_provider_checkpoint.operators._spark_engine import EngineOperator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from airflow.sdk import Context

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.validation import ValidationResult
    from airflow_provider_checkpoint.model import Depth

#: Findings that an XCom carries; the ledger in the store has all.
_SHOWN = 20


class CheckpointValidateOperator(EngineOperator):
    """
    Prove that checkpoints can be restored, and note what was found in the ledger of the store.

    Answers with ``valid``, ``invalid``, ``left`` (counts), ``invalid_ids``, ``findings``, ``newest_valid`` and
    ``bytes_read``. A store that does not answer fails the task with an error that is worth a retry. Where one worker is
    not enough, ``engine="spark"`` reads with a cluster and answers the same; see :class:`EngineOperator` for the rest.

    :param checkpoint_ids: which ones; without, all. (templated)
    :param rolling: begin with what was proven longest ago, for as long as the budget lasts. (templated)
    :param sample: prove so many at random, the newest always among them. (templated)
    :param depth: ``structure``, ``presence``, ``content`` or ``restore``. (templated)
    :param budget_bytes: begin no further checkpoint once so much was read, such as ``5GB``. (templated)
    :param budget: begin no further checkpoint after so long, such as ``10m``. (templated)
    :param fail_on_invalid: whether an invalid checkpoint fails the task; its answer is there in any case. (templated)
    :param threads: how many objects are read at once by the local engine.
    """

    template_fields: Sequence[str] = (
        *EngineOperator.template_fields,
        "checkpoint_ids",
        "rolling",
        "sample",
        "depth",
        "budget_bytes",
        "budget",
        "fail_on_invalid",
    )

    def __init__(
        self,
        *,
        checkpoint_ids: Sequence[str | int] | str | None = None,
        rolling: bool | str = False,
        sample: int | str | None = None,
        depth: str = "content",
        budget_bytes: int | str | None = None,
        budget: timedelta | str | None = None,
        fail_on_invalid: bool | str = True,
        threads: int = 8,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.checkpoint_ids = checkpoint_ids
        self.rolling = rolling
        self.sample = sample
        self.depth = depth
        self.budget_bytes = budget_bytes
        self.budget = budget
        self.fail_on_invalid = fail_on_invalid
        self.threads = threads

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.cli.verbs.validate import show
        from airflow_provider_checkpoint.exceptions import CorruptError, StoreUnavailableError

        layout = self.open()
        depth = _values.depth(self.depth)
        found, left = self._ask_spark(layout, depth) if self.on_spark else self._validate(layout, depth)
        # A folder without a manifest is a checkpoint that is being written, or was never committed: nothing to prove.
        results = [result for result in found if self.checkpoint_ids or not result.missing]
        self.log_table(lambda console: show(results, depth, left, console), datetime.now(UTC))
        answer = self.touched(layout.blobs.uri, _answer(results, left=left))
        self._tell_invalid(layout)
        unproven = [result for result in results if not result.proven]
        if unproven:
            push(context, answer)
            raise StoreUnavailableError(
                f"{len(unproven)} checkpoints could not be examined: {unproven[0].reason}", subject=layout.blobs.uri
            )
        if answer["invalid"] and _values.flag("fail_on_invalid", self.fail_on_invalid, unsaid=True):
            push(context, answer)
            raise CorruptError(
                f"{answer['invalid']} of {len(results)} checkpoints cannot be restored: {answer['invalid_ids']}",
                subject=layout.blobs.uri,
                hint="A recovery passes over them. Look at the table in the log; find out what damaged them.",
            )
        return answer

    def _tell_invalid(self, layout: Layout) -> None:
        """How many are known to be invalid, whoever has found that out: this run may have looked at one of them."""
        from airflow_provider_checkpoint import metrics
        from airflow_provider_checkpoint.lifecycle.records import read_ledger

        ledger = read_ledger(layout.blobs, layout)
        invalid = sum(each in ledger and not ledger[each].valid for each in layout.candidates())
        metrics.gauge("invalid_count", invalid, **self.tags)

    def _validate(self, layout: Layout, depth: Depth) -> tuple[Sequence[ValidationResult], int]:
        from airflow_provider_checkpoint.lifecycle.validation import Budget, select, validate_many

        ids = select(
            layout,
            depth,
            named=_values.words("checkpoint_ids", self.checkpoint_ids),
            size=_values.number("sample", self.sample),
            rolling=_values.flag("rolling", self.rolling),
        )
        span = _values.span("budget", self.budget)
        budget = Budget(_values.size("budget_bytes", self.budget_bytes), None if span is None else span.total_seconds())
        found = validate_many(layout, ids, depth, width=self.threads, budget=budget)
        return found, len(ids) - len(found)

    def _ask_spark(self, layout: Layout, depth: Depth) -> tuple[Sequence[ValidationResult], int]:
        told = ["--depth", depth.value]
        named = [str(layout.parse_id(word)) for word in _values.words("checkpoint_ids", self.checkpoint_ids)]
        size, rolling = _values.number("sample", self.sample), _values.flag("rolling", self.rolling)
        if named:
            told += [part for each in named for part in ("--checkpoint-id", each)]
        elif size is not None:
            told += ["--sample", str(size)]
        elif rolling:
            told += ["--rolling"]
        most, span = _values.size("budget_bytes", self.budget_bytes), _values.span("budget", self.budget)
        told += [] if most is None else ["--budget-bytes", str(most)]
        told += [] if span is None else ["--budget-seconds", str(span.total_seconds())]
        answer = self.ask_spark(layout, "validate", told)
        return answer.results, answer.selected - len(answer.results)


def _answer(results: Sequence[ValidationResult], *, left: int) -> dict[str, Any]:
    valid = [result.checkpoint_id for result in results if result.valid]
    invalid = [result for result in results if result.proven and not result.valid]
    return {
        "valid": len(valid),
        "invalid": len(invalid),
        "left": left,
        "invalid_ids": [str(result.checkpoint_id) for result in invalid],
        "findings": {str(result.checkpoint_id): result.reason for result in invalid[:_SHOWN]},
        "newest_valid": str(max(valid)) if valid else "",
        "bytes_read": sum(result.bytes_read for result in results),
    }
