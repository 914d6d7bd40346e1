"""Keeping the digests of the files that a batch of Spark needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import CheckpointOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class CheckpointSealOperator(CheckpointOperator):
    """
    Seal batches of a checkpoint directory that Spark wrote itself, while they are known to be good.

    From then on a validation compares digests: that is quick, and finds a file that is whole and wrong, such as an
    older copy. Sealing again only compares. Answers with ``sealed`` (numbers of batches), ``files`` and ``bytes``.

    :param checkpoint_ids: which batches; without, the newest. (templated)
    """

    template_fields: Sequence[str] = (*CheckpointOperator.template_fields, "checkpoint_ids")
    changes_checkpoints = True

    def __init__(self, *, checkpoint_ids: Sequence[str | int] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checkpoint_ids = checkpoint_ids

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        from airflow_provider_checkpoint.cli.verbs._spark import require_spark
        from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError
        from airflow_provider_checkpoint.layouts.structured_streaming import seal

        layout = require_spark(self.open(), "seal")
        named = [layout.parse_id(word) for word in _values.words("checkpoint_ids", self.checkpoint_ids)]
        ids = named or layout.candidates()[-1:]
        if not ids:
            raise CheckpointNotFoundError("no batch is committed yet", subject=layout.blobs.uri)
        seals = [seal(layout, checkpoint_id) for checkpoint_id in ids]
        self.log.info("sealed %s", ", ".join(f"batch {each.batch} ({len(each.files)} files)" for each in seals))
        answer = {
            "sealed": [str(each.batch) for each in seals],
            "files": sum(len(each.files) for each in seals),
            "bytes": sum(file.size for each in seals for file in each.files),
        }
        return self.touched(layout.blobs.uri, answer)
