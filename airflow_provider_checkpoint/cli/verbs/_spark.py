"""Verbs that are only for checkpoint directories of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout

if TYPE_CHECKING:
    from airflow_provider_checkpoint.layouts import Layout


def require_spark(layout: Layout, verb: str) -> StructuredStreamingLayout:
    """The layout, if it is that of Spark's own directories; raises ConfigurationError."""
    if not isinstance(layout, StructuredStreamingLayout):
        raise ConfigurationError(
            f"{verb} is for checkpoint directories that Spark wrote itself; this is the layout {layout.name}",
            subject=layout.blobs.uri,
            hint="validate proves checkpoints of every layout.",
        )
    return layout
