"""How long whoever waits bears with a store that does not answer, on a worker and in the triggerer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_checkpoint.exceptions import TransientError

#: Looks in a row that may fail because the store does not answer, before whoever waits is told.
_PATIENCE = 10


def is_worn_out(silent: int, error: TransientError, log: Any) -> bool:
    """Warn that the store did not answer for so many looks in a row, and tell whether it was one too many."""
    log.warning("the store did not answer (%d of %d): %s", silent, _PATIENCE, error)
    return silent >= _PATIENCE
