"""``report``: the history of a pipeline as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.text import counted
from airflow_provider_checkpoint.cli.verbs.prune import policy_from
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.retention import RULES
from airflow_provider_checkpoint.lifecycle.spans import format_size
from airflow_provider_checkpoint.reports.file import report
from airflow_provider_checkpoint.reports.gather import USUAL_POLICY, gather
from airflow_provider_checkpoint.reports.views import Windows

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def run(layout: Layout, arguments: Namespace, console: Console) -> int:
    asked = any(getattr(arguments, name) is not None for name in RULES)
    policy = policy_from(arguments) if asked else USUAL_POLICY
    windows = Windows(arguments.freshness_warn, arguments.freshness_fail)
    if windows.fail < windows.warn:
        raise ConfigurationError("--freshness-fail comes before --freshness-warn")
    facts = gather(layout, now=console.now, policy=policy)
    title = arguments.pipeline or layout.blobs.uri.rstrip("/").rpartition("/")[2] or layout.blobs.uri
    written = report(facts, title=title, windows=windows).encode()
    try:
        with open(arguments.output, "wb") as file:
            file.write(written)
    except OSError as error:
        raise ConfigurationError(f"cannot write the report ({error.strerror})", subject=arguments.output) from None
    if console.json:
        console.document({"output": arguments.output, "bytes": len(written), "checkpoints": len(facts.store.known)})
    else:
        number = counted(len(facts.store.known), "checkpoint")
        console.line(f"{arguments.output}: {number}, {format_size(len(written))}.")
    return exits.FINE
