"""A store to measure on: a real S3 server on loopback, the clients that compete for it, and objects made in bulk."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import obstore
from obstore.store import S3Store

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    OperatorEntry,
    PartitionedLayout,
    PartitionEntry,
    encode_manifest,
)
from airflow_provider_checkpoint.lifecycle.side_by_side import streaming
from airflow_provider_checkpoint.model import CheckpointId
from tests.servers import S3Server, Servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_checkpoint.blobs import BlobStore

#: Objects under way at once while the stage is set.
_WIDTH = 32
#: Tiny objects live in the server's index, and there are volumes enough for a few gigabytes.
_QUICK_SERVER = ("-filer.saveToFilerLimit=2048", "-master.volumeSizeLimitMB=256", "-volume.max=40")
OPERATOR = "totals"


class QuickServers(Servers):
    """The servers of the tests, with settings that suit many small objects."""

    def _start(
        self,
        name: str,
        count: int,
        command: Callable[[Path, Sequence[int]], list[str]],
        ready: Callable[[Sequence[int]], Any],
    ) -> Any:
        return super()._start(name, count, lambda home, ports: [*command(home, ports), *_QUICK_SERVER], ready)


class Bucket:
    """One S3 server, and every client's view of a part of its bucket."""

    def __init__(self, server: S3Server) -> None:
        self.server = server

    def uri(self, prefix: str) -> str:
        return f"s3://{self.server.bucket}/{prefix}"

    def ours(self, prefix: str) -> BlobStore:
        """As a pipeline below a root: the way the lifecycle sees a store."""
        return open_blobs(f"s3://{self.server.bucket}", self.server.options()).at(prefix)

    def raw(self, prefix: str) -> S3Store:
        return S3Store(
            self.server.bucket,
            prefix=prefix,
            config={
                "aws_endpoint": self.server.endpoint,
                "aws_region": "us-east-1",
                "aws_access_key_id": "admin",
                "aws_secret_access_key": "admin-secret",
                "aws_virtual_hosted_style_request": False,
            },
            client_options={"allow_http": True},
        )

    @cached_property
    def s3fs(self) -> Any:
        import s3fs

        return s3fs.S3FileSystem(
            endpoint_url=self.server.endpoint,
            key="admin",
            secret="admin-secret",
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def boto3(self) -> Any:
        return closing(self.server.client())

    def rclone(self, *words: str) -> bytes:
        """Run rclone on this server, where ``s3:`` is the bucket's server."""
        settings = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": self.server.endpoint,
            "ACCESS_KEY_ID": "admin",
            "SECRET_ACCESS_KEY": "admin-secret",
        }
        return rclone(*words, env={f"RCLONE_CONFIG_S3_{name}": value for name, value in settings.items()})


def rclone(*words: str, env: dict[str, str] | None = None) -> bytes:
    tool = Path(sysconfig.get_path("scripts")) / "rclone"
    done = subprocess.run(
        [tool, "--config=", *words], check=True, capture_output=True, env={**os.environ, **(env or {})}
    )
    return done.stdout


def put_all(store: S3Store, objects: Iterable[tuple[str, bytes]]) -> None:
    for _ in streaming(lambda each: obstore.put(store, *each, use_multipart=False), objects, width=_WIDTH):
        pass


# -- checkpoints in bulk -----------------------------------------------------------------------------------------


def nth_id(number: int) -> CheckpointId:
    """A UUIDv7, ascending with the number."""
    value = (0x0192A3B4C5D6 << 80) | (0x7 << 76) | (0b10 << 62) | number
    return CheckpointId(str(UUID(int=value)))


def artifact_key(checkpoint_id: CheckpointId, partition: int) -> str:
    return f"{checkpoint_id}/operators/{OPERATOR}/partition-{partition}.snap"


def manifest_bytes(
    checkpoint_id: CheckpointId, epoch: int, parts: Iterable[tuple[int, int, str]], **more: Any
) -> bytes:
    """A manifest of artifacts given by number, size and digest."""
    entries = [
        PartitionEntry(
            partition_id=number,
            is_delta=False,
            path=artifact_key(checkpoint_id, number),
            size_bytes=size,
            sha256=sha256,
        )
        for number, size, sha256 in parts
    ]
    return encode_manifest(
        CheckpointManifestV2(
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            timestamp_ms=1_700_000_000_000 + epoch * 60_000,
            operators={OPERATOR: OperatorEntry.of(entries)} if entries else {},
            **more,
        )
    )


def layout_on(blobs: BlobStore) -> PartitionedLayout:
    return PartitionedLayout(blobs)
