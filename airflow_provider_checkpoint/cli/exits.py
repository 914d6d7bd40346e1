"""What the exit code of the command says."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    ContainerNotFoundError,
    ForkedProcessError,
    InvalidKeyError,
    TransientError,
    UnfencedStoreError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FINE = 0
FINDINGS = 1
"""Something is wrong with the checkpoints, or a person must decide: invalid, nothing to recover, not all was done."""
USAGE = 2
"""The question makes no sense: an argument, an address, an id that is not there."""
STORE = 3
"""The store did not answer, or refused."""
BUG = 70
"""This program failed in a way it does not know. The number is ``EX_SOFTWARE``; it is never a finding."""
OUTPUT = 74
"""The answer could not be written, as to a full disk. The number is ``EX_IOERR``."""
INTERRUPTED = 130
PIPE_CLOSED = 141

_USAGE = (ConfigurationError, InvalidKeyError, CheckpointNotFoundError, UnsupportedError)
_STORE = (TransientError, AccessDeniedError, ContainerNotFoundError, UnfencedStoreError, ForkedProcessError)


class AnswerLostError(Exception):
    """What was found out could not be written to stdout."""


@contextmanager
def answering() -> Iterator[None]:
    """Tell a stdout that cannot be written, as on a full disk, from every other error. A closed pipe is neither."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AnswerLostError(error.strerror) from error


def exit_code(error: CheckpointError) -> int:
    """The exit code for an error that ended a verb."""
    if isinstance(error, _STORE):
        return STORE
    return USAGE if isinstance(error, _USAGE) else FINDINGS
