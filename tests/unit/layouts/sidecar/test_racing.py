"""Several writers at once: one wins, the others are told, nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.exceptions import BlobChangedError, CheckpointConflictError
from airflow_provider_checkpoint.layouts.sidecar import OperatorCheckpoint, SidecarLayout
from airflow_provider_checkpoint.model import CheckpointId
from tests.unit.layouts.sidecar.making import COMMITTED, PENDING, manifest

WRITERS = 8


@pytest.fixture(params=["memory", "local"])
def shared(request, tmp_path):
    return MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path)


def race(act):
    """Let each writer act at the same moment; answers are results or conflicts."""
    barrier = threading.Barrier(WRITERS)

    def run(writer):
        barrier.wait()
        try:
            return act(writer)
        except CheckpointConflictError as error:
            return error

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(run, range(WRITERS)))


def winners(answers):
    return [answer for answer in answers if not isinstance(answer, CheckpointConflictError)]


@pytest.mark.stress
@pytest.mark.parametrize("number", range(1, 11))
def test_of_savers_with_other_state_under_one_id_exactly_one_wins(shared, number):
    def save(writer):
        state = f"state of writer {writer}".encode()
        made = manifest(number, operator_states={"op": OperatorCheckpoint.at(0, len(state))})
        return SidecarLayout(shared).save_with_state(made, [state])

    (winner,) = winners(race(save))
    layout = SidecarLayout(shared)
    assert layout.load_by_id(number) == winner
    assert layout.validate_checkpoint(number).issues == []


@pytest.mark.stress
@pytest.mark.parametrize("number", range(1, 11))
def test_of_savers_with_equal_state_and_other_manifests_exactly_one_wins(shared, number):
    def save(writer):
        made = manifest(number, epoch=writer + 1, operator_states={"op": OperatorCheckpoint.at(0, 5)})
        return SidecarLayout(shared).save_with_state(made, [b"state"])

    (winner,) = winners(race(save))
    layout = SidecarLayout(shared)
    assert layout.load_by_id(number) == winner
    assert layout.validate_checkpoint(number).issues == []


def test_savers_of_the_very_same_checkpoint_all_succeed(shared):
    answers = race(lambda _: SidecarLayout(shared).save_with_state(manifest(1), [b"state"]))
    assert len(winners(answers)) == WRITERS


@pytest.mark.stress
@pytest.mark.parametrize("attempt", range(5))
def test_savers_of_different_ids_leave_the_pointer_at_the_highest(shared, attempt):
    ids = [10 * attempt + writer + 1 for writer in range(WRITERS)]
    answers = race(lambda writer: SidecarLayout(shared).save(manifest(ids[-1 - writer])))
    assert len(winners(answers)) == WRITERS
    layout = SidecarLayout(shared)
    assert layout.read_pointer() == CheckpointId(ids[-1])
    assert layout.list_ids() == ids


def test_writers_that_take_their_ids_at_once_all_save_in_the_end(shared):
    def save(writer):
        layout = SidecarLayout(shared)
        while True:
            number = layout.next_id()
            made = manifest(number, epoch=writer + 1, operator_states={"op": OperatorCheckpoint.at(0, 1)})
            try:
                return layout.save_with_state(made, [bytes([writer])])
            except CheckpointConflictError:
                continue

    saved = race(save)
    assert len({made.checkpoint_id for made in saved}) == WRITERS
    layout = SidecarLayout(shared)
    assert all(layout.validate_checkpoint(number).valid for number in layout.list_ids())


def test_sinks_that_record_their_commits_at_once_are_all_recorded(shared):
    sinks = [f"sink-{writer}" for writer in range(WRITERS)]
    SidecarLayout(shared).save(manifest(1, sink_commit_statuses=dict.fromkeys(sinks, PENDING)))

    def record(writer):
        layout = SidecarLayout(shared)
        while True:
            standing = layout.load_by_id(1)
            statuses = standing.sink_commit_statuses | {sinks[writer]: COMMITTED}
            try:
                return layout.update_manifest(standing.changed(sink_commit_statuses=statuses))
            except (BlobChangedError, CheckpointConflictError):
                continue

    race(record)
    assert SidecarLayout(shared).load_by_id(1).sink_commit_statuses == dict.fromkeys(sinks, COMMITTED)


def test_saving_and_pruning_at_once_never_leave_a_checkpoint_without_its_state(shared):
    for number in range(1, 4):
        SidecarLayout(shared).save_with_state(manifest(number), [b"state"])

    def act(writer):
        layout = SidecarLayout(shared, max_retained=2)
        layout.save_with_state(manifest(10 + writer), [b"state %d" % writer])

    race(act)
    layout = SidecarLayout(shared)
    assert layout.list_ids()[-1] == 10 + WRITERS - 1
    assert all(layout.validate_checkpoint(number).valid for number in layout.list_ids())
