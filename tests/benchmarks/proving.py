"""Proving content: every artifact of a checkpoint read and its SHA-256 compared, against hashing the same bytes."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.lifecycle.validation import validate
from airflow_provider_checkpoint.model import Depth
from tests.benchmarks._measure import MIB, Contender, Line, lines
from tests.benchmarks._stores import artifact_key, layout_on, manifest_bytes, nth_id, put_all, rclone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore
    from tests.benchmarks._stage import Stage

ID = nth_id(1)
WIDTH = 8
KIB = 1024


def _shapes(stage: Stage) -> list[tuple[str, int, int]]:
    """In words, how many artifacts, and how large each."""
    return stage.full(
        [("2,000 x 256 KB", 2_000, 256 * KIB), ("8 x 128 MB", 8, 128 * MIB)],
        [("200 x 256 KB", 200, 256 * KIB), ("4 x 16 MB", 4, 16 * MIB)],
    )


def _make(count: int, size: int) -> Iterator[tuple[str, bytes]]:
    """Artifacts, all different, and last the manifest that names them."""
    block = os.urandom(size)
    named = []
    for number in range(count):
        body = number.to_bytes(8) + block[8:]
        named.append((number, size, hashlib.sha256(body).hexdigest()))
        yield artifact_key(ID, number), body
    yield f"{ID}/manifest.json", manifest_bytes(ID, 1, named)


def _prove(blobs: BlobStore) -> None:
    result = validate(layout_on(blobs), ID, Depth.CONTENT, width=WIDTH)
    assert result.valid, result.reason


def local_rows(stage: Stage) -> Iterator[Line]:
    """Prove a checkpoint on a local disk to depth ``content``; everything is in the page cache."""
    for words, count, size in _shapes(stage):
        root = stage.folder / f"local-{count}"
        stage.say(f"making {words}")
        for key, body in _make(count, size):
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(body)
        files = [root / artifact_key(ID, number) for number in range(count)]

        def by_hashlib(files: list[Path] = files) -> None:
            with ThreadPoolExecutor(WIDTH) as pool:
                assert len(set(pool.map(_file_digest, files))) == len(files)

        def by_rclone(folder: Path = files[0].parent, count: int = count) -> None:
            assert rclone("hashsum", "sha256", f"--checkers={WIDTH}", str(folder)).count(b"\n") == count

        blobs = LocalBlobs(root)
        medians = stage.race(
            [
                Contender("ours", lambda blobs=blobs: _prove(blobs)),  # type: ignore[misc]
                Contender("hashlib in threads", by_hashlib),
                Contender("rclone hashsum", by_rclone),
            ],
            repeats=7,
        )
        yield from lines(f"prove {words} on disk", medians, {"hashlib in threads": 1.1, "rclone hashsum": 1.0})


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def s3_rows(stage: Stage) -> Iterator[Line]:
    """Prove a checkpoint on S3 to depth ``content``."""
    bucket = stage.bucket
    for words, count, size in _shapes(stage):
        prefix = f"proving-{count}"
        raw = bucket.raw(prefix)
        stage.say(f"making {words}")
        put_all(raw, _make(count, size))
        blobs = bucket.ours(prefix)
        keys = [artifact_key(ID, number) for number in range(count)]

        def by_obstore(raw: obstore.store.S3Store = raw, keys: list[str] = keys) -> None:
            def digest(key: str) -> str:
                sha256 = hashlib.sha256()
                for chunk in obstore.get(raw, key).stream(min_chunk_size=MIB):
                    sha256.update(chunk)
                return sha256.hexdigest()

            with ThreadPoolExecutor(WIDTH) as pool:
                assert len(set(pool.map(digest, keys))) == len(keys)

        def by_rclone(prefix: str = prefix, count: int = count) -> None:
            # The server knows no SHA-256, so the bytes are fetched, as they are by ours.
            words = ["hashsum", "sha256", "--download", "--include=*.snap", f"--checkers={WIDTH}", "--fast-list"]
            assert bucket.rclone(*words, f"s3:{bucket.server.bucket}/{prefix}").count(b"\n") == count

        medians = stage.race(
            [
                Contender("ours", lambda blobs=blobs: _prove(blobs)),  # type: ignore[misc]
                Contender("obstore and hashlib", by_obstore),
                Contender("rclone hashsum", by_rclone),
            ],
            repeats=5,
        )
        yield from lines(f"prove {words} on S3", medians, {"obstore and hashlib": 1.1, "rclone hashsum": 1.0})
        obstore.delete(raw, keys)
