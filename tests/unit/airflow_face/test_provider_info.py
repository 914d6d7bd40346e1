"""What Airflow learns about the provider is valid, complete and true."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import pkgutil
from pathlib import Path
from typing import get_args

import airflow
import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

import airflow_provider_checkpoint
from airflow_provider_checkpoint.get_provider_info import get_provider_info
from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
from airflow_provider_checkpoint.hooks.settings import StoreSettings
from tests.unit.airflow_face.programs import run_program

INFO = get_provider_info()
[CONNECTION_TYPE] = INFO["connection-types"]
PACKAGE = Path(str(airflow_provider_checkpoint.__file__)).parent
ROOMS = {"hooks": BaseHook, "operators": BaseOperator, "sensors": BaseSensorOperator, "triggers": BaseTrigger}


def attribute(path: str):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_the_info_is_valid_by_airflows_own_schema():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


def test_it_is_plain_data():
    assert json.loads(json.dumps(INFO)) == INFO


def test_every_class_and_function_that_is_named_is_there():
    assert attribute(CONNECTION_TYPE["hook-class-name"]) is CheckpointHook
    assert (CheckpointHook.conn_type, CheckpointHook.hook_name) == (
        CONNECTION_TYPE["connection-type"],
        CONNECTION_TYPE["hook-name"],
    )
    for path in INFO["cli"]:
        assert callable(attribute(path))


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_with_something_for_users_is_listed_and_no_other(room):
    def offers(name: str) -> bool:
        module = importlib.import_module(name)
        return any(
            issubclass(found, ROOMS[room]) and found.__module__ == name and not found.__name__.startswith("_")
            for _, found in inspect.getmembers(module, inspect.isclass)
        )

    prefix = f"airflow_provider_checkpoint.{room}."
    there = [module.name for module in pkgutil.iter_modules([str(PACKAGE / room)], prefix)]
    public = {name for name in there if not name.rpartition(".")[2].startswith("_") and offers(name)}
    [listed] = INFO[room]
    assert set(listed["python-modules"]) == public
    assert listed["integration-name"] in {entry["integration-name"] for entry in INFO["integrations"]}


def test_the_form_has_every_setting_with_its_default_and_its_choices():
    fields = CONNECTION_TYPE["conn-fields"]
    settings = {name: field for name, field in StoreSettings.model_fields.items() if name != "uri"}
    assert list(fields) == list(settings)
    for name, field in settings.items():
        schema = fields[name]["schema"]
        assert schema.get("default") == field.default, name
        assert ("null" in schema["type"]) == (field.default is None), name
    assert fields["layout"]["schema"]["enum"] == list(get_args(StoreSettings.model_fields["layout"].annotation))


@pytest.mark.parametrize(("count", "good"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_the_form_and_the_settings_agree_on_the_vnodes_there_can_be(count, good):
    schema = CONNECTION_TYPE["conn-fields"]["vnode_count"]["schema"]
    assert jsonschema.Draft202012Validator(schema).is_valid(count) is good
    try:
        StoreSettings(uri="/x", vnode_count=count)
    except ValueError:
        assert not good
    else:
        assert good


def test_the_distribution_announces_it_under_its_own_name():
    found = importlib.metadata.entry_points(group="apache_airflow_provider")
    [entry] = [entry for entry in found if entry.value.startswith("airflow_provider_checkpoint.")]
    assert entry.load() is get_provider_info
    assert entry.dist is not None
    assert entry.dist.name == INFO["package-name"]


ALONE = """
import json, sys
before = set(sys.modules)
from airflow_provider_checkpoint.get_provider_info import get_provider_info
get_provider_info()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_reading_it_imports_neither_airflow_nor_the_rest_of_the_package(tmp_path):
    imported = run_program(ALONE, tmp_path)
    ours = {name for name in imported if name.startswith("airflow_provider_checkpoint")}
    assert ours == {"airflow_provider_checkpoint", "airflow_provider_checkpoint.get_provider_info"}
    assert not {"airflow", "pydantic"} & set(imported)


MANAGER = """
import json
from airflow.providers_manager import ProvidersManager

manager = ProvidersManager()
info = manager.providers["airflow-provider-checkpoint"].data
hook = manager.hooks["checkpoint_store"]
print(json.dumps({
    "name": info["name"],
    "hook": [hook.hook_class_name, hook.hook_name, hook.connection_testable, hook.connection_id_attribute_name],
    "fields": sorted(name for name in manager.connection_form_widgets if "checkpoint_store" in name),
    "behaviour": manager.field_behaviours["checkpoint_store"],
}))
"""


def test_airflow_shows_the_connection_type_with_its_hook_and_its_form(tmp_path):
    seen = run_program(MANAGER, tmp_path)
    assert seen["name"] == "Checkpoint"
    path = "airflow_provider_checkpoint.hooks.checkpoint.CheckpointHook"
    assert seen["hook"] == [path, "Checkpoint Store", True, "checkpoint_conn_id"]
    assert len(seen["fields"]) == len(CONNECTION_TYPE["conn-fields"])
    assert seen["behaviour"]["relabeling"] == {"host": "Store URI"}
