"""Work is split into parts of nearly equal weight."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.spark.jobs._split import balanced

WEIGHTS = st.lists(st.integers(0, 10**12) | st.sampled_from([0, 1, 1000]), max_size=60)
PARTS = st.integers(1, 12)


def split(weights, parts):
    return balanced(list(enumerate(weights)), parts, lambda item: item[1])


@given(WEIGHTS, PARTS)
def test_every_item_is_in_one_part_and_no_part_is_empty(weights, parts):
    found = split(weights, parts)
    assert Counter(item for part in found for item in part) == Counter(enumerate(weights))
    assert len(found) == min(parts, len(weights))
    assert all(found)


@given(WEIGHTS.filter(bool), PARTS)
def test_two_parts_differ_by_no_more_than_the_heaviest_item(weights, parts):
    loads = [sum(weight for _, weight in part) for part in split(weights, parts)]
    assert max(loads) - min(loads) <= max(weights)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.integers(1, 3))
def test_no_part_is_heavier_than_four_thirds_of_the_best_split_there_is(weights, parts):
    heaviest = max(sum(weight for _, weight in part) for part in split(weights, parts))
    best = min(
        max(
            sum(weight for weight, place in zip(weights, places, strict=True) if place == part) for part in range(parts)
        )
        for places in product(range(parts), repeat=len(weights))
    )
    assert 3 * heaviest <= 4 * best


@given(st.integers(1, 60), PARTS)
def test_what_weighs_nothing_is_spread_as_well(count, parts):
    lengths = [len(part) for part in split([0] * count, parts)]
    assert max(lengths) - min(lengths) <= 1


@given(WEIGHTS, PARTS)
def test_the_same_work_is_split_the_same_way_with_the_heaviest_first(weights, parts):
    found = split(weights, parts)
    assert found == split(weights, parts)
    for part in found:
        assert [weight for _, weight in part] == sorted((weight for _, weight in part), reverse=True)


@pytest.mark.parametrize(
    ("weights", "parts", "loads"),
    [
        ([7, 5, 4, 4], 2, [11, 9]),
        ([100, 1, 1, 1], 3, [100, 2, 1]),
        ([], 4, []),
        ([3], 4, [3]),
    ],
)
def test_a_few_splits(weights, parts, loads):
    assert sorted((sum(weight for _, weight in part) for part in split(weights, parts)), reverse=True) == loads


@pytest.mark.parametrize("parts", [0, -1])
def test_no_parts_hold_no_work(parts):
    with pytest.raises(ConfigurationError, match="at least one"):
        balanced([1], parts, int)
