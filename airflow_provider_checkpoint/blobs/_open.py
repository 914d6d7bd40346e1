"""From an address to a store."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from inspect import signature
from socket import gaierror
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pydantic import SecretStr

from airflow_provider_checkpoint.blobs._fence import FencedBlobs
from airflow_provider_checkpoint.blobs._local import LocalBlobs
from airflow_provider_checkpoint.blobs._memory import MemoryBlobs
from airflow_provider_checkpoint.blobs._options import StoreOptions
from airflow_provider_checkpoint.blobs._protocol import check_folder
from airflow_provider_checkpoint.blobs._shown import first_line, shown_address
from airflow_provider_checkpoint.exceptions import ConfigurationError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fsspec import AbstractFileSystem
    from obstore.store import ObjectStore

    from airflow_provider_checkpoint.blobs._protocol import BlobStore

#: Stores opened as ``memory://name`` live as long as the process, so that two openers of one name share it.
_memory: dict[str, MemoryBlobs] = {}

_S3 = {"s3", "s3a", "s3n"}
_GCS = {"gs", "gcs"}
_AZURE = {"az", "azure", "abfs", "abfss", "adl"}


def open_blobs(uri: str, options: StoreOptions | Mapping[str, Any] | None = None, **more: Any) -> BlobStore:
    """Open the store at an address.

    :param uri: ``/path``, ``file:///path``, ``memory://name``, ``s3://bucket/prefix``, ``gs://bucket/prefix``,
        ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``, or any address of an
        installed fsspec filesystem (``hdfs://``, ``sftp://``).
    :param options: :class:`StoreOptions` or their values; single ones may be given by keyword.

    Nothing is contacted yet. The first conditional write probes whether the store honours conditions.
    """
    if not isinstance(options, StoreOptions):
        options = StoreOptions.of({**(options or {}), **more})
    elif more:
        options = StoreOptions.of({**dict(options), **more})
    _check_address(uri)
    if "://" not in uri:
        return LocalBlobs(uri)
    parts = urlsplit(uri, allow_fragments=False)
    scheme = parts.scheme.lower()
    if scheme == "file":
        return _open_file(uri, parts.netloc, parts.path)
    if scheme == "memory":
        name = f"{parts.netloc}{parts.path}".strip("/")
        return _memory.setdefault(name, MemoryBlobs(name))
    if scheme in _S3 | _GCS | _AZURE:
        bucket, account, prefix = _bucket_parts(uri, scheme, parts.netloc, parts.path)
        if options.client != "fsspec":
            return _open_object(scheme, bucket, account, prefix, options)
    elif not _fsspec_knows(scheme):
        raise ConfigurationError(
            f"unknown kind of store {scheme!r}",
            subject=shown_address(uri),
            hint="Known are file, memory, s3, gs, az, abfss, and what fsspec has installed, such as hdfs or sftp.",
        )
    return _open_fsspec(uri, scheme, options)


def wrap_filesystem(fs: AbstractFileSystem, path: str, *, allow_unfenced: bool = False) -> BlobStore:
    """Use a filesystem object that the caller made."""
    from airflow_provider_checkpoint.blobs._fsspec import FsspecBlobs

    # Where it leads cannot be told from outside, so what was learnt of it holds for this handle alone.
    return FencedBlobs(FsspecBlobs(fs, path), endpoint=uuid4().hex, allow_unfenced=allow_unfenced)


def _check_address(uri: str) -> None:
    problem = None
    if not uri or "\x00" in uri:
        problem = "the address is empty" if not uri else "the address holds a NUL character"
    elif "://" in uri and "?" in uri:
        problem = "the address holds a query"
    elif "://" not in uri and ":" in uri and _is_scheme(uri.partition(":")[0].lower()):
        # It would be taken for a folder of that name below the current one.
        problem = "the address lacks its slashes"
    if problem is not None:
        raise ConfigurationError(
            problem,
            subject=shown_address(uri) or None,
            hint="Write /path or scheme://place/prefix; credentials are options, a question mark in a file address is"
            " %3F.",
        )


def _is_scheme(name: str) -> bool:
    return name in {"file", "memory"} | _S3 | _GCS | _AZURE or _fsspec_knows(name)


def _open_file(uri: str, host: str, path: str) -> BlobStore:
    if host not in ("", "localhost"):
        raise ConfigurationError(
            "a file address cannot name another host", subject=shown_address(uri), hint="Write file:///path."
        )
    return LocalBlobs(unquote(path))


def _bucket_parts(uri: str, scheme: str, netloc: str, path: str) -> tuple[str, str | None, str]:
    """Bucket, account and prefix of an object store's address."""
    bucket, account = netloc, None
    if scheme in _AZURE and "@" in netloc:
        bucket, _, host = netloc.partition("@")
        account = host.partition(".")[0]
    if not bucket or ":" in bucket or "@" in bucket:
        raise ConfigurationError(
            "the address names no bucket" if not bucket else "the address must not hold a user, secret or port",
            subject=shown_address(uri),
            hint="Write scheme://bucket/prefix; credentials and endpoint are options.",
        )
    return bucket, account, check_folder(path.strip("/"))


def _open_object(scheme: str, bucket: str, account: str | None, prefix: str, options: StoreOptions) -> BlobStore:
    from airflow_provider_checkpoint.blobs._object import ObjectBlobs

    family = "s3" if scheme in _S3 else "gs" if scheme in _GCS else "az"
    if family == "s3":
        options = _with_endpoint(options)
    connect = _connector(family, bucket, prefix, account, options)
    public = f"{family}://{bucket}/{prefix}".rstrip("/")
    return FencedBlobs(
        ObjectBlobs(public, connect),
        endpoint=f"{options.endpoint_url} {account or options.account_name} {options.extra}",
        allow_unfenced=options.allow_unfenced,
    )


def _with_endpoint(options: StoreOptions) -> StoreOptions:
    """The address of a server may come from the environment as well, and what follows from it follows all the same."""
    said = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    found = options.endpoint_url or next(filter(None, said), None)
    if found is None or found == options.endpoint_url:
        return options
    return options.model_copy(update={"endpoint_url": StoreOptions.of({"endpoint_url": found}).endpoint_url})


def _connector(
    family: str, bucket: str, prefix: str, account: str | None, options: StoreOptions
) -> Callable[[], ObjectStore]:
    def connect() -> ObjectStore:
        from obstore import store

        kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        config = {"s3": _s3_config, "gs": _gcs_config, "az": _azure_config}[family](options, account)
        credentials = options.credentials or _profile_credentials(options)
        try:
            handle: ObjectStore = kinds[family](
                bucket,
                prefix=prefix or None,
                config={**config, **options.extra},
                client_options={
                    "allow_http": (options.endpoint_url or "").startswith("http://"),
                    "connect_timeout": timedelta(seconds=options.connect_timeout),
                    "read_timeout": timedelta(seconds=options.read_timeout),
                    # The whole of a large object may take long; a stalled one is ended by the read timeout.
                    "timeout": timedelta(hours=1),
                },
                retry_config={
                    "max_retries": options.max_retries,
                    "retry_timeout": timedelta(seconds=options.retry_timeout),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=2),
                        "base": 2,
                    },
                },
                credential_provider=credentials,
            )
        except Exception as error:
            raise ConfigurationError(
                f"the client does not take these options ({first_line(error)})",
                subject=f"{family}://{bucket}/{prefix}",
                hint="Check the storage options, 'extra' included.",
            ) from error
        return handle

    return connect


def _profile_credentials(options: StoreOptions) -> Callable[[], Any] | None:
    if options.profile is None:
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ConfigurationError(
            "the option 'profile' needs boto3", hint="pip install boto3, or give the keys themselves."
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=options.profile))


def _s3_config(options: StoreOptions, _account: str | None) -> dict[str, Any]:
    path_style = options.path_style if options.path_style is not None else options.endpoint_url is not None
    return _given(
        aws_endpoint=options.endpoint_url,
        aws_region=options.region,
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        aws_session_token=options.session_token,
        aws_virtual_hosted_style_request=not path_style,
        aws_skip_signature=options.anonymous or None,
        # The one form of conditional copy that S3 itself has; large objects take their name by it.
        aws_copy_if_not_exists="multipart",
    )


def _gcs_config(options: StoreOptions, _account: str | None) -> dict[str, Any]:
    return _given(
        google_service_account=options.service_account,
        google_base_url=options.endpoint_url,
        google_skip_signature=options.anonymous or None,
    )


def _azure_config(options: StoreOptions, account: str | None) -> dict[str, Any]:
    return _given(
        azure_storage_account_name=account or options.account_name,
        azure_storage_account_key=options.account_key,
        azure_storage_sas_key=options.sas_token,
        azure_endpoint=options.endpoint_url,
        azure_skip_signature=options.anonymous or None,
    )


def _given(**values: Any) -> dict[str, Any]:
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in values.items()
    }
    return {name: value for name, value in plain.items() if value is not None}


def _fsspec_knows(scheme: str) -> bool:
    from fsspec.registry import known_implementations, registry

    return scheme in known_implementations or scheme in registry


def _open_fsspec(uri: str, scheme: str, options: StoreOptions) -> BlobStore:
    import fsspec

    from airflow_provider_checkpoint.blobs._fsspec import FsspecBlobs

    settings = {"skip_instance_cache": True, "use_listings_cache": False, **_fsspec_settings(scheme, options)}
    try:
        if scheme in _S3:
            settings.setdefault("session", _s3_session(options))
        fs, path = fsspec.core.url_to_fs(uri, **settings)
    except ImportError as error:
        raise ConfigurationError(
            f"the filesystem for {scheme!r} is not installed", subject=shown_address(uri), hint=first_line(error)
        ) from error
    except (ConnectionError, TimeoutError, gaierror) as error:
        # Some connect as soon as they are made.
        raise StoreUnavailableError(
            "the store did not answer",
            subject=shown_address(uri),
            hint=f"Check the address and the network. ({first_line(error)})",
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"the filesystem could not be opened ({type(error).__name__})",
            subject=shown_address(uri),
            hint=first_line(error),
        ) from error
    if scheme in _S3:
        # On top of the retries of its own client s3fs has a second round, for an answer that breaks off; one is enough.
        fs.retries = 2 if options.max_retries else 1
    return FencedBlobs(
        FsspecBlobs(fs, path),
        endpoint=f"{options.endpoint_url} {options.account_name} {options.extra}",
        allow_unfenced=options.allow_unfenced,
    )


def _s3_session(options: StoreOptions) -> Any:
    """The session of s3fs, without the question whether an upload is welcome: it waits for the answer for ever."""
    from botocore.handlers import add_expect_header
    from fsspec import get_filesystem_class

    # s3fs would hand on to its session what it does not know itself; a misspelt name is an error there.
    known = signature(get_filesystem_class("s3").__init__).parameters
    further = {name: value for name, value in options.extra.items() if name not in known}
    session = import_module("aiobotocore.session").AioSession(**_given(profile=options.profile), **further)
    session.unregister("before-call.s3", add_expect_header)
    return session


def _fsspec_settings(scheme: str, options: StoreOptions) -> dict[str, Any]:
    if scheme in _S3:
        named = _given(
            endpoint_url=options.endpoint_url,
            key=options.access_key_id,
            secret=options.secret_access_key,
            token=options.session_token,
            anon=options.anonymous or None,
            client_kwargs={"region_name": options.region} if options.region else None,
            config_kwargs={
                "connect_timeout": options.connect_timeout,
                "read_timeout": options.read_timeout,
                "retries": {"total_max_attempts": 1 + options.max_retries, "mode": "standard"},
            },
        )
    elif scheme in _AZURE:
        named = _given(
            account_name=options.account_name,
            account_key=options.account_key,
            sas_token=options.sas_token,
            anon=options.anonymous or None,
        )
    elif scheme in _GCS:
        named = _given(
            token="anon" if options.anonymous else options.service_account, endpoint_url=options.endpoint_url
        )
    else:
        named = {}
    return {**named, **options.extra}
