"""Checkpoints as assets: a DAG can be scheduled on new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow.sdk import Context

    from airflow_provider_checkpoint.model import Checkpoint

SCHEME = "x-checkpoint"


def checkpoint_asset(
    pipeline: str,
    *,
    checkpoint_conn_id: str = "checkpoint_default",
    watch: bool = False,
    poll_interval: float = 60.0,
) -> Asset:
    """
    The checkpoints of a pipeline, as an asset.

    As an outlet of a ``CheckpointSparkSubmitOperator`` or a ``CheckpointCommittedSensor``, each event tells in its
    extra which checkpoint there is. With ``watch``, the triggerer looks itself, so that jobs that no DAG started count
    too; what it saw is in ``event.extra["payload"]``.

    :param poll_interval: seconds between two looks.
    """
    from airflow_provider_checkpoint.triggers.checkpoint import CheckpointEventTrigger

    trigger = CheckpointEventTrigger(
        pipeline=pipeline, checkpoint_conn_id=checkpoint_conn_id, poll_interval=poll_interval
    )
    return Asset(
        name=f"checkpoints of {pipeline} ({checkpoint_conn_id})",
        uri=f"{SCHEME}://{quote(checkpoint_conn_id, safe='')}/{quote(pipeline, safe='')}",
        group="checkpoint",
        watchers=[AssetWatcher(name=f"new checkpoints of {pipeline}", trigger=trigger)] if watch else [],
    )


def facts_of(checkpoint: Checkpoint, *, uri: str, pipeline: str | None) -> dict[str, str]:
    """A checkpoint in words that travel: text, so that they fit XComs, events and Spark arguments alike."""
    return {
        "checkpoint_id": str(checkpoint.id),
        "epoch": str(checkpoint.epoch),
        "timeline": str(checkpoint.timeline),
        "created": checkpoint.created.isoformat(),
        "bytes": str(checkpoint.size),
        "uri": uri,
        "pipeline": pipeline or "",
    }


def announce(context: Context, outlets: Iterable[Any], facts: Mapping[str, str]) -> None:
    """Tell the events of a task's outlets which checkpoint there is."""
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(facts)
