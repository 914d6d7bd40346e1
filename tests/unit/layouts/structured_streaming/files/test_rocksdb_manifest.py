"""Which tables a RocksDB snapshot means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_checkpoint.layouts.structured_streaming.files import FileKind, inspect_file, read_origins
from airflow_provider_checkpoint.layouts.structured_streaming.files._rocksdb_manifest import session_mark, sessions_of
from tests.unit.layouts.structured_streaming.making import Scene

KINDS = ("purged_rocks", "rocks", "rocks_changelog", "rocks_join_v2", "rocks_v2", "tws")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_that_spark_wrote_comes_from_where_its_snapshot_says(kind):
    scene = Scene.of(kind)
    compared = 0
    for key in scene.keys:
        if key.endswith(".zip"):
            for name, origin in read_origins(scene.directory, key).items():
                table = f"{key.rpartition('/')[0]}/SSTs/{name}"
                if table in scene.keys:
                    assert inspect_file(scene.directory, table, kind=FileKind.SST).origin == origin
                    compared += 1
    assert compared


@given(st.binary(max_size=200))
def test_any_bytes_tell_something_or_nothing(data):
    assert isinstance(sessions_of(data), dict)


@pytest.mark.parametrize("session", ["", "SHORT", "A" * 25, "0123456789ABÄ", "0123456789A-B"])
def test_what_is_no_name_of_a_session_has_no_mark(session):
    assert session_mark(session) is None
