"""Keyed state behaves like a dictionary, also when many keys share one hash."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.exceptions import CorruptArtifactError
from airflow_provider_checkpoint.spark.state_table import HASH, StateSchema, VnodeState, check_keys

SCHEMA = StateSchema(
    ("shop", "customer"), pa.schema([("shop", pa.int64()), ("customer", pa.string()), ("n", pa.int64())])
)

Key = tuple[int, str]
KEYS = st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b", "ä", "long " * 5]))


def few_hashes(key: Key) -> int:
    """Five hashes for twenty keys: every lookup meets strangers."""
    return (key[0] * 7 + len(key[1])) % 5 - 2


def table(rows: dict[Key, int]) -> pa.Table:
    return pa.table(
        {
            HASH: pa.array([few_hashes(key) for key in rows], pa.int64()),
            "shop": pa.array([shop for shop, _ in rows], pa.int64()),
            "customer": pa.array([customer for _, customer in rows], pa.string()),
            "n": pa.array(list(rows.values()), pa.int64()),
        }
    )


def keys(wanted: list[Key]) -> pa.Table:
    return table(dict.fromkeys(wanted, 0)).drop_columns(["n"])


def as_dict(found: pa.Table) -> dict[Key, int]:
    rows = found.to_pylist()
    result = {(row["shop"], row["customer"]): row["n"] for row in rows}
    assert len(result) == len(rows), "a key has two rows"
    return result


epochs = st.lists(
    st.tuples(
        st.dictionaries(KEYS, st.integers(-5, 5), max_size=8), st.lists(KEYS, max_size=4, unique=True), st.booleans()
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(epochs)
def test_any_history_of_changes_reads_back_as_a_dictionary_would(history):
    state, model = VnodeState.empty(SCHEMA), {}
    for upserts, candidates, merge in history:
        removed = [key for key in candidates if key not in upserts]
        touched = list(upserts) + removed
        assert as_dict(state.find(keys(touched))) == {key: model[key] for key in touched if key in model}
        state = state.change(table(upserts), keys(removed))
        model.update(upserts)
        for key in removed:
            model.pop(key, None)
        if merge:
            state = state.merged()
        state = VnodeState.of(SCHEMA, state.snapshot_bytes, state.delta_bytes)
        assert as_dict(state.rows()) == model


@given(st.dictionaries(KEYS, st.integers(-9, 9), max_size=20))
def test_the_same_rows_give_the_same_bytes_in_whatever_order_they_come(rows):
    forwards = VnodeState.empty(SCHEMA).change(table(rows)).merged()
    again = VnodeState.empty(SCHEMA).change(table(dict(sorted(rows.items(), key=few_hashes_of)))).merged()
    assert as_dict(forwards.rows()) == as_dict(again.rows()) == rows


def few_hashes_of(item):
    return few_hashes(item[0])


def test_a_change_leaves_the_state_it_was_made_from_alone():
    before = VnodeState.empty(SCHEMA).change(table({(1, "a"): 1}))
    before.change(table({(1, "a"): 2}))
    assert as_dict(before.rows()) == {(1, "a"): 1}


def test_a_delta_holds_the_changes_and_nothing_else():
    base = VnodeState.empty(SCHEMA).change(table({(shop, "a"): shop for shop in range(500)})).merged()
    changed = base.change(table({(1, "a"): -1}))
    assert changed.delta_bytes.size < base.snapshot_bytes.size / 10
    assert changed.snapshot_bytes == base.snapshot_bytes


@pytest.mark.parametrize("keep", [0, 1, 7, 100, -1, -8])
def test_a_cut_file_is_a_typed_error(keep):
    data = VnodeState.empty(SCHEMA).change(table({(1, "a"): 1})).merged().snapshot_bytes.to_pybytes()[:keep]
    with pytest.raises(CorruptArtifactError):
        VnodeState.of(SCHEMA, pa.py_buffer(data), None)


def test_state_of_another_shape_is_refused_and_the_error_shows_both():
    other = StateSchema(("shop",), pa.schema([("shop", pa.int64()), ("total", pa.float64())]))
    data = VnodeState.empty(other).snapshot_bytes
    with pytest.raises(CorruptArtifactError, match=r"total: double[\s\S]*expects[\s\S]*customer: string"):
        VnodeState.of(SCHEMA, data, None)


def test_null_keys_are_refused():
    with pytest.raises(ValueError, match="'customer' holds nulls"):
        check_keys(pa.table({"customer": pa.array(["a", None])}), ["customer"])


def test_state_that_was_kept_by_another_key_is_refused_and_not_passed_over():
    state = VnodeState.empty(SCHEMA).change(table({(1, "a"): 1}))
    for columns in (("shop",), ("customer", "shop")):
        for artifacts in ((state.merged().snapshot_bytes, None), (None, state.delta_bytes)):
            with pytest.raises(CorruptArtifactError, match=r"kept by the key \[\"shop\", \"customer\"\]"):
                VnodeState.of(StateSchema(columns, SCHEMA.columns), *artifacts)


ZEROS = StateSchema(("k",), pa.schema([("k", pa.float64()), ("n", pa.int64())]))


def zeros(*keys: float) -> pa.Table:
    return pa.table({HASH: [5] * len(keys), "k": list(keys), "n": list(range(len(keys)))}, schema=ZEROS.snapshot)


@pytest.mark.parametrize("merge", [False, True])
def test_state_from_when_zeros_were_two_keys_is_found_and_replaced_under_either(merge):
    state = VnodeState.empty(ZEROS).change(zeros(-0.0))
    state = state.merged() if merge else state
    found = state.find(zeros(0.0))
    assert [str(key) for key in found.column("k").to_pylist()] == ["0.0"]
    changed = state.change(zeros(0.0))
    for each in (changed, changed.merged(), VnodeState.of(ZEROS, changed.snapshot_bytes, changed.delta_bytes)):
        assert [str(row["k"]) for row in each.rows().to_pylist()] == ["0.0"]
        assert each.find(zeros(0.0)).num_rows == 1
    gone = state.change(zeros(), zeros(0.0).select([HASH, "k"]))
    assert gone.rows().num_rows == gone.merged().rows().num_rows == gone.find(zeros(0.0)).num_rows == 0


@pytest.mark.parametrize("before", [(), (-0.0, 1.5), (0.0, 1.5), (-0.0, 0.0, 1.5)])
def test_state_that_holds_both_zeros_is_an_error_when_it_is_asked_for_them_and_only_then(before):
    """In one file or in both, as they may be from when they were two keys."""
    since = [key for key in (0.0, -0.0, 1.5) if str(key) not in map(str, before)]
    snapshot = VnodeState.empty(ZEROS).change(zeros(*before)).merged()
    delta = VnodeState.empty(ZEROS).change(zeros(*since))
    state = VnodeState.of(ZEROS, snapshot.snapshot_bytes, delta.delta_bytes)
    assert state.rows().num_rows == 3
    assert state.find(zeros(1.5)).num_rows == 1
    with pytest.raises(CorruptArtifactError, match=r"more than one row for a key[\s\S]*0.0 and -0.0"):
        state.find(zeros(0.0, 2.5))


def test_spark_gives_both_zeros_one_hash_and_all_nans_one(spark):
    """Rows of one key must meet in one vnode, and be found there by their hash."""
    for kind in ("float", "double"):
        zero, minus, nan = (f"cast('{text}' as {kind})" for text in ("0.0", "-0.0", "NaN"))
        same = f"xxhash64({zero}) = xxhash64({minus}), xxhash64({nan}) = xxhash64(-{nan})"
        assert tuple(spark.sql(f"SELECT {same}").first()) == (True, True)
