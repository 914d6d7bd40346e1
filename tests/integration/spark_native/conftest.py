"""One set of real directories for all tests here: making them takes longer than most of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_native.corpus import Corpus, make
from tests.integration.spark_native.queries import QUERIES
from tests.integration.spark_native.running import make_session

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    made = make(make_session(), tmp_path_factory.mktemp("native"), QUERIES)
    yield made
    made.spark.stop()
