"""``synthesize``: a new directory for a changed query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.verbs._spark import require_spark
from airflow_provider_checkpoint.layouts.structured_streaming import synthesize

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    directory = require_spark(layout, "synthesize")
    checkpoint = directory.load(directory.parse_id(arguments.id))
    target = open_blobs(arguments.to, arguments.store_options)
    query_id = synthesize(directory, checkpoint.id, target, keep_watermark=arguments.keep_watermark)
    if console.json:
        console.document({"uri": target.uri, "batch": checkpoint.id.value, "query_id": query_id})
    else:
        console.line(f"{target.uri} starts where batch {checkpoint.id} stood. It holds no state.", "bold")
        console.line("Give it to the changed query as its checkpointLocation.")
    return exits.FINE
