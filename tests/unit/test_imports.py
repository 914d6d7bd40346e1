"""What runs on a Spark executor or a bare machine imports neither Airflow nor, but for the Spark room, Spark."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import airflow_provider_checkpoint

PACKAGE = Path(str(airflow_provider_checkpoint.__file__)).parent
#: Everything below the Airflow face; a room that does not exist yet is left out until it does.
LIGHT = ("blobs", "cli", "exceptions", "layouts", "lifecycle", "model", "reports", "writing")
HEAVY = ("spark",)
#: Of the Airflow face although it lies in one of those rooms.
FACE = ("airflow_provider_checkpoint.cli.airflow_commands",)

PROGRAM = """
import importlib, json, sys

sys.modules["airflow"] = None  # importing it, or anything below it, raises ImportError
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name, module in sys.modules.items() if module is not None})))
"""


def modules(rooms: tuple[str, ...]) -> list[str]:
    """Every module of some rooms by name, found without importing anything."""

    def below(folder: Path, prefix: str) -> list[str]:
        found = []
        for module in pkgutil.iter_modules([str(folder)], prefix):
            found.append(module.name)
            if module.ispkg:
                found += below(folder / module.name.rpartition(".")[2], f"{module.name}.")
        return found

    name = airflow_provider_checkpoint.__name__
    everything = below(PACKAGE, f"{name}.")
    return [found for found in everything if found.split(".")[1] in rooms and found not in FACE]


def imported(names: list[str]) -> set[str]:
    """The top-level packages in memory after importing some modules with Airflow out of reach."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(names)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_rooms_are_found() -> None:
    names = modules(LIGHT)
    assert "airflow_provider_checkpoint.blobs._object" in names
    assert "airflow_provider_checkpoint.exceptions" in names


def test_everything_below_the_airflow_face_works_without_airflow_and_without_spark() -> None:
    assert not imported(modules(LIGHT)) & {"airflow", "pyspark", "py4j"}


def test_the_spark_room_works_without_airflow() -> None:
    assert "airflow" not in imported(modules(HEAVY))


def test_a_client_library_is_imported_only_when_a_store_needs_it() -> None:
    clients = {"obstore", "fsspec", "s3fs", "boto3", "botocore", "aiobotocore"}
    assert not imported(["airflow_provider_checkpoint.blobs"]) & clients
