"""Many questions at once: answers in order, errors raised, never more under way than meant."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_checkpoint.exceptions import StoreUnavailableError
from airflow_provider_checkpoint.lifecycle.side_by_side import side_by_side, streaming


def test_answers_come_in_the_order_of_the_questions():
    later = threading.Event()

    def answer(number: int) -> int:
        # The first is not answered before the second is.
        if number == 0:
            assert later.wait(10)
        elif number == 1:
            later.set()
        return number * 10

    assert side_by_side(answer, range(100)) == [number * 10 for number in range(100)]
    assert side_by_side(answer, []) == []


def test_questions_are_asked_at_the_same_time():
    together = threading.Barrier(4, timeout=10)
    assert len(side_by_side(lambda _: together.wait(), range(4), width=4)) == 4


def test_the_first_error_is_raised_and_the_rest_is_not_asked():
    asked = []

    def answer(number: int) -> int:
        asked.append(number)
        if number == 3:
            raise StoreUnavailableError("no answer", subject=str(number))
        return number

    with pytest.raises(StoreUnavailableError):
        side_by_side(answer, range(10_000), width=2)
    assert len(asked) < 100


def test_no_more_answers_are_held_than_a_few():
    taken = 0

    def questions():
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    for answered, number in enumerate(streaming(lambda number: number, questions(), width=2)):
        assert number == answered
        assert taken - answered <= 8
