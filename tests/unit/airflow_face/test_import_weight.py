"""Every DAG file imports the operators, again and again: what is heavy waits until a task runs."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.get_provider_info import get_provider_info
from tests.unit.airflow_face.programs import run_program

#: Libraries that cost a noticeable part of a second, or that only a worker needs.
HEAVY = {"boto3", "botocore", "obstore", "pandas", "pyarrow", "pyspark", "rich", "s3fs"}
#: What of this package a DAG file needs: the face itself, errors, and how spans of time are written.
LIGHT = {"assets", "exceptions", "lifecycle", "lifecycle.spans", "retries"}
ROOMS = ("hooks", "operators", "sensors", "triggers")
FACE = (*ROOMS, "links")

PROGRAM = f"""
import importlib, json, sys

import airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.hitl
before = set(sys.modules)
for name in {[name for room in ROOMS for entry in get_provider_info()[room] for name in entry["python-modules"]]!r}:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory) -> set[str]:
    """What importing everything for users adds to what the providers that it builds on import themselves."""
    return set(run_program(PROGRAM, tmp_path_factory.mktemp("home")))


def test_importing_all_operators_sensors_and_triggers_imports_nothing_heavy(added):
    assert "airflow_provider_checkpoint.operators.approve" in added
    assert not {name.partition(".")[0] for name in added} & HEAVY


def test_of_this_package_it_imports_the_face_and_little_else(added):
    prefix = "airflow_provider_checkpoint."
    ours = {name.removeprefix(prefix) for name in added if name.startswith(prefix)}
    assert {name for name in ours if name.partition(".")[0] not in FACE} == LIGHT
    assert not {"sensors._looking", "hooks.credentials", "operators._page"} & ours
