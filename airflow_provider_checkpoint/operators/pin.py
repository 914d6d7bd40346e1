"""Promising that a checkpoint stays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.operators import _values
from airflow_provider_checkpoint.operators._base import CheckpointOperator, who

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from airflow.sdk import Context


class CheckpointPinOperator(CheckpointOperator):
    """
    Pin a checkpoint, so that no prune takes it until the pin is removed or expires.

    :param checkpoint_id: which one. (templated)
    :param name: what the pin is called; the same name on another checkpoint is an error. (templated)
    :param reason: why, for whoever finds it later. (templated)
    :param expires: after which time it no longer holds, such as ``90d``; without, never. (templated)
    :param pin_owner: whom to ask; default: the task. (templated)
    """

    template_fields: Sequence[str] = (
        *CheckpointOperator.template_fields,
        "checkpoint_id",
        "name",
        "reason",
        "expires",
        "pin_owner",
    )
    changes_checkpoints = True

    def __init__(
        self,
        *,
        checkpoint_id: str | int,
        name: str,
        reason: str,
        expires: timedelta | str | None = None,
        pin_owner: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.checkpoint_id = checkpoint_id
        self.name = name
        self.reason = reason
        self.expires = expires
        self.pin_owner = pin_owner

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_checkpoint.exceptions import ConfigurationError
        from airflow_provider_checkpoint.lifecycle.executor import Executor
        from airflow_provider_checkpoint.model import Pin

        name = _values.text(self.name)
        if name is None:
            raise ConfigurationError("the pin has no name", hint="Give one: name='before-v2'.")
        layout = self.open()
        now = datetime.now(UTC)
        span = _values.span("expires", self.expires)
        pin = Pin(
            name=name,
            checkpoint_id=layout.parse_id(str(self.checkpoint_id)),
            owner=_values.text(self.pin_owner) or who(context),
            reason=_values.text(self.reason) or "",
            created=now,
            expires=None if span is None else now + span,
        )
        Executor(layout, by=who(context)).pin(pin)
        self.log.info("checkpoint %s is pinned as %r", pin.checkpoint_id, pin.name)
        return self.touched(layout.blobs.uri, {"checkpoint_id": str(pin.checkpoint_id), "pin": pin.name})
