"""Makes ``tests/data/spark/spark35.zip``: directories that Spark 3.5 wrote, for tests that run without it.

::

    uv pip install --target .tools/spark35 pyspark==3.5.8
    PYTHONPATH=.tools/spark35 python -m tests.integration.spark_native.spark35

Paths inside the logs are rewritten to ``/data/...``, which exists nowhere.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pyspark

from tests.integration.spark_native.queries import QUERIES, land
from tests.integration.spark_native.running import make_session, run

TARGET = Path(__file__).resolve().parents[2] / "data" / "spark" / "spark35.zip"
KINDS = ("stateless", "hdfs", "rocksdb_changelog")
BATCHES = 6


def main() -> None:
    assert pyspark.__version__.startswith("3.5."), pyspark.__version__
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(TARGET, "w", zipfile.ZIP_DEFLATED) as archive:
        root = Path(folder)
        land(root / "landing", 0, BATCHES)
        spark = make_session()
        for kind in KINDS:
            directory = root / kind
            outcome = run(spark, QUERIES[kind], root / "landing", directory, root / "output" / kind)
            assert outcome.error is None, outcome.message
            for path in sorted(directory.rglob("*")):
                # Hadoop's checksums would not fit the rewritten paths.
                if path.is_file() and not (path.name.startswith(".") and path.suffix == ".crc"):
                    data = path.read_bytes()
                    if "/sources/" in path.as_posix():
                        data = data.replace(f"file://{root}".encode(), b"file:///data")
                    name = f"{kind}/{path.relative_to(directory).as_posix()}"
                    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        spark.stop()
    print(TARGET, TARGET.stat().st_size)


if __name__ == "__main__":
    main()
