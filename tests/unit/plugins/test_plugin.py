"""What Airflow learns of the pages, the links and the numbers."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats

from airflow_provider_checkpoint import metrics
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.get_provider_info import get_provider_info
from airflow_provider_checkpoint.links.checkpoint import CheckpointPageLink
from airflow_provider_checkpoint.plugins import _airflow
from airflow_provider_checkpoint.plugins.checkpoints import CheckpointPages
from airflow_provider_checkpoint.plugins.settings import PageSettings
from tests.unit.airflow_face.programs import run_program
from tests.unit.plugins.conftest import Browser, Table
from tests.unit.reports.reading import Page


def test_the_plugin_is_found_by_its_entry_point_and_its_addresses_are_relative():
    [found] = [each for each in entry_points(group="airflow.plugins") if each.name == "checkpoints"]
    plugin = found.load()
    assert [each["url_prefix"] for each in plugin.fastapi_apps] == ["/checkpoints"]
    for each in plugin.external_views:
        assert each["href"].startswith("checkpoints/")
    assert {each["destination"] for each in plugin.external_views} == {"nav", "dag", "dag_run"}


def test_loading_the_plugin_imports_no_pages(tmp_path):
    program = """
import json, sys
import airflow.plugins_manager
before = set(sys.modules)
import airflow_provider_checkpoint.plugins.checkpoints
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    added = run_program(program, tmp_path)
    assert not {"fastapi", "obstore", "airflow_provider_checkpoint.reports"} & set(added)


def test_the_settings_have_defaults_that_airflow_knows_and_the_pages_take(tmp_path):
    program = """
import json
from airflow.configuration import conf
from airflow_provider_checkpoint.plugins.settings import PageSettings
options = ("freshness_warn", "freshness_fail", "retention_policy", "page_cache_seconds", "store_timeout_seconds")
print(json.dumps([[conf.get("checkpoint", name) for name in options], PageSettings.from_airflow() == PageSettings()]))
"""
    told, same = run_program(program, tmp_path)
    options = get_provider_info()["config"]["checkpoint"]["options"]
    assert told == [options[name]["default"] for name in list(options)[:5]]
    assert same is True


#: Settings that make no sense, and what is told to write.
WRONG = [
    ("FRESHNESS_WARN", "soon", "such as 30m"),
    ("RETENTION_POLICY", "{}", "JSON such as"),
    ("RETENTION_POLICY", "nonsense", "JSON such as"),
    ("RETENTION_POLICY", "[]", "JSON such as"),
    ("RETENTION_POLICY", '{"keep_last": -1}', "JSON such as"),
    ("PAGE_CACHE_SECONDS", "ten", "at least 0,"),
    ("PAGE_CACHE_SECONDS", "-1", "at least 0,"),
    ("STORE_TIMEOUT_SECONDS", "0", "at least 0.1,"),
    ("STORE_TIMEOUT_SECONDS", "nan", "at least 0.1,"),
    ("STORE_TIMEOUT_SECONDS", "inf", "at least 0.1,"),
]


@pytest.mark.parametrize(("name", "value", "hint"), WRONG)
def test_a_setting_that_makes_no_sense_is_named_with_what_to_write(monkeypatch, name, value, hint):
    monkeypatch.setenv(f"AIRFLOW__CHECKPOINT__{name}", value)
    with pytest.raises(ConfigurationError, match=name.lower()) as caught:
        PageSettings.from_airflow()
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint


def test_an_empty_setting_means_the_usual(monkeypatch):
    for name in ("FRESHNESS_WARN", "RETENTION_POLICY", "PAGE_CACHE_SECONDS", "STORE_TIMEOUT_SECONDS"):
        monkeypatch.setenv(f"AIRFLOW__CHECKPOINT__{name}", "")
    assert PageSettings.from_airflow() == PageSettings()


@pytest.mark.parametrize("path", ["/", "/store/lake?pipeline=orders", "/dag/orders/run/manual"])
def test_a_wrong_setting_has_a_page_in_place_of_every_page(monkeypatch, path):
    monkeypatch.setenv("AIRFLOW__CHECKPOINT__FRESHNESS_WARN", "soon")
    monkeypatch.setattr(_airflow, "Airflow", Table)
    pages = CheckpointPages()
    answer = Browser(pages, {"x-user": "reader"}).get(path)
    assert answer.status_code == 500
    told = Page.of(answer.text)
    assert "[checkpoint] freshness_warn" in told.words
    assert "Write a span such as 30m, 6h or 1d12h. Then restart the api-server." in told.words
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    refused = Browser(pages, {}).get(path)
    assert refused.status_code == 401
    assert "freshness_warn" not in refused.text
    changed = Browser(pages, {"x-user": "reader"}).post("/store/lake/pin", json={})
    assert changed.status_code == 500
    assert "such as 30m" in changed.json()["detail"]


@pytest.mark.parametrize(
    ("connection", "pipeline", "link"),
    [
        ("lake", "orders", "checkpoints/store/lake?pipeline=orders"),
        ("lake", None, "checkpoints/store/lake"),
        ("a/b", "x&y=z#", "checkpoints/store/a%2Fb?pipeline=x%26y%3Dz%23"),
        ("javascript:alert(1)", "<b>", "checkpoints/store/javascript%3Aalert%281%29?pipeline=%3Cb%3E"),
        (None, "orders", ""),
    ],
)
def test_a_task_leads_to_the_page_of_its_pipeline(connection, pipeline, link):
    task = SimpleNamespace(checkpoint_conn_id=connection, pipeline=pipeline)
    assert CheckpointPageLink().get_link(task, ti_key=None) == link


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple] = []

    def gauge(self, stat, value, **more):
        self.seen.append((stat, value, more["tags"]))

    def incr(self, stat, count=1, **more):
        self.seen.append((stat, count, more["tags"]))


@pytest.fixture
def recorder():
    made = Recorder()
    stats.initialize(factory=lambda: made, export_legacy_names=True)
    yield made
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def test_numbers_carry_the_pipeline_and_the_connection(recorder):
    metrics.gauge("freshness_seconds", 12.5, pipeline="orders", connection="lake")
    metrics.count("freed_bytes", 7, pipeline=None, connection="a b/c")
    assert recorder.seen == [
        ("checkpoint.freshness_seconds", 12.5, {"pipeline": "orders", "connection": "lake"}),
        ("checkpoint.freed_bytes", 7, {"connection": "a_b_c"}),
    ]


def test_a_number_that_cannot_be_sent_fails_no_task(recorder, caplog, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route")

    monkeypatch.setattr(recorder, "gauge", refuse)
    with caplog.at_level(logging.WARNING):
        metrics.gauge("freshness_seconds", 1, pipeline="orders", connection="lake")
    assert "could not be sent" in caplog.text


def test_windows_of_freshness_in_the_wrong_order_are_refused(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CHECKPOINT__FRESHNESS_WARN", "6h")
    monkeypatch.setenv("AIRFLOW__CHECKPOINT__FRESHNESS_FAIL", "1h")
    with pytest.raises(ConfigurationError, match="freshness_fail"):
        PageSettings.from_airflow()
