"""``validate``: prove that checkpoints can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.console import Column, Row
from airflow_provider_checkpoint.cli.progress import watching
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError, ConfigurationError
from airflow_provider_checkpoint.layouts._protocol import NOT_THERE
from airflow_provider_checkpoint.lifecycle.records import read_ledger
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.lifecycle.validation import (
    Budget,
    ValidationResult,
    least_recently_proven,
    sample,
    validate_many,
)
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.model import CheckpointId

_COLUMNS = (Column("ID", whole=True), Column("VERDICT", whole=True), Column("FOUND"))
_SHOWN = 5


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    depth = Depth(arguments.depth or ("content" if arguments.rolling else "presence"))
    ids = _selection(layout, arguments, depth)
    with watching(console, len(ids)) as watch:
        results = validate_many(
            layout,
            watch.each(ids),
            depth,
            width=arguments.threads,
            budget=Budget(arguments.budget_bytes, arguments.budget_seconds),
            progress=watch,
            record=not arguments.no_record,
        )
    left = len(ids) - len(results)
    # A folder without a manifest is a checkpoint that is being written, or was never committed: nothing to prove.
    results = [result for result in results if arguments.ids or not result.missing]
    if console.json:
        console.document(_document(layout, depth, results, left))
    else:
        show(results, depth, left, console)
    return _verdict(results)


def _verdict(results: Sequence[ValidationResult]) -> int:
    if any(result.proven and not result.valid for result in results):
        return exits.FINDINGS
    return exits.FINE if all(result.proven for result in results) else exits.STORE


def _selection(layout: Layout, arguments: Namespace, depth: Depth) -> Sequence[CheckpointId]:
    ways = [arguments.ids, arguments.sample, arguments.rolling, arguments.all]
    if sum(bool(way) for way in ways) > 1:
        raise ConfigurationError(
            "ids, --all, --sample and --rolling exclude each other", hint="Choose one way to select checkpoints."
        )
    candidates = layout.candidates()
    if arguments.ids:
        return _named(layout, arguments.ids, candidates)
    if arguments.sample:
        return sample(candidates, arguments.sample.of(len(candidates)))
    if arguments.rolling:
        return least_recently_proven(candidates, read_ledger(layout.blobs, layout), depth)
    return candidates[::-1]


def _named(layout: Layout, words: Sequence[str], candidates: Sequence[CheckpointId]) -> list[CheckpointId]:
    ids = list(dict.fromkeys(layout.parse_id(word) for word in words))
    for checkpoint_id in ids:
        if checkpoint_id not in candidates:
            raise CheckpointNotFoundError(
                f"there is no checkpoint {checkpoint_id}", subject=layout.blobs.uri, hint=NOT_THERE
            )
    return ids


def _document(layout: Layout, depth: Depth, results: Sequence[ValidationResult], left: int) -> dict[str, Any]:
    return {
        "uri": layout.blobs.uri,
        "layout": layout.name,
        "depth": depth.value,
        "results": [result.model_dump(mode="json") | {"proven": result.proven} for result in results],
        "valid": sum(result.valid for result in results),
        "invalid": sum(result.proven and not result.valid for result in results),
        "not_examined": left,
    }


def show(results: Sequence[ValidationResult], depth: Depth, left: int, console: Console) -> None:
    if not results and not left:
        console.line("No checkpoints.")
        return
    console.table(_COLUMNS, [_row(result) for result in results])
    valid = sum(result.valid for result in results)
    read = sum(result.bytes_read for result in results)
    console.note(f"{valid} of {counted(len(results), 'checkpoint')} valid at depth {depth}; {format_size(read)} read.")
    if left:
        console.note(f"{counted(left, 'checkpoint')} left for another time: the budget is spent.")


def _row(result: ValidationResult) -> Row:
    found = [f"{issue.code}: {issue.message}" for issue in result.issues[:_SHOWN]]
    if len(result.issues) > _SHOWN:
        found.append(f"... and {len(result.issues) - _SHOWN:,} more (--json has all)")
    if not result.proven:
        return Row((str(result.checkpoint_id), "NOT PROVEN", found), "yellow")
    return Row(
        (str(result.checkpoint_id), "valid" if result.valid else "INVALID", found), "" if result.valid else "red"
    )
