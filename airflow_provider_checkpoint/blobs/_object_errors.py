"""What the object store client's errors mean to the user.

The client hands over the server's answer as text with its own inner structure behind it. Here that becomes one line
that names the object, without tokens from a signed address, and a hint.
"""

from __future__ import annotations

import re

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from airflow_provider_checkpoint.blobs._shown import first_line
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    BlobNotFoundError,
    CheckpointError,
    ConfigurationError,
    ContainerNotFoundError,
    InvalidKeyError,
    StoreUnavailableError,
    UnsupportedError,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"code\":\s*\"?(\w+)|x-ms-error-code: (\w+)|\(code: (\w+)\)")
#: Client errors by number that pass by themselves: request timeout, conflict with a write under way, throttling.
_PASSING = {"408", "409", "429"}
_NO_CONTAINER = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist", "bucket does not exist")

_DENIED_HINTS = {
    "InvalidAccessKeyId": "The access key is unknown to this store: check the key and the endpoint.",
    "SignatureDoesNotMatch": "The secret does not belong to the access key, or the region or endpoint is wrong.",
    "ExpiredToken": "The session token has expired: fetch new credentials or use a refreshing provider.",
    "AuthenticationFailed": "The account key or SAS token is wrong or has expired.",
    "AuthorizationFailure": "The account's network rules or the token do not allow this.",
}
_DENIED = (
    "The credentials were accepted but lack a right. Needed are list, read, write and delete below the root; without"
    " the right to list, S3 also answers this way for an object that does not exist."
)


def translate(error: Exception, subject: str) -> CheckpointError:
    """The error of our own tree that fits an error of the client."""
    text = first_line(error)
    status = _first(_STATUS, str(error))
    code = _first(_CODE, str(error))
    if any(mark in str(error) for mark in _NO_CONTAINER):
        return ContainerNotFoundError(
            "the bucket or container does not exist",
            subject=subject,
            hint="Create it, or correct the name in the address; buckets are never made for you.",
        )
    if isinstance(error, FileNotFoundError) or status == "404":
        return BlobNotFoundError("no such object", subject=subject)
    if isinstance(error, UnauthenticatedError) and status is None:
        return AccessDeniedError("the credentials could not be fetched", subject=subject, hint=text)
    # By code as well: an expired token is a 400, and one key of a bulk delete is refused within a 200.
    denied = status in {"401", "403"} or code == "AccessDenied" or code in _DENIED_HINTS
    if denied or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return AccessDeniedError(
            f"the store refused access ({code or status or 'no code'})",
            subject=subject,
            hint=_DENIED_HINTS.get(code or "", _DENIED),
        )
    if "PermanentRedirect" in str(error) or "AuthorizationHeaderMalformed" in str(error) or status == "301":
        return ConfigurationError(
            f"the bucket is in another region ({code or status})", subject=subject, hint="Set the option 'region'."
        )
    if "169.254.169.254" in str(error) or "metadata.google.internal" in str(error):
        return AccessDeniedError(
            "no credentials were found",
            subject=subject,
            hint="Set them in the environment, as options, or name a connection; the machine itself has no role.",
        )
    if isinstance(error, NotSupportedError | NotImplementedError):
        return UnsupportedError("this store has no such operation", subject=subject)
    if isinstance(error, UnknownConfigurationKeyError):
        return ConfigurationError(text, subject=subject, hint="Correct the name of the option.")
    if isinstance(error, InvalidPathError | ValueError):
        return InvalidKeyError(text, subject=subject)
    if status is not None and status.startswith("4") and status not in _PASSING:
        return ConfigurationError(f"the store rejected the request ({code or status})", subject=subject, hint=text)
    return _unavailable(text, status, code, subject)


def _unavailable(text: str, status: str | None, code: str | None, subject: str) -> CheckpointError:
    if status is None and "error sending request" in text:
        return StoreUnavailableError(
            "the store did not answer",
            subject=subject,
            hint=f"Check the endpoint address, the network and the proxy settings. ({text})",
        )
    if status in {"429", "503"}:
        return StoreUnavailableError(
            f"the store asks for fewer requests ({code or status})", subject=subject, hint="Retry a little later."
        )
    return StoreUnavailableError(f"the store failed ({code or status or text})", subject=subject, hint=text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else next(group for group in match.groups() if group is not None)
