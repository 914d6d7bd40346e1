"""What a user may say about how to reach a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from airflow_provider_checkpoint.exceptions import ConfigurationError


class StoreOptions(BaseModel):
    """How to reach a store. Everything has a default: the environment, as the cloud's own tools read it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint_url: str | None = Field(None, description="Address of an S3-compatible server, or of an emulator.")
    region: str | None = Field(None, description="Region of the bucket.")
    path_style: bool | None = Field(
        None, description="Put the bucket into the path instead of the host name; default: yes if endpoint_url is set."
    )
    anonymous: bool = Field(False, description="Send unsigned requests, for public buckets.")

    access_key_id: str | None = Field(None, description="S3 access key.")
    secret_access_key: SecretStr | None = Field(None, description="S3 secret.")
    session_token: SecretStr | None = Field(None, description="S3 session token.")
    profile: str | None = Field(None, description="Profile of the AWS configuration files (needs boto3).")

    account_name: str | None = Field(None, description="Azure storage account.")
    account_key: SecretStr | None = Field(None, description="Azure account key.")
    sas_token: SecretStr | None = Field(None, description="Azure shared access signature.")

    service_account: str | None = Field(None, description="Path of a Google service account file.")

    credentials: Callable[[], Any] | None = Field(
        None,
        description="Called whenever credentials are needed; answers as obstore's credential providers do, with a dict"
        " of the parts and 'expires_at'. Refreshes while long tasks run.",
    )

    connect_timeout: float = Field(5.0, gt=0, description="Seconds to wait for a connection.")
    read_timeout: float = Field(30.0, gt=0, description="Seconds to wait for the next bytes of an answer.")
    max_retries: int = Field(3, ge=0, description="How often the client repeats a failed request.")
    retry_timeout: float = Field(15.0, gt=0, description="Seconds after which a failing request is given up.")

    allow_unfenced: bool = Field(
        False, description="Use a store that cannot keep two writers apart. Only where exactly one can ever run."
    )
    client: Literal["auto", "obstore", "fsspec"] = Field("auto", description="Which library talks to an object store.")
    extra: dict[str, Any] = Field(
        default_factory=dict,
        # Some of these are secrets; which ones only the library knows.
        repr=False,
        description="Further settings, handed to the client library under its own names.",
    )

    @field_validator("endpoint_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        # The client panics on what is no address, and shows what it was given.
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("write it as http://host:port or https://host")
            if parts.username is not None or parts.query:
                raise ValueError("it must hold neither user nor query; credentials are options of their own")
        return value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StoreOptions:
        """Options from plain values, with an error that names the wrong one and what there is."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            unknown = first["type"] == "extra_forbidden"
            raise ConfigurationError(
                f"unknown storage option {name!r}" if unknown else f"storage option {name!r}: {first['msg'].lower()}",
                hint=f"Known options: {', '.join(sorted(cls.model_fields))}.",
            ) from None
