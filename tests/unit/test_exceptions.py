"""The tree of errors is the one that is drawn, and errors survive a journey between processes."""

from __future__ import annotations

import builtins
import concurrent.futures
import inspect
import multiprocessing
import pickle
import re

import pytest

from airflow_provider_checkpoint import exceptions
from airflow_provider_checkpoint.exceptions import CheckpointError

_LINE = re.compile(r"^    (?P<bars>[│├└─ ]*)(?P<name>\w+)(?: \.+ .*?(?:\((?P<builtin>\w+Error)\))?)?$")

ERRORS = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, CheckpointError)]


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Of each error in the drawing: its parent, and the builtin it also is."""
    drawing = str(exceptions.__doc__).partition("::\n\n")[2].partition("\n\n")[0]
    found: dict[str, tuple[str | None, str | None]] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        match = _LINE.match(line)
        assert match is not None, f"not understood: {line}"
        depth = len(match["bars"]) // 4
        path[depth:] = [match["name"]]
        found[match["name"]] = (path[depth - 1] if depth else None, match["builtin"])
    return found


def built() -> dict[str, tuple[str | None, str | None]]:
    """The same of each class."""
    outside = (*vars(builtins).values(), concurrent.futures.CancelledError)
    found: dict[str, tuple[str | None, str | None]] = {}
    for kind in ERRORS:
        parents = [base.__name__ for base in kind.__bases__ if issubclass(base, CheckpointError)]
        others = [base.__name__ for base in kind.__bases__ if base in outside and base is not Exception]
        assert len(parents) + len(others) == len(kind.__bases__) - (kind is CheckpointError)
        found[kind.__name__] = (parents[0] if parents else None, others[0] if others else None)
    return found


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert drawn() == built()


def test_every_error_is_in_one_of_the_three_groups_by_what_a_handler_does() -> None:
    groups = {exceptions.TransientError, exceptions.PermanentError, exceptions.AttentionError}
    assert set(CheckpointError.__subclasses__()) == groups
    for kind in set(ERRORS) - groups - {CheckpointError}:
        assert len([group for group in groups if issubclass(kind, group)]) == 1


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("subject", "hint"), [(None, None), ("s3://b/k", None), (None, "look there"), ("s3://b/k", "look there")]
)
def test_an_error_keeps_all_its_parts_when_it_is_pickled(
    kind: type[CheckpointError], subject: str | None, hint: str | None
) -> None:
    error = kind("what happened", subject=subject, hint=hint)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is kind
        assert (copy.message, copy.subject, copy.hint) == ("what happened", subject, hint)
        assert str(copy) == str(error)
        assert copy.args == error.args


@pytest.mark.parametrize(
    ("subject", "hint", "text"),
    [
        (None, None, "what happened"),
        ("s3://b/k", None, "what happened: s3://b/k"),
        (None, "look there", "what happened\nHINT: look there"),
        ("s3://b/k", "look there", "what happened: s3://b/k\nHINT: look there"),
    ],
)
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_reads_the_same_whatever_builtin_it_also_is(
    kind: type[CheckpointError], subject: str | None, hint: str | None, text: str
) -> None:
    assert str(kind("what happened", subject=subject, hint=hint)) == text


def test_an_error_raised_in_another_process_arrives_whole() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        caught = pool.submit(_fail).exception(timeout=60)
    assert isinstance(caught, exceptions.BlobNotFoundError)
    assert (caught.message, caught.subject, caught.hint) == ("gone", "key", "look")


def _fail() -> None:
    raise exceptions.BlobNotFoundError("gone", subject="key", hint="look")
