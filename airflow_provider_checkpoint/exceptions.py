"""Every error this package raises, in one tree, grouped by what a handler does about it.

::

    CheckpointError
    ├── TransientError ............... retry: the same call may succeed a little later
    │   ├── StoreUnavailableError ......... no answer, throttled, or a server fault   (ConnectionError)
    │   ├── OutcomeUnknownError ........... a write may or may not have landed        (TimeoutError)
    │   └── SinkCommitError ............... committed, but a sink has not published yet: restart
    ├── PermanentError ............... give up this call: it can never succeed as it stands
    │   ├── BlobNotFoundError ............. the object is not there                   (FileNotFoundError)
    │   ├── InvalidKeyError ............... the name is unsafe or not portable        (ValueError)
    │   ├── UnsupportedError .............. this back end cannot do that
    │   ├── BlobChangedError .............. compare-and-swap lost: someone wrote first
    │   ├── CheckpointNotFoundError ....... no such checkpoint: never committed, or removed  (LookupError)
    │   ├── CheckpointConflictError ....... another checkpoint stands under this id       (FileExistsError)
    │   ├── CheckpointInUseError .......... other checkpoints need artifacts of this one
    │   ├── FencedWriterError ............. a newer timeline exists: this writer must stop
    │   ├── SnapshotCancelledError ........ the snapshot was given up; take a new one      (CancelledError)
    │   └── CorruptError .................. bytes that are not what they claim to be      (ValueError)
    │       ├── CorruptManifestError ........... a manifest or pointer
    │       └── CorruptArtifactError ........... a state file
    └── AttentionError ............... ask a person: something outside the program must change
        ├── ConfigurationError ............ an option or address makes no sense       (ValueError)
        ├── AccessDeniedError ............. the credentials are wrong or too weak     (PermissionError)
        ├── ContainerNotFoundError ........ the bucket, container or root is missing  (FileNotFoundError)
        ├── UnfencedStoreError ............ the store ignores conditional writes
        ├── NoRecoveryPointError .......... no checkpoint fits; a fresh start must be asked for  (LookupError)
        ├── ConfirmationNeededError ....... a plan is unusual enough to ask first
        ├── InputGoneError ................ input that must be read again is no longer there  (LookupError)
        ├── NoEvidenceError ............... what is needed cannot be told, so nothing is removed
        └── ForkedProcessError ............ the object store client cannot live in this forked process

Each error carries ``message`` (what happened), ``subject`` (the object or address it is about) and ``hint`` (what
to look at or type next). Errors also inherit the fitting builtin, so ``except FileNotFoundError`` works.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any


class CheckpointError(Exception):
    """Root of the tree. Raise a leaf, catch a group."""

    def __init__(self, message: str, *, subject: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint

    def __str__(self) -> str:
        text = self.message if self.subject is None else f"{self.message}: {self.subject}"
        return text if self.hint is None else f"{text}\nHINT: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (Spark executors, process pools) and must arrive whole.
        return _rebuild, (type(self), self.message, self.subject, self.hint)


def _rebuild(kind: type[CheckpointError], message: str, subject: str | None, hint: str | None) -> CheckpointError:
    return kind(message, subject=subject, hint=hint)


# --- retry ------------------------------------------------------------------------------------------------------


class TransientError(CheckpointError):
    """The same call may succeed a little later."""


class StoreUnavailableError(TransientError, ConnectionError):
    """The store did not answer, throttled us, or failed on its side; nothing is known to have changed."""


class OutcomeUnknownError(TransientError, TimeoutError):
    """A write was sent and its outcome could not be learnt; repeating the same write is safe."""


class SinkCommitError(TransientError):
    """An epoch is committed but a sink did not publish it; a restart commits the sink again."""


# --- give up ----------------------------------------------------------------------------------------------------


class PermanentError(CheckpointError):
    """The call can never succeed as it stands."""


class BlobNotFoundError(PermanentError, FileNotFoundError):
    """The object is not there."""


class InvalidKeyError(PermanentError, ValueError):
    """The object name is unsafe (leaves the root) or does not exist alike on every store."""


class UnsupportedError(PermanentError):
    """This back end cannot keep the promise that was asked for."""


class BlobChangedError(PermanentError):
    """Compare-and-swap lost: the object is not the version the caller had read."""


class CheckpointNotFoundError(PermanentError, LookupError):
    """No such checkpoint: it was never committed, or has been removed."""


class CheckpointConflictError(PermanentError, FileExistsError):
    """A different checkpoint already stands under this id. Nothing of it was touched."""


class CheckpointInUseError(PermanentError):
    """Other checkpoints need artifacts of this one. Nothing was removed."""


class FencedWriterError(PermanentError):
    """A newer timeline exists: whoever writes for an older one is a zombie and must stop."""


class SnapshotCancelledError(PermanentError, CancelledError):
    """The snapshot was given up, by its caller or because its owner ended. Nothing of it was committed."""


class CorruptError(PermanentError, ValueError):
    """Bytes that are not what they claim to be."""


class CorruptManifestError(CorruptError):
    """A manifest or pointer that cannot be understood or contradicts itself."""


class CorruptArtifactError(CorruptError):
    """A state file that is cut, changed or malformed."""


# --- ask a person -----------------------------------------------------------------------------------------------


class AttentionError(CheckpointError):
    """Something outside the program must change before this can work."""


class ConfigurationError(AttentionError, ValueError):
    """An option, address or combination of them makes no sense."""


class AccessDeniedError(AttentionError, PermissionError):
    """The store refused the credentials, or they lack a right."""


class ContainerNotFoundError(AttentionError, FileNotFoundError):
    """The bucket, container or root folder itself does not exist."""


class UnfencedStoreError(AttentionError):
    """The store accepts conditional writes and ignores the condition: two writers could both win."""


class NoRecoveryPointError(AttentionError, LookupError):
    """No checkpoint fits what was asked for. Starting from nothing is never assumed."""

    skipped: tuple[Any, ...] = ()
    """Every candidate with the reason it was passed over."""


class ConfirmationNeededError(AttentionError):
    """A plan would remove unusually much, or is outdated: a person must look and confirm."""


class InputGoneError(AttentionError, LookupError):
    """Input that a restart would have to read again is no longer there."""


class NoEvidenceError(AttentionError):
    """Which artifacts are needed cannot be told, so nothing is removed."""


class ForkedProcessError(AttentionError):
    """The parent process used the object store client before it forked; in this child every call would hang."""
