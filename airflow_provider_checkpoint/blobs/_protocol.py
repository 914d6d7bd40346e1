"""The five verbs on bytes, and what each of them promises.

Everything above this room is written against :class:`BlobStore`. A back end that cannot keep one of the promises says
so in its :class:`Capabilities` and raises :class:`~airflow_provider_checkpoint.exceptions.UnsupportedError`; it never
keeps a promise half.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_checkpoint.exceptions import CheckpointError, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from typing_extensions import Buffer

#: A conflict hands back the object that stands there up to this size; a larger one is the caller's to stream.
EXISTING_LIMIT = 8 * 1024 * 1024

MAX_KEY_BYTES = 1024

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.(?P<kind>tmp|probe)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: What nearly every name looks like, so that a million of them are told good at a glance. Says nothing of the others.
_ORDINARY = re.compile(r"[\w%=~-][\w.%=~-]{0,199}(?:/[\w%=~-][\w.%=~-]{0,199})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a back end guarantees. False means: not promised, whatever luck may do."""

    exclusive_create: bool
    """``create`` has exactly one winner, whoever races: threads, processes, machines."""
    compare_and_swap: bool
    """``replace(expected=...)`` fails if anyone wrote in between."""
    atomic_write: bool
    """A reader sees the old object or the new one, never a part, also when the writer dies."""
    durable: bool
    """What a call returned for survives the loss of power."""
    bulk_delete: bool
    """``delete`` removes many objects per request."""
    streaming_list: bool
    """``list`` needs the same memory for ten objects and ten million."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One object as a listing shows it."""

    key: str
    size: int
    modified: datetime | None
    """When the store says it was written, in UTC; None where the store does not tell."""
    version: str | None
    """Opaque token for ``replace(expected=...)``."""


@dataclass(frozen=True, slots=True)
class Creation:
    """What became of a ``create``: ``created`` says whether the object that stands there holds our bytes."""

    created: bool
    size: int
    sha256: str
    existing: bytes | None = None
    """If another's object stands there: its bytes, unless it is larger than :data:`EXISTING_LIMIT`."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The outcome for one key of a ``delete``. An object that was not there counts as deleted."""

    key: str
    error: CheckpointError | None = None

    @property
    def deleted(self) -> bool:
        return self.error is None


class BlobStore(ABC):
    """A flat space of named, immutable-by-convention objects under one root.

    Consistency every caller may rely on: a call that follows a returned write sees that write (all supported stores
    list and read strongly). Listings are never cached and come in no particular order.
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where this is, for people. Never holds a secret."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    # -- read ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object, or of a range of it; a range past the end is cut, as in slicing."""

    @abstractmethod
    def stream(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[Buffer]:
        """The same bytes in pieces, in constant memory. Ends whole or raises; never ends short in silence."""

    @abstractmethod
    def stat(self, key: str) -> BlobInfo | None:
        """Size, age and version of an object, or None if it is not there."""

    @abstractmethod
    def read_versioned(self, key: str) -> tuple[bytes, str | None]:
        """The bytes and the version they belong to, taken in one look."""

    # -- create --------------------------------------------------------------------------------------------------

    @abstractmethod
    def create(self, key: str, body: bytes | Iterable[Buffer]) -> Creation:
        """Put an object where none is.

        Exactly one of several racing writers gets ``created=True``; the others learn what stands there. A repeated
        ``create`` of the same bytes is a success, so a caller that lost the answer just calls again. Writers whose
        bytes could be equal by accident put a mark of their own into them.

        An iterable body is streamed: it is read once, in constant memory, and if it raises, no object appears.
        """

    # -- replace -------------------------------------------------------------------------------------------------

    @abstractmethod
    def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
        """Write an object over whatever is there and return its new version.

        With ``expected``, only if the object still has that version, else
        :class:`~airflow_provider_checkpoint.exceptions.BlobChangedError`.
        """

    # -- list ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        """Every object below a folder, at any depth; a missing folder is an empty one.

        Half-written objects are left out, unless ``temporary`` asks for just those (True) or for all (None).
        """

    @abstractmethod
    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        """The names of the folders directly below a folder, without listing what is inside them.

        With ``start``, only from that name on, in ascending order; a store that can does not look at those before.
        This is for names of one length: where one begins with another, servers do not agree on what comes first.
        """

    # -- delete --------------------------------------------------------------------------------------------------

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> Sequence[Deletion]:
        """Remove objects and answer for each one, in the order given. One failure does not stop the others."""

    # -- composition ---------------------------------------------------------------------------------------------

    def at(self, folder: str) -> BlobStore:
        """This store seen from one of its folders."""
        from airflow_provider_checkpoint.blobs._folder import FolderView

        return FolderView(self, folder)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri}>"


def check_key(key: str) -> str:
    """Return the key if it names the same one object on every store, below the root; raise InvalidKeyError if not."""
    problem = _key_problem(key)
    if problem is not None:
        raise InvalidKeyError(
            f"object name {problem}",
            subject=repr(key),
            hint="Names are relative paths such as 'manifests/manifest-000001.json', without '.', '..' or '\\'.",
        )
    return key


def check_new_key(key: str) -> str:
    """Like :func:`check_key` for an object about to be written: temporary names are reserved."""
    match = _TEMPORARY.fullmatch(key.rpartition("/")[2])
    if match is not None and match["kind"] == "tmp":
        raise InvalidKeyError(
            "object name is reserved for half-written objects", subject=repr(key), hint="Choose another name."
        )
    return check_key(key)


def names_from(start: str, names: Iterable[str]) -> Iterable[str]:
    """What ``folders`` answers where all names are at hand."""
    return sorted(name for name in names if name >= start) if start else names


def check_folder(folder: str) -> str:
    """Like :func:`check_key` for a folder; the root is the empty string, a trailing slash is dropped."""
    stripped = folder.removesuffix("/")
    return check_key(stripped) if folder else ""


def _key_problem(key: str) -> str | None:
    if len(key) <= MAX_KEY_BYTES and _ORDINARY.fullmatch(key):
        return None
    if not key:
        return "is empty"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    if _CONTROL.search(key):
        return "holds a control character"
    if "\\" in key:
        return "holds a backslash"
    if key.startswith("/"):
        return "is absolute"
    segments = key.split("/")
    if any(segment in (".", "..") for segment in segments):
        return "leads out of its folder"
    if not all(segments):
        return "has an empty part"
    if len(max(segments, key=lambda segment: len(segment.encode())).encode()) > 200:
        return "has a part longer than 200 bytes"
    return None


def temporary_key(key: str) -> str:
    """A fresh name beside ``key`` for bytes that are not yet an object."""
    folder, _, name = key.rpartition("/")
    temporary = f".{name}.{uuid4().hex}.tmp"
    return f"{folder}/{temporary}" if folder else temporary


def probe_key() -> str:
    """A fresh name for an object that only tests the store."""
    return f".fence.{uuid4().hex}.probe"


def is_temporary(key: str) -> bool:
    """Whether a name was made by :func:`temporary_key` or :func:`probe_key`: litter, unless it is very young."""
    # The dot first: hardly any name has one there, and a listing asks of each.
    return (key.startswith(".") or "/." in key) and _TEMPORARY.fullmatch(key.rpartition("/")[2]) is not None
