"""Asserts in the shared contract explain themselves like those in a test file."""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.contract.{name}" for name in ("backends", "contract", "listing", "naming", "racers", "racing"))
)
pytest.register_assert_rewrite("tests.contract.reading", "tests.contract.writing")
