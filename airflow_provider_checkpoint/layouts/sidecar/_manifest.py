"""The manifest: what one checkpoint says of itself, as the reference writes it, byte for byte.

Reading is strict where a mistake would be restored: numbers have their ranges and no other type passes for them, null
is not an empty map, a key stands once. Keys nobody knows are ignored, and keys that older writers did not have yet have
their defaults. One key is ours, ``timeline``: it stands last and only when set, so a manifest without it is exactly
what the reference would have written, and a reader of the reference ignores it.

Nothing in the format protects the manifest's own text. ``state_checksum`` protects the bytes of state, in the manifest
and beside it; a changed name, number or position elsewhere is found only if it breaks a rule (see ``_rules``). To that
checksum an inline state that is empty and one that is not there are the same.
"""

from __future__ import annotations

import binascii
import json
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Strict,
    WrapSerializer,
)

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts.sidecar._rules import MANIFEST_VERSION, manifest_issues
from airflow_provider_checkpoint.model import Issue, SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_VNODE_COUNT = 256
DEFAULT_INLINE_THRESHOLD = 1_048_576

Value = TypeVar("Value")


def _by_name(values: dict[str, Any], dump: SerializerFunctionWrapHandler) -> Any:
    return dump(dict(sorted(values.items())))


U16: TypeAlias = Annotated[int, Field(ge=0, lt=2**16)]
U32: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
U64: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]
I64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
# A bound, however low, makes pydantic look at the characters: half a character is refused here, not when written.
Text: TypeAlias = Annotated[str, Field(min_length=0)]
Names: TypeAlias = Annotated[tuple[Text, ...], Strict(False)]
# Maps are written sorted by name, so that equal manifests are equal bytes.
ByName: TypeAlias = Annotated[dict[Text, Value], WrapSerializer(_by_name)]


# -- sink statuses, externally tagged: "Pending", "Committed", {"Failed": "why"} ---------------------------------


def _status_from_tag(value: object) -> SinkStatus:
    match value:
        case SinkStatus(state=state, message=message):
            # The epoch of a sink stands in sink_epochs.
            return SinkStatus(state, message=(message or "") if state is SinkState.FAILED else None)
        case dict() if len(value) != 1:
            pass
        case "Pending" | {"Pending": None}:
            return SinkStatus(SinkState.PENDING)
        case "Committed" | {"Committed": None}:
            return SinkStatus(SinkState.COMMITTED)
        case {"Failed": str(message)}:
            return SinkStatus(SinkState.FAILED, message=message)
    raise ValueError('neither "Pending", "Committed" nor {"Failed": "why"}')


def _status_to_tag(status: SinkStatus) -> str | dict[str, str]:
    return {"Failed": status.message or ""} if status.state is SinkState.FAILED else status.state.value.capitalize()


SinkCommitStatus: TypeAlias = Annotated[SinkStatus, PlainValidator(_status_from_tag), PlainSerializer(_status_to_tag)]


# -- parts of the manifest ---------------------------------------------------------------------------------------


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class ConnectorCheckpoint(_Record):
    """Where a source or a reference table stood. What the names and values mean is the connector's."""

    offsets: ByName[Text]
    epoch: U64
    metadata: ByName[Text] = Field(default_factory=dict)

    @property
    def connector_type(self) -> str:
        return self.metadata.get("connector_type", "")


class OperatorCheckpoint(_Record):
    """State of one operator: in the manifest as base64, or a range of the sidecar. Neither means: no state."""

    state_b64: Text | None = None
    external: bool = False
    external_offset: U64 = 0
    external_length: U64 = 0

    @classmethod
    def inline(cls, state: bytes) -> Self:
        return cls(state_b64=binascii.b2a_base64(state, newline=False).decode())

    @classmethod
    def at(cls, offset: int, length: int) -> Self:
        """State that lies in the sidecar."""
        return cls(external=True, external_offset=offset, external_length=length)

    @classmethod
    def from_bytes(cls, state: bytes, *, threshold: int, offset: int) -> tuple[Self, bytes | None]:
        """State up to the threshold goes inline; more goes to the sidecar, and is handed back to be put there."""
        if len(state) <= threshold:
            return cls.inline(state), None
        return cls.at(offset, len(state)), state

    def try_decode(self) -> bytes | None:
        """The inline state; None if there is none. Raises CorruptManifestError if it is not base64."""
        if self.external or self.state_b64 is None:
            return None
        try:
            return binascii.a2b_base64(self.state_b64, strict_mode=True)
        except ValueError as error:
            raise CorruptManifestError(
                f"inline state is not base64: {error}",
                hint="Starting the operator empty would give wrong results. Use another checkpoint.",
            ) from None

    @property
    def inline_size(self) -> int:
        """Bytes of state in the manifest, told by the length of the text."""
        text = "" if self.external or self.state_b64 is None else self.state_b64
        return max(0, len(text) // 4 * 3 - text[-2:].count("="))

    @property
    def external_end(self) -> int:
        """The sidecar must reach as far as this."""
        return self.external_offset + self.external_length if self.external else 0


# -- the manifest ------------------------------------------------------------------------------------------------


class CheckpointManifest(_Record):
    """A point-in-time snapshot of a pipeline."""

    version: U32
    checkpoint_id: U64
    epoch: U64
    timestamp_ms: U64
    source_offsets: ByName[ConnectorCheckpoint] = Field(default_factory=dict)
    sink_epochs: ByName[U64] = Field(default_factory=dict)
    sink_commit_statuses: ByName[SinkCommitStatus] = Field(default_factory=dict)
    table_offsets: ByName[ConnectorCheckpoint] = Field(default_factory=dict)
    operator_states: ByName[OperatorCheckpoint] = Field(default_factory=dict)
    table_store_checkpoint_path: Text | None = None
    watermark: I64 | None = None
    source_watermarks: ByName[I64] = Field(default_factory=dict)
    source_names: Names = ()
    sink_names: Names = ()
    pipeline_hash: U64 | None = None
    vnode_count: U16 = 0
    """0 in manifests of writers that did not know vnodes yet."""
    state_checksum: Text | None = None

    timeline: Annotated[U64, Field(ge=1)] | None = None

    @classmethod
    def new(
        cls, checkpoint_id: int, epoch: int, vnode_count: int = DEFAULT_VNODE_COUNT, *, timestamp_ms: int
    ) -> CheckpointManifest:
        """A manifest that says nothing yet but its id, epoch and time."""
        return cls(
            version=MANIFEST_VERSION,
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            vnode_count=vnode_count,
        )

    @classmethod
    def from_json(cls, data: bytes, *, subject: str = "manifest") -> CheckpointManifest:
        """Read a manifest; raises CorruptManifestError. What its version means is judged by ``validate``."""
        return parse_model(cls, parse_object(data, subject=subject), subject=subject)

    def to_json(self) -> bytes:
        unset = {"timeline"} if self.timeline is None else None
        return self.model_dump_json(indent=2, exclude=unset).encode()

    def changed(self, **values: Any) -> CheckpointManifest:
        """The same manifest with some keys set; unlike ``model_copy`` the values are checked."""
        return type(self).model_validate(dict(self) | values)

    # pydantic's own method of this name is deprecated and not used; the seed names this one so.
    def validate(self, expected_vnode_count: int) -> list[Issue]:  # type: ignore[override] # see above
        """Everything that is wrong with the manifest itself; reads nothing else.

        Errors are what makes a restore wrong: a version this reader does not know, an id or epoch of 0, ranges of the
        sidecar that overlap, state that cannot be decoded, and a ``vnode_count`` other than the expected one. For the
        last the reference only warns; but keys map to vnodes by that count, so each operator would look for its state
        in the wrong shards, find none, and go on as if it had never seen the key. Everything else is a warning.
        """
        return manifest_issues(self, expected_vnode_count)


def with_sinks(values: Mapping[str, Any], manifest: CheckpointManifest) -> bytes:
    """Parsed JSON of a manifest with the sinks of another, and nothing else changed.

    Works on parsed JSON and not on the model, so keys that another writer added survive.
    """
    sinks = manifest.model_dump(mode="json", include={"sink_epochs", "sink_commit_statuses"})
    try:
        return json.dumps(dict(values) | sinks, indent=2, ensure_ascii=False).encode()
    except RecursionError:
        raise CorruptManifestError("nested too deeply to be written again") from None
