"""Sources: the same start gives the same input, and input that is gone is never passed over in silence."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError, InputGoneError
from airflow_provider_checkpoint.model import FilePosition, KafkaPartition, KafkaPosition
from airflow_provider_checkpoint.spark.operators import StoreAddress
from airflow_provider_checkpoint.spark.pipeline import CheckpointedPipeline, Routed, RunOptions
from airflow_provider_checkpoint.spark.sources import FILE, FileSource, KafkaSource, Slice, kafka_json


def land(folder, *names):
    for name in names:
        (folder / name).write_text("{}")


def source(folder, **more) -> FileSource:
    return FileSource("orders", str(folder), schema="x int", suffix=".json", **more)


def test_files_are_read_in_order_of_their_names_a_few_at_a_time(tmp_path):
    land(tmp_path, "c.json", "a.json", "b.json", "_hidden.json", ".part.json", "notes.txt")
    first = source(tmp_path, max_files=2).next_slice(None)
    assert first.parts == ("a.json", "b.json")
    second = source(tmp_path, max_files=2).next_slice(first.end)
    assert second.parts == ("c.json",)
    assert second.end == FilePosition(path="c.json", byte_offset=3)
    assert source(tmp_path).next_slice(second.end) is None


def test_an_empty_or_missing_folder_has_nothing_new(tmp_path):
    assert source(tmp_path).next_slice(None) is None
    assert source(tmp_path / "missing").next_slice(None) is None


def test_input_that_was_read_and_is_gone_is_an_error_because_a_rollback_could_not_read_it_again(tmp_path):
    land(tmp_path, "a.json", "b.json", "c.json")
    position = source(tmp_path, max_files=2).next_slice(None).end
    (tmp_path / "a.json").unlink()
    with pytest.raises(InputGoneError, match=r"had read 2 files up to 'b.json', 1 are there"):
        source(tmp_path).next_slice(position)


def test_a_file_that_turns_up_before_what_was_read_is_noticed(tmp_path):
    land(tmp_path, "b.json")
    position = source(tmp_path).next_slice(None).end
    land(tmp_path, "a.json")
    with pytest.raises(InputGoneError, match=r"2 are there[\s\S]*names after the last one"):
        source(tmp_path).next_slice(position)


def written_at(path, moment) -> None:
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def test_files_that_were_changed_since_are_those_before_the_start_that_are_younger(tmp_path):
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    land(tmp_path, "a.json", "b.json", "c.json", "d.json")
    for name, minutes in (("a.json", 7), ("b.json", -1), ("c.json", 5), ("d.json", 9)):
        written_at(tmp_path / name, noon + timedelta(minutes=minutes))
    files = source(tmp_path, max_files=3)
    first = files.next_slice(None)
    assert files.changed_since(noon) == [], "nothing was read before"
    # What is yet to be read, d, may be as young as it likes.
    files.next_slice(first.end)
    assert files.changed_since(noon) == ["a.json", "c.json"]
    assert files.changed_since(noon + timedelta(minutes=6)) == ["a.json"]
    assert files.changed_since(noon + timedelta(minutes=7)) == []


def test_a_file_that_is_replaced_after_it_was_read_is_told_once_with_its_name(spark, tmp_path, caplog):
    landing = tmp_path / "landing"
    landing.mkdir()
    land(landing, "a.json", "b.json", "c.json")
    pipeline = CheckpointedPipeline("x", source=source(landing, max_files=1), route=lambda *_: Routed())

    def told(**more) -> list[str]:
        caplog.clear()
        pipeline.run(spark, RunOptions(StoreAddress(str(tmp_path / "store")), **more))
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    caplog.set_level(logging.INFO)
    second = pipeline.run(spark, RunOptions(StoreAddress(str(tmp_path / "store")), max_epochs=2))
    assert told() == []
    for name in ("a.json", "c.json"):
        written_at(landing / name, second.created + timedelta(milliseconds=1))
    # What comes after the point it goes back to is read anew, whatever it holds now.
    (line,) = told(recover_from=str(second.id))
    assert f"written again after checkpoint {second.id} had read it: 'a.json'. If" in line


def test_what_lies_in_a_hidden_folder_has_not_landed_yet(tmp_path):
    for folder in ("_temporary/0", ".staging", "day=1"):
        (tmp_path / folder).mkdir(parents=True)
        land(tmp_path / folder, "a.json")
    assert source(tmp_path).next_slice(None).parts == ("day=1/a.json",)


@pytest.mark.parametrize("number", [0, -1])
def test_an_epoch_that_reads_nothing_is_refused(tmp_path, number):
    with pytest.raises(ConfigurationError, match="at least one file"):
        source(tmp_path, max_files=number)
    with pytest.raises(ConfigurationError, match="at least one record"):
        kafka({}, max_offsets=number)


ODD = ["a b.json", "a+b.json", "a%41.json", "a1.json", "a[1].json", "a{1,2}.json", "a*.json", "a#1.json", "é=1.json"]


def test_files_are_themselves_whatever_they_are_called_and_each_row_tells_its_own(spark, tmp_path):
    root = tmp_path / "in [x] +"
    names = sorted([*ODD, "day=1/a b.json", "day=2/a b.json", "empty.json"])
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("" if name == "empty.json" else f'{{"x": {number}}}\n')
    files = source(root)
    part = files.next_slice(None)
    assert part.parts == tuple(names)
    rows = files.read(spark, part)
    assert rows.columns == ["x", FILE]
    found = sorted((row["x"], row[FILE]) for row in rows.collect())
    assert found == [(number, name) for number, name in enumerate(names) if name != "empty.json"]
    # One at a time, too: a pattern would have matched its neighbours.
    only = Slice(None, part.end, ("a*.json",))
    assert [row[FILE] for row in files.read(spark, only).collect()] == ["a*.json"]


def test_a_position_of_another_kind_of_source_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot start from a position of type kafka"):
        source(tmp_path).next_slice(KafkaPosition())


def kafka(ends, **more) -> KafkaSource:
    return KafkaSource(
        "orders", options={"subscribe": "orders", "kafka.bootstrap.servers": "x"}, end_offsets=lambda: ends, **more
    )


def test_kafka_slices_end_at_explicit_offsets_and_are_limited_per_partition():
    part = kafka({("orders", 0): 10, ("orders", 1): 3}, max_offsets=5).next_slice(None)
    assert part.end == KafkaPosition(
        partitions=(
            KafkaPartition(topic="orders", partition=0, offset=5),
            KafkaPartition(topic="orders", partition=1, offset=3),
        )
    )
    assert kafka({("orders", 0): 5, ("orders", 1): 3}).next_slice(part.end) is None


def test_a_kafka_partition_that_ends_before_what_was_read_is_an_error_and_no_way_back():
    start = kafka({("orders", 0): 10, ("orders", 1): 3}).next_slice(None).end
    with pytest.raises(InputGoneError, match="up to offset 10, the partition ends at 4"):
        kafka({("orders", 0): 4, ("orders", 1): 8}).next_slice(start)


def test_kafka_offsets_are_written_as_the_connector_takes_them():
    assert kafka_json({("b", 1): 7, ("a", 0): 3, ("b", 0): 2}) == '{"a": {"0": 3}, "b": {"0": 2, "1": 7}}'


def test_the_description_of_a_kafka_source_holds_no_address():
    assert kafka({}).describe() == {"kind": "kafka", "name": "orders", "subscribe": "orders"}
