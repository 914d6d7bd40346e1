"""A commit decision that lands after its writer has given up waiting for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.exceptions import OutcomeUnknownError, SinkCommitError
from tests.unit.writing.pipeline import NUMBERS, SumPipeline, published, visible

if TYPE_CHECKING:
    from collections.abc import Callable


class LateBlobs(WrapperBlobs):
    """Holds one kind of create back: the caller sees a timeout, and the store gets it when told."""

    def __init__(self, inner: MemoryBlobs) -> None:
        super().__init__(inner)
        self.hold_back = ""
        self._held: list[Callable[[], object]] = []

    def create(self, key, body):
        if self.hold_back and self.hold_back in key:
            self._held.append(lambda: self._inner.create(key, body))
            raise OutcomeUnknownError("timeout", subject=key)
        return super().create(key, body)

    def land(self) -> None:
        self.hold_back = ""
        for write in self._held:
            write()


@pytest.mark.parametrize("lands", ["before the next start", "after the next start", "never"])
def test_an_epoch_whose_decision_may_still_land_is_not_abandoned_and_the_next_start_is_exact(lands):
    output = MemoryBlobs()
    store = LateBlobs(MemoryBlobs())
    writer = SumPipeline(store, output)
    writer.run(epochs=1)
    begun = []
    begin = writer.coordinator.begin
    writer.coordinator.begin = lambda: begun.append(begin()) or begun[-1]
    store.hold_back = "decisions/"
    # Worth a restart, like every commit that may have happened.
    with pytest.raises(SinkCommitError, match="Restart the writer"):
        writer.run(epochs=1)
    # A rolled back output of an epoch that turns out to be committed would leave nothing to start from.
    with pytest.raises(SinkCommitError, match="cannot be abandoned"):
        writer.coordinator.abandon(begun[-1])
    if lands == "before the next start":
        store.land()
    store.hold_back = ""
    SumPipeline(store, output)
    if lands == "after the next start":
        store.land()
    last = SumPipeline(store, output)
    last.run()
    assert published(output) == visible(output) == list(NUMBERS)
    assert last.total == sum(NUMBERS)
