"""Proving checkpoints: how deep, how many, at what price, and what the ledger learns from it."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    InvalidKeyError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts._protocol import Check
from airflow_provider_checkpoint.lifecycle.records import Proof, read_ledger
from airflow_provider_checkpoint.lifecycle.validation import (
    Budget,
    ValidationResult,
    least_recently_proven,
    sample,
    validate,
    validate_examined,
    validate_many,
)
from airflow_provider_checkpoint.model import Checkpoint, CheckpointId, Depth, Issue
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, artifact_key, checkpoint, manifest_key, tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.blobs import BlobStore

ONE = CheckpointId(1)


def codes(result: ValidationResult) -> list[str]:
    return [issue.code for issue in result.issues]


def many(layout: TinyLayout, *numbers: int, depth: Depth = Depth.CONTENT, **options: Any) -> list[ValidationResult]:
    ids = [CheckpointId(number) for number in numbers]
    return validate_many(layout, ids, depth, now=lambda: START, **options)


def proven(layout: TinyLayout) -> dict[int | str, bool]:
    return {each.value: proof.valid for each, proof in read_ledger(layout.blobs, layout).items()}


# -- depths ------------------------------------------------------------------------------------------------------


def drop(key: str) -> Callable[[BlobStore], object]:
    return lambda blobs: blobs.delete([key])


def put(key: str, body: bytes) -> Callable[[BlobStore], object]:
    return lambda blobs: blobs.replace(key, body)


STATE = artifact_key(1, "state")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        pytest.param(lambda _: None, {}, id="whole"),
        pytest.param(drop(manifest_key(1)), dict.fromkeys(Depth, "manifest_missing"), id="no manifest"),
        pytest.param(put(manifest_key(1), b"{"), dict.fromkeys(Depth, "manifest_corrupt"), id="manifest cut"),
        pytest.param(
            drop(STATE),
            dict.fromkeys([Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE], "artifact_missing"),
            id="artifact gone",
        ),
        pytest.param(
            put(STATE, b"longer than it was"),
            dict.fromkeys([Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE], "size_mismatch"),
            id="another size",
        ),
        pytest.param(
            put(STATE, b"STATE 1"),
            dict.fromkeys([Depth.CONTENT, Depth.RESTORE], "checksum_mismatch"),
            id="another content",
        ),
    ],
)
def test_each_depth_finds_what_it_promises_and_what_the_depths_before_it_find(
    damage: Callable[[BlobStore], object], found: dict[Depth, str]
):
    layout = tiny(MemoryBlobs(), 1)
    damage(layout.blobs)
    for depth in Depth:
        result = validate(layout, ONE, depth)
        assert codes(result) == ([found[depth]] if depth in found else [])
        assert result.valid is (depth not in found)
        assert result.proven
        assert result.depth is depth


def test_only_a_restore_finds_state_that_is_what_was_written_and_makes_no_sense():
    layout = TinyLayout(MemoryBlobs())
    layout.save(1, data=b"\xff")
    assert [codes(validate(layout, ONE, depth)) for depth in Depth] == [[], [], [], ["state_undecodable"]]


def test_a_warning_does_not_make_a_checkpoint_invalid():
    layout = TinyLayout(MemoryBlobs())
    layout.commit(checkpoint(1))
    result = validate(layout, ONE, Depth.RESTORE)
    assert codes(result) == ["no_artifacts"]
    assert result.valid
    assert result.reason == ""


def test_a_result_says_why_in_one_line_and_goes_through_json():
    layout = tiny(MemoryBlobs(), 1)
    layout.save(2, epoch=-2)
    layout.blobs.delete([artifact_key(2, "state")])
    result = validate(layout, CheckpointId(2), Depth.PRESENCE)
    assert result.reason == "epoch -2 is negative; checkpoints/000002/state: not in the store"
    assert result.model_dump(mode="json")["valid"] is False
    assert ValidationResult.model_validate_json(result.model_dump_json(exclude={"valid"})) == result


def test_issues_come_in_the_order_of_the_artifacts_however_the_threads_run():
    layout = TinyLayout(MemoryBlobs())
    artifacts = tuple(layout.write_artifact(1, f"part-{part:03d}") for part in range(200))
    layout.commit(checkpoint(1, artifacts=artifacts))
    layout.blobs.delete([artifact.key for artifact in artifacts])
    result = validate(layout, ONE, Depth.PRESENCE, width=16)
    assert [issue.message.partition(":")[0] for issue in result.issues] == [artifact.key for artifact in artifacts]


def test_a_checkpoint_examined_before_is_not_examined_again():
    blobs = FaultyBlobs(tiny(MemoryBlobs(), 1).blobs)
    layout = TinyLayout(blobs)
    value = layout.load(ONE)
    blobs.calls.clear()
    assert validate_examined(layout, value, Depth.CONTENT).valid
    assert dict(blobs.calls) == {"stream": 1}


# -- a store that does not answer --------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_for_an_artifact_proves_nothing():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1)
    blobs.inject(Fault.FAIL, verb="stream", match="state")
    result = validate(layout, ONE, Depth.CONTENT)
    assert codes(result) == ["not_proven"]
    assert (result.valid, result.proven) == (False, False)
    assert result.bytes_read == 0


def test_what_could_not_be_asked_is_not_recorded_and_the_rest_is():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1, 2, 3)
    blobs.inject(Fault.FAIL, verb="stream", match="000002/state")
    results = many(layout, 1, 2, 3)
    assert [(result.valid, result.proven) for result in results] == [(True, True), (False, False), (True, True)]
    assert proven(layout) == {1: True, 3: True}


def test_a_manifest_that_could_not_be_asked_for_does_not_end_a_run_over_many():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1, 2, 3)
    blobs.inject(Fault.FAIL, verb="read", match="000002/manifest")
    results = many(layout, 1, 2, 3)
    assert [codes(result) for result in results] == [[], ["not_proven"], []]
    assert results[1].checkpoint_id == CheckpointId(2)
    assert proven(layout) == {1: True, 3: True}


def test_a_manifest_that_could_not_be_asked_for_ends_the_proof_of_one():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1)
    blobs.inject(Fault.FAIL, verb="read", match="manifest")
    with pytest.raises(StoreUnavailableError):
        validate(layout, ONE, Depth.STRUCTURE)


def test_a_store_that_refuses_ends_a_run_over_many_because_it_will_refuse_the_next_as_well():
    class Locked(FaultyBlobs):
        def read(self, key: str, **_: Any) -> bytes:
            raise AccessDeniedError("no", subject=key)

    layout = TinyLayout(Locked(tiny(MemoryBlobs(), 1).blobs))
    with pytest.raises(AccessDeniedError):
        many(layout, 1)


def test_a_refusal_for_one_artifact_proves_nothing():
    class Locked(FaultyBlobs):
        def stat(self, key: str) -> Any:
            raise AccessDeniedError("no", subject=key)

    result = validate(TinyLayout(Locked(tiny(MemoryBlobs(), 1).blobs)), ONE, Depth.PRESENCE)
    assert codes(result) == ["not_proven"]


def test_an_artifact_that_can_never_be_read_is_an_error():
    class Odd(FaultyBlobs):
        def stat(self, key: str) -> Any:
            raise InvalidKeyError("the path is a symbolic link", subject=key)

    result = validate(TinyLayout(Odd(tiny(MemoryBlobs(), 1).blobs)), ONE, Depth.PRESENCE)
    assert codes(result) == ["unreadable"]
    assert result.proven


def test_after_the_store_answers_again_the_same_artifact_is_asked_again():
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1)
    layout.save(2, artifacts=layout.load(ONE).artifacts)
    blobs.inject(Fault.FAIL, verb="stream", match="000001/state")
    assert [result.proven for result in many(layout, 1, 2)] == [False, True]


# -- shared artifacts --------------------------------------------------------------------------------------------


def with_shared_base(blobs: BlobStore) -> TinyLayout:
    """Ten checkpoints that all need the artifact of the first."""
    layout = tiny(blobs, 1)
    for number in range(2, 11):
        layout.save(number, artifacts=layout.load(ONE).artifacts)
    return layout


def test_an_artifact_that_many_share_is_read_once():
    blobs = FaultyBlobs(with_shared_base(MemoryBlobs()).blobs)
    results = many(TinyLayout(blobs), *range(1, 11), record=False)
    assert all(result.valid for result in results)
    assert blobs.calls["stream"] == 10
    assert [result.bytes_read for result in results] == [len("state 1"), *[len("state 2")] * 8, len("state 10")]


def test_damage_to_a_shared_artifact_is_told_of_every_checkpoint_that_needs_it():
    layout = with_shared_base(MemoryBlobs())
    layout.blobs.replace(artifact_key(1, "state"), b"STATE 1")
    assert [codes(result) for result in many(layout, *range(1, 11))] == [["checksum_mismatch"]] * 10


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_what_one_manifest_says_of_an_artifact_proves_nothing_about_what_another_says(order: tuple[int, int]):
    """A manifest with a wrong digest is wrong, though another one's digest of the same object is right."""
    layout = tiny(MemoryBlobs(), 1)
    (right,) = layout.load(ONE).artifacts
    wrong = replace(right, sha256=hashlib.sha256(b"other").hexdigest())
    layout.commit(checkpoint(2, artifacts=(wrong,)))
    found = {int(result.checkpoint_id.value): codes(result) for result in many(layout, *order)}
    assert found == {1: [], 2: ["checksum_mismatch"]}


def test_two_checks_of_one_object_both_run():
    class Twice(TinyLayout):
        """Asks two different questions about the same object."""

        def checks(self, checkpoint: Checkpoint, depth: Depth) -> list[Check]:
            return [Check("same", 1, list), Check("same", 1, lambda: [Issue.error("second", "found")])]

    layout = Twice(tiny(MemoryBlobs(), 1).blobs)
    assert codes(validate(layout, ONE, Depth.CONTENT, width=1)) == ["second"]


# -- budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_bytes", "looked_at"), [(None, 5), (0, 0), (1, 1), (7, 1), (8, 2), (21, 3), (22, 4), (1000, 5)]
)
def test_no_checkpoint_is_begun_once_the_bytes_are_spent(max_bytes: int | None, looked_at: int):
    """Each holds seven bytes."""
    layout = tiny(MemoryBlobs(), 1, 2, 3, 4, 5)
    assert len(many(layout, 1, 2, 3, 4, 5, budget=Budget(max_bytes=max_bytes))) == looked_at


def test_no_checkpoint_is_begun_once_the_time_is_up():
    layout = tiny(MemoryBlobs(), 1, 2, 3, 4, 5)
    ticks = iter([0.0, 1.0, 2.0, 3.0, 99.0])
    budget = Budget(max_seconds=3.0, clock=lambda: next(ticks))
    assert len(many(layout, 1, 2, 3, 4, 5, budget=budget)) == 2


def test_shared_bytes_are_spent_once():
    layout = with_shared_base(MemoryBlobs())
    assert len(many(layout, *range(1, 11), budget=Budget(max_bytes=70))) == 10


def test_without_depth_nothing_is_spent():
    layout = tiny(MemoryBlobs(), 1, 2, 3)
    assert len(many(layout, 1, 2, 3, depth=Depth.PRESENCE, budget=Budget(max_bytes=1))) == 3


def test_rolling_runs_reach_every_checkpoint_in_turn():
    layout = tiny(MemoryBlobs(), *range(1, 10))
    seen: list[int | str] = []
    for day in range(5):
        ids = least_recently_proven(layout.candidates(), read_ledger(layout.blobs, layout), Depth.CONTENT)
        results = validate_many(
            layout, ids, Depth.CONTENT, budget=Budget(max_bytes=8), now=lambda day=day: START + timedelta(days=day)
        )
        seen.extend(result.checkpoint_id.value for result in results)
    assert seen == [9, 8, 7, 6, 5, 4, 3, 2, 1, 9]


# -- what is looked at first -------------------------------------------------------------------------------------


def proof(number: int, depth: Depth, hours: int, *, valid: bool = True) -> Proof:
    return Proof(checkpoint_id=CheckpointId(number), depth=depth, valid=valid, proven=START + timedelta(hours=hours))


def test_never_proven_so_deep_comes_first_then_the_longest_ago_and_the_newest_among_equals():
    ids = [CheckpointId(number) for number in range(1, 8)]
    ledger = {
        each.checkpoint_id: each
        for each in (
            proof(1, Depth.CONTENT, 5),
            proof(2, Depth.RESTORE, 1),
            proof(3, Depth.CONTENT, 3),
            proof(4, Depth.PRESENCE, 99),
            proof(5, Depth.CONTENT, 3),
            proof(99, Depth.CONTENT, 0),
        )
    }
    ordered = least_recently_proven(ids, ledger, Depth.CONTENT)
    assert [each.value for each in ordered] == [7, 6, 4, 2, 5, 3, 1]
    assert [each.value for each in least_recently_proven(ids, {}, Depth.CONTENT)] == [7, 6, 5, 4, 3, 2, 1]


@given(
    st.lists(st.integers(0, 50), unique=True),
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(Depth), st.integers(0, 99), st.booleans())),
    st.sampled_from(Depth),
)
def test_every_checkpoint_is_in_the_order_once(numbers: list[int], proofs: list[Any], depth: Depth):
    ids = [CheckpointId(number) for number in numbers]
    ledger = {CheckpointId(each[0]): proof(*each[:3], valid=each[3]) for each in proofs}
    ordered = least_recently_proven(ids, ledger, depth)
    assert sorted(ordered) == sorted(ids)
    times = [
        ledger[each].proven if each in ledger and ledger[each].depth.includes(depth) else START - timedelta(days=9)
        for each in ordered
    ]
    assert times == sorted(times)


@given(st.integers(1, 40), st.integers(1, 50), st.integers())
def test_a_sample_always_has_the_newest_and_no_checkpoint_twice(count: int, size: int, seed: int):
    ids = [CheckpointId(number) for number in range(1, count + 1)]
    drawn = sample(ids, size, seed=seed)
    assert CheckpointId(count) in drawn
    assert len(set(drawn)) == len(drawn) == min(size, count)
    assert set(drawn) <= set(ids)
    assert drawn == sorted(drawn) == sample(ids, size, seed=seed)


def test_samples_differ():
    ids = [CheckpointId(number) for number in range(1, 101)]
    assert len({tuple(sample(ids, 10, seed=seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize("size", [0, -1])
def test_a_sample_of_nothing_is_refused(size: int):
    with pytest.raises(ConfigurationError, match="sample"):
        sample([CheckpointId(1), CheckpointId(2)], size)


def test_a_sample_of_an_empty_store_is_empty():
    assert sample([], 5) == []


# -- the ledger --------------------------------------------------------------------------------------------------


def test_what_was_found_out_goes_into_the_ledger():
    layout = tiny(MemoryBlobs(), 1, 2)
    layout.blobs.delete([artifact_key(2, "state")])
    many(layout, 1, 2)
    assert proven(layout) == {1: True, 2: False}


def test_a_checkpoint_without_a_manifest_leaves_no_record():
    """It may be being written, or in the trash and come back."""
    layout = tiny(MemoryBlobs(), 1)
    layout.write_artifact(2, "state")
    results = many(layout, 1, 2)
    assert [result.missing for result in results] == [False, True]
    assert proven(layout) == {1: True}


def test_nothing_is_recorded_if_that_is_not_wanted():
    blobs = FaultyBlobs(tiny(MemoryBlobs(), 1).blobs)
    many(TinyLayout(blobs), 1, record=False)
    assert blobs.mutations == []


# -- progress ----------------------------------------------------------------------------------------------------


class Meter:
    """Adds up what it is told, from whichever thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.totals: list[int] = []
        self.done: list[int] = []
        self.subjects: list[str] = []

    def start(self, total: int) -> None:
        self.totals.append(total)
        self.done.append(0)

    def advance(self, done: int, subject: str) -> None:
        with self.lock:
            self.done[-1] += done
            self.subjects.append(subject)


@pytest.mark.parametrize("depth", [Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE])
def test_progress_adds_up_to_what_was_announced_whatever_goes_wrong(depth: Depth):
    blobs = FaultyBlobs(with_shared_base(MemoryBlobs()).blobs)
    layout = TinyLayout(blobs)
    blobs.delete([artifact_key(3, "state"), manifest_key(4)])
    blobs.replace(artifact_key(5, "state"), b"STATE 5")
    blobs.inject(Fault.FAIL, verb="stat", match="000006/state")
    blobs.inject(Fault.FAIL, verb="stream", match="000007/state")
    meter = Meter()
    many(layout, *range(1, 11), depth=depth, progress=meter)
    assert meter.done == meter.totals
    assert len(meter.totals) == 9
    assert all(total > 0 for total in meter.totals)
    assert artifact_key(1, "state") in meter.subjects
