"""Whether a writer still seems to be at work. A guess: only a new timeline makes sure that it can do no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.lifecycle.facts import look_at
from airflow_provider_checkpoint.lifecycle.spans import format_span
from airflow_provider_checkpoint.lifecycle.timelines import read_timelines

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.model import Checkpoint

#: Timelines opened under such a mark are a person's or an operator's doing, and no sign of a running writer.
RESTORE_MARK = "restore-"
#: The setting of Spark by which a job learns who has started it; the timeline that it opens names it as its owner.
OWNER_SETTING = "spark.checkpoint.owner"


def sign_of_life(layout: Layout, *, now: datetime, within: timedelta) -> str | None:
    """What speaks for a running writer: it has started, or has committed, so short a time ago. None if nothing does."""
    timelines = read_timelines(layout.blobs)
    if timelines and not timelines[-1].writer.startswith(RESTORE_MARK) and now - timelines[-1].created < within:
        age = format_span(now - timelines[-1].created)
        return f"a writer opened timeline {timelines[-1].number} {age} ago"
    newest = newest_readable(layout)
    if newest is None or now - newest.created >= within:
        return None
    if timelines and newest.timeline < timelines[-1].number:
        # Whoever wrote it is fenced already.
        return None
    return f"checkpoint {newest.id} was committed {format_span(now - newest.created)} ago"


def was_opened_by(layout: Layout, owner: str) -> bool:
    """Whether the current timeline is of this owner, so that whoever may be at work has been started by it."""
    timelines = read_timelines(layout.blobs)
    return bool(timelines) and timelines[-1].owner == owner


def newest_readable(layout: Layout) -> Checkpoint | None:
    """The newest checkpoint whose manifest can be understood, on whichever branch."""
    for checkpoint_id in layout.newest_first():
        try:
            known = look_at(layout, checkpoint_id)
        except CorruptManifestError:
            continue
        if known is not None and known.checkpoint is not None and not known.problem:
            return known.checkpoint
    return None
