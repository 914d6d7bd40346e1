"""What looking at checkpoints of this layout answers."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from airflow_provider_checkpoint.model import Issue


class ValidationResult(BaseModel):
    """What is known about one checkpoint after looking at all of it."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: int
    valid: bool
    """No issue is an error."""
    issues: list[Issue]


class RecoveryReport(BaseModel):
    """Which checkpoint to go back to, and why not a newer one."""

    model_config = ConfigDict(frozen=True)

    chosen_id: int | None
    skipped: list[tuple[int, str]]
    """Newer ones that will not do, each with its reason, newest first."""
    examined: int
    """How many were looked at, the chosen one included."""
    elapsed: timedelta

    @property
    def empty(self) -> bool:
        """The store holds no checkpoint: a fresh start loses nothing. Otherwise no choice means that all are unfit."""
        return self.examined == 0
