"""Templated arguments arrive as text; what they mean, with errors that name the argument."""

from __future__ import annotations

import ast
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.lifecycle.spans import parse_size, parse_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.model import Depth

Value = TypeVar("Value")
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})
#: What a template yields where there is nothing.
_NOTHING = (None, "", "None")


def flag(name: str, value: object, *, unsaid: bool = False) -> bool:
    """A yes or no; ``unsaid`` where a template yields nothing, which is the default of the argument."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if value in _NOTHING:
        return unsaid
    if word in _NO:
        return False
    if word in _YES:
        return True
    raise ConfigurationError(f"{name} is neither true nor false", subject=repr(value))


def span(name: str, value: timedelta | str | None) -> timedelta | None:
    return value if isinstance(value, timedelta) else _parsed(name, value, parse_span)


def size(name: str, value: int | str | None) -> int | None:
    return value if isinstance(value, int) else _parsed(name, value, parse_size)


def number(name: str, value: float | str | None) -> int | None:
    return _parsed(name, value, lambda text: int(text.strip()))


def moment(name: str, value: datetime | str | None) -> datetime | None:
    """A time with a zone."""
    hint = "Write 2026-11-15T14:05Z."
    found = (
        value
        if isinstance(value, datetime)
        else _parsed(name, value, lambda text: datetime.fromisoformat(text.strip()), hint=hint)
    )
    if found is not None and found.tzinfo is None:
        raise ConfigurationError(f"{name}: a time without a zone", subject=str(found), hint=hint)
    return found


def depth(value: object) -> Depth:
    """How far a proof goes."""
    from airflow_provider_checkpoint.model import Depth

    try:
        return Depth(str(value).strip())
    except ValueError:
        raise ConfigurationError(f"unknown depth {value!r}", hint=f"There are: {', '.join(Depth)}.") from None


def text(value: object) -> str | None:
    """Some text, or nothing."""
    return None if value in _NOTHING else str(value)


def words(name: str, value: object) -> list[str]:
    """A list, one as text, or text with commas."""
    if value in _NOTHING:
        return []
    if isinstance(value, str):
        value = _written(name, value) if value.lstrip().startswith("[") else value.split(",")
    if not isinstance(value, (list, tuple)):
        return [str(value)]
    return [str(part).strip() for part in value if str(part).strip()]


def items(name: str, value: object) -> list[Any]:
    """A list as it is, or one as text."""
    found = _written(name, value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    if not isinstance(found, (list, tuple)):
        raise ConfigurationError(f"{name} is not a list", subject=repr(value)[:100])
    return list(found)


def mapping(name: str, value: object) -> dict[str, Any]:
    """A mapping, or one as text."""
    found = _written(name, value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} is not a mapping", subject=repr(value)[:100])
    return found


def _written(name: str, value: str) -> Any:
    """What JSON says; or Python's own way to write a list or mapping, which is what a template makes of an XCom."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        try:
            return ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise ConfigurationError(f"{name} is not JSON ({error})", subject=value[:100]) from None


def _parsed(name: str, value: object, parse: Callable[[str], Value], *, hint: str | None = None) -> Value | None:
    if value in _NOTHING:
        return None
    try:
        return parse(str(value))
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}", hint=hint) from None
