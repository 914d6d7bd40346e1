"""One Airflow for all end-to-end tests: starting it takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.stage import LocalAirflow, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = {"admin": "admin", "olga": "op", "uwe": "user", "vera": "viewer"}


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    with LocalAirflow(tmp_path_factory.mktemp("airflow"), users=USERS) as running:
        running.add_connection("spark_default", "spark", host="local[2]")
        running.unpause("orders_pipeline", "checkpoint_recovery", "checkpoint_maintenance")
        yield running


@pytest.fixture
def stage(airflow: LocalAirflow, tmp_path) -> Stage:
    return Stage.local(airflow, tmp_path)
