"""Choosing a recovery point among few and many retained checkpoints: the same time and the same requests."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import timeline_key
from airflow_provider_checkpoint.model import Timeline
from tests.benchmarks._measure import Contender, Line, lines
from tests.benchmarks._stores import artifact_key, layout_on, manifest_bytes, nth_id, put_all
from tests.contract.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.benchmarks._stage import Stage

NOW = datetime(2026, 11, 16, tzinfo=UTC)
#: A writer starts anew after so many checkpoints, and each start leaves a timeline.
PER_TIMELINE = 100
PARTITIONS = 4
#: As flat as a clock can tell.
AIM = 1.25


def _sizes(stage: Stage) -> list[int]:
    return stage.full([10, 1_000, 20_000], [10, 100, 2_000])


def _make(count: int) -> Iterator[tuple[str, bytes]]:
    """Manifests, timelines, a pointer, and the artifacts of the newest: only those are looked at."""
    body = b"s" * 64 * 1024
    parts = [(number, len(body), hashlib.sha256(body).hexdigest()) for number in range(PARTITIONS)]
    values = json.loads(manifest_bytes(nth_id(0), 1, parts, timeline=1))
    for number in range(count):
        values["epoch"] = number + 1
        values["timeline"] = 1 + number // PER_TIMELINE
        manifest = json.dumps(values, indent=2).replace(str(nth_id(0)), str(nth_id(number)))
        yield f"{nth_id(number)}/manifest.json", manifest.encode()
    for partition in range(PARTITIONS):
        yield artifact_key(nth_id(count - 1), partition), body
    yield "_latest", str(nth_id(count - 1)).encode()
    for number in range(1 + (count - 1) // PER_TIMELINE):
        start = number * PER_TIMELINE
        timeline = Timeline(
            number=number + 1,
            parent=number or None,
            fork_checkpoint=nth_id(start - 1) if number else None,
            fork_epoch=start or None,
            created=NOW,
            writer=str(number),
            owner="",
            reason="",
        )
        yield timeline_key(number + 1), timeline.model_dump_json(indent=2).encode()


def _choose(blobs: BlobStore, count: int) -> None:
    plan = choose(layout_on(blobs), Wish(), now=NOW)
    assert plan.chosen == nth_id(count - 1), plan


def local_rows(stage: Stage) -> Iterator[Line]:
    """Choose the newest valid checkpoint, proven to depth ``content``, on a local disk."""
    stores = {}
    for count in _sizes(stage):
        root = stage.folder / f"choosing-{count}"
        for key, body in _make(count):
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(body)
        stores[count] = LocalBlobs(root)
    yield from _flat(stage, stores, "on disk")


def s3_rows(stage: Stage) -> Iterator[Line]:
    """Choose the newest valid checkpoint, proven to depth ``content``, on S3."""
    stores = {}
    for count in _sizes(stage):
        prefix = f"choosing-{count}"
        stage.say(f"making {count:,} checkpoints")
        put_all(stage.bucket.raw(prefix), _make(count))
        stores[count] = stage.bucket.ours(prefix)
    yield from _flat(stage, stores, "on S3")
    requests = {count: _requests(stage, count) for count in _sizes(stage)}
    few, *others = requests
    for many in others:
        yield Line(
            f"requests to choose among {many:,} on S3",
            str(requests[many]),
            f"among {few:,}",
            str(requests[few]),
            requests[many] / requests[few],
            AIM,
        )


def _flat(stage: Stage, stores: dict[int, BlobStore], where: str) -> Iterator[Line]:
    few, *others = stores
    contenders = [
        Contender(f"among {count:,}", lambda blobs=blobs, count=count: _choose(blobs, count))  # type: ignore[misc]
        for count, blobs in stores.items()
    ]
    medians = stage.race(contenders, repeats=9)
    for many in others:
        what = f"choose a recovery point among {many:,} {where}"
        yield from lines(what, medians, {f"among {few:,}": AIM}, ours=f"among {many:,}")


def _requests(stage: Stage, count: int) -> int:
    """How many requests reach the server, counted by a proxy in between."""
    server = stage.bucket.server
    with Proxy(server.endpoint) as proxy:
        options = server.options() | {"endpoint_url": proxy.endpoint}
        _choose(open_blobs(f"s3://{server.bucket}", options).at(f"choosing-{count}"), count)
        return len(proxy.requests)
