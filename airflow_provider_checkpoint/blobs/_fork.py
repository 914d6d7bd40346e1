"""The object store client starts threads on first use, and a forked child inherits their locks but not the threads.

Every later call in such a child would wait for ever, also through a new handle. So use is noted, forks are noticed, and
the child is told at once.
"""

from __future__ import annotations

import os

from airflow_provider_checkpoint.exceptions import ForkedProcessError

_used = False
_forked_after_use = False


def note_use() -> None:
    """Call before the client is used; raises ForkedProcessError where it would hang."""
    global _used  # noqa: PLW0603 - the state is the process's own: the client's runtime is process-wide as well
    if _forked_after_use:
        raise ForkedProcessError(
            "this process was forked from one that had already used the object store client",
            hint="Start workers with the 'spawn' or 'forkserver' method, open the store only in the child, or open it"
            " with client='fsspec'.",
        )
    _used = True


def _after_fork_in_child() -> None:
    global _forked_after_use  # noqa: PLW0603 - see above
    _forked_after_use = _forked_after_use or _used


os.register_at_fork(after_in_child=_after_fork_in_child)
