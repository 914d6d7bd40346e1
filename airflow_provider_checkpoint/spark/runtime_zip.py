"""The part of this package that runs on a Spark cluster, as one file for ``--py-files``.

It needs no Airflow. The cluster's Python must have pydantic, fsspec, obstore, pyarrow, numpy and pandas: they hold
native code, which Python cannot import from a zip.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

import airflow_provider_checkpoint

#: The rooms that import no Airflow.
ROOMS = ("blobs", "layouts", "lifecycle", "writing", "spark")
MODULES = ("__init__.py", "exceptions.py", "model.py")
# Zip files cannot hold an earlier date. The same date for every file makes equal code equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def spark_runtime_zip(folder: str | Path | None = None) -> Path:
    """Write the zip and return its path. Its name holds a digest of the code: an old one is never taken for a new one.

    :param folder: where to put it; default: a folder of its own in the temporary directory.
    """
    package = Path(airflow_provider_checkpoint.__file__).parent
    files = [package / name for name in MODULES]
    files += sorted(path for room in ROOMS for path in (package / room).rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    target = Path(folder or tempfile.mkdtemp(prefix="checkpoint-runtime-"))
    target.mkdir(parents=True, exist_ok=True)
    archive = target / f"airflow_provider_checkpoint-{digest.hexdigest()[:12]}.zip"
    if not archive.exists():
        _write(archive, package, files)
    return archive


def _write(archive: Path, package: Path, files: list[Path]) -> None:
    # Under another name first: two tasks on one machine may make the same zip at the same time.
    with (
        tempfile.NamedTemporaryFile(dir=archive.parent, suffix=".tmp", delete=False) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for path in files:
            name = f"{package.name}/{path.relative_to(package).as_posix()}"
            out.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    Path(temporary.name).replace(archive)
