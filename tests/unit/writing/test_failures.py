"""Counting checkpoints that fail in a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.model import CheckpointId
from airflow_provider_checkpoint.writing.bases import SnapshotKind
from airflow_provider_checkpoint.writing.failures import FailureManager, FailureReason, FailureVerdict
from airflow_provider_checkpoint.writing.snapshot import SnapshotOptions

IGNORED, TOLERATED, FAIL_JOB = FailureVerdict.IGNORED, FailureVerdict.TOLERATED, FailureVerdict.FAIL_JOB
SAVEPOINT = SnapshotOptions(SnapshotKind.SAVEPOINT)
STOP = SnapshotOptions(SnapshotKind.SAVEPOINT, then_stop=True)


def fail(failures: FailureManager, *numbers: int | None) -> list[FailureVerdict]:
    return [
        failures.failed(FailureReason.DECLINED, None if number is None else CheckpointId(number)) for number in numbers
    ]


# -- Flink: CheckpointFailureManagerTest -------------------------------------------------------------------------


def test_ids_up_to_the_last_success_are_ignored() -> None:
    failures = FailureManager(tolerable=0)
    failures.succeeded(CheckpointId(2))
    assert fail(failures, 1, 2) == [IGNORED, IGNORED]
    assert fail(failures, 3) == [FAIL_JOB]


def test_the_third_failure_in_a_row_fails_a_job_that_tolerates_two_and_the_count_starts_again() -> None:
    failures = FailureManager(tolerable=2)
    assert fail(failures, 1, 2) == [TOLERATED, TOLERATED]
    assert failures.failed(FailureReason.JOB_FAILED, CheckpointId(3)) is IGNORED
    assert fail(failures, 4) == [FAIL_JOB]
    assert failures.count == 0
    assert fail(failures, 5, 6, 7) == [TOLERATED, TOLERATED, FAIL_JOB]


def test_a_success_breaks_the_row() -> None:
    failures = FailureManager(tolerable=2)
    assert fail(failures, 1, 2) == [TOLERATED, TOLERATED]
    failures.succeeded(CheckpointId(4))
    assert fail(failures, 5, 6) == [TOLERATED, TOLERATED]
    assert fail(failures, 7) == [FAIL_JOB]


def test_an_older_success_that_is_told_late_breaks_nothing() -> None:
    failures = FailureManager(tolerable=1)
    failures.succeeded(CheckpointId(5))
    assert fail(failures, 6) == [TOLERATED]
    failures.succeeded(CheckpointId(4))
    failures.succeeded(CheckpointId(5))
    assert fail(failures, 7) == [FAIL_JOB]


def test_an_id_counts_once_however_many_tasks_report_it() -> None:
    failures = FailureManager(tolerable=1)
    assert fail(failures, 1, 1, 1) == [TOLERATED, IGNORED, IGNORED]
    assert failures.count == 1


def test_an_id_that_failed_the_job_does_not_count_again_for_the_next_run() -> None:
    failures = FailureManager(tolerable=1)
    assert fail(failures, 1, 2, 2, 1) == [TOLERATED, FAIL_JOB, IGNORED, IGNORED]
    assert failures.count == 0


def test_a_failure_without_an_id_always_counts() -> None:
    failures = FailureManager(tolerable=2)
    failures.succeeded(CheckpointId(9))
    assert fail(failures, None, None, None) == [TOLERATED, TOLERATED, FAIL_JOB]


def test_exactly_five_reasons_count() -> None:
    counted = {
        reason for reason in FailureReason if FailureManager(tolerable=0).failed(reason, CheckpointId(1)) is FAIL_JOB
    }
    assert counted == {
        FailureReason.IO,
        FailureReason.SNAPSHOT,
        FailureReason.DECLINED,
        FailureReason.EXPIRED,
        FailureReason.FINALIZE,
    }
    assert counted == {reason for reason in FailureReason if reason.counts}


@pytest.mark.parametrize("in_task", [False, True])
def test_a_savepoint_that_fails_never_counts(in_task: bool) -> None:
    failures = FailureManager(tolerable=0)
    for number in range(5):
        assert failures.failed(FailureReason.IO, CheckpointId(number), SAVEPOINT, in_task=in_task) is IGNORED
    assert failures.count == 0


def test_a_full_checkpoint_counts_as_any_other() -> None:
    options = SnapshotOptions(SnapshotKind.FULL_CHECKPOINT)
    assert FailureManager(tolerable=0).failed(FailureReason.IO, CheckpointId(1), options) is FAIL_JOB


@pytest.mark.parametrize("tolerable", [0, 100, None])
@pytest.mark.parametrize("reason", FailureReason)
def test_a_savepoint_that_tasks_wait_for_fails_the_job_at_once_if_a_task_fails_it(
    tolerable: int | None, reason: FailureReason
) -> None:
    failures = FailureManager(tolerable)
    assert failures.failed(reason, CheckpointId(1), STOP, in_task=True) is FAIL_JOB
    assert failures.failed(reason, CheckpointId(1), STOP) is IGNORED


def test_unlimited_tolerates_everything() -> None:
    failures = FailureManager(tolerable=None)
    assert set(fail(failures, *range(1000), *[None] * 1000)) == {IGNORED}


# -- ours --------------------------------------------------------------------------------------------------------


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        FailureManager(tolerable=-1)


def test_having_nothing_to_do_breaks_the_row_and_forgets_no_id() -> None:
    failures = FailureManager(tolerable=2)
    assert fail(failures, 1, None) == [TOLERATED, TOLERATED]
    failures.nothing_to_do()
    assert failures.count == 0
    assert fail(failures, 1, None, 2, None) == [IGNORED, TOLERATED, TOLERATED, FAIL_JOB]


def test_ids_that_are_text_work_alike() -> None:
    first, second = (CheckpointId(f"0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6{digit}") for digit in "ab")
    failures = FailureManager(tolerable=0)
    failures.succeeded(first)
    assert failures.failed(FailureReason.IO, first) is IGNORED
    assert failures.failed(FailureReason.IO, second) is FAIL_JOB


events = st.lists(st.tuples(st.sampled_from(["fail", "succeed"]), st.integers(0, 12)), max_size=40)


@given(events, st.integers(0, 4))
def test_the_job_fails_exactly_when_more_new_ids_failed_in_a_row_than_are_tolerable(
    happened: list[tuple[str, int]], tolerable: int
) -> None:
    failures = FailureManager(tolerable)
    seen: set[int] = set()
    newest_success = -1
    row = 0
    for what, number in happened:
        if what == "succeed":
            failures.succeeded(CheckpointId(number))
            if number > newest_success:
                newest_success, row = number, 0
            continue
        counts = number > newest_success and number not in seen
        seen |= {number} if counts else set()
        row += counts
        expected = IGNORED if not counts else FAIL_JOB if row > tolerable else TOLERATED
        assert fail(failures, number) == [expected]
        row = 0 if row > tolerable else row
        assert failures.count == row
