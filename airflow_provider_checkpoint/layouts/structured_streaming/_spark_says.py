"""What Spark says about damaged logs and state, by file and kind of damage.

Seen with Spark 4.3, which names more than earlier ones do. In Python a query fails with these texts wrapped in others;
look for the name in square brackets.
"""

from __future__ import annotations

SILENT = "nothing: the query starts, and its results are wrong"
INCOMPLETE = "IllegalStateException: Incomplete log file, or JsonEOFException: Unexpected end-of-input (no file name)"
TOO_NEW = "SparkIllegalStateException [INVALID_LOG_VERSION.MAX_SUPPORTED_VERSION]"

_LOAD = "SparkException [CANNOT_LOAD_STATE_STORE.{}]"
_UNREADABLE = _LOAD.format("UNCATEGORIZED")

_MISSING = {
    "delta": f"{_LOAD.format('CANNOT_READ_DELTA_FILE_NOT_EXISTS')} ... java.io.FileNotFoundException",
    "changelog": f"{_LOAD.format('CANNOT_READ_STREAMING_STATE_FILE')} ... does not exist",
    "zip": f"{_LOAD.format('CANNOT_READ_STREAMING_STATE_FILE')} ... .changelog does not exist",
    "sst": f"{_UNREADABLE} ... java.io.FileNotFoundException",
}
_DAMAGED = {
    "delta": f"{_UNREADABLE} ... EOFException: Stream ended prematurely, or IOException: Stream is corrupted",
    "snapshot": f"{_UNREADABLE} ... EOFException (Spark 4.1 and later: nothing, they do without it)",
    "changelog": f"{_UNREADABLE} ... EOFException, or [CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED]",
    "zip": f"{_UNREADABLE} ... EOFException: Unexpected end of ZLIB input stream, or NoSuchFileException: .../metadata",
    "sst": SILENT,
    "schema": "java.io.EOFException, without the name of the file",
}
_BY_CODE = {
    "snapshot_repairable": "nothing, or a warning: Spark 4.1 and later do without the snapshot",
    "unique_id_missing": _MISSING["changelog"],
    "operator_metadata_corrupt": "nothing: it is written anew",
    "sst_foreign": f"{_UNREADABLE} ... RocksDBException: Corruption: Mismatch in unique ID on table file",
    "operator_mismatch": "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA]",
    "state_left_out": SILENT,
}


def about_state(key: str, code: str) -> str:
    """What Spark says of a state file.

    :param code: that of the issue found.
    """
    if code in _BY_CODE:
        return _BY_CODE[code]
    extension = "schema" if key.endswith("/schema") or "/_stateSchema/" in key else key.rpartition(".")[2]
    if code in ("artifact_missing", "state_missing"):
        return _MISSING.get(extension, _UNREADABLE)
    if code == "size_mismatch" and extension == "sst":
        return f"{_LOAD.format('UNEXPECTED_FILE_SIZE')}"
    return _DAMAGED.get(extension, _UNREADABLE)
