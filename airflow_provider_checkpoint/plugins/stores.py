"""What is done with the store of a connection. Everything here may block, and runs in a thread of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CheckpointError, CheckpointNotFoundError, ConfigurationError
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.spans import parse_span
from airflow_provider_checkpoint.lifecycle.validation import validate_many
from airflow_provider_checkpoint.model import Pin
from airflow_provider_checkpoint.reports.checkpoint import Detail, find
from airflow_provider_checkpoint.reports.gather import Facts, gather
from airflow_provider_checkpoint.reports.overview import PipelineRow, StoreRows
from airflow_provider_checkpoint.reports.views import PipelineView, view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_checkpoint.layouts import Layout
    from airflow_provider_checkpoint.lifecycle.validation import ValidationResult
    from airflow_provider_checkpoint.model import CheckpointId, Depth
    from airflow_provider_checkpoint.plugins.settings import PageSettings


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Looked:
    """A pipeline as it was found."""

    layout: Layout
    facts: Facts
    view: PipelineView


def look(connection: str, pipeline: str | None, settings: PageSettings) -> Looked:
    return _look(CheckpointHook(connection), pipeline, settings)


def _look(hook: CheckpointHook, pipeline: str | None, settings: PageSettings) -> Looked:
    layout = hook.open(pipeline)
    facts = gather(layout, now=datetime.now(UTC), policy=settings.policy)
    return Looked(layout, facts, view(facts, settings.windows))


def look_at_all(connection: str, settings: PageSettings) -> StoreRows:
    """Every pipeline of a store in one line. What is wrong with one does not hide the others."""
    hook = CheckpointHook(connection)
    uri = hook.settings.uri
    # A store that has no pipelines below it may be one itself.
    names: list[str | None] = [*hook.pipelines()] or [None]
    rows = tuple(_row(hook, name, settings) for name in names)
    if names == [None] and rows[0].summary is None and hook.open_if_any() is None:
        return StoreRows(connection, uri)
    return StoreRows(connection, uri, rows)


def look_at_some(connection: str, pipelines: Sequence[str | None], settings: PageSettings) -> StoreRows:
    """Pipelines that somebody names."""
    hook = CheckpointHook(connection)
    uri = hook.settings.uri
    return StoreRows(connection, uri, tuple(_row(hook, name, settings) for name in pipelines))


def _row(hook: CheckpointHook, pipeline: str | None, settings: PageSettings) -> PipelineRow:
    try:
        return PipelineRow(pipeline, _look(hook, pipeline, settings).view.summary)
    except CheckpointError as error:
        return PipelineRow(pipeline, None, error.message)
    except Exception as error:  # noqa: BLE001 - whatever a library raises: the other rows are not to suffer
        return PipelineRow(pipeline, None, unforeseen(error))


def detail(looked: Looked, checkpoint: str) -> Detail:
    found = find(looked.view, looked.facts, looked.layout, checkpoint)
    if found is None:
        raise CheckpointNotFoundError(f"there is no checkpoint {checkpoint}", subject=looked.facts.uri)
    return found


def prove(connection: str, pipeline: str | None, checkpoint: str, depth: Depth) -> ValidationResult:
    """Prove one checkpoint, and note in the ledger what was found."""
    layout = CheckpointHook(connection).open(pipeline)
    [result] = validate_many(layout, [_known(layout, checkpoint)], depth)
    return result


def pin(
    connection: str, pipeline: str | None, checkpoint: str, *, name: str, reason: str, expires: str, by: str
) -> None:
    layout = CheckpointHook(connection).open(pipeline)
    now = datetime.now(UTC)
    try:
        until = now + parse_span(expires) if expires.strip() else None
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    wanted = Pin(
        name=name, checkpoint_id=_known(layout, checkpoint), owner=by, reason=reason, created=now, expires=until
    )
    Executor(layout, by=by).pin(wanted)


def _known(layout: Layout, checkpoint: str) -> CheckpointId:
    checkpoint_id = layout.parse_id(checkpoint)
    if checkpoint_id not in layout.candidates():
        raise CheckpointNotFoundError(f"there is no checkpoint {checkpoint}", subject=layout.blobs.uri)
    return checkpoint_id


def unforeseen(error: Exception) -> str:
    """What is told of an error that is not ours: its kind. Its words may hold anything, and are in the log."""
    _log.error("a page of checkpoints met an error that was not foreseen", exc_info=error)
    return f"an error that was not foreseen ({type(error).__name__}); the log of the api-server has all of it"
