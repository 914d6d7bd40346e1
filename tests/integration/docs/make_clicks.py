"""Makes ``clicks.tar.xz`` anew.

The query of ``dags/jobs/clicks_stream.py`` over 45 files, one per batch, with RocksDB and change logs. Hadoop's own
``.crc`` files are left out, as in an object store, and paths in the logs begin with ``/data``.

python -m tests.integration.docs.make_clicks
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.integration.docs.pages import ROOT
from tests.integration.docs.scenery import CLICKS, PLACE

sys.path.insert(0, str(ROOT / "dags" / "jobs"))

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def main() -> None:
    from clicks_stream import generate

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        generate(data / "clicks", files=45, clicks=12)
        run(data)
        for log in [*(data / "checkpoints/clicks/sources/0").iterdir(), *(data / "pages/_spark_metadata").iterdir()]:
            if not log.name.endswith(".crc"):
                log.write_text(log.read_text().replace(f"file://{data}/", f"file://{PLACE}/"))
        with tarfile.open(CLICKS, "w:xz") as archive:
            for path in sorted(filter(Path.is_file, data.rglob("*"))):
                if not path.name.endswith(".crc"):
                    archive.add(path, path.relative_to(data), filter=_anonymous)


def run(data: Path) -> None:
    settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    job = [str(ROOT / "dags/jobs/clicks_stream.py"), "--files-per-batch", "1", "--input", str(data / "clicks")]
    places = ["--output", str(data / "pages"), "--checkpoint", str(data / "checkpoints" / "clicks")]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(["spark-submit", "--master", "local[2]", *settings, *job, *places], env=environment, check=True)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
