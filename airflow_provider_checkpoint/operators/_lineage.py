"""What a task has touched, for OpenLineage. Nothing of it is imported where its provider is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.openlineage.extractors import OperatorLineage


@dataclass(frozen=True)
class Touched:
    """The checkpoints that a task has read or changed, and what it answered."""

    uri: str
    answer: Mapping[str, Any]


class LineageMixin:
    """
    Tells OpenLineage which checkpoints a task has read or changed.

    They are one dataset, named by where they are; the checkpoint that the answer is about is its version. The run has
    a facet ``checkpoint`` with the numbers of the answer.
    """

    #: Whether the task changes checkpoints, or only reads them.
    changes_checkpoints: ClassVar[bool] = False
    #: Text, and in some operators optional.
    pipeline: Any
    checkpoint_conn_id: str
    _touched: Touched | None = None

    def touched(self, uri: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Keep what the task has touched; gives the answer back."""
        self._touched = Touched(uri, answer)
        return answer

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - its signature
        """Asked by the OpenLineage provider when the task has ended, also when it has failed."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        if self._touched is None:
            return OperatorLineage()
        from airflow_provider_checkpoint.operators._facets import dataset_of, run_facet_of

        uri, answer = self._touched.uri, self._touched.answer
        dataset = dataset_of(*named(uri), version=answer.get("checkpoint_id") or answer.get("newest_valid"))
        changed = self.changes_checkpoints and answer.get("applied", True)
        return OperatorLineage(
            inputs=[] if changed else [dataset],
            outputs=[dataset] if changed else [],
            run_facets={
                "checkpoint": run_facet_of(answer, pipeline=self.pipeline, connection=self.checkpoint_conn_id),
            },
        )


def named(uri: str) -> tuple[str, str]:
    """Namespace and name of a dataset, as OpenLineage names objects in a store and files on a disk."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return "file", parts.path or "/"
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
