"""When to try again: a storage flake is worth a retry, a hopeless case is not."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

_ERRORS = "airflow_provider_checkpoint.exceptions"

#: Give it to a task as ``retry_policy``. Errors of this package decide by the group they belong to; others as usual.
CHECKPOINT_RETRY_POLICY = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=f"{_ERRORS}.TransientError",
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=30),
            reason="the store did not answer; the same call may succeed a little later",
        ),
        RetryRule(
            exception=f"{_ERRORS}.AttentionError",
            action=RetryAction.FAIL,
            reason="a person must change something first; see the hint",
        ),
        RetryRule(
            exception=f"{_ERRORS}.PermanentError",
            action=RetryAction.FAIL,
            reason="this can never succeed as it stands",
        ),
    ]
)
