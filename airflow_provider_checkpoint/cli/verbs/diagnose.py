"""``diagnose``: why a query does not start, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.verbs._spark import require_spark
from airflow_provider_checkpoint.layouts.structured_streaming import diagnose, render
from airflow_provider_checkpoint.model import Depth

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    directory = require_spark(layout, "diagnose")
    sink = None if arguments.file_sink is None else open_blobs(arguments.file_sink, arguments.store_options)
    depth = Depth(arguments.depth or "content")
    diagnosis = diagnose(directory, depth=depth, width=arguments.threads, file_sink=sink)
    if console.json:
        console.document(diagnosis.document())
    else:
        for line in render(diagnosis).split("\n"):
            console.line(line)
    return exits.FINE if diagnosis.healthy else exits.FINDINGS
