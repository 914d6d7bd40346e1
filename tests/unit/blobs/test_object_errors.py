"""What the object store client says, in the words of our own tree. Most of these answers no emulator gives."""

from __future__ import annotations

import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from airflow_provider_checkpoint.blobs._object_errors import translate
from airflow_provider_checkpoint.blobs._shown import first_line, shown_address
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

SUBJECT = "s3://bucket/key"


def s3(status: int, code: str, store: str = "S3") -> str:
    return (
        f"Generic {store} error: Error performing PUT https://bucket.s3.amazonaws.com/key in 9.5ms, after 3 retries -"
        f' Server returned non-2xx status code: {status} Reason: <?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>Something.</Message></Error>\n\nDebug source:\nGeneric {{ inner }}"
    )


def gcs(status: int) -> str:
    return (
        "Generic GCS error: Error performing GET https://storage.googleapis.com/bucket/key in 12ms - Server returned"
        f' non-2xx status code: {status} Reason: {{"error": {{"code": {status}, "message": "Something."}}}}'
    )


CASES: list[tuple[Exception, type[CheckpointError], str]] = [
    (FileNotFoundError(s3(404, "NoSuchKey")), BlobNotFoundError, ""),
    (GenericError(s3(404, "NoSuchKey")), BlobNotFoundError, ""),
    (FileNotFoundError(s3(404, "NoSuchBucket")), ContainerNotFoundError, "Create it"),
    (FileNotFoundError(s3(404, "ContainerNotFound", "MicrosoftAzure")), ContainerNotFoundError, "Create it"),
    (FileNotFoundError("The specified bucket does not exist."), ContainerNotFoundError, "Create it"),
    (PermissionDeniedError(s3(403, "AccessDenied")), AccessDeniedError, "lack a right"),
    (
        GenericError("Generic S3 error: DeleteObjects failed for key k: x (code: AccessDenied)"),
        AccessDeniedError,
        "right",
    ),
    (PermissionDeniedError(s3(403, "InvalidAccessKeyId")), AccessDeniedError, "unknown to this store"),
    (PermissionDeniedError(s3(403, "SignatureDoesNotMatch")), AccessDeniedError, "secret"),
    (PermissionDeniedError(s3(403, "AuthenticationFailed", "MicrosoftAzure")), AccessDeniedError, "SAS"),
    (GenericError(s3(400, "ExpiredToken")), AccessDeniedError, "expired"),
    (UnauthenticatedError(gcs(401)), AccessDeniedError, "right"),
    (UnauthenticatedError("no valid credentials for path x: the vault is closed"), AccessDeniedError, "vault"),
    (
        GenericError("error sending request for http://169.254.169.254/latest/api/token"),
        AccessDeniedError,
        "environment",
    ),
    (GenericError("error: http://metadata.google.internal/computeMetadata"), AccessDeniedError, "environment"),
    (GenericError(s3(301, "PermanentRedirect")), ConfigurationError, "region"),
    (GenericError(s3(400, "AuthorizationHeaderMalformed")), ConfigurationError, "region"),
    (GenericError(s3(400, "InvalidArgument")), ConfigurationError, "status code: 400"),
    (GenericError(s3(413, "EntityTooLarge")), ConfigurationError, "413"),
    (UnknownConfigurationKeyError("no such key"), ConfigurationError, "name of the option"),
    (NotSupportedError("x"), UnsupportedError, ""),
    (NotImplementedError("x"), UnsupportedError, ""),
    (InvalidPathError("x"), InvalidKeyError, ""),
    (ValueError("x"), InvalidKeyError, ""),
    (AlreadyExistsError(s3(409, "OperationAborted")), StoreUnavailableError, "409"),
    (PreconditionError(s3(409, "ConditionalRequestConflict")), StoreUnavailableError, "409"),
    (GenericError(s3(408, "RequestTimeout")), StoreUnavailableError, "408"),
    (GenericError(s3(429, "TooManyRequests")), StoreUnavailableError, "later"),
    (GenericError(s3(503, "SlowDown")), StoreUnavailableError, "later"),
    (GenericError(s3(500, "InternalError")), StoreUnavailableError, "500"),
    (GenericError(gcs(502)), StoreUnavailableError, "502"),
    (GenericError("Generic S3 error: error sending request"), StoreUnavailableError, "endpoint"),
    (GenericError("Generic S3 error: operation timed out"), StoreUnavailableError, "timed out"),
    (BaseError(""), StoreUnavailableError, ""),
]


@pytest.mark.parametrize(("error", "kind", "hint"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_each_answer_has_its_error_and_its_hint(error: Exception, kind: type[CheckpointError], hint: str) -> None:
    translated = translate(error, SUBJECT)
    assert type(translated) is kind
    assert translated.subject == SUBJECT
    assert hint in str(translated.hint)
    assert "\n" not in translated.message
    assert "Debug source" not in str(translated)
    assert "<?xml" not in str(translated)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\ntwo", "one"),
        ("  one  \n", "one"),
        ("\n\nlate", "late"),
        ("", "ValueError"),
        ("GET http://host/c?sv=1&sig=SECRET in 3ms", "GET http://host/c?… in 3ms"),
        ('url "http://host/c?sig=SECRET", x', 'url "http://host/c?…", x'),
        ("(http://host/c?sig=SECRET)", "(http://host/c?…)"),
        ("code: 400 <?xml version=1?>", "code: 400"),
    ],
)
def test_of_a_librarys_text_the_first_line_is_shown_without_signatures(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/folder", "/folder"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://user:word@bucket/prefix", "s3://bucket/prefix"),
        ("az://container/prefix?sig=word", "az://container/prefix"),
        ("sftp://user:w@rd@host/path", "sftp://host/path"),
    ],
)
def test_of_an_address_everything_is_shown_but_what_may_be_secret(address: str, shown: str) -> None:
    assert shown_address(address) == shown
