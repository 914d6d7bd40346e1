"""Layout ``structured_streaming``: Spark's own checkpoint directories, read without a JVM.

A checkpoint is a committed batch. Nothing is ever written into the directory but a commit that comes back from the
trash; our own records lie in a folder beside it.
"""

from airflow_provider_checkpoint.layouts.structured_streaming._beside import (
    RECORDS_SUFFIX,
    RecordsBeside,
    records_address,
)
from airflow_provider_checkpoint.layouts.structured_streaming._clone import ClonePlan, apply_clone, plan_clone
from airflow_provider_checkpoint.layouts.structured_streaming._diagnose import diagnose
from airflow_provider_checkpoint.layouts.structured_streaming._diagnosis import Diagnosis, Finding, render
from airflow_provider_checkpoint.layouts.structured_streaming._layout import StructuredStreamingLayout
from airflow_provider_checkpoint.layouts.structured_streaming._replay import replay
from airflow_provider_checkpoint.layouts.structured_streaming._seal import Seal, SealedFile, read_seal, seal
from airflow_provider_checkpoint.layouts.structured_streaming._sink_cleanup import (
    ADVICE,
    SinkCleanup,
    apply_cleanup,
    plan_batch_folders,
    plan_file_sink,
)
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import SinkFile, read_sink_log
from airflow_provider_checkpoint.layouts.structured_streaming._synthesis import synthesize

__all__ = [
    "ADVICE",
    "RECORDS_SUFFIX",
    "ClonePlan",
    "Diagnosis",
    "Finding",
    "RecordsBeside",
    "Seal",
    "SealedFile",
    "SinkCleanup",
    "SinkFile",
    "StructuredStreamingLayout",
    "apply_cleanup",
    "apply_clone",
    "diagnose",
    "plan_batch_folders",
    "plan_clone",
    "plan_file_sink",
    "read_seal",
    "read_sink_log",
    "records_address",
    "render",
    "replay",
    "seal",
    "synthesize",
]
