"""From a task to the page of the pipeline it works on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class CheckpointPageLink(BaseOperatorLink):
    """
    The page of a task's pipeline.

    Made in the task's process at the end of each try, when its templated arguments are known. Relative, so that it
    works in a deployment below a path.
    """

    name = "Checkpoints"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's signature
        connection = getattr(operator, "checkpoint_conn_id", None)
        pipeline = getattr(operator, "pipeline", None)
        if not isinstance(connection, str) or not connection:
            return ""
        query = f"?pipeline={quote(str(pipeline), safe='')}" if pipeline else ""
        return f"checkpoints/store/{quote(connection, safe='')}{query}"
