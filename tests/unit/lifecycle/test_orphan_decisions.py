"""What happens to one object, and when a person is asked first: pure, case by case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import is_temporary
from airflow_provider_checkpoint.blobs._protocol import probe_key, temporary_key
from airflow_provider_checkpoint.layouts._protocol import Named, Role
from airflow_provider_checkpoint.lifecycle.orphans import Evidence, KeySet, judge, question_about
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision
from airflow_provider_checkpoint.lifecycle.safety import ORPHAN_AGE_FLOOR, SAFE, Safety
from airflow_provider_checkpoint.model import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OLD = NOW - 30 * DAY

#: As a writer leaves them that dies; their names are random, those of tests are not.
HALF_WRITTEN = f"checkpoints/000003/.state.{'0' * 32}.tmp"
PROBE = f".fence.{'0' * 32}.probe"

DELETE, KEEP, DEFER, SKIP = (
    OrphanDecision.DELETE,
    OrphanDecision.KEEP_ACTIVE,
    OrphanDecision.DEFER,
    OrphanDecision.SKIP_UNKNOWN,
)


def evidence(**facts: Any) -> Evidence:
    """Checkpoints 1 to 9 can be read; 5 is in the trash; ``shared`` is named by one of them."""
    usual = {
        "needed": KeySet(["checkpoints/000003/shared"]),
        "manifests": 9,
        "trashed": frozenset([CheckpointId(5)]),
        "newest": CheckpointId(9),
        "unreadable": None,
    }
    return Evidence(**(usual | facts))


def verdict(
    key: str,
    modified: datetime | None = OLD,
    *,
    role: Role = Role.ARTIFACT,
    owner: int | None = 3,
    safety: Safety = SAFE,
    **facts: Any,
) -> tuple[OrphanDecision, str]:
    named = Named(role, None if owner is None else CheckpointId(owner))
    return judge(named, modified, key, evidence(**facts), now=NOW, safety=safety)


# -- by role -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modified", [OLD, NOW, NOW + DAY, None])
@pytest.mark.parametrize(
    ("role", "decision"),
    [
        (Role.MANIFEST, KEEP),
        (Role.POINTER, KEEP),
        (Role.HOUSEKEEPING, KEEP),
        (Role.UNKNOWN, SKIP),
    ],
)
def test_only_artifacts_and_half_written_objects_can_be_orphans(
    role: Role, decision: OrphanDecision, modified: datetime | None
):
    assert verdict("some/name", modified, role=role)[0] is decision


def test_an_old_artifact_that_nothing_names_is_an_orphan():
    assert verdict("checkpoints/000003/lost") == (DELETE, "no manifest names it")


def test_an_artifact_that_a_manifest_names_stays_whoever_made_it():
    assert verdict("checkpoints/000003/shared", owner=3) == (KEEP, "a manifest names it")
    assert verdict("checkpoints/000003/shared", owner=None) == (KEEP, "a manifest names it")


def test_an_artifact_in_the_folder_of_a_trashed_checkpoint_waits_for_the_sweep():
    assert verdict("checkpoints/000005/lost", owner=5) == (KEEP, "checkpoint 5 is in the trash")


@pytest.mark.parametrize("key", [HALF_WRITTEN, f".latest.{'0' * 32}.tmp", PROBE])
@pytest.mark.parametrize("role", list(Role))
def test_a_half_written_object_is_litter_once_it_is_old_wherever_it_lies(key: str, role: Role):
    assert verdict(key, role=role) == (DELETE, "half-written object")
    assert verdict(key, NOW - 23 * HOUR, role=role) == (DEFER, "younger than 1d")


@pytest.mark.parametrize("make", [lambda: temporary_key("checkpoints/000003/state"), probe_key])
def test_the_names_that_writers_give_to_half_written_objects_are_known(make: Callable[[], str]):
    assert is_temporary(make())
    assert verdict(make()) == (DELETE, "half-written object")


@pytest.mark.parametrize(
    "key", ["checkpoints/000003/\udcff", "a\\b", "a\nb", ".x\udcff." + "0" * 32 + ".tmp", "x" * 2000, "a//b", "../a"]
)
@pytest.mark.parametrize("role", [Role.ARTIFACT, Role.UNKNOWN])
def test_a_name_that_no_store_call_would_take_is_never_ours(key: str, role: Role):
    assert verdict(key, role=role) == (SKIP, "not a name of this layout")


# -- by age ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "decision"),
    [
        (24 * HOUR, DELETE),
        (24 * HOUR - timedelta(microseconds=1), DEFER),
        (timedelta(0), DEFER),
        (-DAY, DEFER),
        (None, DEFER),
    ],
)
def test_what_is_younger_than_a_day_or_of_unknown_age_is_left_for_later(
    age: timedelta | None, decision: OrphanDecision
):
    assert verdict("checkpoints/000003/lost", None if age is None else NOW - age)[0] is decision


@pytest.mark.parametrize("asked", [timedelta(0), timedelta(minutes=59), timedelta(days=-7), timedelta.min])
@pytest.mark.parametrize("key", ["checkpoints/000003/lost", HALF_WRITTEN])
def test_no_option_makes_anything_younger_than_an_hour_an_orphan(key: str, asked: timedelta):
    safety = Safety(orphan_age=asked, uncommitted_age=asked)
    assert verdict(key, NOW - timedelta(minutes=59, seconds=59), safety=safety) == (DEFER, "younger than 1h")
    assert verdict(key, NOW - ORPHAN_AGE_FLOOR, safety=safety)[0] is DELETE


def test_a_longer_age_can_be_asked_for():
    safety = Safety(orphan_age=7 * DAY)
    assert verdict("checkpoints/000003/lost", NOW - 6 * DAY, safety=safety) == (DEFER, "younger than 7d")
    assert verdict("checkpoints/000003/lost", NOW - 7 * DAY, safety=safety)[0] is DELETE


# -- what may be being written -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "newest", "decision"),
    [
        pytest.param(10, 9, DEFER, id="above the newest committed id"),
        pytest.param(9, 9, DELETE, id="in the folder of the newest"),
        pytest.param(8, 9, DELETE, id="below the newest"),
        pytest.param(1, None, DEFER, id="nothing was ever committed"),
        pytest.param(None, None, DELETE, id="bears nobody's name"),
    ],
)
def test_an_artifact_of_a_checkpoint_that_may_be_being_written_must_be_a_day_old_however_short_the_age(
    owner: int | None, newest: int | None, decision: OrphanDecision
):
    found = verdict(
        "checkpoints/x/lost",
        NOW - 2 * HOUR,
        owner=owner,
        newest=None if newest is None else CheckpointId(newest),
        safety=Safety(orphan_age=HOUR),
    )
    assert found[0] is decision


def test_the_longer_of_the_two_ages_counts():
    safety = Safety(orphan_age=3 * DAY, uncommitted_age=HOUR)
    assert verdict("checkpoints/x/lost", NOW - 2 * DAY, owner=10, safety=safety) == (DEFER, "younger than 3d")


# -- unreadable manifests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "decision"),
    [
        pytest.param(3, KEEP, id="made before it"),
        pytest.param(7, KEEP, id="made for it"),
        pytest.param(8, DELETE, id="made after it"),
        pytest.param(None, KEEP, id="nobody knows when"),
    ],
)
def test_a_manifest_that_cannot_be_read_protects_all_that_it_may_name(owner: int | None, decision: OrphanDecision):
    found = verdict("checkpoints/x/lost", owner=owner, unreadable=CheckpointId(7))
    assert found[0] is decision
    if decision is KEEP:
        assert found[1] == "the manifest of 7 cannot be read and may name it"


@given(
    role=st.sampled_from(Role),
    owner=st.none() | st.integers(0, 12),
    age=st.none() | st.timedeltas(timedelta(days=-2), timedelta(days=60)),
    key=st.sampled_from(["checkpoints/000003/shared", "checkpoints/000003/lost", HALF_WRITTEN]),
    orphan_age=st.timedeltas(timedelta(days=-1), timedelta(days=40)),
    unreadable=st.none() | st.integers(0, 12),
)
def test_whatever_is_deleted_is_old_ours_and_named_by_nobody(
    role: Role, owner: int | None, age: timedelta | None, key: str, orphan_age: timedelta, unreadable: int | None
):
    decision, reason = verdict(
        key,
        None if age is None else NOW - age,
        role=role,
        owner=owner,
        safety=Safety(orphan_age=orphan_age),
        unreadable=None if unreadable is None else CheckpointId(unreadable),
    )
    assert reason
    if decision is DELETE:
        assert age is not None
        assert age >= max(orphan_age, HOUR)
        assert key != "checkpoints/000003/shared" or role is not Role.ARTIFACT
        assert role is Role.ARTIFACT or key.endswith(".tmp")


# -- the set of what is needed -----------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=60))
def test_a_set_of_keys_never_denies_what_it_holds(keys: list[str]):
    held = KeySet(keys)
    assert all(key in held for key in keys)
    assert len(held) == len(set(keys))


def test_a_set_of_many_keys_denies_others():
    held = KeySet(f"checkpoints/{number:06d}/state" for number in range(20_000))
    assert not any(f"checkpoints/{number:06d}/other" in held for number in range(20_000))


def test_an_empty_set_holds_nothing():
    assert "a" not in KeySet([])
    assert len(KeySet([])) == 0


# -- when a person is asked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deletions", "size", "artifacts", "safety", "asks"),
    [
        pytest.param(0, 0, 0, SAFE, "", id="nothing"),
        pytest.param(50, 1, 100, SAFE, "", id="half"),
        pytest.param(51, 1, 100, SAFE, "51% of all artifacts", id="more than half"),
        pytest.param(10, 1, 10, SAFE, "", id="all, but few"),
        pytest.param(11, 1, 11, SAFE, "100% of all artifacts", id="all, and more than few"),
        pytest.param(1, 1, 1, Safety(few_orphans=0), "100% of all artifacts", id="few made none"),
        pytest.param(
            20, 1, 100, Safety(max_orphan_share=0.1), "more than 10% looks like a mistake", id="a lower share"
        ),
        pytest.param(100, 1, 100, Safety(max_orphan_share=1.0), "", id="the share switched off"),
        pytest.param(5, 2 * 10**9, 100, SAFE, "", id="no cap on bytes"),
        pytest.param(5, 10**9, 100, Safety(max_orphan_bytes=10**9), "", id="as much as the cap"),
        pytest.param(
            5, 10**9 + 1, 100, Safety(max_orphan_bytes=10**9), "1.0 GB would be removed; the cap is 1.0 GB", id="more"
        ),
        pytest.param(1, 1, 100, Safety(max_orphan_bytes=0), "the cap is 0 B", id="no byte without asking"),
        pytest.param(99, 1, 0, SAFE, "", id="half-written objects only"),
    ],
)
def test_a_person_is_asked_if_unusually_much_would_go(
    deletions: int, size: int, artifacts: int, safety: Safety, asks: str
):
    question = question_about(deletions, size, artifacts, safety)
    assert asks in question
    assert bool(question) is bool(asks)
