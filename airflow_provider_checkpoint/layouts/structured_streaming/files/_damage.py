"""Damage as an exception: each kind carries the stable code of the issue it becomes."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_checkpoint.exceptions import CorruptArtifactError


class DamagedFileError(CorruptArtifactError):
    """Bytes that cannot be what Spark wrote."""

    code: ClassVar[str] = "state_corrupt"


class TruncatedFileError(DamagedFileError):
    """The file ends before it should."""

    code = "state_truncated"


class DamagedZipError(DamagedFileError):
    """A member of a zip, or its directory."""

    code = "zip_corrupt"


class DamagedSstError(DamagedFileError):
    """The frame of an SST: its footer, index or handles."""

    code = "sst_corrupt"


class DamagedBlockError(DamagedSstError):
    """A block of an SST whose checksum says that it changed. Spark itself reads over it in silence."""

    code = "sst_block_corrupt"


class DamagedSchemaError(DamagedFileError):
    """A schema file."""

    code = "state_schema_corrupt"
