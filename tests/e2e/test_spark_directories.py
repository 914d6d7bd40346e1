"""A plain Structured Streaming query in a running Airflow: sealed, damaged, gone back from, and started on the copy."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.layouts import open_store
from airflow_provider_checkpoint.layouts.structured_streaming import read_sink_log
from tests.e2e.stage import clicks_stream

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("airflow")]

RECOVERY = "checkpoint_recovery"


def published(output: Path) -> Counter[tuple[int, str]]:
    """What readers of the file sink see: the files that its log names."""
    counts: Counter[tuple[int, str]] = Counter()
    for file in read_sink_log(open_blobs(str(output / "_spark_metadata"))):
        for row in pq.read_table(output / file.path.rpartition("/")[2], partitioning=None).to_pylist():
            counts[row["minute"], row["page"]] += row["count"]
    return counts


def let_it_rest(directory: Path) -> None:
    """A directory that was written to a moment ago counts as in use; make it an hour old."""
    past = time.time() - 3600
    for path in directory.rglob("*"):
        os.utime(path, (past, past))


def test_a_damaged_state_file_is_passed_over_and_the_query_goes_on_from_a_copy(airflow, stage):
    airflow.unpause("clicks_stream")
    landing, output = stage.folder / "clicks", stage.folder / "pages"
    directory = Path(stage.store) / "clicks"
    conf = {"input": str(landing), "output": str(output), "files_per_batch": 1}

    clicks_stream.generate(landing, files=5)
    run = airflow.trigger("clicks_stream", {**conf, "checkpoint_location": str(directory)})
    assert airflow.wait_for_run("clicks_stream", run) == "success", airflow.tasks("clicks_stream", run)
    layout = open_store(str(directory))
    newest = layout.candidates()[-1]
    assert airflow.xcom("clicks_stream", run, "seal")["sealed"] == [str(newest)]

    # The newest state of one partition loses a bit.
    damaged = max(directory.glob("state/0/*/*.delta"), key=lambda path: int(path.stem))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    let_it_rest(directory)
    clicks_stream.generate(landing, files=3, first=5)

    recovery = airflow.trigger(
        RECOVERY,
        {
            "pipeline": "clicks",
            "approval": False,
            "restart_dag": "clicks_stream",
            "restart_conf": conf,
            "copy_to": "clicks-2",
            "file_sink": str(output),
        },
    )
    assert airflow.wait_for_run(RECOVERY, recovery) == "success", airflow.tasks(RECOVERY, recovery)
    restored = airflow.xcom(RECOVERY, recovery, "restore")
    assert int(restored["checkpoint_id"]) < int(newest.value)
    assert restored["checkpoint_location"] == f"file:{directory.parent / 'clicks-2'}"
    assert airflow.wait_for_run("clicks_stream", f"recovery__{recovery}") == "success"

    # Windows are put out once the watermark has passed them: all but those of the last two files.
    found = published(output)
    whole = {minute for minute, _ in found}
    assert len(whole) >= 5
    expected = clicks_stream.truth(landing, upto=8)
    assert found == Counter({key: count for key, count in expected.items() if key[0] in whole})
