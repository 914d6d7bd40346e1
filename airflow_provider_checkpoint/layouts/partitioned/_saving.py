"""Saving many partitions at once, a few at a time."""

from __future__ import annotations

from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    from airflow_provider_checkpoint.layouts.partitioned._manifest import PartitionEntry

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class PartitionData:
    """The state of one operator partition, about to be saved."""

    operator: str
    partition: int
    data: bytes | Iterable[Buffer]
    is_delta: bool = False


def save_side_by_side(
    save: Callable[[PartitionData], PartitionEntry], items: Iterable[PartitionData], max_concurrent: int
) -> list[tuple[str, PartitionEntry]]:
    """Save every item and return operator and entry for each, in their order.

    Takes the next item only when one of at most ``max_concurrent`` saves is done, so items may be made on the fly.
    After the first failure nothing new begins, what is under way is finished, and the error says what was written.
    """
    if max_concurrent < 1:
        raise ConfigurationError("max_concurrent must be at least 1", subject=str(max_concurrent))
    saved: dict[int, tuple[str, PartitionEntry]] = {}
    under_way: dict[Future[PartitionEntry], tuple[int, str]] = {}

    def settle(return_when: str) -> None:
        done, _ = wait(under_way, return_when=return_when)
        # Successes first: a failure raises, and must not take a result with it.
        for future in sorted(done, key=lambda future: future.exception() is not None):
            index, operator = under_way.pop(future)
            saved[index] = operator, future.result()

    with ThreadPoolExecutor(max_concurrent) as pool:
        try:
            for index, item in enumerate(items):
                if len(under_way) == max_concurrent:
                    settle(FIRST_COMPLETED)
                under_way[pool.submit(save, item)] = index, item.operator
            settle(ALL_COMPLETED)
        except BaseException as error:
            wait(under_way)
            for future, (index, operator) in under_way.items():
                if future.exception() is None:
                    saved[index] = operator, future.result()
            error.add_note(_report(saved))
            raise
    return [saved[index] for index in sorted(saved)]


def _report(saved: dict[int, tuple[str, PartitionEntry]]) -> str:
    paths = [saved[index][1].path for index in sorted(saved)]
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return f"{len(paths)} partitions had been written: {', '.join(paths[:_MOST_NAMED]) or 'none'}{more}"
