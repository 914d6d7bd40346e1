"""``seal``: keep the digests of the files that a batch needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.text import counted, moment_text
from airflow_provider_checkpoint.cli.verbs._spark import require_spark
from airflow_provider_checkpoint.exceptions import CheckpointNotFoundError
from airflow_provider_checkpoint.layouts.structured_streaming import seal
from airflow_provider_checkpoint.lifecycle.spans import format_size

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    directory = require_spark(layout, "seal")
    ids = [directory.parse_id(word) for word in arguments.ids] or directory.candidates()[-1:]
    if not ids:
        raise CheckpointNotFoundError("no batch is committed yet", subject=directory.blobs.uri)
    seals = [seal(directory, checkpoint_id, width=arguments.threads) for checkpoint_id in dict.fromkeys(ids)]
    if console.json:
        console.document({"uri": directory.blobs.uri, "seals": [each.model_dump(mode="json") for each in seals]})
        return exits.FINE
    for each in seals:
        size = format_size(sum(file.size for file in each.files))
        files = counted(len(each.files), "file")
        console.line(f"Batch {each.batch}: {files}, {size}, sealed {moment_text(each.sealed)}.")
    return exits.FINE
