"""The same verbs below ``airflow checkpoints``, for stores that an Airflow connection names.

Read by every ``airflow`` command, so it imports no more than the catalogue.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

from airflow_provider_checkpoint.cli.arguments import Argument, argument
from airflow_provider_checkpoint.cli.catalogue import VERBS, Verb

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_checkpoint.layouts import Layout

#: How to reach the store is the connection's business.
_INSTEAD = frozenset({"uri", "--option", "--option-file", "--vnode-count"})
#: How the examples of the catalogue name a store.
_ADDRESS = re.compile(r"s3://lake/\w+|/data/checkpoints --pipeline orders")
_CONNECTION = argument(
    "--conn-id",
    metavar="ID",
    default="checkpoint_default",
    help="a connection of type checkpoint_store (default: checkpoint_default)",
)


def get_checkpoint_cli_commands() -> list[GroupCommand]:
    return [
        GroupCommand(
            name="checkpoints",
            help="List, prove, prune and restore the checkpoints of pipelines",
            subcommands=[_command(verb) for verb in VERBS],
        )
    ]


def _command(verb: Verb) -> ActionCommand:
    arguments = [each for each in verb.all_arguments if _INSTEAD.isdisjoint(each.flags)]
    return ActionCommand(
        name=verb.name,
        help=verb.summary,
        description=verb.paragraph,
        epilog=_ADDRESS.sub("--pipeline orders", verb.epilog("airflow checkpoints")),
        func=partial(_run, verb),
        args=[_arg(each) for each in (*arguments, _CONNECTION)],
    )


def _arg(one: Argument) -> Arg:
    return Arg(one.flags, **one.settings)  # type: ignore[no-untyped-call] # Airflow's has no types


def _run(verb: Verb, arguments: Namespace) -> None:
    from airflow_provider_checkpoint.cli.main import answered, leave, run_verb

    leave(answered(lambda: run_verb(verb, arguments, _open)))


def _open(arguments: Namespace) -> Layout:
    from airflow.sdk.exceptions import AirflowNotFoundException

    from airflow_provider_checkpoint.exceptions import ConfigurationError
    from airflow_provider_checkpoint.hooks.checkpoint import CheckpointHook
    from airflow_provider_checkpoint.layouts import require_its_own

    # As Airflow's own commands do: without, only a task may ask the database for a connection.
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    layout = None if arguments.layout == "auto" else arguments.layout
    hook = CheckpointHook(arguments.conn_id, layout=layout)
    try:
        # Some verbs ask for it.
        arguments.vnode_count = hook.settings.vnode_count
        arguments.store_options = hook.options
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"there is no connection {arguments.conn_id!r}", hint="See: airflow connections list."
        ) from None
    opened = hook.open(arguments.pipeline)
    if (layout or hook.settings.layout) != "auto":
        require_its_own(opened)
    return opened
