"""``pin`` and ``unpin``: promise that a checkpoint stays, or take the promise back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.cli import exits
from airflow_provider_checkpoint.cli.opening import who
from airflow_provider_checkpoint.cli.text import moment_text
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.records import read_pins
from airflow_provider_checkpoint.model import Pin

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout


def pin(layout: Layout, arguments: Namespace, console: Console) -> int:
    by = who(arguments)
    wanted = Pin(
        name=arguments.name,
        checkpoint_id=layout.parse_id(arguments.id),
        owner=arguments.owner or by,
        reason=arguments.reason,
        created=console.now,
        expires=_expiry(arguments, console.now),
    )
    Executor(layout, by=by).pin(wanted)
    # A pin of this name may have stood there before; then it is what holds, not what was typed now.
    standing = next((one for one in read_pins(layout.blobs) if one.name == wanted.name), wanted)
    other = [name for name in ("owner", "reason", "expires") if getattr(standing, name) != getattr(wanted, name)]
    if other:
        console.warn(
            f"the pin stood there already and is left as it was ({', '.join(other)}); to change it, unpin"
            f" {standing.name} first"
        )
    if console.json:
        console.document({"pin": standing.model_dump(mode="json")})
    else:
        until = "until it is unpinned" if standing.expires is None else f"until {moment_text(standing.expires)}"
        console.line(f"Checkpoint {standing.checkpoint_id} is pinned as {standing.name!r} {until}.")
    return exits.FINE


def unpin(layout: Layout, arguments: Namespace, console: Console) -> int:
    removed = Executor(layout, by=who(arguments)).unpin(arguments.name)
    if console.json:
        console.document({"pin": removed.model_dump(mode="json")})
    else:
        console.line(f"The pin {removed.name!r} on checkpoint {removed.checkpoint_id} is gone.")
    return exits.FINE


def _expiry(arguments: Namespace, now: datetime) -> datetime | None:
    if arguments.expires is None:
        return None
    expires = arguments.expires if isinstance(arguments.expires, datetime) else now + arguments.expires
    if expires <= now:
        raise ConfigurationError("the pin would expire at once", hint="Give a time to come, or a span such as 30d.")
    return expires
