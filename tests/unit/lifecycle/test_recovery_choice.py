"""The point a store offers to go back to, on a real layout: what is chosen, what is passed over and why."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    AccessDeniedError,
    CheckpointNotFoundError,
    CorruptManifestError,
    NoRecoveryPointError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.lifecycle.facts import decision_key
from airflow_provider_checkpoint.lifecycle.plans import Distance, SinkAction, SkipCode
from airflow_provider_checkpoint.lifecycle.records import add_pin
from airflow_provider_checkpoint.lifecycle.recovery import Strategy, Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline, timeline_key, timeline_numbers
from airflow_provider_checkpoint.model import CheckpointId, Depth, GenericPosition, Pin, SinkState, SinkStatus
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, artifact_key, checkpoint, manifest_key, sinks, tiny

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.lifecycle.plans import RecoveryPlan

NOW = START + timedelta(days=1)


@pytest.fixture
def layout() -> TinyLayout:
    return TinyLayout(MemoryBlobs())


def go(layout: TinyLayout, **wish: Any) -> RecoveryPlan:
    return choose(layout, Wish(**wish), now=NOW)


def chosen(layout: TinyLayout, **wish: Any) -> int | str | None:
    plan = go(layout, **wish)
    return None if plan.chosen is None else plan.chosen.value


def skipped(plan: RecoveryPlan | NoRecoveryPointError) -> list[tuple[int | str, SkipCode]]:
    return [(each.checkpoint_id.value, each.code) for each in plan.skipped]


def fork(layout: TinyLayout, number: int | None) -> None:
    """What a writer does that starts from a checkpoint, or afresh."""
    start = None if number is None else layout.load(CheckpointId(number))
    open_timeline(layout.blobs, start=start, has_checkpoints=True, writer=f"after {number}", now=NOW)


def decide(layout: TinyLayout, epoch: int, timeline: int = 1) -> None:
    """The marker that says: this epoch shall be committed."""
    layout.blobs.create(decision_key(timeline, epoch), b"{}")


def spoil(blobs: BlobStore, key: str) -> None:
    blobs.replace(key, b"\0 not what it was")


# -- latest ------------------------------------------------------------------------------------------------------


def test_the_newest_valid_checkpoint_is_chosen_and_described(layout: TinyLayout):
    for number in (1, 2, 3):
        layout.save(number)
    plan = go(layout)
    assert plan.chosen == CheckpointId(3)
    assert (plan.epoch, plan.timeline, plan.created) == (3, 1, START + timedelta(minutes=3))
    assert (plan.head, plan.examined, plan.skipped) == (CheckpointId(3), 1, ())
    assert (plan.distance, plan.sinks, plan.warnings) == (Distance(), (), ())
    assert (plan.uri, plan.layout, plan.made, plan.strategy) == (layout.blobs.uri, "tiny", NOW, "latest")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        pytest.param(lambda blobs: spoil(blobs, manifest_key(3)), SkipCode.UNREADABLE, id="manifest"),
        pytest.param(lambda blobs: blobs.delete([artifact_key(3, "state")]), SkipCode.INVALID, id="artifact gone"),
        pytest.param(lambda blobs: spoil(blobs, artifact_key(3, "state")), SkipCode.INVALID, id="artifact size"),
        pytest.param(
            lambda blobs: blobs.replace(artifact_key(3, "state"), b"STATE 3"), SkipCode.INVALID, id="artifact digest"
        ),
    ],
)
def test_a_damaged_newest_is_passed_over_for_the_one_before(layout: TinyLayout, damage: Any, code: SkipCode):
    for number in (1, 2, 3):
        layout.save(number)
    damage(layout.blobs)
    plan = go(layout)
    assert plan.chosen == CheckpointId(2)
    assert skipped(plan) == [(3, code)]
    assert plan.skipped[0].reason
    assert plan.examined == 2


def test_damage_is_looked_for_only_as_deep_as_asked(layout: TinyLayout):
    for number in (1, 2):
        layout.save(number)
    layout.blobs.replace(artifact_key(2, "state"), b"STATE 2")
    assert [chosen(layout, depth=depth) for depth in Depth] == [2, 2, 1, 1]
    layout.save(3, data=b"\xff is no text")
    assert [chosen(layout, depth=depth) for depth in Depth] == [3, 3, 3, 1]


def test_what_was_never_committed_is_not_a_checkpoint_and_needs_no_reason(layout: TinyLayout):
    layout.save(1)
    layout.write_artifact(2, "state")
    plan = go(layout)
    assert plan.chosen == CheckpointId(1)
    assert (plan.skipped, plan.examined) == ((), 1)


def test_a_missing_or_dangling_or_lying_pointer_changes_nothing(layout: TinyLayout):
    for number in (1, 2, 3):
        layout.save(number)
    for pointer in (b"1", b"99", b"", b"\xff"):
        layout.blobs.replace("latest", pointer)
        assert chosen(layout) == 3
    layout.blobs.delete(["latest"])
    assert chosen(layout) == 3


def test_an_unreadable_manifest_is_warned_about_because_it_may_hide_sinks(layout: TinyLayout):
    for number in (1, 2, 3):
        layout.save(number)
    spoil(layout.blobs, manifest_key(3))
    assert go(layout).warnings == ("manifests that cannot be read (3) may hide sinks that published something",)


# -- other strategies --------------------------------------------------------------------------------------------


@pytest.fixture
def told(layout: TinyLayout) -> TinyLayout:
    """Five checkpoints with a watermark, a source, and a pin on the second."""
    for number in range(1, 6):
        layout.save(
            number,
            watermark=number * 100,
            event_count=number * 1000,
            sources={"orders": GenericPosition(offsets={"offset": str(number * 10)})},
        )
    add_pin(layout.blobs, Pin(name="release", checkpoint_id=CheckpointId(2), owner="ana", reason="", created=START))
    return layout


@pytest.mark.parametrize(
    ("wish", "number"),
    [
        ({"strategy": Strategy.LATEST}, 5),
        ({"strategy": Strategy.ID, "checkpoint_id": CheckpointId(3)}, 3),
        ({"strategy": Strategy.BEFORE_TIME, "at": START + timedelta(minutes=4)}, 4),
        ({"strategy": Strategy.BEFORE_TIME, "at": START + timedelta(minutes=3, seconds=59)}, 3),
        ({"strategy": Strategy.BEFORE_EPOCH, "epoch": 4}, 3),
        ({"strategy": Strategy.BEFORE_WATERMARK, "watermark": 250}, 2),
        ({"strategy": Strategy.BEFORE_OFFSET, "source": "orders", "offset": 40}, 4),
        ({"strategy": Strategy.BEFORE_OFFSET, "source": "orders", "partition": "offset", "offset": 39}, 3),
        ({"strategy": Strategy.PIN, "pin": "release"}, 2),
        ({"strategy": Strategy.LATEST, "skip": frozenset({CheckpointId(5), CheckpointId(4)})}, 3),
    ],
)
def test_every_strategy_finds_its_point_and_tells_how_far_back_it_is(
    told: TinyLayout, wish: dict[str, Any], number: int
):
    plan = go(told, **wish)
    assert plan.chosen == CheckpointId(number)
    assert plan.head == CheckpointId(5)
    assert [code for _, code in skipped(plan)] == [SkipCode.UNWANTED] * (5 - number)
    back = 5 - number
    assert plan.distance == (
        Distance(
            seconds=back * 60,
            epochs=back,
            checkpoints=back,
            events=back * 1000,
            sources={"orders": {"offset": back * 10}},
        )
        if back
        else Distance()
    )


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"strategy": Strategy.ID, "checkpoint_id": CheckpointId(9)}, "there is no checkpoint 9"),
        ({"strategy": Strategy.BEFORE_TIME, "at": START}, "no checkpoint fits"),
        ({"strategy": Strategy.BEFORE_EPOCH, "epoch": 1}, "no checkpoint fits"),
        ({"strategy": Strategy.BEFORE_WATERMARK, "watermark": 99}, "no checkpoint fits"),
        ({"strategy": Strategy.BEFORE_OFFSET, "source": "orders", "offset": 9}, "no checkpoint fits"),
        ({"strategy": Strategy.BEFORE_OFFSET, "source": "clicks", "offset": 9}, "no checkpoint fits"),
        (
            {"strategy": Strategy.ID, "checkpoint_id": CheckpointId(3), "skip": frozenset([CheckpointId(3)])},
            "checkpoint 3 is not usable",
        ),
    ],
)
def test_a_wish_that_nothing_fulfils_is_an_error(told: TinyLayout, wish: dict[str, Any], message: str):
    with pytest.raises(NoRecoveryPointError, match=message):
        go(told, **wish)


def test_an_unknown_pin_is_an_error_that_names_those_there_are(told: TinyLayout):
    with pytest.raises(CheckpointNotFoundError, match="no pin named 'relaese'") as caught:
        go(told, strategy=Strategy.PIN, pin="relaese")
    assert caught.value.hint == "Pins here: release."


def test_a_named_checkpoint_that_is_damaged_is_not_replaced_by_another(told: TinyLayout):
    spoil(told.blobs, artifact_key(3, "state"))
    with pytest.raises(NoRecoveryPointError, match="checkpoint 3 is not usable") as caught:
        go(told, strategy=Strategy.ID, checkpoint_id=CheckpointId(3))
    assert skipped(caught.value) == [(5, SkipCode.UNWANTED), (4, SkipCode.UNWANTED), (3, SkipCode.INVALID)]


def test_why_a_named_checkpoint_is_not_usable_is_told_however_many_newer_ones_there_are(layout: TinyLayout):
    for number in range(1, 21):
        layout.save(number)
    spoil(layout.blobs, artifact_key(3, "state"))
    with pytest.raises(NoRecoveryPointError) as caught:
        go(layout, strategy=Strategy.ID, checkpoint_id=CheckpointId(3))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("3: ")
    assert "not the one asked for" not in caught.value.hint


@pytest.mark.parametrize("fresh_start_ok", [False, True])
def test_a_named_checkpoint_that_is_not_there_is_not_told_as_an_empty_store(told: TinyLayout, fresh_start_ok: bool):
    with pytest.raises(NoRecoveryPointError, match="there is no checkpoint 9") as caught:
        go(told, strategy=Strategy.ID, checkpoint_id=CheckpointId(9), fresh_start_ok=fresh_start_ok)
    assert caught.value.hint is not None
    assert "holds no checkpoint" not in caught.value.hint
    assert "undelete" in caught.value.hint


# -- sinks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [SinkState.PENDING, SinkState.FAILED])
def test_a_commit_that_was_never_decided_is_passed_over_and_its_sinks_rolled_back(layout: TinyLayout, state: SinkState):
    layout.save(1, sinks=sinks(SinkState.COMMITTED, "out"))
    layout.save(2, sinks=sinks(state, "out", "copy"))
    plan = go(layout)
    assert plan.chosen == CheckpointId(1)
    assert skipped(plan) == [(2, SkipCode.UNDECIDED)]
    assert plan.skipped[0].reason == "its commit was never decided (sinks not committed: copy, out)"
    assert plan.sinks == (
        SinkAction(sink="copy", action="roll_back", epochs=(2,)),
        SinkAction(sink="out", action="roll_back", epochs=(2,)),
    )


@pytest.mark.parametrize("state", [SinkState.PENDING, SinkState.FAILED])
@pytest.mark.parametrize("marker", [decision_key(1, 2), "checkpoint-decisions/epoch=2/commit"], ids=["ours", "legacy"])
def test_a_commit_that_was_decided_is_chosen_and_its_open_sinks_committed_again(
    layout: TinyLayout, state: SinkState, marker: str
):
    """A failed sink too: after the decision it must publish, or the output is lost."""
    layout.save(1)
    layout.save(2, sinks=sinks(SinkState.COMMITTED, "done") | {"out": SinkStatus(state, 2, "timed out")})
    layout.blobs.create(marker, b"")
    plan = go(layout)
    assert plan.chosen == CheckpointId(2)
    assert plan.sinks == (SinkAction(sink="out", action="commit_again", epochs=(2,)),)


def test_the_decision_of_another_timeline_decides_nothing(layout: TinyLayout):
    layout.save(1)
    layout.save(2, sinks=sinks(SinkState.PENDING, "out"))
    decide(layout, epoch=2, timeline=7)
    assert chosen(layout) == 1


def test_a_decided_checkpoint_that_is_damaged_is_passed_over_and_its_sinks_rolled_back(layout: TinyLayout):
    layout.save(1, sinks=sinks(SinkState.COMMITTED, "out"))
    layout.save(2, sinks=sinks(SinkState.PENDING, "out"))
    decide(layout, epoch=2)
    spoil(layout.blobs, artifact_key(2, "state"))
    plan = go(layout)
    assert plan.chosen == CheckpointId(1)
    assert plan.sinks == (SinkAction(sink="out", action="roll_back", epochs=(2,)),)


def test_several_epochs_that_never_committed_are_all_passed_over(layout: TinyLayout):
    layout.save(1, sinks=sinks(SinkState.COMMITTED, "out"))
    for number in (2, 3, 4):
        layout.save(number, sinks=sinks(SinkState.PENDING, "out"))
    plan = go(layout)
    assert plan.chosen == CheckpointId(1)
    assert plan.sinks == (SinkAction(sink="out", action="roll_back", epochs=(2, 3, 4)),)


# -- timelines ---------------------------------------------------------------------------------------------------


def test_an_abandoned_branch_is_passed_over(layout: TinyLayout):
    for number in (1, 2, 3, 4):
        layout.save(number)
    fork(layout, 2)
    layout.save(5, timeline=2, epoch=3)
    assert chosen(layout) == 5
    layout.blobs.delete([artifact_key(5, "state")])
    plan = go(layout)
    assert plan.chosen == CheckpointId(2)
    assert skipped(plan) == [(5, SkipCode.INVALID), (4, SkipCode.ABANDONED), (3, SkipCode.ABANDONED)]
    assert plan.warnings == ()


def test_what_a_zombie_still_commits_is_passed_over_though_it_is_the_newest(layout: TinyLayout):
    for number in (1, 2):
        layout.save(number)
    fork(layout, 2)
    layout.save(3, timeline=2)
    layout.save(4, timeline=1, epoch=3, sinks=sinks(SinkState.COMMITTED, "out"))
    plan = go(layout)
    assert plan.chosen == CheckpointId(3)
    assert skipped(plan) == [(4, SkipCode.ABANDONED)]
    assert plan.sinks == ()


@pytest.mark.parametrize("strategy", [Strategy.ID, Strategy.PIN])
def test_who_names_a_checkpoint_of_an_abandoned_branch_gets_it_with_a_warning(layout: TinyLayout, strategy: Strategy):
    for number in (1, 2, 3):
        layout.save(number)
    fork(layout, 1)
    layout.save(4, timeline=2, epoch=2, sinks=sinks(SinkState.COMMITTED, "out"))
    add_pin(layout.blobs, Pin(name="old", checkpoint_id=CheckpointId(3), owner="ana", reason="", created=START))
    named = {"checkpoint_id": CheckpointId(3)} if strategy is Strategy.ID else {"pin": "old"}
    plan = go(layout, strategy=strategy, **named)
    assert plan.chosen == CheckpointId(3)
    assert plan.timeline == 1
    assert len(plan.warnings) == 1
    assert plan.warnings[0].startswith("timeline 1 was abandoned; this goes back to it")
    assert plan.sinks == (SinkAction(sink="out", action="roll_back", epochs=(2,)),)


@st.composite
def runs_of_writers(draw: st.DrawFn) -> TinyLayout:
    """Writers that start from any checkpoint before, or afresh, and commit a few each; some state is broken."""
    layout = TinyLayout(MemoryBlobs())
    made: list[int] = []
    for writer in range(1, draw(st.integers(2, 5)) + 1):
        start = draw(st.sampled_from([*made, None])) if made else None
        fork(layout, start)
        number = max(timeline_numbers(layout.blobs))
        epoch = 0 if start is None else layout.load(CheckpointId(start)).epoch
        for _ in range(draw(st.integers(1, 3))):
            made.append(len(made) + 1)
            epoch += 1
            layout.save(made[-1], timeline=number, epoch=epoch)
        assert writer <= number
    # The newest stays: that somebody had opened the last timeline is told by what is committed on it.
    for number in draw(st.sets(st.sampled_from(made[:-1]))):
        layout.blobs.delete([artifact_key(number, "state")])
    return layout


@given(runs_of_writers(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_lost_record_of_a_timeline_brings_nothing_back_and_gives_nothing_up(layout: TinyLayout, data: st.DataObject):
    newest = layout.candidates()[-1]
    wish = data.draw(
        st.sampled_from(
            [
                {},
                {"skip": frozenset({newest})},
                {"fresh_start_ok": True},
                {"strategy": Strategy.BEFORE_EPOCH, "epoch": 2, "fresh_start_ok": True},
                {"strategy": Strategy.BEFORE_TIME, "at": START + timedelta(minutes=3)},
            ]
        )
    )

    def found() -> int | str | None:
        try:
            return chosen(layout, **wish)
        except NoRecoveryPointError:
            return "none"

    whole = found()
    layout.blobs.delete([timeline_key(data.draw(st.sampled_from(timeline_numbers(layout.blobs))))])
    with contextlib.suppress(CorruptManifestError):
        assert found() == whole


def test_ruling_the_newest_out_does_not_hide_that_the_record_of_its_timeline_is_lost(layout: TinyLayout):
    for number in (1, 2, 3):
        layout.save(number)
    fork(layout, 1)
    layout.save(4, timeline=2, epoch=2)
    layout.blobs.delete([timeline_key(2)])
    with pytest.raises(CorruptManifestError, match="the record of timeline 2 is gone"):
        go(layout, skip=frozenset({CheckpointId(4)}))


@pytest.mark.parametrize("lost", [2, 3])
def test_who_names_a_checkpoint_gets_it_with_a_warning_though_a_record_of_a_timeline_is_lost(
    layout: TinyLayout, lost: int
):
    layout.save(1)
    fork(layout, 1)
    layout.save(2, timeline=2)
    fork(layout, 2)
    layout.save(3, timeline=3)
    layout.blobs.delete([timeline_key(lost), artifact_key(3, "state")])
    with pytest.raises(CorruptManifestError, match=f"the record of timeline {lost} is gone"):
        go(layout, strategy=Strategy.BEFORE_EPOCH, epoch=2, fresh_start_ok=True)
    plan = go(layout, strategy=Strategy.ID, checkpoint_id=CheckpointId(1))
    assert plan.chosen == CheckpointId(1)
    assert [f"the record of timeline {lost} is gone" in warning for warning in plan.warnings] == [True]


def test_after_a_fresh_start_older_checkpoints_are_not_chosen(layout: TinyLayout):
    layout.save(1)
    fork(layout, None)
    with pytest.raises(NoRecoveryPointError) as caught:
        go(layout)
    assert skipped(caught.value) == [(1, SkipCode.ABANDONED)]


# -- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "allowed"),
    [
        ({"max_rollback": timedelta(minutes=2)}, True),
        ({"max_rollback": timedelta(seconds=119)}, False),
        ({"max_rollback_epochs": 2}, True),
        ({"max_rollback_epochs": 1}, False),
    ],
)
def test_going_back_too_far_from_the_head_is_an_error_and_never_a_fresh_start(
    layout: TinyLayout, wish: dict[str, Any], *, allowed: bool
):
    for number in range(1, 6):
        layout.save(number)
    for number in (4, 5):
        layout.blobs.delete([artifact_key(number, "state")])
    if allowed:
        assert chosen(layout, **wish) == 3
        return
    with pytest.raises(NoRecoveryPointError, match=r"3, is .* checkpoint 5; allowed are") as caught:
        go(layout, fresh_start_ok=True, **wish)
    assert skipped(caught.value) == [(5, SkipCode.INVALID), (4, SkipCode.INVALID)]


def test_the_head_is_the_newest_of_this_history_so_a_branch_does_not_count_as_rollback(layout: TinyLayout):
    for number in (1, 2, 9):
        layout.save(number)
    fork(layout, 2)
    layout.save(10, timeline=2, epoch=3, created=START + timedelta(minutes=3))
    assert chosen(layout, max_rollback=timedelta(0), max_rollback_epochs=0) == 10


def test_the_age_is_measured_from_the_head_and_not_from_now(layout: TinyLayout):
    layout.save(1)
    assert chosen(layout, max_rollback=timedelta(0)) == 1


@pytest.mark.parametrize(
    ("wish", "number"),
    [
        ({"pipeline_hash": 2, "hash_policy": "require"}, 2),
        ({"pipeline_hash": 3, "hash_policy": "require"}, 3),
        ({"pipeline_hash": 2, "hash_policy": "warn"}, 3),
        ({"pipeline_hash": 2, "hash_policy": "ignore"}, 3),
        ({"vnode_count": 64}, 3),
        ({"vnode_count": 256}, 2),
    ],
)
def test_a_job_that_could_not_use_the_newest_gets_an_older_one(layout: TinyLayout, wish: dict[str, Any], number: int):
    layout.save(1, vnode_count=64)
    layout.save(2, pipeline_hash=2, vnode_count=256)
    layout.save(3, pipeline_hash=3, vnode_count=64)
    plan = go(layout, **wish)
    assert plan.chosen == CheckpointId(number)
    assert skipped(plan) == ([] if number == 3 else [(3, SkipCode.INCOMPATIBLE)])
    warned = wish.get("hash_policy") == "warn"
    assert any("the pipeline has changed" in warning for warning in plan.warnings) is warned


# -- nothing fits ------------------------------------------------------------------------------------------------


def test_an_empty_store_is_an_error_unless_a_fresh_start_is_asked_for(layout: TinyLayout):
    with pytest.raises(NoRecoveryPointError, match="no recovery point: no checkpoint fits") as caught:
        go(layout)
    assert caught.value.skipped == ()
    assert caught.value.hint == "The store holds no checkpoint. A fresh start must be asked for."
    plan = go(layout, fresh_start_ok=True)
    assert (plan.chosen, plan.head, plan.epoch, plan.distance, plan.sinks) == (None, None, None, None, ())
    assert plan.warnings == ("a fresh start: all state is given up",)


def test_if_all_are_damaged_every_one_is_named_and_nothing_starts_afresh_by_itself(layout: TinyLayout):
    for number in (1, 2, 3):
        layout.save(number, sinks=sinks(SinkState.COMMITTED, "out"))
        layout.blobs.delete([artifact_key(number, "state")])
    spoil(layout.blobs, manifest_key(1))
    with pytest.raises(NoRecoveryPointError) as caught:
        go(layout)
    assert skipped(caught.value) == [(3, SkipCode.INVALID), (2, SkipCode.INVALID), (1, SkipCode.UNREADABLE)]
    assert caught.value.hint is not None
    assert "3: checkpoints/000003/state: not in the store" in caught.value.hint
    plan = go(layout, fresh_start_ok=True)
    assert plan.chosen is None
    assert plan.head == CheckpointId(3)
    assert plan.sinks == (SinkAction(sink="out", action="roll_back", epochs=(2, 3)),)


def test_a_long_list_of_the_passed_over_is_cut_in_the_message_and_whole_in_the_error(layout: TinyLayout):
    for number in range(1, 31):
        layout.save(number)
        layout.blobs.delete([artifact_key(number, "state")])
    with pytest.raises(NoRecoveryPointError, match="and 20 more") as caught:
        go(layout)
    assert len(caught.value.skipped) == 30


def test_a_fresh_start_is_not_taken_if_a_checkpoint_fits(layout: TinyLayout):
    layout.save(1)
    assert chosen(layout, fresh_start_ok=True) == 1


# -- the store fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "match"),
    [
        ("list", "timelines"),
        ("read", "timelines"),
        ("list", "checkpoints"),
        ("read", "manifest.json"),
        ("stat", "decisions"),
        ("stream", "state"),
    ],
)
@pytest.mark.parametrize("fresh_start_ok", [True, False])
def test_a_store_that_does_not_answer_proves_nothing_against_a_checkpoint(
    verb: str, match: str, *, fresh_start_ok: bool
):
    blobs = FaultyBlobs(MemoryBlobs())
    layout = tiny(blobs, 1)
    fork(layout, 1)
    layout.save(2, timeline=2, sinks=sinks(SinkState.PENDING, "out"))
    decide(layout, epoch=2, timeline=2)
    blobs.inject(Fault.FAIL, verb=verb, match=match)
    with pytest.raises(StoreUnavailableError):
        go(layout, fresh_start_ok=fresh_start_ok)
    assert chosen(layout) == 2


def test_a_store_that_refuses_proves_nothing_either():
    class Locked(FaultyBlobs):
        def stat(self, key: str) -> Any:
            raise AccessDeniedError("no", subject=key)

    layout = tiny(Locked(MemoryBlobs()), 1, 2)
    with pytest.raises(StoreUnavailableError, match="checkpoint 2 could not be examined"):
        go(layout, depth=Depth.PRESENCE, fresh_start_ok=True)


def test_a_timeline_that_cannot_be_read_stops_the_choice(layout: TinyLayout):
    layout.save(1)
    layout.blobs.create(timeline_key(1), b"{")
    with pytest.raises(ValueError, match="JSON"):
        go(layout, fresh_start_ok=True)


# -- cost --------------------------------------------------------------------------------------------------------


def cost(retained: int, **wish: Any) -> dict[str, int]:
    inner = MemoryBlobs()
    layout = TinyLayout(inner)
    for number in range(1, retained + 1):
        layout.save(number)
    blobs = FaultyBlobs(inner)
    assert chosen(TinyLayout(blobs), **wish) == retained
    return dict(blobs.calls)


def test_a_valid_newest_costs_the_same_however_many_are_retained():
    """One listing of the checkpoints, one of the timelines, one manifest, one artifact."""
    expected = {"list": 2, "read": 1, "stream": 1}
    assert [cost(retained) for retained in (1, 10, 100, 1000)] == [expected] * 4


def test_a_strategy_reads_no_further_than_its_point():
    inner = MemoryBlobs()
    layout = tiny(inner, *range(1, 201))
    blobs = FaultyBlobs(inner)
    plan = go(TinyLayout(blobs), strategy=Strategy.BEFORE_EPOCH, epoch=198)
    assert plan.chosen == CheckpointId(197)
    assert dict(blobs.calls) == {"list": 2, "read": 4, "stream": 1}
    assert layout.read_pointer() == CheckpointId(200)


def test_choosing_changes_nothing():
    blobs = FaultyBlobs(tiny(MemoryBlobs(), 1, 2, 3).blobs)
    go(TinyLayout(blobs))
    assert blobs.mutations == []


# -- for every store ---------------------------------------------------------------------------------------------

FATES = st.sampled_from(["fine", "fine", "corrupt", "gone", "unreadable", "undecided", "decided"])


@settings(max_examples=100, deadline=None)
@given(st.lists(FATES, max_size=8))
def test_the_newest_that_is_whole_and_settled_or_decided_is_chosen_whatever_happened_to_the_others(fates: list[str]):
    layout = TinyLayout(MemoryBlobs())
    for number, fate in enumerate(fates, start=1):
        state = SinkState.PENDING if fate in ("undecided", "decided") else SinkState.COMMITTED
        layout.save(number, sinks=sinks(state, "out"))
        match fate:
            case "corrupt":
                spoil(layout.blobs, artifact_key(number, "state"))
            case "gone":
                layout.blobs.delete([artifact_key(number, "state")])
            case "unreadable":
                spoil(layout.blobs, manifest_key(number))
            case "decided":
                decide(layout, epoch=number)
    fit = [number for number, fate in enumerate(fates, start=1) if fate in ("fine", "decided")]
    plan = go(layout, fresh_start_ok=True)
    assert plan.chosen == (CheckpointId(fit[-1]) if fit else None)
    newer = range(fit[-1] + 1 if fit else 1, len(fates) + 1)
    assert [each.checkpoint_id.value for each in plan.skipped] == list(reversed(newer))
    rolled_back = tuple(number for number in newer if fates[number - 1] != "unreadable")
    expected = [SinkAction(sink="out", action="roll_back", epochs=rolled_back)] if rolled_back else []
    if fit and fates[fit[-1] - 1] == "decided":
        expected.insert(0, SinkAction(sink="out", action="commit_again", epochs=(fit[-1],)))
    assert plan.sinks == tuple(expected)


def test_a_checkpoint_value_survives_the_tiny_format(layout: TinyLayout):
    full = checkpoint(
        7,
        timeline=3,
        parent=CheckpointId(6),
        artifacts=(layout.write_artifact(7, "counts", operator="count", partition=2),),
        inline_bytes=5,
        sources={"orders": GenericPosition(offsets={"a": "1"})},
        sinks={"out": SinkStatus(SinkState.FAILED, 7, "timed out")},
        watermark=-5,
        event_count=10**15,
        pipeline_hash=2**64 - 1,
        vnode_count=256,
        source_names=("orders",),
        sink_names=("out",),
        savepoint=True,
    )
    layout.commit(full)
    assert layout.load(CheckpointId(7)) == full
