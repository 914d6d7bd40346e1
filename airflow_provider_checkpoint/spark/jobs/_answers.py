"""How the answer of a job comes back to whoever submitted it: as an object in the store, under a name made for it.

A job may run anywhere, in a driver whose disk and output nobody else sees. Both sides reach the store. The mark is made
afresh for each submission and stands in the name and in the object, so that no other answer can be taken for this one.
The name is one of those that listings leave out, and that the orphan search removes when they are old: an answer that
nobody fetched is litter.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from airflow_provider_checkpoint import exceptions
from airflow_provider_checkpoint.exceptions import (
    BlobNotFoundError,
    CheckpointError,
    ConfigurationError,
    CorruptError,
    PermanentError,
)
from airflow_provider_checkpoint.lifecycle.plans import OrphanPlan
from airflow_provider_checkpoint.lifecycle.validation import ValidationResult

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

_MARK = re.compile(r"[0-9a-f]{32}")
_LIMIT = 512 * 1024 * 1024

Verb = Literal["validate", "orphans"]


class JobError(BaseModel):
    """Why a job gave up, so that its submitter can raise the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    message: str
    subject: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: CheckpointError) -> JobError:
        return cls(kind=type(error).__name__, message=error.message, subject=error.subject, hint=error.hint)

    def as_error(self) -> CheckpointError:
        kind = getattr(exceptions, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, CheckpointError)):
            kind = PermanentError
        return kind(self.message, subject=self.subject, hint=self.hint)


class JobAnswer(BaseModel):
    """What a job found out: the same models that this process would have made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Verb
    uri: str
    layout: str
    mark: str | None = None
    selected: int = 0
    """How many checkpoints were to be proven; fewer have a result if the budget was spent."""
    results: tuple[ValidationResult, ...] = ()
    plan: OrphanPlan | None = None
    error: JobError | None = None


def answer_key(mark: str) -> str:
    if _MARK.fullmatch(mark) is None:
        raise ConfigurationError(
            "a mark is 32 hexadecimal digits", subject=repr(mark[:50]), hint="uuid4().hex makes one."
        )
    return f"ledger/.answer.{mark}.probe"


def write_answer(blobs: BlobStore, answer: JobAnswer) -> None:
    """Leave an answer. If an earlier attempt of the same job has left one, that one stands."""
    assert answer.mark is not None
    blobs.create(answer_key(answer.mark), answer.model_dump_json().encode())


def read_answer(blobs: BlobStore, mark: str, *, verb: Verb, layout: str) -> JobAnswer | None:
    """The answer to one submission; None if there is none. Anything else under its name is an error."""
    key = answer_key(mark)
    info = blobs.stat(key)
    if info is None:
        return None
    if info.size > _LIMIT:
        raise CorruptError(f"an answer of {info.size} bytes is not one of ours", subject=f"{blobs.uri}/{key}")
    try:
        answer = JobAnswer.model_validate_json(blobs.read(key))
    except BlobNotFoundError:
        return None
    except ValidationError:
        raise CorruptError("not the answer of a job", subject=f"{blobs.uri}/{key}") from None
    told = (answer.mark, answer.verb, answer.uri, answer.layout)
    if told != (mark, verb, blobs.uri, layout):
        raise CorruptError(
            "the answer to something else: " + ", ".join(map(str, told)),
            subject=f"{blobs.uri}/{key}",
            hint="The job has looked at another store than this task: compare their addresses.",
        )
    if answer.error is None and (answer.plan is None) is (verb == "orphans"):
        raise CorruptError("an answer without what was asked for", subject=f"{blobs.uri}/{key}")
    return answer


def remove_answer(blobs: BlobStore, mark: str) -> None:
    """Remove an answer that was read. If that fails, the orphan search does it one day."""
    with suppress(CheckpointError):
        blobs.delete([answer_key(mark)])
