"""Bytes: five verbs with stated guarantees, one file per back end.

>>> from airflow_provider_checkpoint.blobs import open_blobs
>>> blobs = open_blobs("memory://example")
>>> blobs.create("greeting.txt", b"hello").created
True
>>> blobs.create("greeting.txt", b"other").existing
b'hello'
>>> [info.key for info in blobs.list()]
['greeting.txt']
>>> [outcome.deleted for outcome in blobs.delete(["greeting.txt"])]
[True]
"""

from airflow_provider_checkpoint.blobs._digest import Digest, sha256_of
from airflow_provider_checkpoint.blobs._fence import Probe, probe
from airflow_provider_checkpoint.blobs._local import LocalBlobs
from airflow_provider_checkpoint.blobs._memory import MemoryBlobs
from airflow_provider_checkpoint.blobs._open import open_blobs, wrap_filesystem
from airflow_provider_checkpoint.blobs._options import StoreOptions
from airflow_provider_checkpoint.blobs._protocol import (
    BlobInfo,
    BlobStore,
    Capabilities,
    Creation,
    Deletion,
    check_key,
    is_temporary,
    names_from,
)
from airflow_provider_checkpoint.blobs._settle import Backoff
from airflow_provider_checkpoint.blobs._wrapper import WrapperBlobs

__all__ = [
    "Backoff",
    "BlobInfo",
    "BlobStore",
    "Capabilities",
    "Creation",
    "Deletion",
    "Digest",
    "LocalBlobs",
    "MemoryBlobs",
    "Probe",
    "StoreOptions",
    "WrapperBlobs",
    "check_key",
    "is_temporary",
    "names_from",
    "open_blobs",
    "probe",
    "sha256_of",
    "wrap_filesystem",
]
