"""Listing and deleting many objects on S3: ours, as the lifecycle does it, against four other clients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import obstore

from airflow_provider_checkpoint.lifecycle.executor import Executor
from tests.benchmarks._measure import Contender, Line, lines
from tests.benchmarks._stores import artifact_key, layout_on, nth_id, put_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks._stage import Stage

#: Within a quarter of the bare client, and ahead of everybody else.
AIMS = {"obstore": 1.25, "rclone": 1.0, "boto3": 1.0, "s3fs": 1.0}


def list_rows(stage: Stage) -> Iterator[Line]:
    """List every object of a store: name, size, time and version of each."""
    prefix, wanted = stage.many_objects, stage.many
    bucket, server = stage.bucket, stage.bucket.server
    blobs, raw, s3fs = bucket.ours(prefix), bucket.raw(prefix), bucket.s3fs

    def counted(found: int) -> None:
        assert found == wanted, f"{found} objects instead of {wanted}"

    with bucket.boto3() as boto3:

        def by_boto3() -> None:
            pages = boto3.get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=f"{prefix}/")
            counted(sum(len(page["Contents"]) for page in pages))

        def by_rclone() -> None:
            # Without the flag it would ask for the time of each object by itself.
            words = ["lsf", "-R", "--files-only", "--fast-list", "--use-server-modtime", "--format", "pst"]
            counted(bucket.rclone(*words, f"s3:{server.bucket}/{prefix}").count(b"\n"))

        medians = stage.race(
            [
                Contender("ours", lambda: counted(sum(1 for _ in blobs.list(temporary=None)))),
                Contender("obstore", lambda: counted(sum(len(page) for page in obstore.list(raw, chunk_size=1000)))),
                Contender("rclone", by_rclone),
                Contender("boto3", by_boto3),
                Contender("s3fs", lambda: counted(len(s3fs.find(f"{server.bucket}/{prefix}", detail=True)))),
            ],
            repeats=3,
            warm_up=False,
        )
    yield from lines(f"list {wanted:,} objects on S3", medians, AIMS)


def delete_rows(stage: Stage) -> Iterator[Line]:
    """List and delete every object of a store, and know of each that it is gone."""
    wanted = stage.full(20_000, 2_000)
    bucket, server = stage.bucket, stage.bucket.server
    prefixes = (f"going/{number}" for number in count())
    prefix = ""

    def make() -> None:
        nonlocal prefix
        prefix = next(prefixes)
        stage.say(f"making {wanted:,} objects")
        objects = ((artifact_key(nth_id(n // 1000), n % 1000), b"tiny state") for n in range(wanted))
        put_all(bucket.raw(prefix), objects)

    def ours() -> None:
        blobs = bucket.ours(prefix)
        keys = [info.key for info in blobs.list(temporary=None)]
        outcomes = Executor(layout_on(blobs), by="benchmark")._delete(keys)
        assert sum(outcome.done for outcome in outcomes) == wanted

    def by_obstore() -> None:
        raw = bucket.raw(prefix)
        keys = [meta["path"] for page in obstore.list(raw, chunk_size=1000) for meta in page]
        obstore.delete(raw, keys)
        assert len(keys) == wanted

    def by_rclone() -> None:
        words = ["delete", "--fast-list", "--use-server-modtime", "--checkers=16"]
        bucket.rclone(*words, f"s3:{server.bucket}/{prefix}")

    def by_s3fs() -> None:
        s3fs = bucket.s3fs
        keys = s3fs.find(f"{server.bucket}/{prefix}")
        s3fs.rm(keys)
        assert len(keys) == wanted

    with bucket.boto3() as boto3:

        def by_boto3() -> None:
            pages = boto3.get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=f"{prefix}/")
            named = [[{"Key": each["Key"]} for each in page["Contents"]] for page in pages]

            def delete(objects: list[dict[str, str]]) -> int:
                answer = boto3.delete_objects(Bucket=server.bucket, Delete={"Objects": objects})
                return len(answer["Deleted"]) - len(answer.get("Errors", ()))

            with ThreadPoolExecutor(4) as pool:
                assert sum(pool.map(delete, named)) == wanted

        acts = {"ours": ours, "obstore": by_obstore, "rclone": by_rclone, "boto3": by_boto3, "s3fs": by_s3fs}
        contenders = [Contender(name, act, before=make) for name, act in acts.items()]
        medians = stage.race(contenders, repeats=3, warm_up=False)
    yield from lines(f"list and delete {wanted:,} objects on S3", medians, AIMS)
