"""Spark's logs: every form that Spark writes is understood, everything else is a typed error."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import CorruptManifestError
from airflow_provider_checkpoint.layouts.structured_streaming import _text
from airflow_provider_checkpoint.layouts.structured_streaming._logs import (
    Commit,
    OffsetLine,
    parse_commit,
    parse_offsets,
    parse_query_id,
)
from airflow_provider_checkpoint.layouts.structured_streaming._operators import has_one_partition, parse_operator
from airflow_provider_checkpoint.layouts.structured_streaming._positions import log_offset, position_of
from airflow_provider_checkpoint.layouts.structured_streaming._source_log import (
    read_set,
    read_sink_log,
    sink_files,
    source_files,
)
from airflow_provider_checkpoint.layouts.structured_streaming._writer import writer_of
from airflow_provider_checkpoint.model import GenericPosition, KafkaPartition, KafkaPosition
from tests.unit.layouts.structured_streaming.making import KINDS, LAST, files_of

METADATA = '{"batchWatermarkMs":7,"batchTimestampMs":1794807445220,"conf":{"spark.sql.shuffle.partitions":"2"}}'
UUID = "c2a4ec23-e658-4144-915b-798c38fccb92"


def offsets(text, **values):
    return parse_offsets(text.encode(), subject="offsets/1", **values)


def test_offsets_of_version_1_are_numbered():
    read = offsets(f'v1\n{METADATA}\n{{"logOffset":3}}\n-\n17')
    assert read.version == 1
    assert read.sources == (OffsetLine("0", '{"logOffset":3}'), OffsetLine("1", None), OffsetLine("2", "17"))
    assert (read.timestamp_ms, read.watermark_ms, read.partitions) == (1794807445220, 7, 2)


def test_offsets_of_version_2_are_named():
    read = offsets(f'v2\n{METADATA}\nalpha:{{"a":"b:c"}}\n1:-')
    assert read.sources == (OffsetLine("alpha", '{"a":"b:c"}'), OffsetLine("1", None))


def test_a_newline_at_the_end_and_windows_line_ends_do_no_harm():
    assert offsets(f"v1\r\n{METADATA}\r\n17\r\n").sources == (OffsetLine("0", "17"),)


def test_the_empty_metadata_of_spark_2_is_none():
    read = offsets("v1\n\n17")
    assert (read.timestamp_ms, read.conf, read.partitions, read.rocksdb) == (0, {}, None, None)


@pytest.mark.parametrize("count", ["", "0", "-1", "two", "99999999", "1e3", "٢"])
def test_a_number_of_partitions_that_is_none_is_not_believed(count):
    metadata = json.dumps({"conf": {"spark.sql.shuffle.partitions": count}}, ensure_ascii=False)
    assert offsets(f"v1\n{metadata}\n17").partitions is None


DAMAGED_OFFSETS = {
    "empty": "",
    "only a newline": "\n",
    "only a version": "v1",
    "no position": f"v1\n{METADATA}",
    "empty position": f"v1\n{METADATA}\n",
    "version 0": f"v0\n{METADATA}\n17",
    "version 9": f"v9\n{METADATA}\n17",
    "version without end": f"v{'9' * 5000}\n{METADATA}\n17",
    "no version": f"{METADATA}\n17",
    "metadata cut": f"v1\n{METADATA[:40]}\n17",
    "metadata no object": "v1\n[]\n17",
    "metadata of another type": 'v1\n{"batchWatermarkMs":"7"}\n17',
    "key twice": 'v1\n{"batchWatermarkMs":7,"batchWatermarkMs":8}\n17',
    "conf no texts": 'v1\n{"conf":{"a":1}}\n17',
    "position cut": f'v1\n{METADATA}\n{{"logOffset":1',
    "position without name": f"v2\n{METADATA}\n17",
    "position named twice": f"v2\n{METADATA}\na:1\na:2",
    "time out of range": 'v1\n{"batchTimestampMs":9223372036854775808}\n17',
    "half a character": 'v1\n{"conf":{"a":"\\ud800"}}\n17',
    "half a character in a position": f'v1\n{METADATA}\n{{"a":"\\ud800"}}',
    "nested deeply": f"v1\n{METADATA}\n{'[' * 100_000}",
}


@pytest.mark.parametrize("case", DAMAGED_OFFSETS)
def test_damaged_offsets_are_a_typed_error(case):
    with pytest.raises(CorruptManifestError) as caught:
        offsets(DAMAGED_OFFSETS[case])
    assert caught.value.subject == "offsets/1"
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_of_a_real_entry_is_an_error_or_a_shorter_position(kind):
    whole = files_of(kind)[f"offsets/{LAST[kind]}"]
    read = parse_offsets(whole, subject="x")
    for length in range(len(whole)):
        try:
            cut = parse_offsets(whole[:length], subject="x")
        except CorruptManifestError:
            continue
        assert cut.conf == read.conf
        assert len(cut.sources) <= len(read.sources)


COMMITS = {
    "v1": ('v1\n{"nextBatchWatermarkMs":5}', Commit(1, 5)),
    "v1 alone": ("v1", Commit(1, 0)),
    "v2": (
        f'v2\n{{"nextBatchWatermarkMs":5,"stateUniqueIds":{{"0":[["{UUID}"],["{UUID}"]]}}}}',
        Commit(2, 5, {0: ((UUID,), (UUID,))}),
    ),
    "v2 without ids": ('v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":null}', Commit(2, 5)),
    "v3": ('v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{"s":{"sinkName":"s"}}}', Commit(3, 5)),
}


@pytest.mark.parametrize("case", COMMITS)
def test_commits_of_every_version_are_read(case):
    text, expected = COMMITS[case]
    assert parse_commit(text.encode(), subject="commits/1") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v4\n{}",
        "v1\n{",
        'v1\n{"nextBatchWatermarkMs":1.5}',
        'v2\n{"stateUniqueIds":{"0":[["../../etc"]]}}',
        'v2\n{"stateUniqueIds":{"x":[]}}',
        'v2\n{"stateUniqueIds":[]}',
    ],
)
def test_damaged_commits_are_a_typed_error(text):
    with pytest.raises(CorruptManifestError, match="commits/1"):
        parse_commit(text.encode(), subject="commits/1")


PARSERS = (parse_offsets, parse_commit, parse_query_id, parse_operator, has_one_partition)
#: Bytes that look like a log for long enough to be interesting.
likely = st.lists(
    st.sampled_from(
        [b"v1", b"v2", b"\n", b"{", b"}", b"-", b'"id":', b'"x"', b"[", b"]", b":", b"7", b"\x00\x02v2", b"\xff", b","]
    )
    | st.binary(max_size=4)
).map(b"".join)


@given(st.binary(max_size=200) | likely, st.sampled_from(PARSERS))
def test_any_bytes_are_a_value_or_a_typed_error(data, parse):
    with contextlib.suppress(CorruptManifestError):
        parse(data, subject="x")


# -- logs of files -----------------------------------------------------------------------------------------------


def entries(text):
    blobs = MemoryBlobs()
    blobs.create("log", text if isinstance(text, bytes) else text.encode())
    return list(source_files(blobs, "log"))


def test_the_log_of_a_source_names_files():
    (file,) = entries('v1\n{"path":"file:///data/landing/00.json","timestamp":5,"batchId":0}')
    assert (file.path, file.timestamp, file.batchId) == ("file:///data/landing/00.json", 5, 0)
    assert entries("v1\n") == entries("v1") == []


def test_the_log_of_a_sink_names_files():
    blobs = MemoryBlobs()
    line = '{"path":"a","size":3,"isDir":false,"modificationTime":1,"blockReplication":1,"blockSize":2,"action":"%s"}'
    blobs.create("log", f"v1\n{line % 'add'}\n{line % 'delete'}".encode())
    assert [file.action for file in sink_files(blobs, "log")] == ["add", "delete"]


SINK = {
    "plain entries": ({"0": ["a"], "1": ["b"]}, None, ["a", "b"]),
    "from the compaction": ({"0": ["x"], "2.compact": ["a", "b"], "3": ["c"]}, None, ["a", "b", "c"]),
    "up to a batch": ({"0": ["a"], "1": ["b"], "2.compact": ["a", "b", "c"]}, 1, ["a", "b"]),
    "a file that was removed": ({"0": ["a", "b"], "1": ["-a"]}, None, ["b"]),
    "nothing": ({}, None, []),
    "a hole": ({"0": ["a"], "2": ["b"]}, None, None),
    "the compaction is gone": ({"3": ["c"]}, None, None),
}


@pytest.mark.parametrize("case", SINK)
def test_the_log_of_a_sink_says_which_files_readers_see(case):
    entries, last, expected = SINK[case]
    blobs = MemoryBlobs()
    for name, paths in entries.items():
        lines = [{"path": p.strip("-"), "size": 1, "action": "delete" if p[0] == "-" else "add"} for p in paths]
        blobs.create(name, "\n".join(["v1", *map(json.dumps, lines)]).encode())
    if expected is None:
        with pytest.raises(CorruptManifestError, match="are not there"):
            list(read_sink_log(blobs, last))
    else:
        assert [file.path for file in read_sink_log(blobs, last)] == expected


@pytest.mark.parametrize(
    "text", ["", "v2\n", "\n", 'v1\n{"path":"a"', "v1\n\n", 'v1\n{"path":""}', b"v1\n\xff", b"\xff\xfe"]
)
def test_a_damaged_log_of_files_is_a_typed_error(text):
    with pytest.raises(CorruptManifestError, match="log"):
        entries(text)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(_text, "MAX_LINE_BYTES", 100)
    with pytest.raises(CorruptManifestError, match="longer than 100 bytes"):
        entries("v1\n" + "x" * 101)


READ_SETS = {
    # numbers there, last wanted -> read, missing
    "no compaction yet": ("0 1 2 3", 2, "0 1 2", ()),
    "from the last compaction": ("7 8 9.compact 10 11", 11, "9.compact 10 11", ()),
    "a compaction ahead does not count": ("0 1 2.compact", 1, "0 1", ()),
    "the last is the compaction": ("8 9.compact", 9, "9.compact", ()),
    "an entry is missing": ("9.compact 11", 11, "9.compact 11", (10,)),
    "the compaction is missing": ("7 8 10", 10, "7 8 10", (0, 1, 2, 3, 4, 5, 6, 9)),
    "nothing is there": ("", 1, "", (0, 1)),
    "nothing was read yet": ("", -1, "", ()),
}


@pytest.mark.parametrize("case", READ_SETS)
def test_a_log_is_read_from_its_last_compaction(case):
    there, last, read, missing = READ_SETS[case]
    found = read_set({int(name.partition(".")[0]): name for name in there.split()}, last)
    assert " ".join(found.keys) == read
    assert found.missing == missing


def test_a_position_without_end_does_not_run_without_end():
    assert len(read_set({}, 2**62).missing) == 20


# -- positions ---------------------------------------------------------------------------------------------------

POSITIONS = {
    '{"logOffset":3}': GenericPosition(connector_type="file_source", offsets={"logOffset": "3"}),
    '{"b":{"1":4,"0":7},"a":{"10":1}}': KafkaPosition(
        partitions=(
            KafkaPartition(topic="a", partition=10, offset=1),
            KafkaPartition(topic="b", partition=0, offset=7),
            KafkaPartition(topic="b", partition=1, offset=4),
        )
    ),
    '{"offset":30,"timestamp":3000}': GenericPosition(offsets={"offset": "30", "timestamp": "3000"}),
    '{"a":{"x":1}}': GenericPosition(offsets={"a": '{"x": 1}'}),
    '{"topic":{}}': GenericPosition(offsets={"topic": "{}"}),
    "17": GenericPosition(offsets={"offset": "17"}),
    "bare words": GenericPosition(offsets={"offset": "bare words"}),
    None: GenericPosition(),
}


@pytest.mark.parametrize("text", POSITIONS)
def test_positions_are_typed_where_their_kind_is_known(text):
    assert position_of(OffsetLine("0", text)) == POSITIONS[text]


@pytest.mark.parametrize("value", ["-2", "true", '"3"', "9223372036854775808", "null"])
def test_a_log_offset_that_is_none_is_not_believed(value):
    assert log_offset(OffsetLine("0", f'{{"logOffset":{value}}}')) is None


@given(st.text())
def test_any_text_is_a_position(text):
    assert position_of(OffsetLine("0", text)).type in ("generic", "kafka")


# -- who wrote it ------------------------------------------------------------------------------------------------

STREAMING = "spark.sql.streaming."


@pytest.mark.parametrize(
    ("settings", "text", "repairs"),
    [
        ([], "unknown", True),
        ([f"{STREAMING}stateStore.compression.codec"], "3.x", False),
        ([f"{STREAMING}stateStore.encodingFormat"], "4.0 or 4.1", True),
        ([f"{STREAMING}queryEvolution.enableSourceEvolution", f"{STREAMING}stateStore.encodingFormat"], "4.2", True),
        (["spark.sql.dropDuplicates.deterministicKeyOrder.enabled"], "4.3 or later", True),
    ],
)
def test_the_settings_tell_who_wrote_it(settings, text, repairs):
    writer = writer_of(dict.fromkeys(settings, "x"))
    assert (writer.text, writer.repairs_snapshots) == (text, repairs)


@pytest.mark.parametrize("kind", KINDS)
def test_spark_4_3_is_recognised_by_what_it_wrote(kind):
    read = parse_offsets(files_of(kind)[f"offsets/{LAST[kind]}"], subject="x")
    assert writer_of(read.conf).text == "4.3 or later"
