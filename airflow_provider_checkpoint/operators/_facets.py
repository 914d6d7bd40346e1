"""Facets in the words of OpenLineage. Imported only where its provider is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from openlineage.client.event_v2 import Dataset
from openlineage.client.facet_v2 import RunFacet, dataset_version_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.define(kw_only=True)
class CheckpointRunFacet(RunFacet):
    """What a task found out about checkpoints, or did with them. What it did not look at is left out."""

    pipeline: str
    connection: str
    checkpointId: str | None = None  # noqa: N815 - as OpenLineage spells its fields
    epoch: int | None = None
    timeline: int | None = None
    rollbackSeconds: float | None = None  # noqa: N815
    valid: int | None = None
    invalid: int | None = None
    kept: int | None = None
    removed: int | None = None
    bytes: int | None = None


#: Fields of the facet, and the key of an answer that each is taken from.
_KEYS = {
    "epoch": "epoch",
    "timeline": "timeline",
    "rollbackSeconds": "rollback_seconds",
    "valid": "valid",
    "invalid": "invalid",
    "kept": "kept",
    "bytes": "bytes",
}


def run_facet_of(answer: Mapping[str, Any], *, pipeline: str | None, connection: str) -> CheckpointRunFacet:
    """The numbers of an answer. In answers they are text where Spark takes them, and empty where there is none."""
    numbers: dict[str, Any] = {
        field: int(answer[key]) for field, key in _KEYS.items() if str(answer.get(key) or "").isdecimal()
    }
    gone = answer.get("removed", answer.get("swept"))
    return CheckpointRunFacet(
        pipeline=pipeline or "",
        connection=connection,
        checkpointId=answer.get("checkpoint_id") or None,
        removed=len(gone) if isinstance(gone, list) else None,
        **numbers,
    )


def dataset_of(namespace: str, name: str, *, version: str | None) -> Dataset:
    """The checkpoints of a pipeline."""
    facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version) if version else None
    return Dataset(namespace=namespace, name=name, facets={} if facet is None else {"version": facet})
