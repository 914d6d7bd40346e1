"""What a directory says of its operators with state: their stores, and in how many partitions those lie."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._fields import Text
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts.structured_streaming._logs import MAX_PARTITIONS
from airflow_provider_checkpoint.layouts.structured_streaming._text import lines_of, parse_version

_OPERATOR_VERSION = 2
#: As much of a schema file as is looked at for its key columns.
KEY_SCHEMA_BYTES = 1024 * 1024


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _OperatorInfo(_Model):
    operatorId: int | None = None  # noqa: N815 - Spark's own name
    operatorName: Text = ""  # noqa: N815 - Spark's own name


class _StoreInfo(_Model):
    storeName: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)]  # noqa: N815 - Spark's
    numPartitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)]  # noqa: N815 - Spark's own name
    stateSchemaFilePaths: list[Text] = Field(default_factory=list)  # noqa: N815 - Spark's own name


class _OperatorMetadata(_Model):
    operatorInfo: _OperatorInfo = _OperatorInfo()  # noqa: N815 - Spark's own name
    stateStoreInfo: list[_StoreInfo]  # noqa: N815 - Spark's own name


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator's own metadata says of it."""

    number: int | None
    """Its place in the plan, which is also the name of its folder."""
    name: str
    stores: tuple[str, ...]
    """In the order in which a commit names their unique ids."""
    partitions: int | None
    """As recorded when the operator was first run. Version 1 of the file is never written again, not even when the
    state is repartitioned, so the number in the offset log counts for more."""
    version: int
    schema_paths: tuple[str, ...] = ()
    """Where the schemas of its stores are, as absolute paths: since version 2, and wrong once a directory is moved."""


def parse_operator(data: bytes, *, subject: str) -> Operator:
    """Read ``_metadata/metadata`` or ``_metadata/v2/N``; raises CorruptManifestError."""
    lines = lines_of(data, subject=subject)
    version = parse_version(lines[0], _OPERATOR_VERSION, subject=subject)
    if len(lines) < 2:
        raise CorruptManifestError("the file ends after its version", subject=subject)
    metadata = parse_model(_OperatorMetadata, parse_object(lines[1].encode(), subject=subject), subject=subject)
    return Operator(
        number=metadata.operatorInfo.operatorId,
        name=metadata.operatorInfo.operatorName,
        stores=tuple(dict.fromkeys(store.storeName for store in metadata.stateStoreInfo)),
        partitions=max((store.numPartitions for store in metadata.stateStoreInfo), default=None),
        version=version,
        schema_paths=tuple(path for store in metadata.stateStoreInfo for path in store.stateSchemaFilePaths),
    )


def has_one_partition(schema: bytes, *, subject: str) -> bool:
    """Whether a store can only have one partition, going by the beginning of its schema file.

    That of an aggregate over everything has no key columns; that of a limit has one of the type ``void``. Both live in
    partition 0 alone, whatever number of partitions is recorded. Raises CorruptManifestError.
    """
    try:
        fields = json.loads(_first_text(schema))["fields"]
        return all(field["type"] == "void" for field in fields)
    except (struct.error, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError):
        raise CorruptManifestError("not a schema of a state store", subject=subject) from None


def _first_text(data: bytes) -> str:
    """The key schema: after the version, a count of chunks and each of them with its length, as Java writes them."""
    position = 2 + struct.unpack_from(">H", data, 0)[0]
    (chunks,) = struct.unpack_from(">i", data, position)
    position += 4
    text = bytearray()
    for _ in range(chunks):
        (length,) = struct.unpack_from(">H", data, position)
        text += data[position + 2 : position + 2 + length]
        position += 2 + length
    return text.decode()
