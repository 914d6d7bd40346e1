"""Any bytes, given to the readers of the sidecar layout."""

from __future__ import annotations

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptError
from airflow_provider_checkpoint.layouts.sidecar import CheckpointManifest, SidecarLayout
from airflow_provider_checkpoint.layouts.sidecar._names import POINTER, manifest_key, named, state_key
from airflow_provider_checkpoint.model import CheckpointId, Depth


def fuzz_one(data: bytes) -> None:
    """Bytes are a manifest or a typed error; a manifest says the same after another round; every reader copes."""
    manifest = _decoded(data)
    if manifest is not None:
        written = manifest.to_json()
        assert _decoded(written) == manifest
        assert CheckpointManifest.from_json(written).to_json() == written
        manifest.validate(256)
    _look_at_store(data, 1 if manifest is None else manifest.checkpoint_id, manifest)
    named(data.decode("latin-1"))


def _decoded(data: bytes) -> CheckpointManifest | None:
    try:
        return CheckpointManifest.from_json(data)
    except CorruptError:
        return None


def _look_at_store(data: bytes, number: int, manifest: CheckpointManifest | None) -> None:
    """The same bytes as manifest, sidecar and pointer of a store."""
    blobs = MemoryBlobs()
    for key in (manifest_key(number), state_key(number), POINTER):
        blobs.create(key, data)
    layout = SidecarLayout(blobs)
    layout.read_pointer()
    layout.recover_latest_validated()
    checkpoint = layout.examine(CheckpointId(number)).checkpoint
    assert checkpoint is None or manifest is not None
    if checkpoint is not None:
        for check in layout.checks(checkpoint, Depth.RESTORE):
            check.run()
    for name in () if manifest is None else manifest.operator_states:
        try:
            layout.load_operator_state(manifest, name)
        except CorruptError:
            continue
