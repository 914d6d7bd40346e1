"""One Airflow for all end-to-end tests: starting it takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.e2e.browsing import chromium
from tests.e2e.stage import LocalAirflow, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

# What a scheduler that was killed has left behind is taken up by the next one, and sooner than after five minutes.
QUICK_TO_ADOPT = {"AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15"}
USERS = {"admin": "admin", "olga": "op", "uwe": "user", "vera": "viewer"}


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    folder = tmp_path_factory.mktemp("airflow")
    with LocalAirflow(folder, users=USERS, environment=QUICK_TO_ADOPT) as running:
        running.add_connection("spark_default", "spark", host="local[2]")
        running.unpause("orders_pipeline", "checkpoint_recovery", "checkpoint_maintenance")
        yield running


@pytest.fixture
def stage(airflow: LocalAirflow, tmp_path) -> Stage:
    return Stage.local(airflow, tmp_path)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        launched.close()
