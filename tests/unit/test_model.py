"""The vocabulary."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from airflow_provider_checkpoint.model import (
    Artifact,
    Checkpoint,
    CheckpointId,
    Depth,
    Issue,
    KafkaPartition,
    KafkaPosition,
    Pin,
    Severity,
    SinkState,
    SinkStatus,
    SourcePosition,
)

#: On a busy machine any example may take its time.
patient = settings(deadline=None)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
IDS = st.builds(CheckpointId, st.integers() | st.text(max_size=4))


class Holder(BaseModel):
    checkpoint_id: CheckpointId


# -- ids ---------------------------------------------------------------------------------------------------------


def test_numbers_sort_as_numbers_and_text_as_text():
    assert sorted(map(CheckpointId, [10, 9, 100])) == [CheckpointId(9), CheckpointId(10), CheckpointId(100)]
    assert CheckpointId("10") < CheckpointId("9")
    assert CheckpointId(2) < CheckpointId("1")


@patient
@given(one=IDS, two=IDS, three=IDS)
def test_ids_are_totally_ordered(one, two, three):
    assert (one < two) + (one == two) + (one > two) == 1
    if one < two and two < three:
        assert one < three


def test_an_id_does_not_compare_with_its_bare_value():
    assert CheckpointId(1) != 1
    with pytest.raises(TypeError):
        _ = CheckpointId(1) < 2


@pytest.mark.parametrize(("value", "json"), [(7, '{"checkpoint_id":7}'), ("7", '{"checkpoint_id":"7"}')])
def test_in_json_an_id_is_its_bare_value_and_keeps_its_type(value, json):
    holder = Holder(checkpoint_id=CheckpointId(value))
    assert holder.model_dump_json() == json
    assert Holder.model_validate_json(json) == holder
    assert Holder.model_validate({"checkpoint_id": value}) == holder


@pytest.mark.parametrize("value", ["true", "1.0", "null", "[]", "{}"])
def test_nothing_else_is_an_id(value):
    with pytest.raises(ValidationError):
        Holder.model_validate_json(f'{{"checkpoint_id":{value}}}')


# -- checkpoints -------------------------------------------------------------------------------------------------


def sample() -> Checkpoint:
    return Checkpoint(
        id=CheckpointId(7),
        epoch=3,
        created=NOON,
        artifacts=(Artifact("a", size=10), Artifact("b", size=None), Artifact("c", size=5)),
        inline_bytes=2,
        sources={"k": KafkaPosition(partitions=(KafkaPartition(topic="t", partition=0, offset=1),))},
        sinks={"s": SinkStatus(SinkState.FAILED, 3, "why")},
    )


def test_the_size_of_a_checkpoint_counts_what_a_restore_reads():
    assert sample().size == 17


@pytest.mark.parametrize("checkpoint", [sample(), Checkpoint(CheckpointId("x"), 1, NOON)])
def test_a_checkpoint_crosses_process_borders_whole(checkpoint):
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint
    assert copy.deepcopy(checkpoint) == checkpoint
    assert dataclasses.replace(checkpoint, epoch=9).sources == checkpoint.sources


def test_a_checkpoint_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample().epoch = 4  # type: ignore[misc]  # that is what is tested


def test_positions_are_told_apart_by_their_type():
    adapter: TypeAdapter[SourcePosition] = TypeAdapter(SourcePosition)
    position = sample().sources["k"]
    assert adapter.validate_json(position.model_dump_json()) == position
    with pytest.raises(ValidationError):
        adapter.validate_json('{"type": "file", "path": "p", "byte_offset": "1"}')
    with pytest.raises(ValidationError):
        adapter.validate_json('{"type": "carrier pigeon"}')


# -- records and findings ----------------------------------------------------------------------------------------


def test_a_pin_holds_until_it_expires():
    pin = Pin(name="p", checkpoint_id=CheckpointId(1), owner="o", reason="r", created=NOON)
    assert pin.holds(NOON + timedelta(days=10_000))
    expiring = pin.model_copy(update={"expires": NOON})
    assert expiring.holds(NOON - timedelta(seconds=1))
    assert not expiring.holds(NOON)
    assert Pin.model_validate_json(expiring.model_dump_json()) == expiring


def test_each_depth_includes_the_ones_before_it():
    depths = [Depth.STRUCTURE, Depth.PRESENCE, Depth.CONTENT, Depth.RESTORE]
    for index, depth in enumerate(depths):
        assert [depth.includes(other) for other in depths] == [position <= index for position in range(4)]


def test_issues_say_how_bad_they_are():
    assert Issue.error("c", "m") == Issue(severity=Severity.ERROR, code="c", message="m")
    assert Issue.warning("c", "m").severity is Severity.WARNING
