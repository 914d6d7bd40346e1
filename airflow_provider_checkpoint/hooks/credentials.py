"""Credentials for a store, from the connection that Airflow keeps for its cloud.

The amazon provider does the work for AWS: keys, profiles, assumed roles and session tokens, refreshed while a long task
runs. Google and Azure connections are read by the names under which their providers keep things.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.exceptions import AccessDeniedError, ConfigurationError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import Connection

# botocore renews credentials that are about to expire at the latest ten minutes before, so for that long they are good.
_GOOD_FOR = timedelta(minutes=10)


def options_of(connection: Connection) -> dict[str, Any]:
    """Store options that a cloud's connection stands for."""
    readers: dict[str, Callable[[Connection], dict[str, Any]]] = {
        "aws": _aws,
        "s3": _aws,
        "google_cloud_platform": _google,
        "wasb": _azure,
        "adls": _azure,
    }
    reader = readers.get(connection.conn_type or "")
    if reader is None:
        raise ConfigurationError(
            f"no credentials can be had from a connection of type {connection.conn_type!r}",
            subject=f"connection {connection.conn_id}",
            hint=f"storage_conn_id names a connection of type {', '.join(sorted(readers))}.",
        )
    return {name: value for name, value in reader(connection).items() if value not in (None, "")}


def environment_of(connection: Connection) -> dict[str, str]:
    """The same credentials as variables that a Spark driver reads; as they are now, for nobody refreshes them there."""
    if connection.conn_type not in ("aws", "s3"):
        raise ConfigurationError(
            f"credentials of a connection of type {connection.conn_type!r} cannot be handed to a Spark job",
            subject=f"connection {connection.conn_id}",
            hint="Give the job its credentials as its cluster does: a role, a workload identity, or env_vars.",
        )
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    with _told(connection):
        session = AwsBaseHook(aws_conn_id=connection.conn_id, client_type="s3").get_session()
        found = session.get_credentials()
        if found is None:
            raise _nothing_found(connection)
        frozen = found.get_frozen_credentials()
    return {
        "AWS_ACCESS_KEY_ID": frozen.access_key,
        "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
        **({"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {}),
        **({"AWS_REGION": session.region_name} if session.region_name else {}),
    }


def _aws(connection: Connection) -> dict[str, Any]:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    from obstore.auth.boto3 import Boto3CredentialProvider

    hook = AwsBaseHook(aws_conn_id=connection.conn_id, client_type="s3")
    with _told(connection):
        session = hook.get_session()
        if session.get_credentials() is None:
            raise _nothing_found(connection)
    return {
        "credentials": Boto3CredentialProvider(session, ttl=_GOOD_FOR),
        "region": session.region_name,
        "endpoint_url": hook.conn_config.get_service_endpoint_url("s3"),
    }


@contextmanager
def _told(connection: Connection) -> Iterator[None]:
    """What goes wrong where AWS hands out credentials, as errors of this package. None of them holds a secret."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnectionError

    about = f"connection {connection.conn_id}"
    try:
        yield
    except (HTTPClientError, NoConnectionError) as error:
        raise StoreUnavailableError(f"the token service did not answer ({error})", subject=about) from error
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500 or code == "Throttling":
            raise StoreUnavailableError(f"the token service failed ({code})", subject=about) from error
        raise AccessDeniedError(
            f"AWS hands out no credentials ({code}: {error.operation_name})",
            subject=about,
            hint="Check the role, its trust policy, and the keys with which it is asked for.",
        ) from error
    except BotoCoreError as error:
        # A profile that is not there, a configuration file that cannot be read.
        raise ConfigurationError(f"no credentials: {error}", subject=about) from error


def _nothing_found(connection: Connection) -> ConfigurationError:
    return ConfigurationError(
        "the connection yields no credentials",
        subject=f"connection {connection.conn_id}",
        hint="Fill in keys, a profile or a role; or leave storage_conn_id out to use the worker's own environment.",
    )


def _google(connection: Connection) -> dict[str, Any]:
    extra = connection.extra_dejson
    keys = extra.get("keyfile_dict")
    if keys:
        text = keys if isinstance(keys, str) else json.dumps(keys)
        return {"extra": {"google_service_account_key": text}}
    return {"service_account": extra.get("key_path")}


def _azure(connection: Connection) -> dict[str, Any]:
    extra = connection.extra_dejson
    sas = extra.get("sas_token")
    return {
        "account_name": connection.login or extra.get("account_name"),
        "account_key": None if sas else connection.password,
        "sas_token": sas,
    }
