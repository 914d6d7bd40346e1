"""From arguments to an open store."""

from __future__ import annotations

import getpass
import json
import socket
from typing import TYPE_CHECKING, Any, get_args

from pydantic import SecretStr

from airflow_provider_checkpoint.blobs import StoreOptions
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts import Layout, open_store, require_its_own

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

_FILE_LIMIT = 1024 * 1024

#: Options that a command line, which every user of the machine can read, must not hold.
SECRETS = frozenset(
    name
    for name, field in StoreOptions.model_fields.items()
    if SecretStr in (field.annotation, *get_args(field.annotation))
)
#: Options whose values have parts of their own; ``extra`` may also hold secrets under names we do not know.
_ONLY_IN_FILES = frozenset({"extra"})
_ONLY_IN_PYTHON = frozenset({"credentials"})


def open_layout(arguments: Namespace) -> Layout:
    """The store that the arguments name. Nothing is written."""
    if not arguments.uri.strip():
        raise ConfigurationError("the address is empty", hint="Write a folder, or scheme://bucket/prefix.")
    settings = {} if arguments.vnode_count is None else {"vnode_count": arguments.vnode_count}
    options = store_options(arguments.options, arguments.option_file)
    # For verbs that name a second place, which is reached in the same way.
    arguments.store_options = options
    layout = open_store(
        arguments.uri, layout=arguments.layout, pipeline=arguments.pipeline, options=options, **settings
    )
    if arguments.layout != "auto":
        require_its_own(layout)
    return layout


def store_options(settings: Iterable[tuple[str, str]], file: str | None) -> StoreOptions:
    """Options from the file, and over them those typed."""
    typed = {}
    for name, value in settings:
        if name in SECRETS | _ONLY_IN_FILES:
            raise ConfigurationError(
                f"the option {name!r} does not belong on a command line",
                hint=f'Put {{"{name}": ...}} into a JSON file and give it as --option-file, or set it in the'
                " environment as the cloud's own tools read it (AWS_SECRET_ACCESS_KEY and the like).",
            )
        typed[name] = value
    values = {**({} if file is None else _read(file)), **typed}
    for name in _ONLY_IN_PYTHON & values.keys():
        raise ConfigurationError(f"the option {name!r} is a function and can only be given in Python")
    return StoreOptions.of(values)


def _read(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            data = opened.read(_FILE_LIMIT)
        values = json.loads(data)
    except OSError as error:
        raise ConfigurationError(f"cannot read the option file ({error.strerror})", subject=file) from None
    except (ValueError, RecursionError):
        # What is wrong is not repeated: the file holds secrets.
        raise ConfigurationError(
            "the option file is not JSON", subject=file, hint='It looks like {"region": "eu-central-1"}.'
        ) from None
    if not isinstance(values, dict):
        raise ConfigurationError(
            "the option file holds no JSON object", subject=file, hint='It looks like {"region": "eu-central-1"}.'
        )
    return values


def who(arguments: Namespace) -> str:
    """Who does this, for the audit trail."""
    if arguments.by:
        return str(arguments.by)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
