"""The kinds of state files in Spark's checkpoint directories."""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    """What a state file is, as its name tells."""

    DELTA = "delta"
    """``<version>.delta``: changes of one batch, HDFS-backed provider."""
    SNAPSHOT = "snapshot"
    """``<version>.snapshot``: whole state, HDFS-backed provider."""
    CHANGELOG = "changelog"
    """``<version>[_<id>].changelog``: changes of one batch, RocksDB."""
    ZIP = "zip"
    """``<version>[_<id>].zip``: the small files of a RocksDB snapshot, and the list of its large ones."""
    SST = "sst"
    """``SSTs/<n>-<uuid>.sst``: a table of a RocksDB snapshot, shared by several of them."""
    SCHEMA = "schema"
    """``_metadata/schema`` or ``_stateSchema/<store>/<batch>_<uuid>``: the columns of a state store."""
