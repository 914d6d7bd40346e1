"""The requests that a verb costs, as docs/operations.md tells them, counted at a proxy in front of a real server."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_checkpoint.blobs import _fence, open_blobs
from airflow_provider_checkpoint.cli.main import main
from airflow_provider_checkpoint.layouts.partitioned import (
    CheckpointManifestV2,
    PartitionData,
    PartitionedLayout,
    operators_of,
)
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import SinkState, SinkStatus
from tests.integration.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.proxy import Proxy
    from tests.servers import S3Server

KINDS = ("LIST", "GET", "HEAD", "PUT", "DELETE")
#: What a verb wants besides, which costs nothing.
MORE = {"pin": ["ID", "--name", "here", "--reason", "to count"], "report": ["--output", "report.html"]}


def told() -> dict[str, tuple[str, ...]]:
    """The table of the page: for each command a formula for each kind of request."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("## Requests")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    return {command: tuple(cell.strip() for cell in cells.split("|")) for command, cells in rows}


@pytest.mark.parametrize("command", told())
@pytest.mark.parametrize(("checkpoints", "artifacts"), [(4, 2), (6, 3)])
def test_a_verb_costs_what_the_page_says(
    command: str,
    checkpoints: int,
    artifacts: int,
    seaweedfs: S3Server,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = seaweedfs.fresh()
    newest = make(PartitionedLayout(open_blobs(uri, seaweedfs.options())), checkpoints, artifacts)
    monkeypatch.chdir(tmp_path)
    for name, value in {"ACCESS_KEY_ID": "admin", "SECRET_ACCESS_KEY": "admin-secret", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    # As in a process of its own, which does not know the store yet.
    monkeypatch.setattr(_fence, "_passed", set())
    verb, *options = command.split()
    more = [newest if word == "ID" else word for word in MORE.get(verb, [])]
    assert main([verb, uri, *more, *options, "--option", f"endpoint_url={proxy.endpoint}"]) == 0
    counted = Counter(kind(*request) for request in proxy.requests)
    formulas = told()[command]
    expected = [eval(formula, {"N": checkpoints, "A": artifacts}) for formula in formulas]
    found = [counted[each] for each in KINDS]
    assert all(here <= there for here, there in zip(found, expected, strict=True)), f"{found}, the page says {expected}"
    assert sum(expected) <= 1.2 * sum(found) + 2, f"far fewer than the page says: {found}, not {expected}"


def make(layout: PartitionedLayout, checkpoints: int, artifacts: int) -> str:
    now = datetime.now(UTC)
    open_timeline(layout.blobs, start=None, has_checkpoints=False, writer="writer", now=now - timedelta(days=1))
    newest = layout.next_id()
    for epoch in range(1, checkpoints + 1):
        parts = [PartitionData("totals", part, b"state" * epoch) for part in range(artifacts)]
        made = now - timedelta(hours=checkpoints - epoch + 1)
        layout.save_manifest(
            CheckpointManifestV2(
                checkpoint_id=newest,
                epoch=epoch,
                timestamp_ms=int(made.timestamp() * 1000),
                operators=operators_of(layout.save_partitions(newest, parts)),
                timeline=1,
                sink_epochs={"table": epoch},
                sink_commit_statuses={"table": SinkStatus(SinkState.COMMITTED)},
            )
        )
        layout.update_latest(newest)
        if epoch < checkpoints:
            newest = layout.next_id()
    return str(newest)


def kind(method: str, path: str) -> str:
    if method == "GET" and "list-type=" in path:
        return "LIST"
    # Many objects go by one POST.
    return "DELETE" if method == "POST" and "delete" in path else method
