"""Splitting work into parts of nearly equal weight."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_checkpoint.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")


def balanced(items: Sequence[Item], parts: int, weight: Callable[[Item], int]) -> list[list[Item]]:
    """Every item in exactly one of at most ``parts`` lists, none of them empty.

    Greedy: the heaviest first, each to the list that has least. So two lists differ by no more than the heaviest item,
    and each list has its heaviest first, which is also the order in which threads finish soonest.
    """
    if parts < 1:
        raise ConfigurationError(f"{parts} parts hold no work", hint="Ask for at least one partition.")
    split: list[list[Item]] = [[] for _ in range(min(parts, len(items)))]
    # Among lists of equal weight the shorter one: items that weigh nothing are spread as well.
    loads = [(0, 0, number) for number in range(len(split))]
    for item in sorted(items, key=weight, reverse=True):
        load, count, number = loads[0]
        split[number].append(item)
        heapq.heapreplace(loads, (load + weight(item), count + 1, number))
    return split
