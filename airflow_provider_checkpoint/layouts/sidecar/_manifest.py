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
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts._fields import I64, U16, U32, U64, ByName, Names, Text
from airflow_provider_checkpoint.layouts._json import parse_model, parse_object
from airflow_provider_checkpoint.layouts._sinks import SinkCommitStatus
from airflow_provider_checkpoint.layouts.sidecar._rules import MANIFEST_VERSION, manifest_issues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_checkpoint.model import Issue

DEFAULT_VNODE_COUNT = 256
DEFAULT_INLINE_THRESHOLD = 1_048_576


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
    def validate(self, expected_vnode_count: int | None) -> list[Issue]:  # type: ignore[override] # see above
        """Everything that is wrong with the manifest itself; reads nothing else.

        Errors are what makes a restore wrong: a version this reader does not know, an id or epoch of 0, ranges of the
        sidecar that overlap, state that cannot be decoded, and a ``vnode_count`` other than the expected one. For the
        last the reference only warns; but keys map to vnodes by that count, so each operator would look for its state
        in the wrong shards, find none, and go on as if it had never seen the key. Everything else is a warning.
        Without an expected count, None, whatever the manifest says will do.
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
