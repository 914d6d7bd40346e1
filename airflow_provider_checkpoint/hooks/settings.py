"""What a connection of type ``checkpoint_store`` says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_provider_checkpoint.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONN_TYPE = "checkpoint_store"


class StoreSettings(BaseModel):
    """The address and the extras of a connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    layout: Literal["auto", "sidecar", "partitioned", "stream", "structured_streaming"] = "auto"
    storage_conn_id: str | None = None
    endpoint_url: str | None = None
    region: str | None = None
    vnode_count: int | None = Field(None, ge=1, lt=2**16)
    allow_unfenced: bool = False

    @classmethod
    def of(cls, connection: Connection) -> StoreSettings:
        """Read a connection; a wrong or misspelt extra is an error that names it."""
        about = f"connection {connection.conn_id}"
        if connection.conn_type != CONN_TYPE:
            raise ConfigurationError(
                f"a connection of type {connection.conn_type!r}, not {CONN_TYPE!r}",
                subject=about,
                hint="Credentials go into a connection of the cloud's own type; name it as storage_conn_id in the"
                " extras of a Checkpoint Store connection.",
            )
        uri = (connection.host or "").strip()
        if not uri:
            raise ConfigurationError(
                "the connection has no address", subject=about, hint="Set its Store URI (host): s3://bucket/prefix."
            )
        if "://" not in uri and not uri.startswith("/"):
            # It would mean another folder in each process, so that no two of them see the same store.
            raise ConfigurationError(
                "the address is neither a whole path nor has it a scheme",
                subject=about,
                hint="Write s3://bucket/prefix, gs://..., az://..., or /a/folder.",
            )
        # The form leaves what is not filled in empty or null.
        extras = {name: value for name, value in _extras(connection).items() if value not in (None, "")}
        try:
            return cls(uri=uri, **extras)
        except (ValidationError, TypeError) as error:
            raise ConfigurationError(
                _what_is_wrong(error), subject=about, hint=f"Extras: {', '.join(list(cls.model_fields)[1:])}."
            ) from None


def _extras(connection: Connection) -> dict[str, Any]:
    try:
        extras = json.loads(connection.extra or "{}")
    except ValueError:
        extras = None
    if not isinstance(extras, dict):
        # What it holds is not repeated: it may be a secret.
        raise ConfigurationError("the extras are not a JSON object", subject=f"connection {connection.conn_id}")
    return extras


def _what_is_wrong(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return "the address is the host of the connection, not an extra"
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    return f"extra {name!r}: {first['msg'].lower()}"
