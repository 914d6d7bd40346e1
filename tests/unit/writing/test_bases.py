"""Whole, delta or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.writing.bases import Base, BaseRules, SnapshotKind, Write, choose_write

RULES = BaseRules(max_age=3, max_delta_share=0.5)

CASES = [
    ("no base yet", None, True, Write.FULL),
    ("no base yet, although untouched", None, False, Write.FULL),
    ("touched, young base", Base(0, 100), True, Write.DELTA),
    ("untouched, young base", Base(0, 100), False, Write.CARRY),
    ("touched, base in its last round", Base(2, 100), True, Write.DELTA),
    ("touched, base about to leave", Base(3, 100), True, Write.FULL),
    ("untouched, base in its last round", Base(2, 100), False, Write.CARRY),
    ("untouched, base about to leave", Base(3, 100), False, Write.FULL),
    ("delta just small enough", Base(1, 100, 50), True, Write.DELTA),
    ("delta too large", Base(1, 100, 51), True, Write.FULL),
    ("large delta that stays as it is", Base(1, 100, 99), False, Write.CARRY),
    ("empty base, empty delta", Base(1, 0, 0), True, Write.DELTA),
    ("empty base, any delta", Base(1, 0, 1), True, Write.FULL),
]


@pytest.mark.parametrize(("base", "touched", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_partition_of_a_checkpoint_is_written_as(base: Base | None, touched: bool, expected: Write) -> None:
    assert choose_write(base, SnapshotKind.CHECKPOINT, touched=touched, rules=RULES) is expected


bases = st.none() | st.builds(Base, st.integers(0, 50), st.integers(0, 2**40), st.integers(0, 2**40))
rules = st.builds(BaseRules, st.integers(0, 30), st.floats(0, 2))


@given(bases, st.sampled_from([SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT]), st.booleans(), rules)
def test_only_a_plain_checkpoint_uses_what_others_wrote(
    base: Base | None, kind: SnapshotKind, touched: bool, given_rules: BaseRules
) -> None:
    assert choose_write(base, kind, touched=touched, rules=given_rules) is Write.FULL


@given(bases, st.booleans(), rules)
def test_nothing_refers_to_a_base_that_is_missing_or_too_old_and_changes_are_never_left_out(
    base: Base | None, touched: bool, given_rules: BaseRules
) -> None:
    write = choose_write(base, SnapshotKind.CHECKPOINT, touched=touched, rules=given_rules)
    if write is not Write.FULL:
        assert base is not None
        assert base.age < given_rules.max_age
    if touched:
        assert write is not Write.CARRY
