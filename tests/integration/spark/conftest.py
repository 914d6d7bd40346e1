"""No job outlives its test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.rehearsal import Job

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_job_left() -> Iterator[None]:
    yield
    Job.kill_all()
