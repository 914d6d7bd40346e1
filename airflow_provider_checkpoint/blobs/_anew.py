"""Reading once more what was replaced while it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.exceptions import BlobChangedError

if TYPE_CHECKING:
    from collections.abc import Callable

Whole = TypeVar("Whole")

#: An object that is replaced so often while it is read is not worth waiting for.
_ATTEMPTS = 4


def anew(read: Callable[[], Whole]) -> Whole:
    """What a read of a whole object answers.

    A connection that breaks is resumed in the same version of the object or not at all. Whoever streams has given the
    first part away and must fail then; whoever wants the whole just begins anew, with the version that stands now.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except BlobChangedError:
            continue
    return read()
