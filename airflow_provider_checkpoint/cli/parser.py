"""From the catalogue to a command line."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_checkpoint import __version__
from airflow_provider_checkpoint.cli.catalogue import VERBS, Verb
from airflow_provider_checkpoint.cli.exits import answering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

PROGRAM = "checkpoints"

_DESCRIPTION = (
    "Looks after the checkpoints of streaming pipelines: proves them, keeps the right ones, and finds the way back"
    " after a failure."
)

_SESSION = f"""\
A typical session:
  # what is there, and can it be trusted?
  {PROGRAM} list s3://lake/orders
  {PROGRAM} validate s3://lake/orders --depth content
  # where would a restart begin, and why?
  {PROGRAM} recover s3://lake/orders --max-rollback 2h
  # what would go? then: move it to the trash
  {PROGRAM} prune s3://lake/orders --keep-last 5 --keep-daily 14
  {PROGRAM} prune s3://lake/orders --keep-last 5 --keep-daily 14 --yes
  # changed my mind
  {PROGRAM} undelete s3://lake/orders 41
  # remove old trash for good
  {PROGRAM} sweep s3://lake/orders --undo-window 7d --yes

Nothing is removed without --yes. '{PROGRAM} VERB --help' explains a verb.
"""

_EXITS = (
    "Exit codes: 0 fine; 1 something was found: an invalid checkpoint, nothing to recover, not all could be done, a"
    " person must confirm; 2 wrong usage; 3 the store did not answer or refused; 70 a bug in this program."
)


class UsageError(Exception):
    """What was typed makes no sense."""

    def __init__(self, usage: str, message: str) -> None:
        super().__init__(message)
        self.usage = usage
        self.message = message


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves as much room for the names of verbs as they take: argparse forgets that they are moved in."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - there is no other name for it
            longest = max((len(name) for name in action.choices), default=0)
            self._action_max_length = max(self._action_max_length, longest + 2 * self._indent_increment)


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving, so that a usage error can be told as JSON, too."""

    def __init__(self, **settings: Any) -> None:
        # An abbreviation that works today could mean something else when an option is added.
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.format_usage(), message)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse would hide that stdout is closed or full.
        with answering():
            (file or sys.stderr).write(message)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What was typed. ``verb`` names the verb. Raises UsageError."""
    parser, verbs = _build()
    if any(_is_no_text(word) for word in argv):
        parser.error("an argument is not text in UTF-8")
    arguments, rest = parser.parse_known_args(argv)
    if rest:
        # argparse gives up on a list of ids at the first option, although more of them follow.
        if not hasattr(arguments, "ids") or any(word.startswith("-") for word in rest):
            verbs[arguments.verb].error(f"unrecognized arguments: {' '.join(rest)}")
        arguments.ids.extend(rest)
    return arguments


def _is_no_text(word: str) -> bool:
    """Whether Python had to hide bytes in half characters, which no name on a store can hold."""
    return any("\ud800" <= char <= "\udfff" for char in word)


def top_help() -> str:
    return _build()[0].format_help()


def _build() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(prog=PROGRAM, description=_wrapped(_DESCRIPTION), epilog=f"{_SESSION}\n{_wrapped(_EXITS)}")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    choices = parser.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    return parser, {verb.name: _add(choices, verb) for verb in VERBS}


def _add(choices: argparse._SubParsersAction[_Parser], verb: Verb) -> _Parser:
    parser = choices.add_parser(
        verb.name,
        help=verb.summary,
        description=f"{verb.summary}\n\n{_wrapped(verb.paragraph)}",
        epilog=verb.epilog(PROGRAM),
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for argument in verb.all_arguments:
        place: argparse._ActionsContainer = parser
        if argument.group:
            if argument.group not in groups:
                groups[argument.group] = parser.add_argument_group(argument.group)
            place = groups[argument.group]
        place.add_argument(*argument.flags, **argument.settings)
    return parser


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, 79)
