"""Makes ``tests/data/spark/state_files.zip``: state files as Spark writes them, for tests that run without Spark.

::

    python -m tests.integration.spark_native.samples
"""

from __future__ import annotations

import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tests.integration.spark_native.directory import Directory
from tests.integration.spark_native.queries import QUERIES, Query, land
from tests.integration.spark_native.running import make_session, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

TARGET = Path(__file__).resolve().parents[2] / "data" / "spark" / "state_files.zip"
KEYS = 1500
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."


def _many_keys(spark: SparkSession, landing: Path) -> DataFrame:
    """So many keys that tables have several blocks."""
    rows = spark.readStream.schema("key STRING").option("maxFilesPerTrigger", 1).json(f"file://{landing}/many")
    return rows.groupBy(F.concat("key", F.lit("-suffix")).alias("key")).count()


def _queries() -> Iterator[Query]:
    for name in ("hdfs_zstd", "hdfs_snappy", "hdfs_lzf", "rocksdb_changelog", "rocksdb_format2", "rocksdb_zstd"):
        yield QUERIES[name]
    yield from (QUERIES["hdfs_snapshots"], QUERIES["process"], QUERIES["process_format2"])
    many = replace(QUERIES["rocksdb"], name="many", build=_many_keys)
    yield many
    for compression in ("zstd", "snappy", "none"):
        yield replace(many, name=f"many_{compression}", conf={**many.conf, f"{_ROCKSDB}compression": compression})
    yield replace(many, name="many_version6", conf={**many.conf, f"{_ROCKSDB}formatVersion": "6"})


def _chosen(query: Query, directory: Directory) -> Iterator[tuple[str, Path]]:
    """The newest file of each kind, named by its query."""
    for kind in ("delta", "snapshot", "changelog", "zip"):
        if directory.state(kind):
            yield f"{query.name}.{kind}", directory.newest(kind)
            sidecar = directory.newest(kind).with_name(f"{directory.newest(kind).name}.crc")
            if sidecar.exists():
                yield f"{query.name}.{kind}.crc", sidecar
            hadoop = directory.newest(kind).with_name(f".{directory.newest(kind).name}.crc")
            yield f".{query.name}.{kind}.crc", hadoop
    if directory.state("zip"):
        yield f"{query.name}.sst", directory.ssts()[-1]
    schemas = [*directory.path.glob("state/0/0/_metadata/schema"), *directory.path.glob("state/0/_stateSchema/*/*")]
    yield f"{query.name}.schema", next(path for path in schemas if not path.name.startswith("."))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED) as archive:
        root = Path(folder)
        land(root / "landing", 0, 4)
        (root / "landing" / "many").mkdir()
        rows = "".join(f'{{"key":"key-{number * 7919 % 100_003:06}"}}\n' for number in range(KEYS))
        (root / "landing" / "many" / "0.json").write_text(rows)
        spark = make_session()
        for query in _queries():
            directory = root / query.name / "checkpoint"
            outcome = run(spark, query, root / "landing", directory, root / query.name / "output")
            print(query.name, outcome.error or "made")
            if outcome.error is not None:
                continue
            for name, path in _chosen(query, Directory(directory)):
                # A fixed time, so that equal files make an equal archive.
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        spark.stop()


if __name__ == "__main__":
    main()
