"""Sources: the same start gives the same input, and input that is gone is never passed over in silence."""

from __future__ import annotations

import pytest

from airflow_provider_checkpoint.exceptions import ConfigurationError, InputGoneError
from airflow_provider_checkpoint.model import FilePosition, KafkaPartition, KafkaPosition
from airflow_provider_checkpoint.spark.sources import FileSource, KafkaSource, kafka_json


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
    with pytest.raises(InputGoneError, match="2 are there"):
        source(tmp_path).next_slice(position)


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


def test_kafka_offsets_are_written_as_the_connector_takes_them():
    assert kafka_json({("b", 1): 7, ("a", 0): 3, ("b", 0): 2}) == '{"a": {"0": 3}, "b": {"0": 2, "1": 7}}'


def test_the_description_of_a_kafka_source_holds_no_address():
    assert kafka({}).describe() == {"kind": "kafka", "name": "orders", "subscribe": "orders"}
